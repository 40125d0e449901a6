//! Expressions of Python, in its order of precedence.
//!
//! The parser of statements asks for expressions. So does an f-string, whose text contains some.

use super::lex::{Line, Token, lines};
use crate::Mismatch;
use crate::limits::{NESTING_MAX, OPERATORS_MAX};

/// Positional arguments, and `name=value` arguments.
type Arguments = (Vec<Expr>, Vec<(String, Expr)>);

#[derive(Debug)]
pub(super) enum Expr {
    Int(i128),
    Float(f64),
    Text(String),
    /// An f-string.
    Pieces(Vec<Piece>),
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
    /// A function, or `module.function`; keyword arguments come third.
    Call(String, Vec<Expr>, Vec<(String, Expr)>),
    /// `"..".format(a)`
    Method(Box<Expr>, String, Vec<Expr>),
    Index(Box<Expr>, Box<Expr>),
    /// `a[1:2:3]`
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    /// A comprehension: `element for target in over if condition`, with one loop or several.
    Each(Box<Expr>, Vec<Loop>),
}

/// One `for` of a comprehension.
#[derive(Debug)]
pub(super) struct Loop {
    pub target: Target,
    pub over: Expr,
    pub conditions: Vec<Expr>,
}

/// The target of an assignment.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Name(String),
    Tuple(Vec<Target>),
}

/// A part of an f-string.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    /// An expression, whether it is written as by `repr`, and its format.
    Value(Expr, bool, String),
}

