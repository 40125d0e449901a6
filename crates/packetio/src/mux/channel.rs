//! One connection between application and service: messages, each with at most one descriptor.
//!
//! Owns a connected SOCK_SEQPACKET socket. Nothing blocks, not even to close: a descriptor of the
//! peer's is closed on a thread of its own (`crate::foreign`). Called by the `mux` port and by the
//! service.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::message::{MESSAGE_LEN, Message, MessageError};
use crate::foreign::{Closer, Foreign, fdinfo};

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
    /// Those of `socket` and `connect`: nothing listens, or its queue is full.
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
    /// `AGAIN` if the peer has not read for long, so that the socket's buffer is full; else those of
    /// `sendmsg`.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        debug_assert_eq!(message.takes_descriptor(), descriptor.is_some());
        let socket = self.socket.as_ref().ok_or(Errno::BADF)?;
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let parts = [IoSlice::new(&bytes)];
        match rustix::net::sendmsg(socket, &parts, &mut control, flags)? {
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
        // The packet is looked at where it lies: descriptors without room would be closed by the
        // thread that takes it, and closing may wait for the peer.
        let seen = look(socket, &mut bytes, &mut RecvAncillaryBuffer::default());
        let (length, brings) = match seen {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Received::Closed,
            Ok(seen) => seen,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Closed,
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
            descriptor = self.copy_descriptor(socket);
            if descriptor.is_none() {
                return Received::Malformed(MessageError::Descriptors);
            }
        }
        // The packet leaves the queue; a descriptor in it is closed, but the copy keeps its file.
        let _ = rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT);
        Received::Message(message, Foreign::new(descriptor, &self.closer))
    }

    /// A copy of the one descriptor of the next packet, which stays where it is; `None` if the packet
    /// has more, or if the process has no room for it.
    fn copy_descriptor(&self, socket: &OwnedFd) -> Option<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let (_, has_more) = look(socket, &mut [0; MESSAGE_LEN], &mut control).ok()?;
        let mut copies = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                copies.extend(descriptors);
            }
        }
        // The room for one descriptor holds two, as it is rounded up.
        if has_more || copies.len() > 1 {
            for copy in copies.drain(..) {
                self.closer.close(copy);
            }
        }
        copies.pop()
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
        let Some(socket) = self.socket.take() else {
            return;
        };
        // Nothing comes into the queue from here on.
        let _ = rustix::net::shutdown(&socket, Shutdown::Read);
        let is_harmless = fdinfo(socket.as_fd(), "scm_fds").is_some_and(|waiting| waiting == "0");
        if !is_harmless {
            self.closer.close(socket);
        }
    }
}

/// A new SOCK_SEQPACKET socket that neither blocks nor survives `exec`.
///
/// # Errors
/// Those of `socket`.
pub fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The socket address of `path`, abstract behind an `@`.
///
/// # Errors
/// `NAMETOOLONG`.
pub fn address(path: &str) -> io::Result<SocketAddrUnix> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

/// The length of the next packet, and whether it brings descriptors for which there was no room. It
/// stays in the queue.
fn look(
    socket: &OwnedFd,
    bytes: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<(usize, bool)> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let seen = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], control, flags)?;
    Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
}

#[cfg(test)]
mod tests;
