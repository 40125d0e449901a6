//! Packets: `> [ect0] P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>`, `< icmp unreachable
//! ..`.

use super::Parser;
use crate::Mismatch;
use crate::ast::{Body, Direction, Icmp, IpInfo, Packet, Ports, Quoted, Tcp, Tos, flag};
use crate::lex::Kind;

impl Parser {
    pub(super) fn packet(&mut self) -> Result<Packet, Mismatch> {
        let direction = if self.sign("<") {
            Direction::Inbound
        } else if self.sign(">") {
            Direction::Outbound
        } else {
            return Err(self.unexpected("'<' or '>'"));
        };
        if ["ipv4", "ipv6", "gre", "GREv0", "mpls"]
            .iter()
            .any(|layer| self.is_word(layer))
        {
            return Err(self.fault("packets within packets are not supported"));
        }
        let ip = self.ip_info()?;
        if self.is_word("encap") {
            return Err(self.fault("PSP is not supported"));
        }
        let body = if self.word("icmp") {
            Body::Icmp(self.icmp()?)
        } else if self.word("udp") {
            self.udp()?
        } else {
            Body::Tcp(self.tcp(direction)?)
        };
        if direction == Direction::Inbound && ip.tos == Some(Tos::Ect01) {
            return Err(self.fault("[ect01] is for outbound packets only"));
        }
        Ok(Packet {
            direction,
            ip,
            body,
        })
    }

    fn ip_info(&mut self) -> Result<IpInfo, Mismatch> {
        let mut info = IpInfo::default();
        let close = if self.sign("(") {
            ")"
        } else if self.sign("[") {
            "]"
        } else {
            return Ok(info);
        };
        loop {
            let token = self.expect(Kind::Word, "a field of the IP header")?;
            match token.text.as_str() {
                "noecn" => info.tos = Some(Tos::Ecn(0)),
                "ect1" => info.tos = Some(Tos::Ecn(1)),
                "ect0" => info.tos = Some(Tos::Ecn(2)),
                "ce" => info.tos = Some(Tos::Ecn(3)),
                "ect01" => info.tos = Some(Tos::Ect01),
                "tos" => info.tos = Some(Tos::Byte(self.u8("tos")?)),
                "ttl" => info.ttl = self.u8("ttl")?,
                "flowlabel" => info.flow_label = self.int(0xf_ffff, "flowlabel")? as u32,
                other => {
                    let cause = format!("'{other}' is no field of the IP header");
                    return Err(Mismatch::new(token.line, cause));
                }
            }
            if !self.sign(",") {
                self.expect_sign(close)?;
                return Ok(info);
            }
        }
    }

    fn ports(&mut self) -> Result<Ports, Mismatch> {
        if !self.is_at(Kind::Int) {
            return Ok(Ports::default());
        }
        let src = self.u16("source port")?;
        self.expect_sign(">")?;
        let dst = self.u16("destination port")?;
        Ok(Ports { src, dst })
    }

    fn udp(&mut self) -> Result<Body, Mismatch> {
        let ports = self.ports()?;
        self.expect_sign("(")?;
        let payload = self.u16("UDP payload")?;
        self.expect_sign(")")?;
        Ok(Body::Udp { ports, payload })
    }

    fn tcp(&mut self, direction: Direction) -> Result<Tcp, Mismatch> {
        let ports = self.ports()?;
        let (flags, is_ace) = self.flags()?;
        let (seq, payload) = self.sequence()?;
        let ack = if self.word("ack") {
            self.u32("ACK number")?
        } else {
            0
        };
        let window = if self.word("win") {
            Some(self.u16("window")?)
        } else {
            None
        };
        if direction == Direction::Inbound && window.is_none() {
            return Err(self.fault("an inbound packet needs a window"));
        }
        let urgent = if self.word("urg") {
            self.u16("urgent pointer")?
        } else {
            0
        };
        let options = self.tcp_options()?;
        if direction == Direction::Inbound && options.is_none() {
            return Err(self.fault("<...> is for outbound packets only"));
        }
        Ok(Tcp {
            ports,
            flags,
            is_ace,
            seq,
            payload,
            ack,
            window,
            urgent,
            options,
        })
    }

