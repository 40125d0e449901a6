//! One connection between application and service, for messages with at most one descriptor each.
//!
//! A [`Channel`] owns a connected SOCK_SEQPACKET socket. Nothing blocks but the first message, not
//! even closing: a separate thread closes the peer's descriptors (`crate::foreign`). The `mux` port
//! and the service use it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{self, Errno};

use super::message::{MESSAGE_LEN, Message, MessageError};
use crate::foreign::{Closer, Foreign};
use crate::limits::MUX_ANSWER_WAIT;
use crate::seqpacket::{self, Peeked, address, new_socket};

/// Pause before a first message is sent again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The result of reading from a connection.
#[derive(Debug)]
pub enum Received {
    /// No message has arrived.
    Nothing,
    /// The other end has gone.
    Closed,
    /// A message, with its descriptor if it has one.
    Message(Message, Foreign),
    /// Bytes that are not a message, or a message with the wrong descriptors. The connection is
    /// unusable.
    Malformed(MessageError),
}

/// A connection between application and service.
#[derive(Debug)]
pub struct Channel {
    /// The socket; `None` only while the channel is dropped.
    socket: Option<OwnedFd>,
    closer: Closer,
}

impl Channel {
    /// Connects to the service at `path`, or at the abstract address behind `@`.
    ///
    /// # Errors
    /// The errors of `socket` and `connect`: `CONNREFUSED` or `NOENT` if no process listens,
    /// `AGAIN` if the queue of connections is full.
    pub fn connect(path: &str, closer: &Closer) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Ok(Self::new(socket, closer))
    }

    /// Makes a channel over a connected SOCK_SEQPACKET socket.
    pub fn new(socket: OwnedFd, closer: &Closer) -> Self {
        Self {
            socket: Some(socket),
            closer: closer.clone(),
        }
    }

    /// Sends `message` with its descriptor.
    ///
    /// # Errors
    /// `AGAIN` if the socket's buffer is full because the peer does not read; else the errors of
    /// `sendmsg`.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        debug_assert_eq!(message.takes_descriptor(), descriptor.is_some());
        let socket = self.socket.as_ref().ok_or(Errno::BADF)?;
        match seqpacket::send(socket, &message.encode(), descriptor)? {
            MESSAGE_LEN => Ok(()),
            _ => Err(Errno::MSGSIZE),
        }
    }

    /// Sends the first message of an application. The kernel refuses its descriptor (`PERM`) until
    /// the service has accepted the connection, so this waits.
    ///
    /// # Errors
    /// As [`send`](Self::send); `PERM` if the service does not accept the connection in time.
    pub fn send_first(
        &self,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let until = Instant::now() + MUX_ANSWER_WAIT;
        loop {
            match self.send(message, descriptor) {
                Err(Errno::PERM) if Instant::now() < until => std::thread::sleep(FIRST_PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Reads the next message.
    pub fn receive(&self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Closed;
        };
        // One byte more than a message, to detect longer packets.
        let mut bytes = [0; MESSAGE_LEN + 1];
        let (length, brings) = match seqpacket::peek(socket, &mut bytes) {
            Peeked::Nothing => return Received::Nothing,
            Peeked::Closed => return Received::Closed,
            Peeked::Packet(length, brings) => (length, brings),
        };
        let message = match Message::decode(bytes.get(..length).unwrap_or_default()) {
            Ok(message) => message,
            Err(error) => return Received::Malformed(error),
        };
        if message.takes_descriptor() != brings {
            return Received::Malformed(MessageError::Descriptors);
        }
        let mut descriptor = None;
        if brings {
            descriptor = seqpacket::copy_descriptor(socket, &self.closer);
            if descriptor.is_none() {
                return Received::Malformed(MessageError::Descriptors);
            }
        }
        seqpacket::take(socket, &mut bytes);
        Received::Message(message, Foreign::new(descriptor, &self.closer))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let socket = self.socket.as_ref();
        socket
            .expect("the socket stays until the channel is dropped")
            .as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            seqpacket::close(socket, &self.closer);
        }
    }
}

#[cfg(test)]
mod tests;
