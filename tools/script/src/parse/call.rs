//! System calls and their arguments.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Parser;
use crate::Mismatch;
use crate::ast::{Call, EpollData, Expr, Message};
use crate::lex::Kind;
use crate::limits::OPERATORS_MAX;

impl Parser {
    /// `...0.2 read(3, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)`
    pub(super) fn call(&mut self) -> Result<Call, Mismatch> {
        let until = if self.is_at(Kind::Ellipsis) {
            self.take();
            Some(self.time()?)
        } else {
            None
        };
        let name = self.expect(Kind::Word, "the name of a system call")?.text;
        self.expect_sign("(")?;
        let arguments = self.list(")")?;
        self.expect_sign("=")?;
        let result = self.expr()?;
        let errno = if self.is_at(Kind::Word) {
            Some(self.take().text)
        } else {
            None
        };
        self.note()?;
        Ok(Call {
            name,
            arguments,
            until,
            result,
            errno,
        })
    }

    /// `(Operation now in progress)`: skipped, as it is for the reader only.
    fn note(&mut self) -> Result<(), Mismatch> {
        if !self.sign("(") {
            return Ok(());
        }
        while !self.sign(")") {
            if self.is_at(Kind::End) {
                return Err(self.unexpected("')'"));
            }
            self.take();
        }
        Ok(())
    }

    /// Expressions separated by commas, up to and including the sign `close`.
    fn list(&mut self, close: &str) -> Result<Vec<Expr>, Mismatch> {
        let mut list = Vec::new();
        if self.sign(close) {
            return Ok(list);
        }
        loop {
            list.push(self.expr()?);
            if !self.sign(",") {
                self.expect_sign(close)?;
                return Ok(list);
            }
        }
    }

    pub(super) fn expr(&mut self) -> Result<Expr, Mismatch> {
        self.nested(|parser| {
            let mut left = parser.term()?;
            let mut count = 0;
            while parser.sign("|") {
                count += 1;
                if count > OPERATORS_MAX {
                    return Err(parser.fault("an argument has too many parts"));
                }
                let right = parser.term()?;
                left = Expr::Or(Box::new(left), Box::new(right));
            }
            Ok(left)
        })
    }

    fn boxed(&mut self) -> Result<Box<Expr>, Mismatch> {
        Ok(Box::new(self.expr()?))
    }

