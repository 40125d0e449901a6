//! Control flow of shell commands, as far as it can be told: lists, pipes, conditions, `exit`.
//!
//! An unknown command is assumed to succeed. A command that runs only because of that assumption
//! may have effects, but neither its status nor an `exit` in it counts. A function's body is kept
//! where it is defined and runs where the function is called.

use std::collections::BTreeMap;
use std::rc::Rc;

use millstream::TcpConfig;
use posix::sysctl;

use super::words::{Token, Word, tokens};
use super::{Allowance, Effect, OK, Outcome, Status, base_name, file_setting, write_to, written};
use crate::limits::{NESTING_MAX, SHELL_CALLS_MAX, SHELL_WORK_MAX};

/// The outcome of the commands in `text`. Their work is taken from the script's allowance.
///
/// # Errors
/// An error if the allowance is used up.
pub(crate) fn outcome(text: &str, allowed: &mut Allowance) -> Result<Outcome, String> {
    allowed.calls = SHELL_CALLS_MAX;
    let outcome = nested(text, 0, allowed);
    match allowed.work {
        0 => Err(format!(
            "the commands of the script are too many: they have more than {SHELL_WORK_MAX} words and letters (SHELL_WORK_MAX)"
        )),
        _ => Ok(outcome),
    }
}

fn nested(text: &str, depth: usize, allowed: &mut Allowance) -> Outcome {
    allowed.work = allowed.work.saturating_sub(text.len());
    if allowed.work == 0 {
        // Do not even split the text into words.
        return Outcome {
            effects: Vec::new(),
            status: Status::Unknown,
        };
    }
    let mut shell = Shell {
        tokens: tokens(text).into(),
        at: 0,
        functions: BTreeMap::new(),
        allowed: *allowed,
        is_called: false,
        depth,
        is_live: true,
        is_sure: true,
        ended: None,
        piped: None,
        effects: Vec::new(),
    };
    let mut status = OK;
    while shell.at < shell.tokens.len() {
        let next = shell.list(&[]);
        if shell.at < shell.tokens.len() {
            // A closing sign without an opening one.
            shell.pass();
            shell.ignore("a command that is written wrong");
        }
        status = next;
    }
    *allowed = shell.allowed;
    Outcome {
        status: shell.ended.map_or(status, |end| end.status),
        effects: shell.effects,
    }
}

struct Shell {
    /// Tokens of the whole text. Functions are parts of it, so they run from the same tokens.
    tokens: Rc<[Token]>,
    at: usize,
    /// Index of each function's body in `tokens`.
    functions: BTreeMap<String, usize>,
    /// The remaining allowance. Nested shells take theirs from it.
    allowed: Allowance,
    /// A function is running.
    is_called: bool,
    depth: usize,
    /// Whether commands run, or are only parsed.
    is_live: bool,
    /// Whether commands are known to run, and not only because an unknown command was assumed to
    /// succeed.
    is_sure: bool,
    /// Set by `exit` or `return`: the commands that follow do not run.
    ended: Option<End>,
    /// Output of the command before, in a pipe.
    piped: Option<String>,
    effects: Vec<Effect>,
}

/// Set when the commands that follow do not run.
#[derive(Clone, Copy)]
struct End {
    status: Status,
    /// Ends the function only, not the text.
    is_return: bool,
}

impl Shell {
    fn runs(&self) -> bool {
        self.is_live && self.ended.is_none() && self.allowed.work > 0
    }

    /// Passes the next token. If its weight exceeds the allowance, passes the rest of the text.
    fn pass(&mut self) {
        let weight = self.tokens.get(self.at).map_or(0, Token::weight);
        self.at += 1;
        self.spend(weight);
    }

    fn spend(&mut self, work: usize) {
        self.allowed.work = self.allowed.work.saturating_sub(work);
        if self.allowed.work == 0 {
            self.at = self.tokens.len();
        }
    }

    fn ignore(&mut self, text: &str) {
        if self.runs() {
            self.effects.push(Effect::Ignored(text.to_owned()));
        }
    }