    /// `S`, `P.`, `.`, or `-` for no flags; `.5` is ACK with an ACE counter of 5.
    fn flags(&mut self) -> Result<(u16, bool), Mismatch> {
        if self.sign("-") {
            return Ok((0, false));
        }
        let line = self.peek().line;
        let mut text = String::new();
        if self.is_at(Kind::Word) {
            text += &self.take().text;
        }
        if self.is_at(Kind::Float) {
            text += &self.take().text;
        } else if self.sign(".") {
            text.push('.');
        }
        if text.is_empty() {
            return Err(self.unexpected("the flags of a packet"));
        }
        let mut flags = 0;
        let mut ace = None;
        for c in text.chars() {
            flags |= match c {
                'F' => flag::FIN,
                'S' => flag::SYN,
                'R' => flag::RST,
                'P' => flag::PSH,
                '.' => flag::ACK,
                'U' => flag::URG,
                'E' => flag::ECE,
                'W' => flag::CWR,
                'A' => flag::AE,
                '0'..='7' if ace.is_none() => {
                    let count = c as u16 - '0' as u16;
                    ace = Some(count);
                    count << 6
                }
                _ => return Err(Mismatch::new(line, format!("'{c}' is no TCP flag"))),
            };
        }
        if ace.is_some() && text.contains(['E', 'W', 'A']) {
            return Err(Mismatch::new(
                line,
                "an ACE counter excludes the flags E, W and A",
            ));
        }
        Ok((flags, ace.is_some_and(|count| count != 0)))
    }

    /// `1:1001(1000)`
    fn sequence(&mut self) -> Result<(u32, u16), Mismatch> {
        let line = self.peek().line;
        let start = self.u32("sequence number")?;
        self.expect_sign(":")?;
        let end = self.u32("sequence number")?;
        self.expect_sign("(")?;
        let payload = self.u16("payload size")?;
        self.expect_sign(")")?;
        if u64::from(end) != u64::from(start) + u64::from(payload) {
            return Err(Mismatch::new(
                line,
                format!("{start} and {payload} bytes do not make {end}"),
            ));
        }
        Ok((start, payload))
    }

    fn icmp(&mut self) -> Result<Icmp, Mismatch> {
        let kind = self.expect(Kind::Word, "the type of an ICMP message")?.text;
        let code = if self.is_at(Kind::Word) && !self.is_word("mtu") && !self.is_word("id") {
            Some(self.take().text)
        } else {
            None
        };
        let mtu = if self.word("mtu") {
            Some(self.u32("MTU")?)
        } else {
            None
        };
        let id = if self.word("id") { self.u16("id")? } else { 0 };
        let quoted = self.quoted()?;
        Ok(Icmp {
            kind,
            code,
            mtu,
            id,
            quoted,
        })
    }

    /// The quoted packet: `[1:1461(1460)]`, `[udp (100)]`, `[raw (64)]`. Without brackets it is a
    /// TCP segment at sequence number 0, without data.
    fn quoted(&mut self) -> Result<Quoted, Mismatch> {
        if !self.sign("[") {
            return Ok(Quoted::Tcp { seq: 0, payload: 0 });
        }
        let is_udp = self.word("udp");
        let is_raw = !is_udp && self.word("raw");
        let quoted = if is_udp || is_raw {
            self.expect_sign("(")?;
            let bytes = self.u16("size")?;
            self.expect_sign(")")?;
            if is_udp {
                Quoted::Udp { payload: bytes }
            } else {
                Quoted::Raw { bytes }
            }
        } else {
            let (seq, payload) = self.sequence()?;
            Quoted::Tcp { seq, payload }
        };
        self.expect_sign("]")?;
        Ok(quoted)
    }
}