    fn term(&mut self) -> Result<Expr, Mismatch> {
        let kind = self.peek().kind;
        match kind {
            Kind::Ellipsis => {
                self.take();
                Ok(Expr::Ellipsis)
            }
            Kind::Int | Kind::Hex => self.signed().map(Expr::Int),
            Kind::Text => self.text(),
            Kind::Word => self.named(),
            Kind::Sign if self.sign("[") => Ok(Expr::List(self.list("]")?)),
            Kind::Sign if self.sign("{") => self.braces(),
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn signed(&mut self) -> Result<i64, Mismatch> {
        let token = match self.peek().kind {
            Kind::Int | Kind::Hex => self.take(),
            _ => return Err(self.unexpected("a number")),
        };
        let read = match token.text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map(|value| value as i64),
            None => token.text.parse(),
        };
        read.map_err(|_| Mismatch::new(token.line, format!("{} is out of range", token.text)))
    }

    /// Adjacent strings, joined. A `...` behind them marks the beginning of a longer text.
    fn text(&mut self) -> Result<Expr, Mismatch> {
        let mut bytes = Vec::new();
        while self.is_at(Kind::Text) {
            let token = self.take();
            unescape(&token.text, &mut bytes).map_err(|cause| Mismatch::new(token.line, cause))?;
        }
        if self.is_at(Kind::Ellipsis) {
            self.take();
        }
        Ok(Expr::Text(bytes))
    }

    fn named(&mut self) -> Result<Expr, Mismatch> {
        let token = self.take();
        match token.text.as_str() {
            "inet_addr" => {
                let addr: Ipv4Addr = self.quoted_addr()?;
                let number = u32::from_ne_bytes(addr.octets());
                Ok(Expr::Int(i64::from(number)))
            }
            "inet6_addr" => {
                let addr: Ipv6Addr = self.quoted_addr()?;
                Ok(Expr::In6Addr(addr))
            }
            "htons" => {
                self.expect_sign("(")?;
                let port = self.u16("port")?;
                self.expect_sign(")")?;
                Ok(Expr::Int(i64::from(port.to_be())))
            }
            _ if self.sign("=") => Ok(Expr::Assign(token.text, self.boxed()?)),
            _ => Ok(Expr::Word(token.text)),
        }
    }

    fn quoted_addr<T: std::str::FromStr>(&mut self) -> Result<T, Mismatch> {
        self.expect_sign("(")?;
        let token = self.expect(Kind::Text, "an address in quotes")?;
        self.expect_sign(")")?;
        let cause = || format!("'{}' is no address", token.text);
        token
            .text
            .parse()
            .map_err(|_| Mismatch::new(token.line, cause()))
    }

    /// `name =`
    fn key(&mut self, name: &str) -> Result<(), Mismatch> {
        self.expect_word(name)?;
        self.expect_sign("=")
    }

    /// `, name =`
    fn next_key(&mut self, name: &str) -> Result<(), Mismatch> {
        self.expect_sign(",")?;
        self.key(name)
    }

    /// A structure, recognised by its first member. The opening brace is already taken.
    fn braces(&mut self) -> Result<Expr, Mismatch> {
        let is_member = |parser: &Self, name: &str| {
            parser.is_word(name) && matches!(parser.ahead(1).text.as_str(), "=" | "(")
        };
        if self.is_at(Kind::Ellipsis) {
            self.take();
            self.expect_sign(",")?;
            let len = self.int(u64::from(u32::MAX), "length of a buffer")?;
            self.expect_sign("}")?;
            return Ok(Expr::IoVec(len));
        }
        if is_member(self, "sa_family") {
            return self.sockaddr();
        }
        if is_member(self, "msg_name") {
            return self.message();
        }
        if is_member(self, "cmsg_level") {
            return self.control();
        }
        if is_member(self, "ee_errno") {
            return self.extended_error();
        }
        if is_member(self, "scm_sec") {
            return self.timestamping();
        }
        if is_member(self, "fd") {
            return self.poll_fd();
        }
        if is_member(self, "events") {
            return self.epoll_event();
        }
        if is_member(self, "onoff") {
            return self.linger();
        }
        if self.is_word("flags") || self.is_word("Flags") || self.is_sign("(") {
            return Err(self.fault("GRE and MPLS are not supported"));
        }
        Ok(Expr::List(self.list("}")?))
    }

    fn sockaddr(&mut self) -> Result<Expr, Mismatch> {
        self.key("sa_family")?;
        let family = self.expect(Kind::Word, "an address family")?.text;
        self.next_key("sin_port")?;
        self.expect_word("htons")?;
        self.expect_sign("(")?;
        let port = self.u16("port")?;
        self.expect_sign(")")?;
        self.next_key("sin_addr")?;
        self.expect_word("inet_addr")?;
        self.expect_sign("(")?;
        let addr = self.expect(Kind::Text, "an address in quotes")?.text;
        self.expect_sign(")")?;
        self.expect_sign("}")?;
        Ok(Expr::Sockaddr { family, port, addr })
    }

    /// `{msg_name(...)=..., msg_iov(1)=[{...,0}], msg_flags=0, msg_control=[..]}`
    fn message(&mut self) -> Result<Expr, Mismatch> {
        self.expect_word("msg_name")?;
        self.expect_sign("(")?;
        self.expect(Kind::Ellipsis, "'...'")?;
        self.expect_sign(")")?;
        self.expect_sign("=")?;
        self.expect(Kind::Ellipsis, "'...'")?;
        self.expect_sign(",")?;
        self.expect_word("msg_iov")?;
        self.expect_sign("(")?;
        let count = self.int(1024, "number of buffers")?;
        self.expect_sign(")")?;
        self.expect_sign("=")?;
        self.expect_sign("[")?;
        let buffers: Vec<u64> = self
            .list("]")?
            .into_iter()
            .map_while(|buffer| match buffer {
                Expr::IoVec(len) => Some(len),
                _ => None,
            })
            .collect();
        if buffers.len() as u64 != count {
            return Err(self.fault(format!(
                "msg_iov has {} buffers, not {count}",
                buffers.len()
            )));
        }
        self.next_key("msg_flags")?;
        let flags = self.expr()?;
        let mut control = Vec::new();
        if self.sign(",") {
            self.key("msg_control")?;
            self.expect_sign("[")?;
            control = self.list("]")?;
        }
        self.expect_sign("}")?;
        Ok(Expr::Message(Box::new(Message {
            buffers,
            flags,
            control,
        })))
    }

    fn control(&mut self) -> Result<Expr, Mismatch> {
        self.key("cmsg_level")?;
        let level = self.boxed()?;
        self.next_key("cmsg_type")?;
        let kind = self.boxed()?;
        self.next_key("cmsg_data")?;
        let data = self.boxed()?;
        self.expect_sign("}")?;
        Ok(Expr::Control { level, kind, data })
    }

    fn extended_error(&mut self) -> Result<Expr, Mismatch> {
        self.key("ee_errno")?;
        let errno = self.expr()?;
        self.next_key("ee_origin")?;
        let origin = self.expr()?;
        self.next_key("ee_type")?;
        let kind = self.expr()?;
        self.next_key("ee_code")?;
        let code = self.expr()?;
        self.next_key("ee_info")?;
        let info = self.expr()?;
        self.next_key("ee_data")?;
        let data = self.expr()?;
        self.expect_sign("}")?;
        Ok(Expr::ExtendedError(Box::new([
            errno, origin, kind, code, info, data,
        ])))
    }

    fn timestamping(&mut self) -> Result<Expr, Mismatch> {
        self.key("scm_sec")?;
        let seconds = self.signed()?;
        self.next_key("scm_nsec")?;
        let nanos = self.signed()?;
        self.expect_sign("}")?;
        Ok(Expr::Timestamping { seconds, nanos })
    }

    fn poll_fd(&mut self) -> Result<Expr, Mismatch> {
        self.key("fd")?;
        let fd = self.boxed()?;
        self.next_key("events")?;
        let events = self.boxed()?;
        let revents = if self.sign(",") {
            self.key("revents")?;
            self.boxed()?
        } else {
            Box::new(Expr::Int(0))
        };
        self.expect_sign("}")?;
        Ok(Expr::PollFd {
            fd,
            events,
            revents,
        })
    }

    fn epoll_event(&mut self) -> Result<Expr, Mismatch> {
        self.key("events")?;
        let events = self.boxed()?;
        self.expect_sign(",")?;
        let member = self.expect(Kind::Word, "a member of epoll_data")?;
        let data = match member.text.as_str() {
            "fd" => EpollData::Fd,
            "ptr" => EpollData::Ptr,
            "u32" => EpollData::U32,
            "u64" => EpollData::U64,
            other => {
                let cause = format!("'{other}' is no member of epoll_data");
                return Err(Mismatch::new(member.line, cause));
            }
        };
        self.expect_sign("=")?;
        let value = self.boxed()?;
        self.expect_sign("}")?;
        Ok(Expr::EpollEvent {
            events,
            data,
            value,
        })
    }

    fn linger(&mut self) -> Result<Expr, Mismatch> {
        self.key("onoff")?;
        let on = self.signed()?;
        self.next_key("linger")?;
        let seconds = self.signed()?;
        self.expect_sign("}")?;
        Ok(Expr::Linger { on, seconds })
    }
}

/// Resolves the backslash escapes of a string.
fn unescape(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text.chars();
    let mut utf8 = [0; 4];
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut utf8).bytes());
            continue;
        }
        match rest.next() {
            Some('\\') => out.push(b'\\'),
            Some('"') => out.push(b'"'),
            Some('f') => out.push(0x0c),
            Some('n') => out.push(b'\n'),
            Some('r') => out.push(b'\r'),
            Some('t') => out.push(b'\t'),
            Some('v') => out.push(0x0b),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                let byte = u8::from_str_radix(&digits, 16)
                    .map_err(|_| format!("\\x{digits} is no byte"))?;
                out.push(byte);
            }
            Some(other) => return Err(format!("\\{other} is no escape")),
            None => return Err("a string ends with a backslash".to_owned()),
        }
    }
    Ok(())
}
