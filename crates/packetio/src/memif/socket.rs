//! The control channel's UNIX sockets: listen, connect, one message with at most one descriptor each way. Nothing blocks.
//!
//! Owns the listener and its path. Called by the two handshakes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::message::{MESSAGE_LEN, Message, MessageError};

/// Descriptors that one message may bring before the kernel drops the rest; one is the protocol's number, more are closed.
const DESCRIPTORS_PER_MESSAGE_MAX: usize = 4;

/// What a look at a connection found.
#[derive(Debug)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// The other end is gone.
    Closed,
    /// A message and the descriptor that came along.
    Message(Message, Option<OwnedFd>),
    /// Bytes that are none.
    Malformed(MessageError),
}

/// A listening socket; its path goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// Path, device and inode, so that only our own is removed.
    file: Option<(String, u64, u64)>,
}

impl Listener {
    /// Listens at `path` (`@name` for an abstract address); a socket file that nobody listens on is replaced.
    ///
    /// # Errors
    /// `ADDRINUSE` if someone listens there; else those of the calls.
    pub fn new(path: &str) -> io::Result<Self> {
        let address = address(path)?;
        let socket = new_socket()?;
        if let Err(errno) = rustix::net::bind(&socket, &address) {
            if errno != Errno::ADDRINUSE || path.starts_with('@') || !is_stale(path, &address) {
                return Err(errno);
            }
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        rustix::net::listen(&socket, 8)?;
        let file = match path.starts_with('@') {
            true => None,
            false => rustix::fs::stat(path)
                .ok()
                .map(|stat| (path.to_owned(), stat.st_dev, stat.st_ino)),
        };
        Ok(Self { socket, file })
    }

    /// The next connection; `None` if there is none.
    pub fn accept(&self) -> Option<OwnedFd> {
        rustix::net::accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, device, inode)) = &self.file else {
            return;
        };
        if rustix::fs::stat(path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (*device, *inode))
        {
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// A connection to the server at `path`.
///
/// # Errors
/// Those of `connect`: nobody listens, or its queue is full.
pub fn connect(path: &str) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address(path)?)?;
    Ok(socket)
}

/// Sends `message` and a descriptor; `false` if the connection is no good any more.
pub fn send(socket: BorrowedFd<'_>, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> bool {
    let bytes = message.encode();
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return false;
    }
    // The protocol is a dialogue, so the socket's buffer never fills unless the peer does not read: then it is no good either.
    let sent = rustix::net::sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
    sent == Ok(MESSAGE_LEN)
}

/// The next message.
pub fn receive(socket: BorrowedFd<'_>) -> Received {
    // One byte more than a message, so that a longer one is seen to be longer.
    let mut bytes = [0; MESSAGE_LEN + 1];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    ) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let descriptor = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .next();
    if received.bytes == 0 {
        return Received::Closed;
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Received::Malformed(MessageError::Length);
    }
    match Message::decode(&bytes[..received.bytes]) {
        Ok(message) => Received::Message(message, descriptor),
        Err(error) => Received::Malformed(error),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}

fn address(path: &str) -> io::Result<SocketAddrUnix> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

/// Whether `path` is a socket on which nobody listens, left behind by a server that died.
fn is_stale(path: &str, address: &SocketAddrUnix) -> bool {
    let is_socket = rustix::fs::lstat(path).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    });
    is_socket
        && new_socket()
            .is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}
