//! The grammar of packet scripts: tokens to [`Script`].
//!
//! Recursive descent, one function per rule of the language. Packets are read in `parse/packet.rs`,
//! TCP options in `parse/option.rs`, system calls and their arguments in `parse/call.rs`.
//! [`script`] is the one entry.

mod call;
mod option;
mod packet;

use std::collections::BTreeMap;

use super::Mismatch;
use super::ast::{Action, Command, Event, Micros, Script, When};
use super::lex::{Kind, Token, tokens};
use crate::limits::{NESTING_MAX, SCRIPT_BYTES_MAX, SCRIPT_US_MAX};

/// Parses a script. `defines` are words and their replacements; the script's own `--define` lines
/// are added to them.
pub(super) fn script(text: &str, defines: &BTreeMap<String, String>) -> Result<Script, Mismatch> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(Mismatch::new(1, "the script is too long"));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let mut script = Script {
        options: parser.options()?,
        ..Script::default()
    };
    let mut defines = defines.clone();
    for (name, value) in &script.options {
        if let ("define" | "D", Some(value)) = (name.as_str(), value)
            && let Some((word, meaning)) = value.split_once('=')
        {
            defines.insert(word.to_owned(), meaning.to_owned());
        }
    }
    parser.define(&defines);
    script.init = parser.command();
    while !parser.is_at(Kind::End) {
        if parser.is_at(Kind::Shell) {
            script.cleanup = parser.command();
            if !parser.is_at(Kind::End) {
                return Err(parser.unexpected("the time of an event"));
            }
        } else {
            script.events.push(parser.event()?);
        }
    }
    if script.events.is_empty() {
        return Err(parser.unexpected("an event"));
    }
    Ok(script)
}

