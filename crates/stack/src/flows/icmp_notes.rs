//! What ICMP errors said to sockets that are told more of them than `SO_ERROR` tells.
//!
//! Linux has two such ways for TCP. An error that ends an attempt to connect goes into the socket's error queue, with the packet that brought it; and
//! once `IP_RECVERR` or `IPV6_RECVERR` is set, an error about a connection that goes on is what the next call fails with. [`Core`] owns one
//! [`IcmpNotes`]; `other_in` feeds it, questions of the application ([`Control`](crate::context::Control)) empty it. A stack whose sockets ask for
//! neither never fills it.

use std::collections::VecDeque;

use rustix::io::Errno;
use wire::{Addr, ipv4};

use crate::context::{IcmpNote, IcmpNoteQuery, SocketOption, SoftErrorQuery};
use crate::core::Core;
use crate::flows::errno::errno_of;
use crate::flows::sockets::Role;
use crate::limits::ICMP_NOTES_MAX;
use crate::network::icmp::ErrorReport;
use ring::socket_block::SocketState;

/// An ICMP header without what it quotes.
const ICMP_HEADER_LEN: usize = 8;
/// `ICMP_PARAMETERPROB`
const V4_PARAMETER_PROBLEM: u8 = 12;

/// What waits to be told, by the index of its socket.
#[derive(Debug, Default)]
pub(crate) struct IcmpNotes {
    /// Two bits a socket: `IP_RECVERR`, `IPV6_RECVERR`. No words until the first is set.
    wanted: Vec<u64>,
    /// What the next call of a connection is to fail with.
    errors: VecDeque<(u32, u16)>,
    /// Attempts to connect that failed.
    notes: VecDeque<(u32, IcmpNote)>,
}

impl IcmpNotes {
    fn want(&mut self, socket: u32, v4: bool, v6: bool) {
        let (word, bit) = (socket as usize / 32, socket % 32 * 2);
        if self.wanted.len() <= word {
            if !v4 && !v6 {
                return;
            }
            self.wanted.resize(word + 1, 0);
        }
        let asked = u64::from(v4) | u64::from(v6) << 1;
        self.wanted[word] = self.wanted[word] & !(3 << bit) | asked << bit;
    }

    fn wants(&self, socket: u32, is_v4: bool) -> bool {
        let bit = socket % 32 * 2 + u32::from(!is_v4);
        let word = self.wanted.get(socket as usize / 32);
        word.is_some_and(|word| word >> bit & 1 != 0)
    }

    /// The index goes to another socket.
    pub fn forget(&mut self, socket: u32) {
        if !self.wanted.is_empty() {
            self.want(socket, false, false);
        }
        if !self.errors.is_empty() {
            self.errors.retain(|(of, _)| *of != socket);
        }
        if !self.notes.is_empty() {
            self.notes.retain(|(of, _)| *of != socket);
        }
    }
}

/// Takes the oldest that is the socket's.
fn take<T>(queue: &mut VecDeque<(u32, T)>, socket: u32) -> Option<T> {
    let at = queue.iter().position(|(of, _)| *of == socket)?;
    queue.remove(at).map(|(_, found)| found)
}

/// Adds one; the oldest of all gives way. False: it did.
fn add<T>(queue: &mut VecDeque<(u32, T)>, socket: u32, what: T) -> bool {
    let has_room = queue.len() < ICMP_NOTES_MAX;
    if !has_room {
        queue.pop_front();
    }
    queue.push_back((socket, what));
    has_room
}

impl Core {
    /// `IP_RECVERR` and `IPV6_RECVERR` of a connection.
    pub(crate) fn set_receive_errors(&mut self, socket: u32, option: SocketOption) {
        if let SocketOption::ReceiveErrors { v4, v6 } = option {
            self.icmp_notes.want(socket, v4, v6);
        }
    }

