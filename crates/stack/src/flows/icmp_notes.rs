//! ICMP errors kept for sockets, beyond what `SO_ERROR` tells.
//!
//! Linux offers two ways for TCP. An error that ends an attempt to connect goes into the socket's
//! error queue, with the packet that brought it. With `IP_RECVERR` or `IPV6_RECVERR` set, the next
//! call on a live connection fails with the error. `other_in` fills [`IcmpNotes`]; requests of the
//! application ([`Control`](crate::context::Control)) empty it.

use std::collections::VecDeque;

use ring::socket_block::{SocketBlock, SocketState};
use rustix::io::Errno;
use wire::{Addr, ipv4};

use crate::context::{IcmpNote, IcmpNoteQuery, SoftErrorQuery};
use crate::flows::errno::errno_of;
use crate::flows::slot::Slot;
use crate::flows::sockets::Sockets;
use crate::limits::ICMP_NOTES_MAX;
use crate::network::icmp::ErrorReport;

/// Length of the ICMP header, before the quoted packet.
const ICMP_HEADER_LEN: usize = 8;
/// `ICMP_PARAMETERPROB`
const V4_PARAMETER_PROBLEM: u8 = 12;

/// ICMP errors that applications have not fetched, by socket index.
#[derive(Debug, Default)]
pub(crate) struct IcmpNotes {
    /// Two bits per socket: `IP_RECVERR`, `IPV6_RECVERR`. Empty until a socket sets one.
    wanted: Vec<u64>,
    /// Socket and errno: the next call on that live connection fails with it.
    errors: VecDeque<(u32, u16)>,
    /// Socket and error of attempts to connect that failed.
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

    /// Forgets everything about a socket index, because another socket gets it.
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

/// Removes and returns the oldest entry of a socket.
fn take<T>(queue: &mut VecDeque<(u32, T)>, socket: u32) -> Option<T> {
    let at = queue.iter().position(|(of, _)| *of == socket)?;
    queue.remove(at).map(|(_, found)| found)
}

/// Adds an entry; at the limit the oldest one of any socket is dropped. False: one was dropped.
fn add<T>(queue: &mut VecDeque<(u32, T)>, socket: u32, what: T) -> bool {
    let has_room = queue.len() < ICMP_NOTES_MAX;
    if !has_room {
        queue.pop_front();
    }
    queue.push_back((socket, what));
    has_room
}

impl IcmpNotes {
    /// Sets `IP_RECVERR` and `IPV6_RECVERR` of a connection.
    pub fn set_receive_errors(&mut self, socket: u32, v4: bool, v6: bool) {
        self.want(socket, v4, v6);
    }

    /// Notes an ICMP error about a live connection. True: its application must be told. `lost`
    /// counts entries dropped at the limit.
    pub fn note_soft_error(
        &mut self,
        (socket, slot, block): (u32, &mut Slot, &SocketBlock),
        report: &ErrorReport,
        lost: &mut u64,
    ) -> bool {
        block.add_state(SocketState::SOFT_ERROR);
        if !self.wants(socket, report.flow.local.is_v4()) {
            return false;
        }
        let error = slot.conn.as_mut().and_then(|conn| conn.take_soft_error());
        let errno = errno_of(error, SocketState::default());
        // A socket holds one error: the latest.
        let _ = take(&mut self.errors, socket);
        let had_room = add(&mut self.errors, socket, errno);
        *lost += u64::from(!had_room);
        block.add_state(SocketState::ERROR_WAITS);
        block.add_in_edge();
        block.add_out_edge();
        true
    }

    /// Notes the ICMP error that ended an attempt to connect; `packet` begins with its IP header.
    /// Over IPv6 the socket must have set `IPV6_RECVERR`.
    pub fn note_refusal(
        &mut self,
        (socket, block): (u32, &SocketBlock),
        report: &ErrorReport,
        packet: &[u8],
        lost: &mut u64,
    ) {
        let is_v4 = report.flow.local.is_v4();
        if !is_v4 && !self.wants(socket, false) {
            return;
        }
        let Some(note) = note(report, packet, block.state().errno()) else {
            return;
        };
        let had_room = add(&mut self.notes, socket, note);
        *lost += u64::from(!had_room);
        block.add_state(SocketState::REFUSED_BY_ICMP);
    }

    /// Answers a request with the oldest error that ended an attempt to connect of the socket.
    pub fn answer_note(&mut self, sockets: &Sockets, mut query: IcmpNoteQuery) {
        let note = sockets.resolve(query.socket).and_then(|socket| {
            let note = take(&mut self.notes, socket);
            sockets
                .block(socket)
                .clear_state(SocketState::REFUSED_BY_ICMP);
            note
        });
        // The thread that asked may be gone.
        let _ = query.answer.push(note);
    }

    /// Answers a request with the error that a live connection remembers.
    pub fn answer_soft_error(&mut self, sockets: &mut Sockets, mut query: SoftErrorQuery) {
        let errno = sockets.resolve(query.socket).map(|socket| {
            if let Some(errno) = take(&mut self.errors, socket) {
                sockets.block(socket).clear_state(SocketState::ERROR_WAITS);
                return errno;
            }
            let conn = sockets.slot(socket).conn.as_mut();
            let error = conn.and_then(|conn| conn.take_soft_error());
            errno_of(error, SocketState::default())
        });
        // The thread that asked may be gone.
        let _ = query.answer.push(errno.unwrap_or(0));
    }
}

/// The note of an ICMP message that quotes one of our segments. `None`: the message is too short.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::icmp::ErrorKind;

    #[test]
    fn forgotten_socket_takes_only_what_is_its_own() {
        let mut notes = IcmpNotes::default();
        notes.set_receive_errors(1, true, false);
        notes.set_receive_errors(2, false, true);
        assert!(add(&mut notes.errors, 1, 111) && add(&mut notes.errors, 2, 113));
        notes.forget(1);
        assert_eq!(notes.errors, [(2, 113)]);
        assert!(!notes.wants(1, true) && notes.wants(2, false) && !notes.wants(2, true));
    }

    /// The `info` of an ICMP message of `kind` about one of our segments, from 10.0.0.9; `word` is
    /// its second word.
    fn info_of(kind: u8, word: [u8; 4]) -> u32 {
        let mut packet = vec![0; 20 + 8 + 20 + 8];
        let header = ipv4::Header {
            total_len: packet.len() as u16,
            protocol: wire::protocol::ICMP,
            src: [10, 0, 0, 9].into(),
            dst: [10, 0, 0, 1].into(),
            ..ipv4::Header::default()
        };
        header.emit(&mut packet);
        packet[20] = kind;
        packet[24..28].copy_from_slice(&word);
        let report = ErrorReport {
            flow: wire::FlowKey {
                local: Addr::from(std::net::IpAddr::from([10, 0, 0, 1])),
                remote: Addr::from(std::net::IpAddr::from([10, 0, 0, 2])),
                local_port: 1,
                remote_port: 2,
            },
            seq: wire::SeqNumber(0),
            kind: ErrorKind::PacketTooBig { mtu: 1280 },
        };
        note(&report, &packet, 0).expect("a whole message").info
    }

    /// `ee_info` is the pointer of a parameter problem. In other messages it is 0, because their
    /// word is unused.
    #[test]
    fn info_is_the_pointer_of_a_parameter_problem_only() {
        assert_eq!(info_of(12, [20, 1, 2, 3]), 20);
        assert_eq!(info_of(3, [20, 1, 2, 3]), 0);
    }
}
