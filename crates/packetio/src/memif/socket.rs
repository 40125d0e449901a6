//! UNIX sockets of the control channel: listen, connect, and messages with at most one descriptor.
//! Nothing blocks, not even closing.
//!
//! The module owns the listener with its path, and each connection. Both handshakes use it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::{self, Errno};
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags};

use super::message::{MESSAGE_LEN, Message, MessageError};
use crate::foreign::{Closer, Foreign};
use crate::seqpacket::{self, Peeked, address, new_socket};

/// The result of reading from a connection.
#[derive(Debug)]
pub enum Received {
    /// No message has arrived.
    Nothing,
    /// The other end has gone.
    Closed,
    /// A message, with the descriptor that accompanied it.
    Message(Message, Foreign),
    /// Bytes that are no message, or with descriptors that do not belong to it.
    Malformed(MessageError),
}

/// State that all sockets of one control channel share.
#[derive(Clone, Debug)]
pub struct ChannelContext {
    /// Epoll instance that reports when one of the sockets is readable.
    pub epoll: Arc<OwnedFd>,
    /// Closes descriptors that may be slow to close.
    pub closer: Closer,
}

impl ChannelContext {
    fn watch(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(
            &self.epoll,
            source,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )
    }

    fn forget(&self, source: BorrowedFd<'_>) {
        // The call fails for a descriptor that was not watched, which does not matter.
        let _ = epoll::delete(&self.epoll, source);
    }
}

/// A listening socket. Dropping it removes its path.
#[derive(Debug)]
pub struct Listener {
    /// The socket; `None` once it is closed.
    socket: Option<OwnedFd>,
    context: ChannelContext,
    /// Path, device and inode of the socket file, so that only our own file is removed.
    file: Option<(String, u64, u64)>,
}

impl Listener {
    /// Listens at `path` (`@name`: an abstract address). A stale socket file, without a listener,
    /// is replaced.
    ///
    /// # Errors
    /// `ADDRINUSE` if another process listens there; else the errors of the calls.
    pub fn new(path: &str, context: &ChannelContext) -> io::Result<Self> {
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
        context.watch(socket.as_fd())?;
        let file = match path.starts_with('@') {
            true => None,
            false => rustix::fs::stat(path)
                .ok()
                .map(|stat| (path.to_owned(), stat.st_dev, stat.st_ino)),
        };
        Ok(Self {
            socket: Some(socket),
            context: context.clone(),
            file,
        })
    }

    /// Accepts the next connection; `None`: there is none.
    ///
    /// # Errors
    /// The next connection must wait because no descriptor or memory is free.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        let Some(listener) = &self.socket else {
            return Ok(None);
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) => Channel::over(socket, &self.context).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sets whether the desk reports new connections.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`.
    pub fn watch(&self, whether: bool) -> io::Result<()> {
        match &self.socket {
            Some(socket) if whether => self.context.watch(socket.as_fd()),
            Some(socket) => {
                self.context.forget(socket.as_fd());
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

    /// Closes all connections that were not accepted. False: some are left.
    fn close_pending(&self) -> bool {
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
            self.context.forget(socket.as_fd());
            // Nothing can connect any more, so the loop below ends.
            let _ = rustix::net::shutdown(socket, Shutdown::Read);
        }
        let is_empty = self.close_pending();
        if let Some(socket) = self.socket.take()
            && !is_empty
        {
            self.context.closer.close(socket);
        }
    }
}

/// A connection of the control channel.
#[derive(Debug)]
pub struct Channel {
    /// The socket; `None` once it is closed.
    socket: Option<OwnedFd>,
    context: ChannelContext,
}

impl Channel {
    /// Makes a channel over a connected socket.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`.
    pub fn over(socket: OwnedFd, context: &ChannelContext) -> io::Result<Self> {
        let watched = context.watch(socket.as_fd());
        let channel = Self {
            socket: Some(socket),
            context: context.clone(),
        };
        watched.map(|()| channel)
    }

    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// The errors of `connect`: no process listens, or its queue is full.
    pub fn connect(path: &str, context: &ChannelContext) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Self::over(socket, context)
    }

    /// Sends `message` with a descriptor. False: the connection is unusable.
    pub fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        // The protocol is a dialogue, so the socket's buffer fills only if the peer does not read;
        // then the connection is unusable too.
        seqpacket::send(socket, &message.encode(), descriptor) == Ok(MESSAGE_LEN)
    }

    /// Reads the next message.
    pub fn receive(&self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Closed;
        };
        // One byte more than a message, to detect longer ones.
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
                .and_then(|_| seqpacket::copy_descriptor(socket, &self.context.closer));
            if descriptor.is_none() {
                return Received::Malformed(MessageError::Descriptors);
            }
        }
        seqpacket::take(socket, &mut bytes);
        match message {
            Ok(message) => {
                Received::Message(message, Foreign::new(descriptor, &self.context.closer))
            }
            Err(error) => Received::Malformed(error),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        self.context.forget(socket.as_fd());
        seqpacket::close(socket, &self.context.closer);
    }
}

/// True if `path` is a stale socket that a dead server left behind.
fn is_stale(path: &str, address: &SocketAddrUnix) -> bool {
    let is_socket = rustix::fs::lstat(path).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    });
    is_socket
        && new_socket()
            .is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}
