//! Reads of the application: a copy of received bytes, or a borrowed look into the receive buffer.

use std::io::{self, BufRead, Read};

use ring::byte_ring::Front;
use ring::socket_block::{Requests, SocketId};
use stack::context::AppSide;

use super::TcpStream;
use crate::state::{State, ask};

impl Read for &TcpStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive(bytes, State::read)
    }
}

impl Read for TcpStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }
}

/// The receive buffer serves as the reader's buffer, so a parser needs none of its own. Bytes that
/// are only looked at or passed on are copied once less than with `read`.
///
/// ```
#[doc = include_str!("../doc/connected.txt")]
/// # use std::io::BufRead;
/// server.write_all(b"GET / HTTP/1.0\r\n")?;
/// let mut line = String::new();
/// client.read_line(&mut line)?;
/// assert_eq!(line, "GET / HTTP/1.0\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl BufRead for TcpStream {
    /// The next received bytes that lie in one piece of the receive buffer (4 KiB at most); empty
    /// at the end of the stream. Waits and fails as `read` does.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let front = self.wait_to_read(|state| state.front(self.id))?;
        Ok(front.map_or(&[], |front| self.inner.memory().lend(front)))
    }

    /// Takes `amount` bytes out of the stream, but no more than have arrived.
    fn consume(&mut self, amount: usize) {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        self.inner.state().discard(self.id, amount);
    }
}

impl State {
    /// The next bytes. `None`: nothing to read yet. `Some(Ok(None))`: the stream has ended.
    #[inline]
    fn front(&mut self, id: SocketId) -> Option<io::Result<Option<Front>>> {
        let memory = &self.side.memory;
        let block = memory.block(id.index)?;
        // Read the state first: bytes published before an end are then seen before it.
        let said = block.state();
        if let Some(front) = self.sockets.at(id).rx.front(memory, block) {
            return Some(Ok(Some(front)));
        }
        let outcome = self.nothing_to_read(id, said)?;
        Some(outcome.map(|_| None))
    }

    #[inline]
    fn discard(&mut self, id: SocketId, amount: u32) {
        let AppSide {
            memory,
            jobs,
            stack_bell,
            ..
        } = &mut self.side;
        let Some(block) = memory.block(id.index) else {
            return;
        };
        let dropped = self.sockets.at(id).rx.discard(memory, block, amount);
        if dropped > 0 {
            ask(block, jobs, stack_bell, id, Requests::READ);
        }
    }
}