impl Target {
    /// The target that `expr` names: a name, or names separated by commas.
    pub(super) fn of(expr: &Expr) -> Option<Target> {
        match expr {
            Expr::Name(name) => Some(Target::Name(name.clone())),
            Expr::Tuple(parts) => {
                let parts: Option<Vec<Target>> = parts.iter().map(Target::of).collect();
                parts.map(Target::Tuple)
            }
            _ => None,
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

/// The tokens of one line, and the position in them.
pub(super) struct Tokens<'a> {
    pub line: u32,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    /// Operators, indices and methods read so far, up to a limit.
    operators: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(line: &'a Line) -> Tokens<'a> {
        Tokens {
            line: line.number,
            tokens: &line.tokens,
            at: 0,
            depth: 0,
            operators: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    /// Takes the next token if it is a name.
    pub(super) fn name(&mut self) -> Option<&'a str> {
        match self.peek() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Some(name)
            }
            _ => None,
        }
    }

    /// Takes the next token if it is the name `keyword`.
    pub(super) fn keyword(&mut self, keyword: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Name(name)) if name == keyword);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes the next token if it is one of `signs`.
    pub(super) fn sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Some(Token::Sign(sign)) if signs.contains(sign) => {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    pub(super) fn expect(&mut self, sign: &'static str) -> Result<(), Mismatch> {
        match self.sign(&[sign]) {
            Some(_) => Ok(()),
            None => Err(self.fault(&format!("'{sign}' expected"))),
        }
    }

    pub(super) fn fault(&self, cause: &str) -> Mismatch {
        let seen = match self.peek() {
            Some(Token::Name(name)) => format!("'{name}'"),
            Some(Token::Sign(sign)) => format!("'{sign}'"),
            Some(Token::Int(value)) => value.to_string(),
            Some(Token::Float(value)) => value.to_string(),
            Some(Token::Text(text) | Token::Pieces(text)) => format!("{text:?}"),
            None => "the line's end".to_owned(),
        };
        Mismatch::new(self.line, format!("code: {cause}, not {seen}"))
    }

    /// Counts a token that deepens the syntax tree.
    fn operator(&mut self) -> Result<(), Mismatch> {
        self.operators += 1;
        match self.operators > OPERATORS_MAX {
            true => Err(Mismatch::new(
                self.line,
                "a line of code has too many operators",
            )),
            false => Ok(()),
        }
    }

    /// An expression, or several with commas.
    pub(super) fn tuple(&mut self) -> Result<Expr, Mismatch> {
        let first = self.expr()?;
        if self.sign(&[","]).is_none() {
            return Ok(first);
        }
        let mut all = vec![first];
        while !self.is_empty() && !matches!(self.peek(), Some(Token::Sign(")" | "]" | ";" | "="))) {
            all.push(self.expr()?);
            if self.sign(&[","]).is_none() {
                break;
            }
        }
        Ok(Expr::Tuple(all))
    }

    pub(super) fn expr(&mut self) -> Result<Expr, Mismatch> {
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
            self.operator()?;
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, Mismatch> {
        let mut left = self.not()?;
        while self.keyword("and") {
            self.operator()?;
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, Mismatch> {
        let mut count = 0;
        while self.keyword("not") {
            self.operator()?;
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
            } else if self.is_not_in() {
                self.at += 2;
                "not in"
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

    fn is_not_in(&self) -> bool {
        let is = |ahead: usize, word: &str| matches!(self.tokens.get(self.at + ahead), Some(Token::Name(name)) if name == word);
        is(0, "not") && is(1, "in")
    }

    fn binary(&mut self, level: usize) -> Result<Expr, Mismatch> {
        let Some(signs) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(sign) = self.sign(signs) {
            self.operator()?;
            left = Expr::Binary(sign, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Mismatch> {
        let mut signs = Vec::new();
        while let Some(sign) = self.sign(&["-", "+", "~"]) {
            self.operator()?;
            signs.push(sign);
        }
        let mut read = self.trailed()?;
        if self.sign(&["**"]).is_some() {
            read = Expr::Binary("**", Box::new(read), Box::new(self.unary_once()?));
        }
        for sign in signs.into_iter().rev() {
            read = Expr::Unary(sign, Box::new(read));
        }
        Ok(read)
    }

    /// An exponent, which may have a minus sign.
    fn unary_once(&mut self) -> Result<Expr, Mismatch> {
        match self.sign(&["-"]) {
            Some(sign) => Ok(Expr::Unary(sign, Box::new(self.trailed()?))),
            None => self.trailed(),
        }
    }

    /// An atom with indices and methods behind it.
    fn trailed(&mut self) -> Result<Expr, Mismatch> {
        let mut read = self.atom()?;
        loop {
            if self.sign(&["["]).is_some() {
                self.operator()?;
                read = self.index(read)?;
            } else if self.sign(&["."]).is_some() {
                self.operator()?;
                let Some(name) = self.name() else {
                    return Err(self.fault("a name expected"));
                };
                let module = match &read {
                    Expr::Name(module) if MODULES.contains(&module.as_str()) => {
                        Some(module.clone())
                    }
                    _ => None,
                };
                if let (Some(module), false) = (&module, self.is_called()) {
                    read = Expr::Name(format!("{module}.{name}"));
                    continue;
                }
                self.expect("(")?;
                let (arguments, named) = self.arguments(")")?;
                read = match module {
                    Some(module) => Expr::Call(format!("{module}.{name}"), arguments, named),
                    None => Expr::Method(Box::new(read), name.to_owned(), arguments),
                };
            } else {
                return Ok(read);
            }
        }
    }

    fn is_called(&self) -> bool {
        matches!(self.peek(), Some(Token::Sign("(")))
    }

    /// An index or slice, behind its `[`: a position, or up to three parts with colons.
    fn index(&mut self, of: Expr) -> Result<Expr, Mismatch> {
        let mut parts = [None, None, None];
        let mut at = 0;
        while self.sign(&["]"]).is_none() {
            if self.sign(&[":"]).is_some() {
                at += 1;
                if at == parts.len() {
                    return Err(self.fault("']' expected"));
                }
            } else {
                parts[at] = Some(Box::new(self.expr()?));
                if !matches!(self.peek(), Some(Token::Sign(":" | "]"))) {
                    return Err(self.fault("']' expected"));
                }
            }
        }
        match (at, parts) {
            (0, [Some(index), ..]) => Ok(Expr::Index(Box::new(of), index)),
            (0, _) => Err(self.fault("an index expected")),
            (_, parts) => Ok(Expr::Slice(Box::new(of), parts)),
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
            Token::Text(_) | Token::Pieces(_) => {
                self.at -= 1;
                self.texts()
            }
            Token::Name(name) if self.sign(&["("]).is_some() => {
                let (arguments, named) = self.arguments(")")?;
                Ok(Expr::Call(name.clone(), arguments, named))
            }
            Token::Name(name) => Ok(Expr::Name(name.clone())),
            Token::Sign("(") => {
                if self.sign(&[")"]).is_some() {
                    return Ok(Expr::Tuple(Vec::new()));
                }
                let read = self.tuple()?;
                let read = self.each(read)?;
                self.expect(")")?;
                Ok(read)
            }
            Token::Sign("[") => Ok(only_each(self.arguments("]")?.0)),
            Token::Sign("{") => {
                let members = only_each(self.arguments("}")?.0);
                Ok(Expr::Call("set".to_owned(), vec![members], Vec::new()))
            }
            Token::Sign(_) => {
                self.at -= 1;
                Err(self.fault("an expression expected"))
            }
        }
    }

    /// A string literal; adjacent strings are joined.
    fn texts(&mut self) -> Result<Expr, Mismatch> {
        let mut pieces = Vec::new();
        while let Some(token) = self.peek() {
            match token {
                Token::Text(text) => pieces.push(Piece::Text(text.clone())),
                Token::Pieces(text) => self.pieces(text, &mut pieces)?,
                _ => break,
            }
            self.at += 1;
        }
        let whole: Option<String> = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Some(text.as_str()),
                Piece::Value(..) => None,
            })
            .collect();
        Ok(match whole {
            Some(whole) => Expr::Text(whole),
            None => Expr::Pieces(pieces),
        })
    }

    /// Parts of an f-string's text: `cwnd {tcpi_snd_cwnd:>4}`.
    fn pieces(&self, text: &str, out: &mut Vec<Piece>) -> Result<(), Mismatch> {
        let fault = |cause: &str| Mismatch::new(self.line, format!("code: {cause} in an f-string"));
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, behind) = rest.split_at(at);
            out.push(Piece::Text(before.to_owned()));
            if behind.starts_with("{{") || behind.starts_with("}}") {
                out.push(Piece::Text(behind[..1].to_owned()));
                rest = &behind[2..];
                continue;
            }
            let end = behind.find('}').filter(|_| behind.starts_with('{'));
            let Some(end) = end else {
                return Err(fault("a single brace"));
            };
            self.piece(&behind[1..end], out)?;
            rest = &behind[end + 1..];
        }
        out.push(Piece::Text(rest.to_owned()));
        Ok(())
    }

    /// The part between braces: `value`, `value!r`, `value=`, `value:format`.
    fn piece(&self, text: &str, out: &mut Vec<Piece>) -> Result<(), Mismatch> {
        if self.depth >= NESTING_MAX {
            return Err(Mismatch::new(self.line, "code is nested too deep"));
        }
        let (value, format) = match outside_brackets(text, ':') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        };
        let (value, is_repr) = match value.strip_suffix("!r") {
            Some(value) => (value, true),
            None => (value.strip_suffix("!s").unwrap_or(value), false),
        };
        let said = value.trim_end().strip_suffix('=');
        let is_said = said.is_some_and(|said| !said.ends_with(['=', '!', '<', '>']));
        let value = match said {
            Some(said) if is_said => {
                out.push(Piece::Text(value.to_owned()));
                said
            }
            _ => value,
        };
        let code = format!("({value})");
        let lines = lines(self.line, &code)?;
        let Some(line) = lines.first() else {
            return Err(self.fault("an expression expected"));
        };
        let mut tokens = Tokens {
            depth: self.depth + 1,
            operators: self.operators,
            ..Tokens::new(line)
        };
        let read = tokens.expr()?;
        if !tokens.is_empty() {
            return Err(tokens.fault("a brace expected"));
        }
        out.push(Piece::Value(read, is_repr || is_said, format.to_owned()));
        Ok(())
    }

    /// Makes a comprehension of `element` if a `for` is next.
    fn each(&mut self, element: Expr) -> Result<Expr, Mismatch> {
        let mut loops: Vec<Loop> = Vec::new();
        while self.keyword("for") {
            let (target, over) = self.target_in()?;
            let mut conditions = Vec::new();
            while self.keyword("if") {
                conditions.push(self.or()?);
            }
            loops.push(Loop {
                target,
                over,
                conditions,
            });
        }
        Ok(match loops.is_empty() {
            true => element,
            false => Expr::Each(Box::new(element), loops),
        })
    }

    /// The head of a loop: `a, b in list`.
    pub(super) fn target_in(&mut self) -> Result<(Target, Expr), Mismatch> {
        let mut names = Vec::new();
        loop {
            match self.name() {
                Some(name) => names.push(Target::Name(name.to_owned())),
                None => return Err(self.fault("a name expected")),
            }
            if self.sign(&[","]).is_none() {
                break;
            }
        }
        if !self.keyword("in") {
            return Err(self.fault("'in' expected"));
        }
        let target = match names.len() {
            1 => names.remove(0),
            _ => Target::Tuple(names),
        };
        Ok((target, self.or()?))
    }

    /// Positional and `name=value` arguments, up to and including the sign `close`.
    fn arguments(&mut self, close: &'static str) -> Result<Arguments, Mismatch> {
        let (mut arguments, mut named) = (Vec::new(), Vec::new());
        while self.sign(&[close]).is_none() {
            let is_named = matches!(
                self.tokens.get(self.at..self.at + 2),
                Some([Token::Name(_), Token::Sign("=")])
            );
            if let Some(name) = is_named.then(|| self.name()).flatten() {
                self.at += 1;
                named.push((name.to_owned(), self.expr()?));
            } else {
                let read = self.expr()?;
                arguments.push(self.each(read)?);
            }
            if self.sign(&[","]).is_none() {
                self.expect(close)?;
                break;
            }
        }
        Ok((arguments, named))
    }

    /// Skips to the next semicolon or the end of the line.
    pub(super) fn skip_statement(&mut self) {
        while !self.is_empty() && !matches!(self.peek(), Some(Token::Sign(";"))) {
            self.at += 1;
        }
    }
}

/// Modules whose functions are known.
const MODULES: [&str; 4] = ["math", "sys", "sys.stderr", "sys.stdout"];

/// The list that brackets make: `[a for ..]` is the comprehension itself, `[a, b]` a list.
fn only_each(mut parts: Vec<Expr>) -> Expr {
    match parts.as_slice() {
        [Expr::Each(..)] => parts.remove(0),
        _ => Expr::Tuple(parts),
    }
}

/// The position of `sign` outside brackets and strings.
fn outside_brackets(text: &str, sign: char) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth -= 1,
            _ if c == sign && depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}
