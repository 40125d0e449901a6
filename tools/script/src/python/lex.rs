//! Python cut into logical lines of tokens, each with its indentation.

use crate::Mismatch;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(i128),
    Float(f64),
    Text(String),
    /// The text of an f-string.
    Pieces(String),
    /// Operators and brackets.
    Sign(&'static str),
}

/// A logical line: physical lines joined by brackets and backslashes. The parser splits it at
/// semicolons.
#[derive(Debug)]
pub(super) struct Line {
    pub number: u32,
    pub indent: usize,
    pub tokens: Vec<Token>,
}

/// Operators and brackets, longest first, so that the longest match wins.
const SIGNS: [&str; 44] = [
    "**=", "//=", "<<=", ">>=", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "+=", "-=", "*=",
    "/=", "%=", "|=", "&=", "^=", "->", ":=", "+", "-", "*", "/", "%", "<", ">", "=", "(", ")",
    "[", "]", "{", "}", ",", ":", ";", "|", "&", "^", "~", ".",
];

/// Splits code that starts in line `first` of the script into logical lines.
pub(super) fn lines(first: u32, code: &str) -> Result<Vec<Line>, Mismatch> {
    let mut lexer = Lexer {
        rest: code,
        number: first,
        open: 0,
    };
    let mut lines = Vec::new();
    while let Some(line) = lexer.line()? {
        lines.push(line);
    }
    Ok(lines)
}

struct Lexer<'a> {
    rest: &'a str,
    number: u32,
    /// Number of open brackets. Line ends inside brackets do not count.
    open: usize,
}

impl Lexer<'_> {
    /// The next logical line that is not empty.
    fn line(&mut self) -> Result<Option<Line>, Mismatch> {
        let mut indent = self.indent();
        let mut number = self.number;
        let mut tokens = Vec::new();
        loop {
            let blanks = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\r']).len();
            self.rest = &self.rest[blanks..];
            let Some(c) = self.rest.chars().next() else {
                let line = Line {
                    number,
                    indent,
                    tokens,
                };
                return Ok((!line.tokens.is_empty()).then_some(line));
            };
            if c == '#' {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if c == '\n' {
                self.skip(1);
                self.number += 1;
                if !tokens.is_empty() && self.open == 0 {
                    return Ok(Some(Line {
                        number,
                        indent,
                        tokens,
                    }));
                }
                if tokens.is_empty() {
                    indent = self.indent();
                    number = self.number;
                }
            } else if c == '\\' && self.continues() {
                let end = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
                self.skip(end);
                self.number += 1;
            } else {
                tokens.push(self.token(c)?);
            }
        }
    }

    /// Whether the next character, a backslash, ends its line.
    fn continues(&self) -> bool {
        let behind = self.rest[1..].trim_start_matches([' ', '\t', '\r']);
        behind.is_empty() || behind.starts_with('\n')
    }

    fn indent(&self) -> usize {
        let columns = self.rest.chars().take_while(|c| matches!(c, ' ' | '\t'));
        columns.fold(0, |column, c| {
            if c == '\t' {
                column / 8 * 8 + 8
            } else {
                column + 1
            }
        })
    }

    fn skip(&mut self, len: usize) {
        self.rest = &self.rest[len..];
    }

    fn token(&mut self, c: char) -> Result<Token, Mismatch> {
        if c.is_ascii_digit()
            || (c == '.' && self.rest[1..].starts_with(|d: char| d.is_ascii_digit()))
        {
            return self.number(c);
        }
        if let Some(prefix) = self.prefix() {
            return self.text(prefix);
        }
        if c.is_alphabetic() || c == '_' {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let len = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
            let name = self.rest[..len].to_owned();
            self.skip(len);
            return Ok(Token::Name(name));
        }
        let Some(sign) = SIGNS.into_iter().find(|sign| self.rest.starts_with(sign)) else {
            return Err(Mismatch::new(self.number, format!("code has a '{c}'")));
        };
        match sign {
            "(" | "[" | "{" => self.open += 1,
            ")" | "]" | "}" => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.skip(sign.len());
        Ok(Token::Sign(sign))
    }

    fn number(&mut self, first: char) -> Result<Token, Mismatch> {
        let mut before = first;
        let len = self
            .rest
            .find(|c: char| {
                let is_sign_of_exponent = matches!(c, '+' | '-')
                    && matches!(before, 'e' | 'E')
                    && !self.rest.starts_with("0x");
                before = c;
                !(c.is_alphanumeric() || c == '.' || c == '_' || is_sign_of_exponent)
            })
            .unwrap_or(self.rest.len());
        let text: String = self.rest[..len].chars().filter(|c| *c != '_').collect();
        self.skip(len);
        let radix = |prefix: &str, radix| {
            let digits = text.strip_prefix(prefix)?;
            i128::from_str_radix(digits, radix).ok()
        };
        if let Some(value) = radix("0x", 16)
            .or_else(|| radix("0b", 2))
            .or_else(|| radix("0o", 8))
            .or_else(|| text.parse().ok())
        {
            return Ok(Token::Int(value));
        }
        match text.parse() {
            Ok(value) => Ok(Token::Float(value)),
            Err(_) => Err(Mismatch::new(self.number, format!("'{text}' is no number"))),
        }
    }

    /// Number of letters before the next string's quote; None: no string comes next.
    fn prefix(&self) -> Option<usize> {
        let letters = self.rest.find(|c: char| !"rRfFuUbB".contains(c))?;
        (letters <= 2 && self.rest[letters..].starts_with(['"', '\''])).then_some(letters)
    }

    /// A string with `prefix` letters before its quote.
    fn text(&mut self, prefix: usize) -> Result<Token, Mismatch> {
        let (letters, quoted) = self.rest.split_at(prefix);
        let is_raw = letters.contains(['r', 'R']);
        let quote = quoted.chars().next().unwrap_or('"');
        let triple = quote.to_string().repeat(3);
        let end = match quoted.starts_with(&triple) {
            true => triple.as_str(),
            false => &triple[..1],
        };
        let mut text = String::new();
        let mut at = end.len();
        while let Some(c) = quoted[at..].chars().next() {
            if quoted[at..].starts_with(end) {
                let is_pieces = letters.contains(['f', 'F']);
                let lines = quoted[..at].matches('\n').count();
                self.number += lines as u32;
                self.skip(prefix + at + end.len());
                return Ok(match is_pieces {
                    true => Token::Pieces(text),
                    false => Token::Text(text),
                });
            }
            at += c.len_utf8();
            match c {
                '\\' if !is_raw => {
                    let Some(escaped) = quoted[at..].chars().next() else {
                        break;
                    };
                    at += escaped.len_utf8();
                    match escaped {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        '\n' => {}
                        other => text.push(other),
                    }
                }
                '\n' if end.len() == 1 => break,
                _ => text.push(c),
            }
        }
        Err(Mismatch::new(
            self.number,
            "code has a string without an end",
        ))
    }
}
