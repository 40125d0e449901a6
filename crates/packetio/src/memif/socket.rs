//! The control channel's UNIX sockets: listen, connect, one message with at most one descriptor
//! each way. Nothing blocks, not even to close.
//!
//! Owns the listener and its path, and each connection. Called by the two handshakes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::{self, Errno};
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags};

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
    /// A message and what came along.
    Message(Message, Foreign),
    /// Bytes that are none, or with descriptors that do not belong to them.
    Malformed(MessageError),
}

/// The common part of all sockets of one control channel.
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
        // The call fails for a source that was not watched.
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
    /// The cause that keeps the next one waiting: no descriptor is free, or no memory.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        let Some(listener) = &self.socket else {
            return Ok(None);
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) => Channel::over(socket, &self.desk).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Has the desk report who connects, or leaves it for later.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
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
    /// Over a connected socket.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    pub fn over(socket: OwnedFd, desk: &Desk) -> io::Result<Self> {
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
    /// Errors of `connect`: nobody listens, or its queue is full.
    pub fn connect(path: &str, desk: &Desk) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Self::over(socket, desk)
    }

    /// Sends `message` and a descriptor; `false` if the connection is no good any more.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        // The protocol is a dialogue, so the socket's buffer never fills unless the peer does not
        // read: then it is no good either.
        seqpacket::send(socket, &message.encode(), descriptor) == Ok(MESSAGE_LEN)
    }

    /// The next message.
    pub fn receive(&self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Closed;
        };
        // One byte more than a message, so that a longer one is seen to be longer.
        let mut bytes = [0; MESSAGE_LEN + 1];
        let (length, brings) = match seqpacket::peek(socket, &mut bytes) {
            Peeked::Nothing => return Received::Nothing,
            Peeked::Closed => return Received::Closed,
            Peeked::Packet(length, brings) => (length, brings),
        };
        let message = Message::decode(&bytes[..length]);
        let mut descriptor = None;
        if brings {
            descriptor = message
                .ok()
                .filter(Message::takes_descriptor)
                .and_then(|_| seqpacket::copy_descriptor(socket, &self.desk.closer));
            if descriptor.is_none() {
                return Received::Malformed(MessageError::Descriptors);
            }
        }
        seqpacket::take(socket, &mut bytes);
        match message {
            Ok(message) => Received::Message(message, Foreign::new(descriptor, &self.desk.closer)),
            Err(error) => Received::Malformed(error),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        self.desk.forget(socket.as_fd());
        seqpacket::close(socket, &self.desk.closer);
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