    fn sign(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if *next == sign);
        if is_next {
            self.pass();
        }
        is_next
    }

    /// The next word, if it is unquoted and so may be a keyword.
    fn keyword(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) if !word.is_quoted => Some(&word.text),
            _ => None,
        }
    }

    fn word(&mut self, word: &str) -> bool {
        let is_next = self.keyword() == Some(word);
        if is_next {
            self.pass();
        }
        is_next
    }

    /// Runs `part`: its commands run if `is_live`, and surely if `is_sure`.
    fn under<T>(&mut self, is_live: bool, is_sure: bool, part: impl FnOnce(&mut Self) -> T) -> T {
        let before = (self.is_live, self.is_sure);
        self.is_live &= is_live;
        self.is_sure &= is_sure;
        let read = part(self);
        (self.is_live, self.is_sure) = before;
        read
    }

    /// A list of commands, up to one of the keywords `ends` or a sign that ends it.
    fn list(&mut self, ends: &[&str]) -> Status {
        let mut status = OK;
        loop {
            while self.sign(";") {}
            let is_end = match self.tokens.get(self.at) {
                None | Some(Token::Sign(_)) => {
                    !matches!(self.tokens.get(self.at), Some(Token::Sign("(")))
                }
                Some(_) => self.keyword().is_some_and(|word| ends.contains(&word)),
            };
            if is_end {
                return status;
            }
            let (runs, before) = (self.runs(), self.effects.len());
            let next = self.chain();
            let is_behind = self.sign("&");
            if is_behind && runs {
                // A background command: nobody waits for it, and its `exit` ends only its own
                // shell.
                self.ended = None;
                let mut made = self.effects.split_off(before);
                made.retain(|effect| !matches!(effect, Effect::Sleep(_)));
                self.effects.append(&mut made);
            }
            if runs {
                status = if is_behind { OK } else { next };
            }
        }
    }

    /// Pipes joined by `&&` and `||`.
    fn chain(&mut self) -> Status {
        let mut status = self.pipe();
        loop {
            let is_and = self.sign("&&");
            if !is_and && !self.sign("||") {
                return status;
            }
            while self.sign(";") {}
            let (runs, is_sure) = match status {
                Status::Is(code) => ((code == 0) == is_and, true),
                Status::Unknown => (is_and, false),
            };
            let next = self.under(runs, is_sure, Self::pipe);
            if runs {
                status = if is_sure { next } else { Status::Unknown };
            }
        }
    }

    fn pipe(&mut self) -> Status {
        let is_negated = self.word("!");
        let before = self.ended;
        let mut is_alone = true;
        let mut status = self.command();
        while self.sign("|") {
            while self.sign(";") {}
            is_alone = false;
            status = self.command();
        }
        self.piped = None;
        if !is_alone {
            // Each part of a pipe is a shell of its own, so its `exit` ends only that.
            self.ended = before;
        }
        match status {
            Status::Is(code) if is_negated => Status::Is(u8::from(code == 0)),
            status => status,
        }
    }

    fn command(&mut self) -> Status {
        if self.depth >= NESTING_MAX {
            self.at = self.tokens.len();
            self.ignore("commands that are nested too deep");
            return Status::Unknown;
        }
        self.depth += 1;
        let status = if self.sign("(") {
            let before = self.ended;
            let status = self.list(&[]);
            self.sign(")");
            let ended = std::mem::replace(&mut self.ended, before);
            ended.map_or(status, |end| end.status)
        } else if let Some((name, body)) = self.definition() {
            self.define(name, body)
        } else if self.word("{") {
            let status = self.list(&["}"]);
            self.word("}");
            status
        } else if self.word("if") {
            self.condition()
        } else if matches!(self.keyword(), Some("for" | "while" | "until" | "case")) {
            self.pass_over()
        } else {
            self.simple()
        };
        self.depth -= 1;
        while let Some(Token::To(_) | Token::From(_)) = self.tokens.get(self.at) {
            self.pass();
        }
        status
    }

    /// Name and index of the body, if `name() { .. }` or `function name { .. }` is next. Takes no
    /// token.
    fn definition(&self) -> Option<(String, usize)> {
        let is_sign = |at: usize, sign: &str| matches!(self.tokens.get(at), Some(Token::Sign(next)) if *next == sign);
        let is_told = self.keyword() == Some("function");
        let name_at = self.at + usize::from(is_told);
        let Some(Token::Word(name)) = self.tokens.get(name_at) else {
            return None;
        };
        let has_signs = is_sign(name_at + 1, "(") && is_sign(name_at + 2, ")");
        if name.is_quoted || name.is_expanded || name.text.contains('=') || !(is_told || has_signs)
        {
            return None;
        }
        let mut body = name_at + if has_signs { 3 } else { 1 };
        while is_sign(body, ";") {
            body += 1;
        }
        let is_body = match self.tokens.get(body) {
            Some(Token::Word(word)) => {
                !word.is_quoted
                    && matches!(
                        word.text.as_str(),
                        "{" | "if" | "for" | "while" | "until" | "case"
                    )
            }
            _ => is_sign(body, "("),
        };
        is_body.then(|| (name.text.clone(), body))
    }

    /// Records a function and passes its definition.
    fn define(&mut self, name: String, body: usize) -> Status {
        if self.runs() {
            self.functions.insert(name, body);
        }
        while self.at < body {
            self.pass();
        }
        self.under(false, true, Self::command);
        OK
    }

    /// Runs the function whose body begins at `body`.
    fn call(&mut self, body: usize) -> Status {
        let Some(calls) = self.allowed.calls.checked_sub(1) else {
            self.ignore("functions that call each other too often");
            return Status::Unknown;
        };
        self.allowed.calls = calls;
        let (at, is_called) = (self.at, self.is_called);
        (self.at, self.is_called) = (body, true);
        let status = self.command();
        (self.at, self.is_called) = (at, is_called);
        // The function may have used up the allowance, which ends the text here too.
        self.spend(0);
        match self.ended {
            Some(End {
                status,
                is_return: true,
            }) => {
                self.ended = None;
                status
            }
            _ => status,
        }
    }

    /// An `if` up to its `fi`; the keyword `if` is already taken.
    fn condition(&mut self) -> Status {
        let mut is_decided = false;
        let mut status = OK;
        let mut asked = self.list(&["then"]);
        self.word("then");
        loop {
            let runs = !is_decided && matches!(asked, Status::Is(0) | Status::Unknown);
            let is_sure = asked != Status::Unknown;
            let next = self.under(runs, is_sure, |shell| shell.list(&["elif", "else", "fi"]));
            if runs {
                is_decided = true;
                status = if is_sure { next } else { Status::Unknown };
            }
            if self.word("elif") {
                asked = self.under(!is_decided, true, |shell| shell.list(&["then"]));
                self.word("then");
            } else if self.word("else") {
                asked = OK;
            } else {
                self.word("fi");
                return status;
            }
        }
    }

    /// Passes a loop or `case`: its text is reported as ignored.
    fn pass_over(&mut self) -> Status {
        let mut depth = 0_usize;
        let mut text = Vec::new();
        let tokens = Rc::clone(&self.tokens);
        while let Some(token) = tokens.get(self.at) {
            self.pass();
            let Token::Word(word) = token else { continue };
            text.push(word.text.as_str());
            match word.text.as_str() {
                "for" | "while" | "until" | "case" => depth += 1,
                "done" | "esac" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        let text = text.join(" ");
        self.ignore(&text);
        Status::Unknown
    }

    /// A simple command: words and redirections.
    fn simple(&mut self) -> Status {
        let (mut words, mut to, mut from) = (Vec::new(), None, None);
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Word(word)) => words.push(word.clone()),
                Some(Token::To(path)) => to = Some(path.clone()),
                Some(Token::From(text)) => from = Some(text.clone()),
                Some(Token::Sign(_)) | None => break,
            }
            self.pass();
        }
        let input = from.or(self.piped.take());
        if !self.runs() {
            return OK;
        }
        let words = own_words(&words);
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        match texts.as_slice() {
            [] | ["true" | ":", ..] => OK,
            ["false", ..] => Status::Is(1),
            ["exit", rest @ ..] => self.exit(rest.first().copied(), false),
            ["return", rest @ ..] if self.is_called => self.exit(rest.first().copied(), true),
            [name, ..] if self.functions.contains_key(*name) => self.call(self.functions[*name]),
            ["test", ..] => judge(&words[1..]),
            ["[", .., "]"] | ["[[", .., "]]"] => judge(&words[1..words.len() - 1]),
            ["echo" | "printf", ..] if to.is_none() => {
                self.piped = Some(written(&texts));
                OK
            }
            [tee, paths @ ..] if base_name(tee) == "tee" && input.is_some() => {
                let text = input.unwrap_or_default();
                // Each file keeps a copy of the text.
                self.spend(text.len().saturating_mul(paths.len()));
                if self.runs() {
                    write_to(paths, &text, &mut self.effects);
                }
                OK
            }
            [shell, options @ .., "-c", text] if is_shell(shell) && options.len() < 2 => {
                self.shell(text)
            }
            [shell, options @ ..]
                if is_shell(shell)
                    && input.is_some()
                    && options.iter().all(|option| option.starts_with('-')) =>
            {
                self.shell(&input.unwrap_or_default())
            }
            texts => super::command(texts, to.as_deref(), &mut self.effects),
        }
    }

    /// Runs `text` in a nested shell.
    fn shell(&mut self, text: &str) -> Status {
        let inner = nested(text, self.depth + 1, &mut self.allowed);
        self.spend(0);
        self.effects.extend(inner.effects);
        inner.status
    }

    /// Ends the text, or the function for `return`.
    fn exit(&mut self, code: Option<&str>, is_return: bool) -> Status {
        let status = match code.map(str::parse) {
            Some(Ok(code)) => Status::Is(code),
            _ => Status::Unknown,
        };
        if !self.is_sure {
            self.ignore("an end that hangs on a command that is not known");
            return Status::Unknown;
        }
        self.ended = Some(End { status, is_return });
        status
    }
}

