//! Packets of a script that arrive at the host.

use super::Runner;
use super::conn::Stage;
use crate::Mismatch;
use crate::ast::{Body, Packet, Ports, Tcp, Tos, flag};
use crate::datagram::{Content, Datagram, Segment};
use crate::icmp::{self, Flow};
use crate::option;

/// TTL of the packets that hosts send.
const TTL: u8 = 255;

/// The longest packet that is injected.
const PACKET_BYTES_MAX: usize = 65_535;

impl Runner<'_> {
    /// Turns the script's packet into a live one and injects it.
    pub(super) fn inbound(&mut self, packet: &Packet, at: usize) -> Result<(), Mismatch> {
        if let Body::Tcp(tcp) = &packet.body {
            self.advance_stage(tcp, at);
        }
        let body = match &packet.body {
            Body::Tcp(tcp) => self.live_segment(tcp, at).map(Content::Tcp),
            Body::Icmp(message) => {
                let conn = &self.conns[at];
                let flow = Flow {
                    local: conn.local,
                    remote: conn.remote,
                    seq_offset: 0u32.wrapping_sub(conn.local_offset(false)),
                };
                icmp::message(message, &flow).map(Content::Icmp)
            }
            Body::Udp { ports, payload } => Ok(Content::Udp(self.udp(*ports, *payload, at))),
        };
        let conn = &self.conns[at];
        let datagram = Datagram {
            src: conn.remote.0,
            dst: conn.local.0,
            tos: match packet.ip.tos {
                Some(Tos::Ecn(bits) | Tos::Byte(bits)) => bits,
                Some(Tos::Ect01) | None => 0,
            },
            ttl: if packet.ip.ttl == 0 {
                TTL
            } else {
                packet.ip.ttl
            },
            flow_label: packet.ip.flow_label,
            body: body.map_err(|cause| self.mismatch(cause))?,
        };
        let len = datagram.byte_len();
        if len > PACKET_BYTES_MAX {
            return Err(self.mismatch(format!("a packet of {len} bytes is too long")));
        }
        self.note(format_args!("inbound  < {}", datagram.display()));
        let packets: Vec<Vec<u8>> = match &datagram.body {
            Content::Tcp(whole)
                if self.config.mss > 0
                    && !whole.has(flag::SYN)
                    && !self.host.takes_aggregates() =>
            {
                segments(whole, self.config.mss)
                    .map(|part| datagram.with(Content::Tcp(part)).emit())
                    .collect()
            }
            _ => vec![datagram.emit()],
        };
        self.host
            .inject(&packets)
            .map_err(|cause| self.mismatch(cause))?;
        self.carry_on()?;
        self.collect()
    }

    fn advance_stage(&mut self, tcp: &Tcp, at: usize) {
        let conn = &mut self.conns[at];
        let has_ack = tcp.flags & flag::ACK != 0;
        if conn.stage == Stage::SynAckSent && has_ack {
            conn.stage = Stage::SynAckAcked;
        } else if conn.stage == Stage::SynSent && has_ack && tcp.flags & flag::SYN != 0 {
            conn.stage = Stage::SynAcked;
            conn.remote_isn = tcp.seq;
        }
    }

    fn live_segment(&self, tcp: &Tcp, at: usize) -> Result<Segment, String> {
        let conn = &self.conns[at];
        let is_syn = tcp.flags & flag::SYN != 0;
        let has_ack = tcp.flags & flag::ACK != 0;
        let local_offset = 0u32.wrapping_sub(conn.local_offset(is_syn));
        let remote_offset = 0u32.wrapping_sub(conn.remote_offset(is_syn));
        let mut options = tcp.options.clone().unwrap_or_default();
        option::shift_sack(&mut options, local_offset);
        if let (true, Some(value_at)) = (has_ack, option::timestamp_at(&options)) {
            let echo = self.live_echo(option::word(&options, value_at + 4), at)?;
            option::set_word(&mut options, value_at + 4, echo);
        }
        let port = |written: u16, own: u16| if written == 0 { own } else { written };
        Ok(Segment {
            src_port: port(tcp.ports.src, conn.remote.1),
            dst_port: port(tcp.ports.dst, conn.local.1),
            seq: tcp.seq.wrapping_add(remote_offset),
            ack: if has_ack {
                tcp.ack.wrapping_add(local_offset)
            } else {
                tcp.ack
            },
            flags: tcp.flags,
            reserved: 0,
            window: tcp.window.unwrap_or(0),
            urgent: tcp.urgent,
            options,
            payload: vec![0; usize::from(tcp.payload)],
        })
    }

    /// The live timestamp for a TSecr of the script: the TSval that left where the script writes
    /// this value.
    fn live_echo(&self, echo: u32, at: usize) -> Result<u32, String> {
        let conn = &self.conns[at];
        if let Some(live) = conn.timestamps.get(&echo) {
            return Ok(*live);
        }
        let echo = match self.options.echoes_what_left {
            true => conn.nearest_timestamp(echo),
            false => echo,
        };
        match conn.first_timestamp {
            Some((script, live)) if self.config.scales_echo || self.options.record => {
                Ok(echo.wrapping_sub(script).wrapping_add(live))
            }
            _ if self.options.record => Ok(echo),
            _ => Err(format!(
                "TS ecr {echo} echoes no TS val that an outbound packet of the script has"
            )),
        }
    }

    fn udp(&self, ports: Ports, payload: u16, at: usize) -> Vec<u8> {
        let conn = &self.conns[at];
        let port = |written: u16, own: u16| if written == 0 { own } else { written };
        let mut bytes = port(ports.src, conn.remote.1).to_be_bytes().to_vec();
        bytes.extend(port(ports.dst, conn.local.1).to_be_bytes());
        bytes.extend(payload.saturating_add(8).to_be_bytes());
        // The checksum stays zero, which means none in UDP.
        bytes.resize(usize::from(payload) + 8, 0);
        bytes
    }
}

/// Segments into which a sender cut `whole` before aggregation merged them.
fn segments(whole: &Segment, mss: usize) -> impl Iterator<Item = Segment> {
    let len = whole.payload.len();
    (0..len.div_ceil(mss).max(1)).map(move |part| {
        let (from, to) = (part * mss, len.min((part + 1) * mss));
        // CWR belongs to the first segment only, FIN and PSH to the last.
        let mut flags = whole.flags;
        if from > 0 {
            flags &= !flag::CWR;
        }
        if to < len {
            flags &= !(flag::PSH | flag::FIN);
        }
        // The urgent pointer counts from each segment's own start. Segments behind the mark have
        // none.
        let mut urgent = whole.urgent;
        if from > 0 && whole.has(flag::URG) {
            urgent = usize::from(urgent).saturating_sub(from) as u16;
            if urgent == 0 {
                flags &= !flag::URG;
            }
        }
        Segment {
            seq: whole.seq.wrapping_add(from as u32),
            flags,
            urgent,
            payload: whole.payload[from..to].to_vec(),
            ..whole.clone()
        }
    })
}
