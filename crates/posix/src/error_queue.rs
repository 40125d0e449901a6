//! The error queue of a socket (`MSG_ERRQUEUE`): time stamps of sent bytes, completed zero-copy
//! sends, and ICMP errors that ended an attempt to connect.

use std::net::{IpAddr, SocketAddr};

use millstream::IcmpNote;

use crate::call::Reply;
use crate::entry::{Entry, File};
use crate::number::*;
use crate::request::ControlMessage;
use crate::sockets::{Sockets, Step};
use crate::{timestamping, zero_copy};

/// `sizeof(struct cmsghdr)`
const CMSGHDR_LEN: usize = 16;

/// The notices about a descriptor, which no event of the stack announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notices {
    /// Number of notices so far, modulo 2^32. A watch compares it to detect news.
    pub count: u32,
    /// The bits of `poll` that the waiting notices set.
    pub poll_bits: u32,
}

/// Fills a socket's error queue from the stack, and returns its notices.
pub(crate) fn refill(entry: &mut Entry) -> Notices {
    let came = timestamping::fetch(entry) + zero_copy::update(entry);
    let count = entry.notices.get().wrapping_add(came);
    entry.notices.set(count);
    let is_empty = entry.timestamping.is_empty()
        && entry.zero_copy.is_empty()
        && entry.icmp_notes.borrow().is_empty();
    let poll_bits = match entry.error_queue_is_urgent.get() {
        _ if is_empty => 0,
        true => EPOLLERR | EPOLLPRI,
        false => EPOLLERR,
    };
    Notices { count, poll_bits }
}

/// ICMP errors that a socket holds. Further ones are lost, as in Linux when `optmem_max` is
/// reached.
const NOTES_MAX: usize = 16;

/// Puts an ICMP error into the queue.
pub(crate) fn add_note(entry: &Entry, note: IcmpNote) {
    let mut notes = entry.icmp_notes.borrow_mut();
    if notes.len() < NOTES_MAX {
        notes.push_back(note);
        entry.notices.set(entry.notices.get().wrapping_add(1));
    }
}

/// The next ICMP error: the quoted segment, whether it was cut, and a message with error and
/// sender.
fn next_note(entry: &Entry) -> Option<(Vec<u8>, bool, Vec<ControlMessage>)> {
    let held = entry.icmp_notes.borrow_mut().pop_front();
    let note = held.or_else(|| match &entry.file {
        File::Stream(stream) => stream.tcp.take_icmp_note().ok().flatten(),
        _ => None,
    })?;
    if let File::Stream(stream) = &entry.file
        && entry.icmp_notes.borrow().is_empty()
    {
        // The error was read here, so `SO_ERROR` does not report it again, as in Linux.
        let _ = stream.tcp.take_error();
    }
    let (origin, address) = match (note.sender, entry.is_v6) {
        (IpAddr::V4(sender), true) => (SO_EE_ORIGIN_ICMP, sender.to_ipv6_mapped().into()),
        (sender @ IpAddr::V4(_), false) => (SO_EE_ORIGIN_ICMP, sender),
        (sender, _) => (SO_EE_ORIGIN_ICMP6, sender),
    };
    let mut data = u32::from(note.errno).to_ne_bytes().to_vec();
    data.extend([origin, note.kind, note.code, 0]);
    data.extend(note.info.to_ne_bytes());
    data.extend(0_u32.to_ne_bytes());
    data.extend(crate::layout::sockaddr(SocketAddr::new(address, 0)));
    let (level, kind) = match entry.is_v6 {
        true => (SOL_IPV6, IPV6_RECVERR),
        false => (SOL_IP, IP_RECVERR),
    };
    let message = ControlMessage { level, kind, data };
    let quoted = note.quoted[..note.quoted_len].to_vec();
    Some((quoted, false, vec![message]))
}

const SO_EE_ORIGIN_ICMP: u8 = 2;
const SO_EE_ORIGIN_ICMP6: u8 = 3;

/// The control messages that fit into `room` bytes, the last one cut if need be, as in Linux.
/// `MSG_CTRUNC` if some did not fit.
pub(crate) fn fit(messages: Vec<ControlMessage>, room: usize) -> (Vec<ControlMessage>, i32) {
    let (mut left, mut flags) = (room, 0);
    let mut fitting = Vec::new();
    for mut message in messages {
        if left < CMSGHDR_LEN {
            flags |= MSG_CTRUNC;
            continue;
        }
        let len = CMSGHDR_LEN + message.data.len();
        if len > left {
            flags |= MSG_CTRUNC;
            message.data.truncate(left - CMSGHDR_LEN);
        }
        left -= len.next_multiple_of(8).min(left);
        fitting.push(message);
    }
    (fitting, flags)
}

impl Sockets {
    /// `recvmsg` with `MSG_ERRQUEUE`: never blocks.
    pub(crate) fn recv_error_queue(
        &mut self,
        fd: i32,
        len: usize,
        control_len: usize,
        reply: &mut Reply,
    ) -> Step {
        let (context, entry) = self.socket_with_context(fd)?;
        refill(entry);
        let (mut bytes, is_cut, messages) = timestamping::next(context, entry)
            .or_else(|| next_note(entry))
            .or_else(|| zero_copy::next(entry).map(|message| (Vec::new(), false, vec![message])))
            .ok_or(rustix::io::Errno::AGAIN)?;
        let mut flags = MSG_ERRQUEUE;
        if is_cut || bytes.len() > len {
            flags |= MSG_TRUNC;
        }
        bytes.truncate(len);
        let (control, cut) = fit(messages, control_len);
        let done = bytes.len() as i64;
        *reply = Reply::Message {
            bytes,
            control,
            flags: flags | cut,
        };
        Ok(Some(done))
    }
}