fn is_shell(word: &str) -> bool {
    matches!(base_name(word), "sh" | "bash" | "dash")
}

/// A command's words from its name on. Assignments, `sudo` and the like, and a script's interpreter
/// are dropped.
fn own_words(mut words: &[Word]) -> &[Word] {
    while let [first, rest @ ..] = words {
        let text = first.text.as_str();
        let is_assignment = text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let is_before = matches!(
            base_name(text),
            "sudo" | "exec" | "command" | "env" | "nohup" | "builtin" | "eval"
        );
        let runs_file =
            is_shell(text) || matches!(base_name(text), "." | "source" | "python" | "python3");
        let is_file = runs_file && rest.first().is_some_and(|file| !file.text.starts_with('-'));
        let is_option = text.starts_with('-');
        if !(is_assignment || is_before || is_file || is_option) {
            break;
        }
        words = rest;
    }
    words
}

/// The status of `test` with these arguments.
fn judge(words: &[Word]) -> Status {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let is = |holds: bool| Status::Is(u8::from(!holds));
    let signs = texts.iter().take_while(|text| **text == "!").count();
    if signs > 0 {
        // All `!` are dropped here, so this recurses only once.
        return match judge(&words[signs..]) {
            Status::Is(code) if signs % 2 == 1 => is(code != 0),
            status => status,
        };
    }
    if words.iter().any(|word| word.is_expanded) {
        return Status::Unknown;
    }
    let number = |text: &str| text.parse::<i64>().ok();
    match texts.as_slice() {
        [] => is(false),
        [text] | ["-n", text] => is(!text.is_empty()),
        ["-z", text] => is(text.is_empty()),
        [operator @ ("-e" | "-f" | "-r" | "-w" | "-d"), path] => match is_setting(path) {
            Some(is_there) => is(is_there && *operator != "-d"),
            None => Status::Unknown,
        },
        [left, "=" | "==", right] => is(left == right),
        [left, "!=", right] => is(left != right),
        [left, operator, right] => match (number(left), *operator, number(right)) {
            (Some(left), "-eq", Some(right)) => is(left == right),
            (Some(left), "-ne", Some(right)) => is(left != right),
            (Some(left), "-lt", Some(right)) => is(left < right),
            (Some(left), "-le", Some(right)) => is(left <= right),
            (Some(left), "-gt", Some(right)) => is(left > right),
            (Some(left), "-ge", Some(right)) => is(left >= right),
            _ => Status::Unknown,
        },
        _ => Status::Unknown,
    }
}

/// Whether the file is that of a setting. None: unknown, because it is none of TCP's.
fn is_setting(path: &str) -> Option<bool> {
    let Some(Effect::Set { name, .. }) = file_setting(&format!("{path}=")) else {
        return None;
    };
    let is_there = sysctl::get(&TcpConfig::default(), &name).is_ok();
    let is_of_tcp = name.starts_with("net.ipv4.tcp_") || name.starts_with("tcp_");
    (is_there || is_of_tcp).then_some(is_there)
}
