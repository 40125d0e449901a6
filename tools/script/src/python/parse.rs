//! Statements of Python from logical lines. Their expressions are parsed in `expression`.

use super::expression::{Expr, Target, Tokens};
use super::lex::{Line, Token, lines};
use crate::Mismatch;
use crate::limits::NESTING_MAX;

#[derive(Debug)]
pub(super) struct Statement {
    pub line: u32,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Assert(Expr, Option<Expr>),
    /// `a = 1`, `a, b = c = 1, 2`.
    Assign(Vec<Target>, Expr),
    /// `a += 1`
    Change {
        name: String,
        operator: &'static str,
        value: Expr,
    },
    /// Conditions in order with their blocks; `else` has no condition.
    If(Vec<(Option<Expr>, Vec<Statement>)>),
    For {
        target: Target,
        over: Expr,
        block: Vec<Statement>,
    },
    Expr(Expr),
    Pass,
    /// `raise Exception("..")`: the exception's name and its arguments.
    Raise(String, Vec<Expr>),
}

/// The statements of code that starts in line `first` of the script.
pub(super) fn program(first: u32, code: &str) -> Result<Vec<Statement>, Mismatch> {
    let lines = lines(first, code)?;
    let mut blocks = Blocks {
        lines: &lines,
        at: 0,
        depth: 0,
    };
    let mut statements = Vec::new();
    while blocks.at < lines.len() {
        // Python wants the first line without indentation, but code in scripts is often indented.
        blocks.block(lines[blocks.at].indent, &mut statements)?;
    }
    Ok(statements)
}

struct Blocks<'a> {
    lines: &'a [Line],
    at: usize,
    depth: usize,
}

impl Blocks<'_> {
    /// Statements with this indentation, and their nested blocks.
    fn block(&mut self, indent: usize, out: &mut Vec<Statement>) -> Result<(), Mismatch> {
        while let Some(line) = self.lines.get(self.at) {
            if line.indent < indent {
                break;
            }
            if line.indent > indent && self.depth > 0 {
                return Err(Mismatch::new(
                    line.number,
                    "code is indented more than its block",
                ));
            }
            match line.tokens.first() {
                Some(Token::Name(name)) if name == "if" => out.push(self.branch(indent)?),
                Some(Token::Name(name)) if name == "for" => out.push(self.each(indent)?),
                _ => {
                    self.at += 1;
                    simple(&mut Tokens::new(line), out)?;
                }
            }
        }
        Ok(())
    }

    fn branch(&mut self, indent: usize) -> Result<Statement, Mismatch> {
        let first = self.lines[self.at].number;
        let mut arms = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            let mut tokens = Tokens::new(line);
            let condition = match tokens.name() {
                Some("if") if arms.is_empty() => Some(tokens.expr()?),
                Some("elif") if !arms.is_empty() && line.indent == indent => Some(tokens.expr()?),
                Some("else") if !arms.is_empty() && line.indent == indent => None,
                _ => break,
            };
            let block = self.body(indent, line, &mut tokens)?;
            let is_last = condition.is_none();
            arms.push((condition, block));
            if is_last {
                break;
            }
        }
        Ok(Statement {
            line: first,
            what: What::If(arms),
        })
    }

    fn each(&mut self, indent: usize) -> Result<Statement, Mismatch> {
        let line = &self.lines[self.at];
        let mut tokens = Tokens::new(line);
        tokens.name();
        let (target, over) = tokens.target_in()?;
        let block = self.body(indent, line, &mut tokens)?;
        Ok(Statement {
            line: line.number,
            what: What::For {
                target,
                over,
                block,
            },
        })
    }

    /// The statements behind the colon that comes next, on its line or below it.
    fn body(
        &mut self,
        indent: usize,
        line: &Line,
        tokens: &mut Tokens<'_>,
    ) -> Result<Vec<Statement>, Mismatch> {
        tokens.expect(":")?;
        self.at += 1;
        let mut block = Vec::new();
        if tokens.is_empty() {
            self.deeper(indent, line, &mut block)?;
        } else {
            simple(tokens, &mut block)?;
        }
        Ok(block)
    }

    fn deeper(
        &mut self,
        indent: usize,
        head: &Line,
        out: &mut Vec<Statement>,
    ) -> Result<(), Mismatch> {
        match self.lines.get(self.at) {
            Some(line) if line.indent > indent && self.depth < NESTING_MAX => {
                self.depth += 1;
                let read = self.block(line.indent, out);
                self.depth -= 1;
                read
            }
            _ => Err(Mismatch::new(
                head.number,
                "code has a block with nothing in it",
            )),
        }
    }
}

/// Simple statements separated by semicolons.
fn simple(tokens: &mut Tokens<'_>, out: &mut Vec<Statement>) -> Result<(), Mismatch> {
    while !tokens.is_empty() {
        let what = statement(tokens)?;
        out.push(Statement {
            line: tokens.line,
            what,
        });
        if tokens.sign(&[";"]).is_none() && !tokens.is_empty() {
            return Err(tokens.fault("a line's end expected"));
        }
    }
    Ok(())
}

fn statement(tokens: &mut Tokens<'_>) -> Result<What, Mismatch> {
    if tokens.keyword("assert") {
        let condition = tokens.expr()?;
        let message = match tokens.sign(&[","]) {
            Some(_) => Some(tokens.expr()?),
            None => None,
        };
        return Ok(What::Assert(condition, message));
    }
    if tokens.keyword("pass") {
        return Ok(What::Pass);
    }
    if tokens.keyword("raise") {
        return match tokens.expr()? {
            Expr::Call(name, arguments, _) => Ok(What::Raise(name, arguments)),
            Expr::Name(name) => Ok(What::Raise(name, Vec::new())),
            _ => Err(tokens.fault("an exception expected")),
        };
    }
    if tokens.keyword("import") || tokens.keyword("from") {
        tokens.skip_statement();
        return Ok(What::Pass);
    }
    let first = tokens.tuple()?;
    if let (Expr::Name(name), Some(sign)) = (&first, tokens.sign(&CHANGES)) {
        return Ok(What::Change {
            name: name.clone(),
            operator: &sign[..sign.len() - 1],
            value: tokens.tuple()?,
        });
    }
    let mut targets = Vec::new();
    let mut value = first;
    while tokens.sign(&["="]).is_some() {
        let Some(target) = Target::of(&value) else {
            return Err(tokens.fault("a name expected before '='"));
        };
        targets.push(target);
        value = tokens.tuple()?;
    }
    Ok(match targets.is_empty() {
        true => What::Expr(value),
        false => What::Assign(targets, value),
    })
}

/// Operators of assignments like `a += 1`.
const CHANGES: [&str; 12] = [
    "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "//=", "<<=", ">>=", "**=",
];
