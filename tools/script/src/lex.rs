//! A packet script cut into words, numbers and signs.
//!
//! The longest reading wins, as the language defines. `1.2.3.4` is an address, `...` is one sign,
//! and `.5` a number. `1:1001` is three tokens although it could begin an IPv6 address. The parser
//! calls [`tokens`].

use super::Mismatch;

/// A token and its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub line: u32,
    pub kind: Kind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits, underscores.
    Word,
    /// `12`, `-1`.
    Int,
    /// `0x1f`.
    Hex,
    /// `1.5`, `.5`.
    Float,
    /// `--name`; the text is without the dashes.
    Option,
    /// `"..."`, without the quotes and as written within.
    Text,
    /// Backquoted, without the quotes.
    Shell,
    /// `%{ }%`, without the braces and the blanks next to them.
    Code,
    Ipv4,
    Ipv6,
    /// `...`
    Ellipsis,
    /// One character.
    Sign,
    End,
}

/// Cuts `text`; the last token is [`Kind::End`]. `defines` replaces words: `--define`.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Mismatch> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let is_end = token.kind == Kind::End;
        tokens.push(token);
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn token(&mut self) -> Result<Token, Mismatch> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else {
            return Ok(self.cut(Kind::End, 0, ""));
        };
        if let Some(quoted) = self.quoted(first)? {
            return Ok(quoted);
        }
        if let Some(len) = option_len(self.rest) {
            let name = &self.rest[2..len];
            return Ok(self.cut(Kind::Option, len, name));
        }
        let (kind, len) = longest(self.rest, first);
        Ok(self.cut(kind, len, &self.rest[..len]))
    }

    /// A token of the next `len` bytes, which are taken; `text` becomes its text.
    fn cut(&mut self, kind: Kind, len: usize, text: &str) -> Token {
        let line = self.line;
        self.skip(len);
        Token {
            line,
            kind,
            text: text.to_owned(),
        }
    }

    fn skip(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
    }

    /// Skips blanks and comments.
    fn skip_blanks(&mut self) -> Result<(), Mismatch> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.skip(blank);
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.skip(end);
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest[2..].find("*/") else {
                    return Err(self.fault("a comment has no end"));
                };
                self.skip(end + 4);
            } else if blank == 0 {
                return Ok(());
            }
        }
    }

    fn fault(&self, cause: &str) -> Mismatch {
        Mismatch::new(self.line, cause)
    }

    /// The token of a string, a shell command or code, if one begins with `first`.
    fn quoted(&mut self, first: char) -> Result<Option<Token>, Mismatch> {
        let kind = match first {
            '"' => Kind::Text,
            '`' => Kind::Shell,
            '%' if self.rest.starts_with("%{") => return self.code().map(Some),
            _ => return Ok(None),
        };
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == first {
                let text = &self.rest[1..at];
                return Ok(Some(self.cut(kind, at + 1, text)));
            }
        }
        Err(self.fault(&format!("{first} has no end")))
    }

    fn code(&mut self) -> Result<Token, Mismatch> {
        let Some(end) = self.rest.find("}%") else {
            return Err(self.fault("%{ has no }%"));
        };
        let text = self.rest[2..end].trim_matches([' ', '\t']);
        Ok(self.cut(Kind::Code, end + 2, text))
    }
}

fn option_len(text: &str) -> Option<usize> {
    let name = text.strip_prefix("--")?;
    let len = run(name, is_word);
    (len > 0).then_some(len + 2)
}

/// The longest token that `text` starts with.
fn longest(text: &str, first: char) -> (Kind, usize) {
    if text.starts_with("...") {
        return (Kind::Ellipsis, 3);
    }
    // Of readings with equal length the earlier one wins.
    let readings = [
        (Kind::Float, float_len(text)),
        (Kind::Int, int_len(text)),
        (Kind::Hex, hex_len(text)),
        (Kind::Word, run(text, is_word)),
        (Kind::Ipv4, ipv4_len(text)),
        (Kind::Ipv6, ipv6_len(text)),
    ];
    let mut best = (Kind::Sign, 0);
    for reading in readings {
        if reading.1 > best.1 {
            best = reading;
        }
    }
    if best.1 == 0 {
        best.1 = first.len_utf8();
    }
    best
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Length in bytes of the beginning of `text` whose characters satisfy `of`; ASCII only.
fn run(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}

/// Longest addresses in characters. A longer text is not searched for one.
const IPV4_CHARS_MAX: usize = 15;
const IPV6_CHARS_MAX: usize = 45;

/// The same as [`run`], but at most `max` bytes.
fn run_up_to(max: usize, text: &str, of: impl Fn(u8) -> bool) -> usize {
    text.bytes().take(max).take_while(|c| of(*c)).count()
}

fn int_len(text: &str) -> usize {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match run(digits, |c| c.is_ascii_digit()) {
        0 => 0,
        len => len + text.len() - digits.len(),
    }
}

fn float_len(text: &str) -> usize {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let whole = run(unsigned, |c| c.is_ascii_digit());
    let Some(fraction) = unsigned[whole..].strip_prefix('.') else {
        return 0;
    };
    match run(fraction, |c| c.is_ascii_digit()) {
        0 => 0,
        len => whole + 1 + len + text.len() - unsigned.len(),
    }
}

fn hex_len(text: &str) -> usize {
    let Some(digits) = text.strip_prefix("0x") else {
        return 0;
    };
    match run(digits, |c| c.is_ascii_hexdigit()) {
        0 => 0,
        len => len + 2,
    }
}

fn ipv4_len(text: &str) -> usize {
    let len = run_up_to(IPV4_CHARS_MAX, text, |c| c.is_ascii_digit() || c == b'.');
    prefix_that_parses::<std::net::Ipv4Addr>(&text[..len])
}

/// Length of an address with a `::` or with all its groups; 0: there is none.
fn ipv6_len(text: &str) -> usize {
    let is_part = |c: u8| c.is_ascii_hexdigit() || c == b':' || c == b'.';
    let len = run_up_to(IPV6_CHARS_MAX, text, is_part);
    if text[..len].matches(':').count() < 2 {
        return 0;
    }
    prefix_that_parses::<std::net::Ipv6Addr>(&text[..len])
}

fn prefix_that_parses<T: std::str::FromStr>(text: &str) -> usize {
    (1..=text.len())
        .rev()
        .find(|&len| text[..len].parse::<T>().is_ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
