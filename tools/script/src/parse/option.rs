//! TCP options, from `<mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 8>` to the bytes of the header.

use super::Parser;
use crate::Mismatch;
use crate::lex::Kind;
use crate::option::kind;

const OPTION_BYTES_MAX: usize = 40;

impl Parser {
    /// The bytes of the options: none if none are written; None for `<...>`.
    pub(super) fn tcp_options(&mut self) -> Result<Option<Vec<u8>>, Mismatch> {
        let mut bytes = Vec::new();
        if !self.is_sign("<") || !self.starts_options() {
            return Ok(Some(bytes));
        }
        self.expect_sign("<")?;
        if self.is_at(Kind::Ellipsis) {
            self.take();
            self.expect_sign(">")?;
            return Ok(None);
        }
        loop {
            self.tcp_option(&mut bytes)?;
            if bytes.len() > OPTION_BYTES_MAX {
                return Err(self.fault("the TCP options are too long"));
            }
            if !self.sign(",") {
                break;
            }
        }
        self.expect_sign(">")?;
        if !bytes.len().is_multiple_of(4) {
            return Err(self.fault("the TCP options do not fill whole words: pad them with nop"));
        }
        Ok(Some(bytes))
    }

    /// Whether the next `<` begins options. Otherwise it begins the next event's packet.
    fn starts_options(&self) -> bool {
        matches!(self.ahead(1).kind, Kind::Word | Kind::Ellipsis)
    }

    fn tcp_option(&mut self, out: &mut Vec<u8>) -> Result<(), Mismatch> {
        let name = self.expect(Kind::Word, "a TCP option")?;
        match name.text.as_str() {
            "nop" => out.push(kind::NOP),
            "eol" => out.push(kind::END),
            "mss" => {
                out.extend([kind::MSS, 4]);
                out.extend(self.u16("mss")?.to_be_bytes());
            }
            "wscale" => out.extend([kind::WINDOW_SCALE, 3, self.u8("window scale")?]),
            "sackOK" => out.extend([kind::SACK_PERMITTED, 2]),
            "sack" => self.sack(out)?,
            "TS" => {
                self.expect_word("val")?;
                let value = self.u32("TS val")?;
                self.expect_word("ecr")?;
                let echo = self.u32("TS ecr")?;
                out.extend([kind::TIMESTAMP, 10]);
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            "md5" => {
                // A digest may be shorter than 16 bytes, for scripts about truncated options.
                let digest = self.hex(16)?;
                with_length(out, kind::MD5, &digest);
            }
            "FO" => {
                let cookie = self.hex(OPTION_BYTES_MAX - 2)?;
                with_length(out, kind::FAST_OPEN, &cookie);
            }
            "FOEXP" => {
                let mut body = vec![0xf9, 0x89];
                body.extend(self.hex(OPTION_BYTES_MAX - 4)?);
                with_length(out, kind::EXPERIMENT, &body);
            }
            "ECN" => self.accurate_ecn(out)?,
            other => {
                let cause = format!("'{other}' is no TCP option");
                return Err(Mismatch::new(name.line, cause));
            }
        }
        Ok(())
    }

    /// `sack 1:1001 2001:3001`
    fn sack(&mut self, out: &mut Vec<u8>) -> Result<(), Mismatch> {
        let mut blocks = Vec::new();
        while self.is_at(Kind::Int) {
            blocks.extend(self.u32("SACK edge")?.to_be_bytes());
            self.expect_sign(":")?;
            blocks.extend(self.u32("SACK edge")?.to_be_bytes());
            if blocks.len() > OPTION_BYTES_MAX {
                return Err(self.fault("too many SACK blocks"));
            }
        }
        if blocks.is_empty() {
            return Err(self.unexpected("a SACK block"));
        }
        with_length(out, kind::SACK, &blocks);
        Ok(())
    }

    /// Bytes of a cookie or digest in hexadecimal digits. Without digits there are none.
    fn hex(&mut self, bytes_max: usize) -> Result<Vec<u8>, Mismatch> {
        if !matches!(self.peek().kind, Kind::Word | Kind::Int) {
            return Ok(Vec::new());
        }
        let token = self.take();
        let digits = token.text.as_bytes();
        let bytes: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| {
                let pair = std::str::from_utf8(pair).ok()?;
                (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok())?
            })
            .collect();
        match bytes {
            Some(bytes) if bytes.len() <= bytes_max => Ok(bytes),
            _ => Err(Mismatch::new(
                token.line,
                format!("'{}' is not a cookie in hexadecimal", token.text),
            )),
        }
    }

    /// `ECN e1b 1 ceb 0 e0b 1`: the counters of accurate ECN, in either order. The last ones may be
    /// left out.
    fn accurate_ecn(&mut self, out: &mut Vec<u8>) -> Result<(), Mismatch> {
        let (kind, order) = if self.is_word("e0b") {
            (kind::ACCURATE_ECN_0, ["e0b", "ceb", "e1b"])
        } else {
            (kind::ACCURATE_ECN_1, ["e1b", "ceb", "e0b"])
        };
        let mut fields = Vec::new();
        for (at, name) in order.iter().enumerate() {
            if at > 0 && !self.is_word(name) {
                break;
            }
            self.expect_word(name)?;
            let count = self.int(0xff_ffff, "ECN byte counter")? as u32;
            fields.extend(&count.to_be_bytes()[1..]);
        }
        with_length(out, kind, &fields);
        Ok(())
    }
}

fn with_length(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.extend([kind, body.len() as u8 + 2]);
    out.extend(body);
}
