//! Writes of the application, into the socket's send buffer.

use std::io::{self, IoSlice};
use std::time::Duration;

use ring::socket_block::{Requests, SocketId, SocketState};
use rustix::io::Errno;
use stack::context::AppSide;

use super::{TcpStream, is_open, is_timeout};
use crate::limits::{
    CHUNKS_WAIT_NS_MAX, REFUSED_WRITERS_MAX, WHOLE_WRITE_BYTES_MAX, WRITER_SHARE_BYTES,
};
use crate::state::{State, ask};

impl TcpStream {
    /// True if both ends of the connection are sockets of this context.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// let place = "10.0.0.1:80".parse()?;
    /// let listener = TcpListener::bind(&context, place)?;
    /// listener.set_nonblocking(true);
    /// let client = TcpSocket::new_v4(&context)?.start_connect(place)?;
    /// context.deliver_to_itself();
    /// assert!(context.talks_to_itself() && client.is_to_itself());
    /// assert!(listener.accept().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_to_itself(&self) -> bool {
        self.inner.state().is_to_itself(self.id)
    }

    /// Continues a write that did not find room, or chunks, for all of its bytes. Programs written
    /// for the kernel expect a short write on an empty send buffer to be taken whole. Such a write
    /// lacks only chunks, so it waits for the stack to refill them. Not on a virtual clock, whose
    /// holder alone turns the stack. Returns the number of bytes written in all.
    #[cold]
    pub(super) fn write_rest(
        &self,
        mut written: usize,
        total: usize,
        how: Requests,
        mut attempt: impl FnMut(&mut State, usize) -> Option<io::Result<usize>>,
    ) -> io::Result<usize> {
        let inner = &*self.inner;
        let before = written;
        let is_short = total <= WHOLE_WRITE_BYTES_MAX && !inner.config().clock.is_virtual();
        let outcome = match is_short && inner.state().lacks_stock_only(self.id, written) {
            true => {
                inner.turn_amid_answers();
                let patience = self.options().send_timeout().map_or(u64::MAX, as_ns);
                inner.await_stock(patience.min(CHUNKS_WAIT_NS_MAX), |state| {
                    state.write_on(self.id, &mut written, total, &mut attempt)
                })
            }
            false => Ok(()),
        };
        let state = &mut *inner.state();
        match outcome {
            Err(error) if !is_timeout(&error) && written == 0 => return Err(error),
            // The stack was told that more follows, which does not. This request takes that back.
            _ if (1..total).contains(&written) && (state.promised_more || written > before) => {
                state.request(self.id, how);
            }
            _ => {}
        }
        Ok(written)
    }
}

fn as_ns(duration: Duration) -> u64 {
    duration.as_nanos().min(u64::MAX.into()) as u64
}

impl State {
    /// Writes before there is a connection. The SYN carries the bytes (RFC 7413).
    pub(crate) fn write_ahead(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        let memory = &self.side.memory;
        let Some(block) = memory.block(id.index) else {
            return 0;
        };
        let tx = &mut self.sockets.at(id).tx;
        tx.write(memory, block, &mut self.side.magazine, bytes)
    }

    /// Writes to the send buffer. `None`: there is no room, and the stack will report some.
    #[inline]
    pub(super) fn write(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        how: Requests,
    ) -> Option<io::Result<usize>> {
        if self.writers_share && self.has_its_share(id) {
            return self.leave_to_others(id);
        }
        let AppSide {
            memory,
            magazine,
            jobs,
            stack_bell,
            ..
        } = &mut self.side;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        if socket.write_shut || !is_open(block.state()) {
            return self.cannot_write(id);
        }
        let n = socket.tx.write(memory, block, magazine, bytes);
        if n == bytes.len() {
            self.last_writer = id;
            ask(block, jobs, stack_bell, id, how);
            return Some(Ok(n));
        }
        self.finish_write(id, n, &[IoSlice::new(bytes)], how)
    }

