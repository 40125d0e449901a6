//! A text of shell commands cut into words, operators and where output goes.

use std::iter::Peekable;
use std::str::Chars;

/// A part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// `;`, also for a new line; `&`, `&&`, `||`, `|`, `(`, `)`.
    Sign(&'static str),
    /// `> path`; what goes elsewhere than to the output's file, or comes in from one, is left out.
    To(String),
    /// `<<END` with the lines up to that one, or the word of `<<<`: what the command reads.
    From(String),
}

impl Token {
    /// Its letters, and one for itself.
    pub(super) fn weight(&self) -> usize {
        1 + match self {
            Token::Word(word) => word.text.len(),
            Token::Sign(_) => 0,
            Token::To(text) | Token::From(text) => text.len(),
        }
    }
}

/// A word without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub text: String,
    /// The shell would put something else in its place, which is not known here.
    pub is_expanded: bool,
    /// The word had quotes, so it is no word of the language.
    pub is_quoted: bool,
}

pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut cutter = Cutter {
        rest: text.chars().peekable(),
        tokens: Vec::new(),
        documents: Vec::new(),
    };
    while let Some(&next) = cutter.rest.peek() {
        cutter.token(next);
    }
    cutter.tokens
}

/// A here-document whose lines are still to come.
struct Document {
    /// The token that takes them.
    at: usize,
    /// The line behind the last one.
    end: String,
    /// Tabs before its lines are not its own.
    is_indented: bool,
}

struct Cutter<'a> {
    rest: Peekable<Chars<'a>>,
    tokens: Vec<Token>,
    /// Those that begin with the next line.
    documents: Vec<Document>,
}

impl Cutter<'_> {
    fn token(&mut self, next: char) {
        match next {
            ' ' | '\t' | '\r' => {
                self.rest.next();
            }
            '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
            ';' => self.sign(";"),
            '\n' => {
                self.sign(";");
                self.documents();
            }
            '(' => self.sign("("),
            ')' => self.sign(")"),
            '|' => self.one_or_two('|', "|", "||"),
            '&' => {
                self.rest.next();
                match self.rest.peek() {
                    Some('&') => self.sign("&&"),
                    // `&>file`: not a setting.
                    Some('>') => self.redirect(false),
                    _ => self.tokens.push(Token::Sign("&")),
                }
            }
            '>' => self.redirect(true),
            '<' => self.redirect(false),
            _ => self.word_or_number(),
        }
    }

    /// Takes one character.
    fn sign(&mut self, sign: &'static str) {
        self.rest.next();
        self.tokens.push(Token::Sign(sign));
    }

    fn one_or_two(&mut self, c: char, one: &'static str, two: &'static str) {
        self.rest.next();
        let is_two = self.rest.next_if_eq(&c).is_some();
        self.tokens
            .push(Token::Sign(if is_two { two } else { one }));
    }

    /// `> path`, `>> path`, `>&2`, `< path`, `<<END`, `<<< text`.
    fn redirect(&mut self, is_output: bool) {
        let mut signs = String::new();
        while let Some(sign) = self.rest.next_if(|c| "<>&|".contains(*c)) {
            signs.push(sign);
        }
        let is_indented = signs == "<<" && self.rest.next_if_eq(&'-').is_some();
        while self.rest.next_if(|c| " \t".contains(*c)).is_some() {}
        let word = self.word();
        match signs.as_str() {
            "<<" if word != Word::default() => {
                self.documents.push(Document {
                    at: self.tokens.len(),
                    end: word.text,
                    is_indented,
                });
                self.tokens.push(Token::From(String::new()));
            }
            "<<<" => self.tokens.push(Token::From(word.text)),
            _ if is_output && !signs.contains('&') => self.tokens.push(Token::To(word.text)),
            _ => {}
        }
    }

    /// The lines of the here-documents that the line before has begun.
    fn documents(&mut self) {
        for document in std::mem::take(&mut self.documents) {
            let mut lines = Vec::new();
            while self.rest.peek().is_some() {
                let line: String = self.rest.by_ref().take_while(|c| *c != '\n').collect();
                let line = match document.is_indented {
                    true => line.trim_start_matches('\t'),
                    false => &line,
                };
                if line.trim_end_matches('\r') == document.end {
                    break;
                }
                lines.push(line.to_owned());
            }
            if let Some(token) = self.tokens.get_mut(document.at) {
                *token = Token::From(lines.join("\n"));
            }
        }
    }

    /// A word, or the number of a descriptor before what it is redirected to.
    fn word_or_number(&mut self) {
        let word = self.word();
        let is_number = !word.is_quoted && word.text.chars().all(|c| c.is_ascii_digit());
        match self.rest.peek() {
            Some('>') if is_number && !word.text.is_empty() => self.redirect(word.text == "1"),
            Some('<') if is_number && !word.text.is_empty() => self.redirect(false),
            // Nothing but a backslash before the end of the line.
            _ if word == Word::default() => {}
            _ => self.tokens.push(Token::Word(word)),
        }
    }

    fn word(&mut self) -> Word {
        let mut word = Word::default();
        while let Some(c) = self.rest.next_if(|c| !" \t\r\n;&|<>()".contains(*c)) {
            match c {
                '\'' => {
                    word.is_quoted = true;
                    while let Some(c) = self.rest.next_if(|c| *c != '\'') {
                        word.text.push(c);
                    }
                    self.rest.next();
                }
                '"' => self.quoted(&mut word),
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(escaped) => word.text.push(escaped),
                },
                '$' => self.dollar(&mut word),
                '`' | '*' | '?' | '~' => {
                    word.is_expanded = true;
                    word.text.push(c);
                }
                c => word.text.push(c),
            }
        }
        word
    }

    /// Up to the closing quote; the opening one is taken.
    fn quoted(&mut self, word: &mut Word) {
        word.is_quoted = true;
        while let Some(c) = self.rest.next() {
            match c {
                '"' => return,
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(c @ ('"' | '\\' | '$' | '`')) => word.text.push(c),
                    Some(c) => word.text.extend(['\\', c]),
                },
                '$' => self.dollar(word),
                c => {
                    word.is_expanded |= c == '`';
                    word.text.push(c);
                }
            }
        }
    }

    /// `$name`, `${name}`, `$(command)`, `$((1*2))`, as written; the sign is taken.
    fn dollar(&mut self, word: &mut Word) {
        word.is_expanded = true;
        word.text.push('$');
        let mut depth = 0_usize;
        while let Some(c) = self.rest.next_if(|c| depth > 0 || "({".contains(*c)) {
            word.text.push(c);
            match c {
                '(' | '{' => depth += 1,
                ')' | '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}
