//! One connection between application and service: messages, each with at most one descriptor.
//!
//! Owns a connected SOCK_SEQPACKET socket. Nothing blocks, not even to close: a descriptor of the
//! peer's is closed on a thread of its own (`crate::foreign`). Called by the `mux` port and by the
//! service.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};

use super::message::{MESSAGE_LEN, Message, MessageError};
use crate::foreign::{Closer, Foreign};
use crate::seqpacket::{self, Peeked, address, new_socket};

/// The outcome of a look at a connection.
#[derive(Debug)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// The other end is gone.
    Closed,
    /// A message, and its descriptor if one came along.
    Message(Message, Foreign),
    /// Bytes that are no message, or a message with the wrong descriptors. The connection is of no
    /// more use.
    Malformed(MessageError),
}

/// A connection.
#[derive(Debug)]
pub struct Channel {
    /// `None` only while it is dropped.
    socket: Option<OwnedFd>,
    closer: Closer,
}

impl Channel {
    /// Connects to the service at `path`, or at the abstract address behind an `@`.
    ///
    /// # Errors
    /// Those of `socket` and `connect`: `CONNREFUSED` or `NOENT` if nothing listens, `AGAIN` if the
    /// queue of connections is full.
    pub fn connect(path: &str, closer: &Closer) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Ok(Self::new(socket, closer))
    }

    /// A connection over `socket`, which is a connected SOCK_SEQPACKET socket.
    pub fn new(socket: OwnedFd, closer: &Closer) -> Self {
        Self {
            socket: Some(socket),
            closer: closer.clone(),
        }
    }

    /// Sends `message` and its descriptor.
    ///
    /// # Errors
    /// `AGAIN` if the peer has not read for long, so that the socket's buffer is full; else those
    /// of `sendmsg`.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        debug_assert_eq!(message.takes_descriptor(), descriptor.is_some());
        let socket = self.socket.as_ref().ok_or(Errno::BADF)?;
        match seqpacket::send(socket, &message.encode(), descriptor)? {
            MESSAGE_LEN => Ok(()),
            _ => Err(Errno::MSGSIZE),
        }
    }

    /// The next message.
    pub fn receive(&self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Closed;
        };
        // One byte more than a message, so that a longer packet is seen to be longer.
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
