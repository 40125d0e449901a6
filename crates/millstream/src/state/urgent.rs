//! The urgent mark of a socket, and the urgent byte.

use ring::socket_block::{Requests, SocketId};

use super::State;
use crate::urgent::UrgentMark;

impl State {
    /// The urgent mark. A newer mark replaces an older one that is out of the stream, once
    /// everything before the older one was read.
    pub(crate) fn urgent_mark(&mut self, id: SocketId) -> Option<UrgentMark> {
        let memory = &self.side.memory;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        let Some(mark) = socket.urgent_mark(block) else {
            // The next mark may end at the same position, modulo 2^32.
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
