//! The two sides of a connection, over anything that reads and writes and says `WouldBlock`.
//!
//! Neither side asks a stream for bytes that cannot be there yet. After a request the client waits
//! to be told of the response. A server that has answered its last request closes without a look
//! for more. So the kernel gets no system call that it does not need.

use std::io::{self, ErrorKind, Read, Write};

use crate::measure::{Plan, Tally};

/// The bytes of all messages.
static PATTERN: [u8; 64 * 1024] = [b'm'; 64 * 1024];

/// State of a side after a visit to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More is to come: wait to be told.
    Wait,
    /// Close it.
    Over,
}

/// The server's side.
#[derive(Clone, Debug)]
pub struct Answering {
    /// Bytes of the request that have not come.
    wanted: usize,
    /// Bytes of the response that have not left.
    unsent: usize,
    /// Requests still to be answered. 0 at the start stands for no limit, because the count wraps.
    left: u64,
}

impl Answering {
    /// The conversation of a connection that was just accepted.
    pub fn new(plan: &Plan) -> Self {
        Self {
            wanted: plan.request_bytes,
            unsent: 0,
            left: plan.messages,
        }
    }

    /// True if the response has not left, or not all of it.
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Reads and answers as far as it goes. A client that breaks off counts the failure itself.
    pub fn go_on<S: Read + Write>(
        &mut self,
        stream: &mut S,
        plan: &Plan,
        buffer: &mut [u8],
    ) -> Next {
        self.advance(stream, plan, buffer).unwrap_or(Next::Over)
    }

    fn advance<S: Read + Write>(
        &mut self,
        stream: &mut S,
        plan: &Plan,
        buffer: &mut [u8],
    ) -> io::Result<Next> {
        while self.wanted > 0 {
            let room = self.wanted.min(buffer.len());
            match unblocked(stream.read(&mut buffer[..room]))? {
                None => return Ok(Next::Wait),
                Some(0) => return Ok(Next::Over),
                Some(count) => self.wanted -= count,
            }
            if self.wanted == 0 {
                self.unsent = plan.response_bytes;
            }
        }
        if !send(stream, &mut self.unsent)? {
            return Ok(Next::Wait);
        }
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            return Ok(Next::Over);
        }
        self.wanted = plan.request_bytes;
        // The client sends its next request after this response, so none can be here yet.
        Ok(Next::Wait)
    }
}

/// The client's side.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Bytes of the request that have not left.
    unsent: usize,
    /// Bytes of the response that have not come.
    wanted: usize,
    /// Responses that have not come. 0 at the start stands for no limit, because the count wraps.
    left: u64,
    started_ns: u64,
    /// Time of the connection's first event; 0 before that.
    opened_ns: u64,
}

impl Asking {
    /// The conversation of a connection that is about to be opened: its first transaction begins
    /// now.
    pub fn new(plan: &Plan, tally: &Tally) -> Self {
        Self {
            unsent: plan.request_bytes,
            wanted: plan.response_bytes,
            left: plan.messages,
            started_ns: tally.now_ns(),
            opened_ns: 0,
        }
    }

    /// Notes an event of the connection. The first one means that the connection is open.
    pub fn was_told(&mut self, tally: &Tally) {
        if self.opened_ns == 0 {
            self.opened_ns = tally.now_ns();
        }
    }

    /// True if the request has not left, or not all of it.
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Sends what can leave of the request; true if that is all of it.
    pub fn ask<S: Write>(&mut self, stream: &mut S) -> io::Result<bool> {
        send(stream, &mut self.unsent)
    }

    /// Asks and reads as far as it goes. Every response counts when it is whole, the last one when
    /// the server has closed.
    pub fn go_on<S: Read + Write>(
        &mut self,
        stream: &mut S,
        plan: &Plan,
        buffer: &mut [u8],
        tally: &mut Tally,
    ) -> io::Result<Next> {
        self.was_told(tally);
        if self.unsent > 0 && !self.ask(stream)? {
            return Ok(Next::Wait);
        }
        loop {
            let count = match unblocked(stream.read(buffer))? {
                None => return Ok(Next::Wait),
                Some(count) => count,
            };
            if count == 0 {
                if self.left != 0 {
                    return Err(io::Error::other(format!(
                        "the server closed with {} bytes to come",
                        self.wanted
                    )));
                }
                tally.succeed_in_parts(self.started_ns, self.opened_ns);
                return Ok(Next::Over);
            }
            self.wanted = self
                .wanted
                .checked_sub(count)
                .ok_or_else(|| io::Error::other("bytes behind the response"))?;
            if self.wanted > 0 {
                continue;
            }
            self.left = self.left.wrapping_sub(1);
            if self.left != 0 {
                tally.succeed(self.started_ns);
                self.started_ns = tally.now_ns();
                self.wanted = plan.response_bytes;
                self.unsent = plan.request_bytes;
                self.ask(stream)?;
                return Ok(Next::Wait);
            }
        }
    }

    /// Counts the transaction as still open at the end of the time.
    pub fn was_left(&self, tally: &mut Tally) {
        tally.leave_open(self.started_ns);
    }

    /// Counts the server's reset of the connection, which was planned, as a success.
    pub fn was_reset(&self, tally: &mut Tally) {
        tally.succeed(self.started_ns);
    }
}

/// Sends as much as the stream takes. True if nothing is left to send.
fn send<S: Write>(stream: &mut S, unsent: &mut usize) -> io::Result<bool> {
    while *unsent > 0 {
        let length = PATTERN.len().min(*unsent);
        match unblocked(stream.write(&PATTERN[..length]))? {
            None => return Ok(false),
            Some(count) => *unsent -= count,
        }
    }
    Ok(true)
}

/// The outcome of an operation; `None` if it would block.
#[inline]
fn unblocked(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A connection's end: bytes to read, bytes written, and whether the peer has closed.
    #[derive(Default)]
    struct Line {
        here: VecDeque<u8>,
        there: VecDeque<u8>,
        closed: bool,
    }

    impl Read for Line {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.here.read(buffer)? {
                0 if !self.closed => Err(ErrorKind::WouldBlock.into()),
                count => Ok(count),
            }
        }
    }

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(50);
            self.there.write(&bytes[..count])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_go_back_and_forth_until_the_server_closes() {
        let plan = Plan {
            messages: 3,
            request_bytes: 120,
            warm_up: 0.0,
            ..Plan::default()
        };
        let mut tally = Tally::new(&plan);
        let (mut asking, mut answering) = (Asking::new(&plan, &tally), Answering::new(&plan));
        let (mut client, mut server) = (Line::default(), Line::default());
        let mut buffer = [0; 100];
        let mut rounds = 0;
        loop {
            let next = asking.go_on(&mut client, &plan, &mut buffer, &mut tally);
            if next.unwrap() == Next::Over {
                break;
            }
            server.here.append(&mut client.there);
            client.closed = answering.go_on(&mut server, &plan, &mut buffer) == Next::Over;
            client.here.append(&mut server.there);
            rounds += 1;
            assert!(rounds < 10);
        }
        assert_eq!(tally.seen().transactions_all, 3);
    }

    #[test]
    fn early_end_is_an_error() {
        let plan = Plan::default();
        let mut tally = Tally::new(&plan);
        let mut asking = Asking::new(&plan, &tally);
        let mut client = Line {
            closed: true,
            ..Line::default()
        };
        let outcome = asking.go_on(&mut client, &plan, &mut [0; 64], &mut tally);
        assert!(
            outcome
                .unwrap_err()
                .to_string()
                .contains("64 bytes to come")
        );
    }
}
