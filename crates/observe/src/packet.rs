//! The socket calls of both ends: packets over UNIX sockets, each with at most one descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Makes a socket that does not block and is closed by `exec`.
pub fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends one packet; `AGAIN` if the peer's queue is full.
pub fn send(
    socket: &OwnedFd,
    head: &[u8],
    body: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::NOBUFS);
    }
    let parts = [IoSlice::new(head), IoSlice::new(body)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &parts, &mut control, flags).map(|_| ())
}

/// Receives one packet with its descriptor; 0 bytes: the other end is gone.
pub fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    Ok((got.bytes, file))
}

/// Receives one packet without room for descriptors: the kernel discards any that come with it.
pub fn receive_plain(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    let got = rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT)?;
    Ok(got.0)
}