struct Parser {
    /// The tokens. The last one is [`Kind::End`] and is never passed.
    tokens: Vec<Token>,
    at: usize,
    /// Nesting depth of the expression at `at`.
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    /// The token that is `ahead` places behind the next one.
    fn ahead(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn is_at(&self, kind: Kind) -> bool {
        self.peek().kind == kind
    }

    fn is_sign(&self, sign: &str) -> bool {
        self.is_at(Kind::Sign) && self.peek().text == sign
    }

    fn is_word(&self, word: &str) -> bool {
        self.is_at(Kind::Word) && self.peek().text == word
    }

    /// Takes the sign if it is the next token.
    fn sign(&mut self, sign: &str) -> bool {
        let is_next = self.is_sign(sign);
        if is_next {
            self.at += 1;
        }
        is_next
    }

    /// Takes the word if it is the next token.
    fn word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        if is_next {
            self.at += 1;
        }
        is_next
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Mismatch> {
        if self.sign(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{sign}'")))
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Mismatch> {
        if self.word(word) {
            return Ok(());
        }
        Err(self.unexpected(&format!("'{word}'")))
    }

    fn expect(&mut self, kind: Kind, what: &str) -> Result<Token, Mismatch> {
        if self.is_at(kind) {
            return Ok(self.take());
        }
        Err(self.unexpected(what))
    }

    fn unexpected(&self, wanted: &str) -> Mismatch {
        let seen = self.peek();
        let cause = match seen.kind {
            Kind::End => format!("the script ends where {wanted} should be"),
            _ => format!("'{}' where {wanted} should be", seen.text),
        };
        Mismatch::new(seen.line, cause)
    }

    fn fault(&self, cause: impl Into<String>) -> Mismatch {
        Mismatch::new(self.peek().line, cause)
    }

    /// Runs `read` one level deeper.
    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Mismatch>,
    ) -> Result<T, Mismatch> {
        if self.depth >= NESTING_MAX {
            return Err(self.fault("expressions are nested too deep"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// An integer within `0..=max`.
    fn int(&mut self, max: u64, what: &str) -> Result<u64, Mismatch> {
        let token = match self.peek().kind {
            Kind::Int | Kind::Hex => self.take(),
            _ => return Err(self.unexpected(what)),
        };
        let read = match token.text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => token.text.parse(),
        };
        match read {
            Ok(value) if value <= max => Ok(value),
            _ => Err(Mismatch::new(
                token.line,
                format!("{what} out of range: {}", token.text),
            )),
        }
    }

    fn u32(&mut self, what: &str) -> Result<u32, Mismatch> {
        Ok(self.int(u64::from(u32::MAX), what)? as u32)
    }

    fn u16(&mut self, what: &str) -> Result<u16, Mismatch> {
        Ok(self.int(u64::from(u16::MAX), what)? as u16)
    }

    fn u8(&mut self, what: &str) -> Result<u8, Mismatch> {
        Ok(self.int(u64::from(u8::MAX), what)? as u8)
    }

    /// The `--name=value` lines.
    fn options(&mut self) -> Result<Vec<(String, Option<String>)>, Mismatch> {
        let mut options = Vec::new();
        while self.is_at(Kind::Option) {
            let option = self.take();
            let value = if self.sign("=") {
                Some(self.option_value(option.line)?)
            } else {
                None
            };
            options.push((option.text, value));
        }
        Ok(options)
    }

    /// Text of the line up to the next option.
    fn option_value(&mut self, line: u32) -> Result<String, Mismatch> {
        let mut value = String::new();
        while self.peek().line == line {
            let token = self.peek();
            match token.kind {
                Kind::Option | Kind::End => break,
                Kind::Text if value.is_empty() => value += &token.text,
                Kind::Text => value += &format!("\"{}\"", token.text),
                Kind::Shell if value.is_empty() => break,
                Kind::Shell => value += &format!("`{}`", token.text),
                _ => value += &token.text,
            }
            self.at += 1;
        }
        if value.is_empty() {
            return Err(self.unexpected("the value of an option"));
        }
        Ok(value)
    }

    /// Replaces the defined words among the tokens.
    fn define(&mut self, defines: &BTreeMap<String, String>) {
        for token in &mut self.tokens {
            if token.kind != Kind::Word {
                continue;
            }
            let Some(meaning) = defines.get(&token.text) else {
                continue;
            };
            let quoted = |quote: char| {
                meaning
                    .strip_prefix(quote)
                    .and_then(|rest| rest.strip_suffix(quote))
            };
            (token.kind, token.text) = if let Some(text) = quoted('"') {
                (Kind::Text, text.to_owned())
            } else if let Some(text) = quoted('`') {
                (Kind::Shell, text.to_owned())
            } else if meaning.parse::<i64>().is_ok() {
                (Kind::Int, meaning.clone())
            } else if meaning.starts_with("0x") {
                (Kind::Hex, meaning.clone())
            } else {
                (Kind::Word, meaning.clone())
            };
        }
    }

    fn command(&mut self) -> Option<Command> {
        if !self.is_at(Kind::Shell) {
            return None;
        }
        let Token { line, text, .. } = self.take();
        Some(Command { line, text })
    }

    fn event(&mut self) -> Result<Event, Mismatch> {
        let line = self.peek().line;
        let when = self.when()?;
        let action = self.action()?;
        let is_outbound = matches!(
            &action,
            Action::Packet(packet) if packet.direction == super::ast::Direction::Outbound
        );
        let is_open = matches!(when, When::Any | When::Between(..) | When::BetweenAfter(..));
        if is_open && !is_outbound {
            return Err(Mismatch::new(
                line,
                "'*' and ranges of time are for outbound packets only",
            ));
        }
        if let When::Between(from, to) | When::BetweenAfter(from, to) = when
            && to < from
        {
            return Err(Mismatch::new(line, "the range of time is backwards"));
        }
        Ok(Event { line, when, action })
    }

    fn when(&mut self) -> Result<When, Mismatch> {
        if self.sign("*") {
            return Ok(When::Any);
        }
        let is_relative = self.sign("+");
        let from = self.time()?;
        if !self.sign("~") {
            return Ok(if is_relative {
                When::After(from)
            } else {
                When::At(from)
            });
        }
        if is_relative {
            self.expect_sign("+")?;
            return Ok(When::BetweenAfter(from, self.time()?));
        }
        Ok(When::Between(from, self.time()?))
    }

    /// A time in seconds, returned as microseconds.
    fn time(&mut self) -> Result<Micros, Mismatch> {
        if !self.is_at(Kind::Float) && !self.is_at(Kind::Int) {
            return Err(self.unexpected("a time"));
        }
        let token = self.take();
        micros(&token.text)
            .filter(|micros| *micros <= SCRIPT_US_MAX)
            .ok_or_else(|| Mismatch::new(token.line, format!("'{}' is no time", token.text)))
    }

    fn action(&mut self) -> Result<Action, Mismatch> {
        match self.peek().kind {
            Kind::Sign => Ok(Action::Packet(self.packet()?)),
            Kind::Word | Kind::Ellipsis => Ok(Action::Call(self.call()?)),
            Kind::Shell => Ok(Action::Shell(self.take().text)),
            Kind::Code => Ok(Action::Code(self.take().text)),
            _ => Err(self.unexpected("a packet, a system call, a command or code")),
        }
    }
}

/// `1.5` seconds in microseconds, without floating-point rounding. Digits beyond six are dropped.
fn micros(text: &str) -> Option<Micros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: Micros = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut digits: String = fraction.chars().take(6).collect();
    while digits.len() < 6 {
        digits.push('0');
    }
    let fraction: Micros = digits.parse().ok()?;
    if text.starts_with('-') {
        return None;
    }
    whole.checked_mul(1_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests;
