//! The control channel's UNIX sockets: listen, connect, one message with at most one descriptor
//! each way. Nothing blocks, not even to close.
//!
//! Owns the listener and its path, and each connection. Called by the two handshakes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::message::{MESSAGE_LEN, Message, MessageError};
use crate::foreign::{Closer, Foreign, fdinfo};

/// What a look at a connection found.
#[derive(Debug)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// The other end is gone.
    Closed,
    /// A message and what came along.
    Message(Message, Foreign),
    /// Bytes that are none, or with descriptors that do not belong to them.
    Malformed(MessageError),
}

/// What all sockets of one control channel have in common.
#[derive(Clone, Debug)]
pub struct Desk {
    /// Reports when one of them can be read.
    pub epoll: Arc<OwnedFd>,
    /// Closes what may be slow to close.
    pub closer: Closer,
}

impl Desk {
    fn watch(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(
            &self.epoll,
            source,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )
    }

    fn forget(&self, source: BorrowedFd<'_>) {
        // It fails for what was not watched.
        let _ = epoll::delete(&self.epoll, source);
    }
}

/// A listening socket; its path goes with it.
#[derive(Debug)]
pub struct Listener {
    /// Until it is closed.
    socket: Option<OwnedFd>,
    desk: Desk,
    /// Path, device and inode, so that only our own is removed.
    file: Option<(String, u64, u64)>,
}

impl Listener {
    /// Listens at `path` (`@name` for an abstract address); a socket file that nobody listens on is
    /// replaced.
    ///
    /// # Errors
    /// `ADDRINUSE` if someone listens there; else those of the calls.
    pub fn new(path: &str, desk: &Desk) -> io::Result<Self> {
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
        desk.watch(socket.as_fd())?;
        let file = match path.starts_with('@') {
            true => None,
            false => rustix::fs::stat(path)
                .ok()
                .map(|stat| (path.to_owned(), stat.st_dev, stat.st_ino)),
        };
        Ok(Self {
            socket: Some(socket),
            desk: desk.clone(),
            file,
        })
    }

    /// The next connection; `None` if there is none.
    ///
    /// # Errors
    /// What keeps the next one waiting: no descriptor is free, or no memory.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        let Some(listener) = &self.socket else {
            return Ok(None);
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) => Channel::new(socket, &self.desk).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Has the desk report who connects, or leaves it for later.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn watch(&self, whether: bool) -> io::Result<()> {
        match &self.socket {
            Some(socket) if whether => self.desk.watch(socket.as_fd()),
            Some(socket) => {
                self.desk.forget(socket.as_fd());
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn remove_file(&self) {
        let Some((path, device, inode)) = &self.file else {
            return;
        };
        if rustix::fs::stat(path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (*device, *inode))
        {
            let _ = rustix::fs::unlink(path);
        }
    }

    /// Hangs up on all who have connected and were not accepted; `false` if some are left.
    fn hang_up(&self) -> bool {
        loop {
            match self.accept() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_file();
        if let Some(socket) = &self.socket {
            self.desk.forget(socket.as_fd());
            // Nobody connects any more, and so an end will come.
            let _ = rustix::net::shutdown(socket, Shutdown::Read);
        }
        let is_empty = self.hang_up();
        if let Some(socket) = self.socket.take()
            && !is_empty
        {
            self.desk.closer.close(socket);
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Channel {
    /// Until it is closed.
    socket: Option<OwnedFd>,
    desk: Desk,
}

impl Channel {
    fn new(socket: OwnedFd, desk: &Desk) -> io::Result<Self> {
        let watched = desk.watch(socket.as_fd());
        let channel = Self {
            socket: Some(socket),
            desk: desk.clone(),
        };
        watched.map(|()| channel)
    }

    /// To the server at `path`.
    ///
    /// # Errors
    /// Those of `connect`: nobody listens, or its queue is full.
    pub fn connect(path: &str, desk: &Desk) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Self::new(socket, desk)
    }

    /// Sends `message` and a descriptor; `false` if the connection is no good any more.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let bytes = message.encode();
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return false;
        }
        // The protocol is a dialogue, so the socket's buffer never fills unless the peer does not
        // read: then it is no good either.
        let sent = rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        sent == Ok(MESSAGE_LEN)
    }

    /// The next message.
    pub fn receive(&self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Closed;
        };
        // One byte more than a message, so that a longer one is seen to be longer.
        let mut bytes = [0; MESSAGE_LEN + 1];
        // First looked at where it lies: descriptors that find no room are closed by who takes the
        // message, and that must not be us.
        let seen = look(socket, &mut bytes, &mut RecvAncillaryBuffer::default());
        let (length, brings) = match seen {
            Ok((0, _)) => return Received::Closed,
            Ok(seen) => seen,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Closed,
        };
        let message = Message::decode(&bytes[..length]);
        let mut descriptor = None;
        if brings {
            descriptor = message
                .ok()
                .filter(Message::takes_descriptor)
                .and_then(|_| self.copy_descriptor(socket));
            if descriptor.is_none() {
                return Received::Malformed(MessageError::Descriptors);
            }
        }
        let _ = rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT);
        match message {
            Ok(message) => Received::Message(message, Foreign::new(descriptor, &self.desk.closer)),
            Err(error) => Received::Malformed(error),
        }
    }

    /// A copy of the one descriptor of the message that is next, which stays where it is; `None` if
    /// there are more, or no room for it.
    fn copy_descriptor(&self, socket: &OwnedFd) -> Option<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let (_, has_more) = look(socket, &mut [0; MESSAGE_LEN], &mut control).ok()?;
        let mut copies: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if has_more || copies.len() > 1 {
            // The room for one holds two, as it is rounded up.
            copies
                .drain(..)
                .for_each(|copy| self.desk.closer.close(copy));
        }
        copies.pop()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        self.desk.forget(socket.as_fd());
        // Nothing comes into its queue from here on.
        let _ = rustix::net::shutdown(&socket, Shutdown::Read);
        let is_harmless = fdinfo(socket.as_fd(), "scm_fds").is_some_and(|waiting| waiting == "0");
        if !is_harmless {
            self.desk.closer.close(socket);
        }
    }
}

/// The length of the message that is next, and whether it brings descriptors for which there was no
/// room. It stays where it is.
fn look(
    socket: &OwnedFd,
    bytes: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<(usize, bool)> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let seen = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], control, flags)?;
    Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
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
