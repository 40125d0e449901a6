//! Splitting of shell commands into words, operators and redirections.

use std::iter::Peekable;
use std::str::Chars;

/// A part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// `;`, which also stands for a new line; `&`, `&&`, `||`, `|`, `(`, `)`.
    Sign(&'static str),
    /// `> path`. Other descriptors and `< path` are left out.
    To(String),
    /// Input of the command: the lines of a here-document `<<END`, or the word of `<<<`.
    From(String),
}

impl Token {
    /// Number of its letters, and one for itself.
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
    /// The shell would expand the word to a text that is not known here.
    pub is_expanded: bool,
    /// The word had quotes, so it is no keyword.
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
    /// Index of the token that takes the lines.
    at: usize,
    /// The line that ends the document.
    end: String,
    /// Tabs at the start of lines are dropped (`<<-`).
    is_indented: bool,
}

struct Cutter<'a> {
    rest: Peekable<Chars<'a>>,
    tokens: Vec<Token>,
    /// Here-documents that begin with the next line.
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
                    // `&>file` writes no setting.
                    Some('>') => self.redirect(false),
                    _ => self.tokens.push(Token::Sign("&")),
                }
            }
            '>' => self.redirect(true),
            '<' => self.redirect(false),
            _ => self.word_or_number(),
        }
    }

    /// Takes one character as `sign`.
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

    /// Reads the here-documents that the last line announced.
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

    /// A word, or a redirection that begins with a descriptor's number.
    fn word_or_number(&mut self) {
        let word = self.word();
        let is_number = !word.is_quoted && word.text.chars().all(|c| c.is_ascii_digit());
        match self.rest.peek() {
            Some('>') if is_number && !word.text.is_empty() => self.redirect(word.text == "1"),
            Some('<') if is_number && !word.text.is_empty() => self.redirect(false),
            // Only a backslash before the end of the line.
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

    /// The text up to the closing quote; the opening one is already taken.
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

    /// `$name`, `${name}`, `$(command)` or `$((1*2))`, kept as written; the `$` is already taken.
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
