//! A play without expectations: what the host does is recorded.
//!
//! At a line that expects a packet the play waits for any packet. Calls are made and their results
//! noted.

use posix::{ControlMessage, Errno, Reply, number};

use super::Runner;
use super::arguments::int;
use super::calls::makes_fd;
use super::conn::Stage;
use crate::ast::{Call, Micros, flag};
use crate::datagram::Datagram;
use crate::record::FIRST_TIMESTAMP;
use crate::{Mismatch, option, symbols};

/// How long after its due time a packet is awaited, in µs.
const PATIENCE: Micros = 100_000;

/// Bytes of a `struct sock_extended_err`.
const EXTENDED_ERROR_BYTES: usize = 16;

impl Runner<'_> {
    /// Moves the packets that have left into the record.
    pub(super) fn collect(&mut self) -> Result<(), Mismatch> {
        if !self.options.record {
            return Ok(());
        }
        while let Some(departure) = self.host.departed() {
            let Ok(datagram) = Datagram::parse(&departure.packet) else {
                self.record.said(departure.at, "a bad packet".to_owned());
                continue;
            };
            if let Some(at) = self.under_test
                && self.conns[at].stage == Stage::Connecting
            {
                self.conns[at].stage = Stage::SynSent;
            }
            if !self.owns(&datagram) {
                continue;
            }
            let (Some(at), Some(segment)) = (self.under_test, datagram.tcp()) else {
                continue;
            };
            let is_syn_ack = segment.has(flag::SYN | flag::ACK);
            // A host without the connection resets it with sequence number 0, which is no relative
            // number.
            let is_zero = segment.has(flag::RST) && segment.seq == 0;
            let mut seen = self.seen(departure.at, datagram, at, is_syn_ack)?;
            if is_zero {
                seen.segment.seq = 0;
            }
            if let Some(place) = option::timestamp_at(&seen.segment.options) {
                let live = option::word(&seen.segment.options, place);
                let conn = &mut self.conns[at];
                let (_, first) = *conn.first_timestamp.get_or_insert((FIRST_TIMESTAMP, live));
                let value = live.wrapping_sub(first).wrapping_add(FIRST_TIMESTAMP);
                option::set_word(&mut seen.segment.options, place, value);
                conn.timestamps_seen.insert(value);
            }
            self.record.packet(seen.at, seen.segment);
        }
        Ok(())
    }

    /// Waits for a packet where the script expects one, and takes any.
    pub(super) fn await_any(&mut self) -> Result<(), Mismatch> {
        let due = self.now_playing;
        self.claimed += 1;
        let until = due.until.unwrap_or(due.at);
        self.collect()?;
        while self.record.packets() < self.claimed && self.host.now() < until + PATIENCE {
            self.host.step(until + PATIENCE);
            self.carry_on()?;
            self.collect()?;
        }
        self.claimed = self.claimed.min(self.record.packets());
        self.pass_until(due.at)
    }

    /// Adds a line to the record.
    pub(super) fn say(&mut self, text: String) -> Result<(), Mismatch> {
        if self.options.record {
            let now = self.host.now();
            self.record.said(now, text);
        }
        Ok(())
    }

    /// Records a call and its result.
    pub(super) fn record_call(
        &mut self,
        call: &Call,
        result: Result<i64, Errno>,
        reply: &Reply,
    ) -> Result<(), Mismatch> {
        let returned = match result {
            Ok(_) if makes_fd(call) => "a descriptor".to_owned(),
            Ok(value) => value.to_string(),
            Err(errno) => format!("-1 {}", symbols::error_name(errno.raw_os_error())),
        };
        let gave = match reply {
            _ if result.is_err() => String::new(),
            Reply::Bytes(value) if call.name == "getsockopt" && value.len() <= 8 => {
                format!(" {value:?}")
            }
            Reply::Int(value) if call.name == "ioctl" => format!(" [{value}]"),
            Reply::Message { control, flags, .. } => {
                let told: Vec<_> = control.iter().map(told).collect();
                format!(" [{}] flags {flags:#x}", told.join(", "))
            }
            Reply::Poll(fds) => {
                let events = fds
                    .iter()
                    .map(|entry| symbols::events("POLL", u32::from(entry.revents as u16)));
                format!(" {:?}", events.collect::<Vec<_>>())
            }
            Reply::Epoll(seen) => {
                let events = seen.iter().map(|one| symbols::events("EPOLL", one.events));
                format!(" {:?}", events.collect::<Vec<_>>())
            }
            _ => String::new(),
        };
        self.say(format!("{} = {returned}{gave}", call.name))?;
        let expected = int(&call.result).unwrap_or(0) as i32;
        if let Ok(value) = result
            && !(makes_fd(call) && expected < 0)
        {
            // A mismatch is of no interest here: nothing is expected.
            let _ = self.follow(call, value as i32, expected, reply);
        }
        Ok(())
    }
}

/// Names of the values printed by the `print` number `at` of `code`, without their common prefix.
/// They name the class of a difference.
pub(super) fn names_of(code: &str, at: usize) -> Vec<String> {
    let arguments = code.split("print(").nth(at + 1);
    let Some((arguments, _)) = arguments.and_then(|text| text.split_once(')')) else {
        return Vec::new();
    };
    let names = arguments.split(',').map(str::trim);
    names
        .map(|name| name.trim_start_matches("tcpi_").to_owned())
        .collect()
}

/// A control message as text. It shows what the kernel says of an error, and leaves out times.
fn told(message: &ControlMessage) -> String {
    let ControlMessage { level, kind, data } = message;
    let shown = match (*level, *kind) {
        (number::SOL_IP, number::IP_RECVERR) | (number::SOL_IPV6, number::IPV6_RECVERR) => {
            data.get(..EXTENDED_ERROR_BYTES).unwrap_or(data)
        }
        (number::SOL_TCP, _) => data,
        _ => &[],
    };
    format!("({level}, {kind}) {shown:?}")
}
