//! Packets that the script expects from the stack.
//!
//! Packets that left are taken in order. Segments are joined until they are as long as the
//! script's, so the way in which the stack cuts its segments does not matter.

use super::compare::{self, Stamps};
use super::conn::Stage;
use super::{Runner, seconds};
use crate::Mismatch;
use crate::ast::{Body, Micros, Packet, Tcp, flag};
use crate::datagram::{Datagram, Segment};
use crate::option;

/// How long after its due time a packet is awaited, in µs.
const PATIENCE: Micros = 2_000_000;
/// How long a packet that may come at any time is awaited, in µs.
const PATIENCE_ANY: Micros = 3600 * 1_000_000;

/// A packet that left, in the script's sequence numbers.
pub(super) struct Seen {
    pub at: Micros,
    datagram: Datagram,
    pub segment: Segment,
}

impl Runner<'_> {
    /// Waits for the packet and compares it.
    pub(super) fn outbound(&mut self, packet: &Packet, at: usize) -> Result<(), Mismatch> {
        let Body::Tcp(tcp) = &packet.body else {
            return Err(self.mismatch("only TCP packets can be expected from the stack"));
        };
        let is_syn_ack = tcp.flags & flag::SYN != 0 && tcp.flags & flag::ACK != 0;
        if self.conns[at].stage == Stage::PacketReceived && is_syn_ack {
            self.conns[at].script_isn = tcp.seq;
        }
        let mut seen = self.gather(tcp, at, is_syn_ack)?;
        self.translate_timestamp(tcp, &mut seen, at);
        // A clock's error grows from the script's start, so the tolerance does too.
        let stamps = Stamps {
            tick: self.config.timestamp_tick,
            tolerance: self.tolerance(self.now_playing.at),
        };
        let outcome = compare::whole(packet.ip, tcp, &seen.datagram, &seen.segment, stamps)
            .and_then(|()| self.flow_label(packet.ip.flow_label, seen.datagram.flow_label, at));
        if let Err(cause) = outcome {
            return self.differs(&cause, tcp, &[seen]);
        }
        let due = self.now_playing;
        if let Err(late) = self.check_time(due, seen.at, "outbound packet") {
            return self.differs(&late.cause, tcp, &[seen]);
        }
        Ok(())
    }

    /// Joins segments that the stack sent, up to the expected length.
    fn gather(&mut self, tcp: &Tcp, at: usize, is_syn_ack: bool) -> Result<Seen, Mismatch> {
        let wanted = usize::from(tcp.payload);
        let mut parts: Vec<Seen> = Vec::new();
        let mut len = 0;
        loop {
            let Some(part) = self.sniff(at, is_syn_ack)? else {
                return Err(self.missing(tcp, &parts));
            };
            if let Some(before) = parts.last()
                && let Err(cause) = compare::continuation(
                    (&before.datagram, &before.segment),
                    (&part.datagram, &part.segment),
                    wanted.saturating_sub(len),
                )
            {
                parts.push(part);
                return Err(self.differing(&cause, tcp, &parts));
            }
            len += part.segment.payload.len();
            parts.push(part);
            if len >= wanted || self.config.strict_segments {
                break;
            }
        }
        if len != wanted {
            let cause = format!("payload: expected {wanted} bytes, seen {len}");
            return Err(self.differing(&cause, tcp, &parts));
        }
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else {
            return Err(self.mismatch("no packet"));
        };
        for part in parts {
            // The joined header is the last segment's, with the first one's sequence number and
            // CWR.
            let mut segment = part.segment;
            segment.seq = whole.segment.seq;
            segment.flags = segment.flags & !flag::CWR | whole.segment.flags & flag::CWR;
            let payload = std::mem::replace(&mut segment.payload, whole.segment.payload);
            segment.payload.extend(payload);
            whole = Seen { segment, ..part };
        }
        Ok(whole)
    }

    /// The next packet of the connection. None: none leaves in time.
    fn sniff(&mut self, at: usize, is_syn_ack: bool) -> Result<Option<Seen>, Mismatch> {
        let due = self.now_playing;
        let before = self.before.map_or(0, |before| before.at);
        let patience = match due.is_any {
            true => PATIENCE_ANY,
            // Round down to whole seconds: existing scripts have been tried with that.
            false => (due.until.unwrap_or(due.at) - before) / 1_000_000 * 1_000_000 + PATIENCE,
        };
        let limit = self.host.now() + patience;
        loop {
            while let Some(departure) = self.host.departed() {
                let datagram =
                    Datagram::parse(&departure.packet).map_err(|cause| self.mismatch(cause))?;
                if !self.owns(&datagram) {
                    self.note(format_args!(
                        "outbound, not of this connection: {}",
                        datagram.display()
                    ));
                    continue;
                }
                return Ok(Some(self.seen(departure.at, datagram, at, is_syn_ack)?));
            }
            if self.host.now() >= limit {
                return Ok(None);
            }
            self.host.step(limit);
            self.carry_on()?;
        }
    }

    /// A packet that left, translated into the script's numbers. The connection learns from it.
    pub(super) fn seen(
        &mut self,
        time: Micros,
        datagram: Datagram,
        at: usize,
        is_syn_ack: bool,
    ) -> Result<Seen, Mismatch> {
        let Some(mut segment) = datagram.tcp().cloned() else {
            return Err(self.mismatch("not a TCP packet"));
        };
        self.note(format_args!("outbound > {}", datagram.display()));
        let conn = &mut self.conns[at];
        if conn.stage == Stage::PacketReceived && is_syn_ack {
            conn.stage = Stage::SynAckSent;
            conn.live_isn = segment.seq;
        }
        let is_syn = segment.has(flag::SYN);
        let remote_offset = conn.remote_offset(is_syn);
        segment.seq = segment.seq.wrapping_add(conn.local_offset(is_syn));
        if segment.has(flag::ACK) {
            segment.ack = segment.ack.wrapping_add(remote_offset);
        }
        option::shift_sack(&mut segment.options, remote_offset);
        Ok(Seen {
            at: time,
            datagram,
            segment,
        })
    }

    /// Remembers the live TSval for the script's, and replaces it by its distance from the first
    /// one.
    fn translate_timestamp(&mut self, tcp: &Tcp, seen: &mut Seen, at: usize) {
        let Some(wanted) = &tcp.options else {
            return;
        };
        let (Some(script_at), Some(live_at)) = (
            option::timestamp_at(wanted),
            option::timestamp_at(&seen.segment.options),
        ) else {
            return;
        };
        let conn = &mut self.conns[at];
        let script = option::word(wanted, script_at);
        let live = option::word(&seen.segment.options, live_at);
        conn.timestamps.insert(script, live);
        let (first_script, first_live) = *conn.first_timestamp.get_or_insert((script, live));
        let value = live.wrapping_sub(first_live).wrapping_add(first_script);
        option::set_word(&mut seen.segment.options, live_at, value);
    }

    /// Checks that equal flow labels of the script are equal on the wire, and different ones
    /// different.
    fn flow_label(&mut self, script: u32, live: u32, at: usize) -> Result<(), String> {
        if script == 0 {
            return Ok(());
        }
        if live == 0 {
            return Err("the packet has no flow label".to_owned());
        }
        let conn = &mut self.conns[at];
        match conn.flow_label {
            Some((known, label)) if known == script && label != live => Err(format!(
                "flow label: expected {label:#x} as before, seen {live:#x}"
            )),
            Some((known, label)) if known != script && label == live => {
                Err(format!("flow label: expected another than {live:#x}"))
            }
            _ => {
                conn.flow_label = Some((script, live));
                Ok(())
            }
        }
    }

    /// The mismatch of a packet, or only a note in the trace if packets may differ.
    fn differs(&mut self, cause: &str, tcp: &Tcp, seen: &[Seen]) -> Result<(), Mismatch> {
        let mismatch = self.differing(cause, tcp, seen);
        if self.config.packets_may_differ {
            self.note(format_args!("warning: {}", mismatch.cause));
            return Ok(());
        }
        Err(mismatch)
    }

    fn differing(&self, cause: &str, tcp: &Tcp, seen: &[Seen]) -> Mismatch {
        let mut text = format!("{cause}\n  {}", self.script_line(tcp));
        for seen in seen {
            let packet = seen.segment.display(tcp.is_ace, true);
            text += &format!("\n  seen:     {} > {packet}", seconds(seen.at));
        }
        self.mismatch(text)
    }

    fn missing(&self, tcp: &Tcp, seen: &[Seen]) -> Mismatch {
        let mismatch = self.differing("expected packet did not come", tcp, seen);
        match seen.is_empty() {
            true => Mismatch {
                cause: mismatch.cause
                    + &format!("\n  seen:     nothing until {}", seconds(self.host.now())),
                ..mismatch
            },
            false => mismatch,
        }
    }

    fn script_line(&self, tcp: &Tcp) -> String {
        let wanted = compare::expected(tcp, &Segment::default());
        let mut packet = wanted.display(tcp.is_ace, tcp.window.is_some());
        if tcp.options.is_none() {
            packet += " <...>";
        }
        format!("expected: {} > {packet}", seconds(self.now_playing.at))
    }

    /// Fails if a packet of the connection has left for which the script has no line.
    pub(super) fn nothing_left(&mut self) -> Result<(), Mismatch> {
        self.host.turn();
        while let Some(departure) = self.host.departed() {
            let datagram =
                Datagram::parse(&departure.packet).map_err(|cause| self.mismatch(cause))?;
            if let (true, Some(at)) = (self.owns(&datagram), self.under_test) {
                let seen = self.seen(departure.at, datagram, at, false)?;
                let packet = seen.segment.display(false, true);
                return Err(self.mismatch(format!(
                    "a packet that the script does not expect\n  seen:     {} > {packet}",
                    seconds(seen.at)
                )));
            }
        }
        Ok(())
    }
}
