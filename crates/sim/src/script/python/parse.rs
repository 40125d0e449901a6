//! Python's lines to statements and expressions, in its order of precedence.

use super::lex::{Line, Token, lines};
use crate::limits::NESTING_MAX;
use crate::script::Mismatch;

#[derive(Debug)]
pub(super) struct Statement {
    pub line: u32,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Assert(Expr, Option<Expr>),
    /// `a = 1`, `a += 1`.
    Assign {
        name: String,
        operator: Option<&'static str>,
        value: Expr,
    },
    /// Conditions in order with their blocks; `else` has none.
    If(Vec<(Option<Expr>, Vec<Statement>)>),
    Expr(Expr),
    Pass,
}

#[derive(Debug)]
pub(super) enum Expr {
    Int(i128),
    Float(f64),
    Text(String),
    Name(String),
    Tuple(Vec<Expr>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    /// `a < b <= c`
    Compare(Box<Expr>, Vec<(&'static str, Expr)>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    /// `then if condition else otherwise`
    If {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Call(String, Vec<Expr>),
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
        // Python wants the first line without indentation; scripts are written by people who indent.
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
    /// Lines of this indentation and what is nested in them.
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
            if line.tokens.first() == Some(&Token::Name("if".to_owned())) {
                out.push(self.branch(indent)?);
            } else {
                self.at += 1;
                Tokens::new(line).simple(out)?;
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
            tokens.expect(":")?;
            self.at += 1;
            let mut block = Vec::new();
            if tokens.is_empty() {
                self.deeper(indent, line, &mut block)?;
            } else {
                tokens.simple(&mut block)?;
            }
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

/// Precedence of binary operators, loosest first.
const LEVELS: [&[&str]; 6] = [
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "//", "%"],
];

struct Tokens<'a> {
    line: u32,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Tokens<'a> {
    fn new(line: &'a Line) -> Tokens<'a> {
        Tokens {
            line: line.number,
            tokens: &line.tokens,
            at: 0,
            depth: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    /// Takes a name.
    fn name(&mut self) -> Option<&'a str> {
        match self.peek() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Some(name)
            }
            _ => None,
        }
    }

    /// Takes this name.
    fn keyword(&mut self, keyword: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Name(name)) if name == keyword);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes one of these signs.
    fn sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Some(Token::Sign(sign)) if signs.contains(sign) => {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Mismatch> {
        match self.sign(&[sign]) {
            Some(_) => Ok(()),
            None => Err(self.fault(&format!("'{sign}' expected"))),
        }
    }

    fn fault(&self, cause: &str) -> Mismatch {
        let seen = match self.peek() {
            Some(Token::Name(name)) => format!("'{name}'"),
            Some(Token::Sign(sign)) => format!("'{sign}'"),
            Some(Token::Int(value)) => value.to_string(),
            Some(Token::Float(value)) => value.to_string(),
            Some(Token::Text(text)) => format!("{text:?}"),
            None => "the line's end".to_owned(),
        };
        Mismatch::new(self.line, format!("code: {cause}, not {seen}"))
    }

    /// Simple statements with semicolons between them.
    fn simple(&mut self, out: &mut Vec<Statement>) -> Result<(), Mismatch> {
        while !self.is_empty() {
            let what = self.statement()?;
            out.push(Statement {
                line: self.line,
                what,
            });
            if self.sign(&[";"]).is_none() && !self.is_empty() {
                return Err(self.fault("a line's end expected"));
            }
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<What, Mismatch> {
        if self.keyword("assert") {
            let condition = self.expr()?;
            let message = match self.sign(&[","]) {
                Some(_) => Some(self.expr()?),
                None => None,
            };
            return Ok(What::Assert(condition, message));
        }
        if self.keyword("pass") {
            return Ok(What::Pass);
        }
        if self.keyword("import") || self.keyword("from") {
            self.at = self.tokens.len();
            return Ok(What::Pass);
        }
        if let [Token::Name(name), Token::Sign(sign), ..] = &self.tokens[self.at..] {
            let operator = match *sign {
                "=" => Some(None),
                "+=" | "-=" | "*=" | "/=" | "%=" | "|=" | "&=" | "^=" | "//=" | "<<=" | ">>="
                | "**=" => Some(Some(&sign[..sign.len() - 1])),
                _ => None,
            };
            if let Some(operator) = operator {
                self.at += 2;
                let value = self.tuple()?;
                return Ok(What::Assign {
                    name: name.clone(),
                    operator,
                    value,
                });
            }
        }
        Ok(What::Expr(self.tuple()?))
    }

    /// An expression, or several with commas.
    fn tuple(&mut self) -> Result<Expr, Mismatch> {
        let first = self.expr()?;
        if self.sign(&[","]).is_none() {
            return Ok(first);
        }
        let mut all = vec![first];
        while !self.is_empty() && !matches!(self.peek(), Some(Token::Sign(")" | "]" | ";"))) {
            all.push(self.expr()?);
            if self.sign(&[","]).is_none() {
                break;
            }
        }
        Ok(Expr::Tuple(all))
    }

    fn expr(&mut self) -> Result<Expr, Mismatch> {
        if self.depth >= NESTING_MAX {
            return Err(Mismatch::new(self.line, "code is nested too deep"));
        }
        self.depth += 1;
        let then = self.or()?;
        let read = if self.keyword("if") {
            let condition = Box::new(self.or()?);
            if !self.keyword("else") {
                return Err(self.fault("'else' expected"));
            }
            Expr::If {
                condition,
                then: Box::new(then),
                otherwise: Box::new(self.expr()?),
            }
        } else {
            then
        };
        self.depth -= 1;
        Ok(read)
    }

    fn or(&mut self) -> Result<Expr, Mismatch> {
        let mut left = self.and()?;
        while self.keyword("or") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, Mismatch> {
        let mut left = self.not()?;
        while self.keyword("and") {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, Mismatch> {
        let mut count = 0;
        while self.keyword("not") {
            count += 1;
        }
        let mut read = self.comparison()?;
        for _ in 0..count {
            read = Expr::Unary("not", Box::new(read));
        }
        Ok(read)
    }

    fn comparison(&mut self) -> Result<Expr, Mismatch> {
        let first = self.binary(0)?;
        let mut rest = Vec::new();
        loop {
            let operator = if let Some(sign) = self.sign(&["<", ">", "<=", ">=", "==", "!="]) {
                sign
            } else if self.keyword("in") {
                "in"
            } else if self.keyword("is") {
                if self.keyword("not") { "!=" } else { "==" }
            } else {
                break;
            };
            rest.push((operator, self.binary(0)?));
        }
        Ok(match rest.is_empty() {
            true => first,
            false => Expr::Compare(Box::new(first), rest),
        })
    }

    fn binary(&mut self, level: usize) -> Result<Expr, Mismatch> {
        let Some(signs) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(sign) = self.sign(signs) {
            left = Expr::Binary(sign, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Mismatch> {
        let mut signs = Vec::new();
        while let Some(sign) = self.sign(&["-", "+", "~"]) {
            signs.push(sign);
        }
        let mut read = self.atom()?;
        if self.sign(&["**"]).is_some() {
            read = Expr::Binary("**", Box::new(read), Box::new(self.unary_once()?));
        }
        for sign in signs.into_iter().rev() {
            read = Expr::Unary(sign, Box::new(read));
        }
        Ok(read)
    }

    /// An exponent.
    fn unary_once(&mut self) -> Result<Expr, Mismatch> {
        match self.sign(&["-"]) {
            Some(sign) => Ok(Expr::Unary(sign, Box::new(self.atom()?))),
            None => self.atom(),
        }
    }

    fn atom(&mut self) -> Result<Expr, Mismatch> {
        let Some(token) = self.peek() else {
            return Err(self.fault("an expression expected"));
        };
        self.at += 1;
        match token {
            Token::Int(value) => Ok(Expr::Int(*value)),
            Token::Float(value) => Ok(Expr::Float(*value)),
            Token::Text(text) => {
                let mut text = text.clone();
                while let Some(Token::Text(more)) = self.peek() {
                    text += more;
                    self.at += 1;
                }
                Ok(Expr::Text(text))
            }
            Token::Name(name) if self.sign(&["("]).is_some() => {
                let arguments = self.arguments(")")?;
                Ok(Expr::Call(name.clone(), arguments))
            }
            Token::Name(name) => Ok(Expr::Name(name.clone())),
            Token::Sign("(") => {
                if self.sign(&[")"]).is_some() {
                    return Ok(Expr::Tuple(Vec::new()));
                }
                let read = self.tuple()?;
                self.expect(")")?;
                Ok(read)
            }
            Token::Sign("[") => Ok(Expr::Tuple(self.arguments("]")?)),
            Token::Sign(_) => {
                self.at -= 1;
                Err(self.fault("an expression expected"))
            }
        }
    }

    fn arguments(&mut self, close: &'static str) -> Result<Vec<Expr>, Mismatch> {
        let mut arguments = Vec::new();
        while self.sign(&[close]).is_none() {
            arguments.push(self.expr()?);
            if self.sign(&[","]).is_none() {
                self.expect(close)?;
                break;
            }
        }
        Ok(arguments)
    }
}
