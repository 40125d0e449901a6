//! The urgent mark of a connection (RFC 9293 3.8.5), as whoever reads sees it.
//!
//! Urgent bytes stay in the stream (RFC 6093); the mark only says where the last one is. Programs that were written for the BSD calls may want that byte
//! apart from the stream, and reads that stop before it: [`Context::set_urgent_apart`](crate::Context::set_urgent_apart) says so for all sockets of a context,
//! and who reads asks for the mark before each read (`posix` does).

use ring::socket_block::{Requests, SocketBlock, SocketId, SocketState};

use crate::app_socket::AppSocket;
use crate::context::State;

/// Where the last urgent byte is, until it has been read or passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentMark {
    /// Bytes to be read before it.
    pub ahead: usize,
    /// It has arrived.
    pub has_arrived: bool,
    /// It was taken apart, and waits only to be passed over.
    pub is_taken: bool,
    /// It is no part of what is read.
    pub is_apart: bool,
}

/// What a socket remembers of its mark.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// Sockets of this context take urgent bytes out of the stream.
    pub is_apart: bool,
    /// The mark that `is_taken` is of, by the position after it; `None`: none was heard of.
    end: Option<u32>,
    is_taken: bool,
}

impl Urgent {
    pub fn new(is_apart: bool) -> Self {
        Self {
            is_apart,
            ..Self::default()
        }
    }
}

impl AppSocket {
    /// The mark, if it has not been passed.
    pub fn urgent_mark(&self, block: &SocketBlock) -> Option<UrgentMark> {
        if !block.state().contains(SocketState::URGENT) {
            return None;
        }
        let end = block.urgent_end();
        let ahead = end.wrapping_sub(1).wrapping_sub(self.rx.head());
        if ahead > i32::MAX as u32 {
            return None;
        }
        let in_line = self
            .settings
            .as_ref()
            .is_some_and(|settings| settings.urgent_inline);
        Some(UrgentMark {
            ahead: ahead as usize,
            has_arrived: self.rx.readable(block) > ahead,
            is_taken: self.urgent.end == Some(end) && self.urgent.is_taken,
            is_apart: self.urgent.is_apart && !in_line,
        })
    }
}

impl State {
    /// The mark. An older one that stands apart and is all that was read up to gives way to a newer.
    pub(crate) fn urgent_mark(&mut self, id: SocketId) -> Option<UrgentMark> {
        let memory = &self.side.memory;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        let Some(mark) = socket.urgent_mark(block) else {
            // The next one may end at the same position, modulo 2^32.
            (socket.urgent.end, socket.urgent.is_taken) = (None, false);
            return None;
        };
        let end = block.urgent_end();
        if socket.urgent.end == Some(end) {
            return Some(mark);
        }
        let older = socket.urgent.end.replace(end);
        socket.urgent.is_taken = false;
        let is_at_older = older.is_some_and(|end| end.wrapping_sub(1) == socket.rx.head());
        if is_at_older && mark.is_apart && socket.rx.discard(memory, block, 1) == 1 {
            self.request(id, Requests::READ);
            return self.urgent_mark(id);
        }
        Some(mark)
    }

    /// The urgent byte, if it has arrived.
    pub(crate) fn urgent_byte(&mut self, id: SocketId, ahead: u32, takes: bool) -> Option<u8> {
        let memory = &self.side.memory;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        let mut byte = [0];
        let found = socket.rx.peek_at(memory, block, ahead, &mut byte) == 1;
        socket.urgent.is_taken |= found && takes;
        found.then_some(byte[0])
    }
}
