//! UNIX SOCK_SEQPACKET sockets whose packets carry at most one descriptor each. Nothing blocks, not
//! even closing: a separate thread closes a peer's descriptors (`crate::foreign`).
//!
//! The connections of memif's control channel and of `mill mux` use the module.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::foreign::{Closer, fdinfo};

/// Makes a socket that does not block and is closed by `exec`.
///
/// # Errors
/// The errors of `socket`.
pub fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The socket address for `path`; `@` marks an abstract address.
///
/// # Errors
/// `NAMETOOLONG`.
pub fn address(path: &str) -> io::Result<SocketAddrUnix> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

/// Sends one packet with its descriptor; returns the number of bytes sent.
///
/// # Errors
/// `AGAIN` if the socket's buffer is full because the peer does not read; else the errors of
/// `sendmsg`.
pub(crate) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// The result of looking at the next packet.
pub(crate) enum Peeked {
    /// No packet has arrived.
    Nothing,
    /// The other end has gone.
    Closed,
    /// A packet: its length, and whether it carries descriptors.
    Packet(usize, bool),
}

/// Looks at the next packet without taking it. Taking it would make this thread close descriptors
/// for which there is no room, and closing may block.
pub(crate) fn peek(socket: &OwnedFd, bytes: &mut [u8]) -> Peeked {
    match peek_with_control(socket, bytes, &mut RecvAncillaryBuffer::default()) {
        Ok((0, _)) => Peeked::Closed,
        Ok((length, brings)) => Peeked::Packet(length, brings),
        Err(Errno::AGAIN | Errno::INTR) => Peeked::Nothing,
        Err(_) => Peeked::Closed,
    }
}

/// Takes the next packet out of the queue. A descriptor in it is closed; the copy made before keeps
/// its file open.
pub(crate) fn take(socket: &OwnedFd, bytes: &mut [u8]) {
    let _ = rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT);
}

/// Copies the single descriptor of the next packet, which stays in the queue. `None`: the packet
/// has several, or the process has no descriptor left.
pub(crate) fn copy_descriptor(socket: &OwnedFd, closer: &Closer) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (_, has_more) = peek_with_control(socket, &mut [0; 1], &mut control).ok()?;
    let mut copies = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            copies.extend(descriptors);
        }
    }
    // The buffer for one descriptor holds two, because its size is rounded up.
    if has_more || copies.len() > 1 {
        for copy in copies.drain(..) {
            closer.close(copy);
        }
    }
    copies.pop()
}

/// Closes a connection: here if its queue holds no descriptors, else on the closer's thread.
pub(crate) fn close(socket: OwnedFd, closer: &Closer) {
    // After the shutdown nothing more enters the queue.
    let _ = rustix::net::shutdown(&socket, Shutdown::Read);
    let is_harmless = fdinfo(socket.as_fd(), "scm_fds").is_some_and(|waiting| waiting == "0");
    if !is_harmless {
        closer.close(socket);
    }
}

/// The length of the next packet, and whether it carries descriptors for which there was no room.
fn peek_with_control(
    socket: &OwnedFd,
    bytes: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<(usize, bool)> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let seen = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], control, flags)?;
    Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
}