    /// Writes the bytes of `slices` from offset `from` on.
    pub(super) fn write_slices(
        &mut self,
        id: SocketId,
        mut slices: &[IoSlice<'_>],
        mut from: usize,
        how: Requests,
    ) -> Option<io::Result<usize>> {
        while let Some((first, more)) = slices.split_first()
            && from > 0
        {
            if from < first.len() {
                let is_last = more.iter().all(|slice| slice.is_empty());
                let how = if is_last { how } else { Requests::WROTE_MORE };
                return self.write(id, &first[from..], how);
            }
            from -= first.len();
            slices = more;
        }
        if self.writers_share && self.has_its_share(id) {
            return self.leave_to_others(id);
        }
        let (socket, block) = self.parts(id);
        if socket.write_shut || !is_open(block.state()) {
            return self.cannot_write(id);
        }
        let n = self.put(id, slices);
        self.finish_write(id, n, slices, how)
    }

    /// Writes as many bytes as there is room for; returns their number.
    fn put(&mut self, id: SocketId, slices: &[IoSlice<'_>]) -> usize {
        let AppSide {
            memory, magazine, ..
        } = &mut self.side;
        let Some(block) = memory.block(id.index) else {
            return 0;
        };
        let tx = &mut self.sockets.at(id).tx;
        tx.write_vectored(memory, block, magazine, slices)
    }

    /// Like [`put`](Self::put). If there is no room, the stack will report some.
    fn put_or_want(&mut self, id: SocketId, slices: &[IoSlice<'_>]) -> usize {
        let AppSide {
            memory, magazine, ..
        } = &mut self.side;
        let Some(block) = memory.block(id.index) else {
            return 0;
        };
        let tx = &mut self.sockets.at(id).tx;
        let put = || Some(tx.write_vectored(memory, block, magazine, slices)).filter(|n| *n > 0);
        block.look_or_want(put).unwrap_or(0)
    }

    /// Completes a write that has put `n` bytes of `slices` into the send buffer, perhaps not all.
    #[inline(never)]
    fn finish_write(
        &mut self,
        id: SocketId,
        mut n: usize,
        slices: &[IoSlice<'_>],
        mut how: Requests,
    ) -> Option<io::Result<usize>> {
        if n == 0 {
            n = self.put_or_want(id, slices);
        }
        if n > 0 {
            self.last_writer = id;
            let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
            if n < wanted {
                // A writer that could not write everything gets an event for room, like one that
                // wrote nothing. The job queued below tells the stack.
                self.block(id).set_want_writable();
                self.promised_more = self.lacks_chunks(id);
                if self.promised_more {
                    // `write_rest` writes the remainder, or tells the stack that there is none.
                    how = Requests::WROTE_MORE;
                }
            }
            self.request(id, how);
            return Some(Ok(n));
        }
        // If only chunks are lacking, a job makes the stack refill them. Without room there is
        // nothing to look at, and a job for each attempt would keep a waiting thread busy.
        if self.lacks_chunks(id) {
            self.note_refused(id);
            self.request(id, Requests::REFILL);
        }
        None
    }

    /// Continues a write of which `written` bytes are done. `None`: no chunks yet, but some will
    /// come.
    fn write_on(
        &mut self,
        id: SocketId,
        written: &mut usize,
        total: usize,
        mut attempt: impl FnMut(&mut Self, usize) -> Option<io::Result<usize>>,
    ) -> Option<io::Result<()>> {
        let mut is_last = false;
        loop {
            match attempt(self, *written) {
                Some(Ok(more)) => {
                    debug_assert!(*written + more <= total, "no byte is written twice");
                    *written += more;
                    if *written >= total {
                        return Some(Ok(()));
                    }
                }
                Some(Err(error)) => {
                    // The call returns the number of bytes taken. The next call returns the error
                    // that ended the connection.
                    self.sockets.at(id).error_taken &= *written == 0;
                    return Some(Err(error));
                }
                None if self.lacks_stock_only(id, *written) => return None,
                None if is_last => return Some(Ok(())),
                // Try once more: the look that found the pool dry may have given us its last
                // chunks.
                None => is_last = true,
            }
        }
    }

    /// True if only chunks are lacking, and the stack has some. The connection is open, and its
    /// send buffer has room and holds no more than the `written` bytes.
    fn lacks_stock_only(&mut self, id: SocketId, written: usize) -> bool {
        let (socket, block) = self.parts(id);
        let may_write = is_open(block.state()) && !socket.write_shut;
        let is_ours = socket.tx.waiting(block) as usize <= written;
        may_write && is_ours && socket.tx.space(block) > 0 && !self.side.magazine.is_pool_dry()
    }

    /// True if a write was cut short for want of chunks, not of room.
    fn lacks_chunks(&mut self, id: SocketId) -> bool {
        let (socket, block) = self.parts(id);
        socket.tx.space(block) > 0
    }

    /// True if a writer has had its share since the last wait, in writes that followed one another.
    #[cold]
    fn has_its_share(&mut self, id: SocketId) -> bool {
        let (socket, block) = self.parts(id);
        let (tail, may_write) = (socket.tx.tail(), is_open(block.state()));
        match self.share {
            Some((of, from)) if of == id => {
                tail.wrapping_sub(from) >= WRITER_SHARE_BYTES && may_write
            }
            _ => {
                self.share = Some((id, tail));
                false
            }
        }
    }

    /// Refuses a writer whose send buffer has room, because others wait for their turn. The next
    /// attempt begins a new share, so a writer that does not wait is refused once.
    #[cold]
    fn leave_to_others(&mut self, id: SocketId) -> Option<io::Result<usize>> {
        self.block(id).set_want_writable();
        self.share = None;
        self.request(id, Requests::REFILL);
        None
    }

    /// Notes a writer that found no chunk. Above the limit the writer waits on its poll's list.
    fn note_refused(&mut self, id: SocketId) {
        if self.last_writer == id {
            self.cut_short = Some(id);
        } else if self.refused.len() < REFUSED_WRITERS_MAX && self.refused.last() != Some(&id) {
            self.refused.push(id);
        }
    }

    pub(super) fn has_room(&mut self, id: SocketId) -> bool {
        let (socket, block) = self.parts(id);
        socket.tx.space(block) > 0
    }

    pub(super) fn may_write_on(&mut self, id: SocketId) -> bool {
        let (socket, block) = self.parts(id);
        let ends = SocketState::FAILED | SocketState::CLOSED;
        let may_write = || block.state().intersects(ends) || socket.tx.is_writable(block);
        block.look_or_want(|| may_write().then_some(())).is_some()
    }

    pub(super) fn cannot_write(&mut self, id: SocketId) -> Option<io::Result<usize>> {
        let said = self.block(id).state();
        if is_open(said) {
            return self
                .sockets
                .at(id)
                .write_shut
                .then(|| Err(Errno::PIPE.into()));
        }
        if let Some(failure) = self.take_failure(id) {
            return Some(Err(failure));
        }
        said.intersects(SocketState::FAILED | SocketState::CLOSED)
            .then(|| Err(Errno::PIPE.into()))
    }
}