    /// An ICMP error was remembered by a connection that goes on.
    pub(crate) fn note_soft_error(&mut self, socket: u32, report: &ErrorReport) {
        let (slot, _, block) = self.sockets.parts(socket);
        block.add_state(SocketState::SOFT_ERROR);
        if !self.icmp_notes.wants(socket, report.flow.local.is_v4()) {
            return;
        }
        let error = slot.conn.as_mut().and_then(|conn| conn.take_soft_error());
        let errno = errno_of(error, SocketState::default());
        // One error is what a socket can hold: the latest.
        let _ = take(&mut self.icmp_notes.errors, socket);
        let had_room = add(&mut self.icmp_notes.errors, socket, errno);
        self.counters.icmp_notes_lost += u64::from(!had_room);
        block.add_state(SocketState::ERROR_WAITS);
        block.add_in_edge();
        block.add_out_edge();
        self.tell(socket);
    }

    /// An ICMP error, `packet` with its IP header, ended an attempt to connect. Of IPv6 it is kept only for who asked for it.
    pub(crate) fn note_refusal(&mut self, socket: u32, report: &ErrorReport, packet: &[u8]) {
        let is_v4 = report.flow.local.is_v4();
        if self.sockets.role(socket) != Role::Ended {
            // Nobody holds it any more.
            return;
        }
        if !is_v4 && !self.icmp_notes.wants(socket, false) {
            return;
        }
        let (_, _, block) = self.sockets.parts(socket);
        let Some(note) = note(report, packet, block.state().errno()) else {
            return;
        };
        let had_room = add(&mut self.icmp_notes.notes, socket, note);
        self.counters.icmp_notes_lost += u64::from(!had_room);
        block.add_state(SocketState::REFUSED_BY_ICMP);
    }

    pub(crate) fn answer_icmp_note(&mut self, mut query: IcmpNoteQuery) {
        let note = self.sockets.resolve(query.socket).and_then(|socket| {
            let note = take(&mut self.icmp_notes.notes, socket);
            let (_, _, block) = self.sockets.parts(socket);
            block.clear_state(SocketState::REFUSED_BY_ICMP);
            note
        });
        // Who asked may have gone.
        let _ = query.answer.push(note);
    }

    /// What an ICMP error said of a connection that goes on.
    pub(crate) fn answer_soft_error(&mut self, mut query: SoftErrorQuery) {
        let errno = self.sockets.resolve(query.socket).map(|socket| {
            if let Some(errno) = take(&mut self.icmp_notes.errors, socket) {
                let (_, _, block) = self.sockets.parts(socket);
                block.clear_state(SocketState::ERROR_WAITS);
                return errno;
            }
            let conn = self.sockets.slot(socket).conn.as_mut();
            let error = conn.and_then(|conn| conn.take_soft_error());
            errno_of(error, SocketState::default())
        });
        // Who asked may have gone.
        let _ = query.answer.push(errno.unwrap_or(0));
    }
}

/// What is told of a message that quotes a segment of ours. None: it is cut short.
fn note(report: &ErrorReport, packet: &[u8], errno: u16) -> Option<IcmpNote> {
    let is_v4 = report.flow.local.is_v4();
    let (icmp, sender) = if is_v4 {
        let header = ipv4::Header::parse(packet, packet.len()).ok()?;
        (
            packet.get(usize::from(header.header_len)..)?,
            Addr::from(header.src),
        )
    } else {
        let header = wire::ipv6::Header::parse(packet, packet.len()).ok()?;
        let (_, at) = wire::ipv6::upper_layer(&header, packet).ok()?;
        (packet.get(at..)?, Addr::from(header.src))
    };
    // Our own packets have no options and no extension headers.
    let headers = if is_v4 {
        wire::ipv4::HEADER_LEN
    } else {
        wire::ipv6::HEADER_LEN
    };
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let word = u32::from_be_bytes(icmp.get(4..ICMP_HEADER_LEN)?.try_into().ok()?);
    let info = match is_v4 {
        true if kind == V4_PARAMETER_PROBLEM => word >> 24,
        true => 0,
        false => word,
    };
    let segment = icmp.get(ICMP_HEADER_LEN + headers..)?;
    let mut note = IcmpNote {
        errno: if errno == 0 {
            Errno::PROTO.raw_os_error() as u16
        } else {
            errno
        },
        kind,
        code,
        info,
        sender: sender.to_ip(),
        quoted: [0; IcmpNote::QUOTED_BYTES_MAX],
        quoted_len: segment.len().min(IcmpNote::QUOTED_BYTES_MAX),
    };
    note.quoted[..note.quoted_len].copy_from_slice(&segment[..note.quoted_len]);
    Some(note)
}
