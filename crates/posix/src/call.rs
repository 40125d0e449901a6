//! A call in progress.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::request::{ControlMessage, EpollEvent, PollFd, Request};

/// How far a call has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is over: its return value, or its errno. Everything else that it gives is its
    /// [`Reply`].
    Done(Result<i64, Errno>),
    /// The call blocks. Poll it again after the stack was turned, and at [`Call::deadline_ns`] at
    /// the latest.
    Pending,
}

/// The results of a call besides its return value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    #[default]
    None,
    /// `accept`, `getsockname`, `getpeername`.
    Address(SocketAddr),
    /// The bytes read; the value of an option.
    Bytes(Vec<u8>),
    /// `recvmsg`.
    Message {
        /// The bytes read.
        bytes: Vec<u8>,
        /// Control messages that found room.
        control: Vec<ControlMessage>,
        /// `msg_flags`
        flags: i32,
    },
    /// `ioctl`.
    Int(i32),
    /// `poll`: the entries with their `revents`.
    Poll(Vec<PollFd>),
    /// `epoll_wait`.
    Epoll(Vec<EpollEvent>),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Call {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
    pub(crate) progress: Progress,
}

/// The state of a blocked call between polls.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When it gives up, once it has been found to block; `None`: never.
    pub deadline_ns: Option<u64>,
    /// The call sent the SYN.
    pub connecting: bool,
    /// The call has blocked before.
    pub began: bool,
    /// Bytes that were written, or read, so far.
    pub done: usize,
    /// Bytes of earlier pieces, where a call has several.
    pub before: usize,
    /// The call waits for something that no event announces.
    pub is_unannounced: bool,
    /// A signal ended its wait: this is its last step.
    pub is_interrupted: bool,
    /// The number that the caller has chosen for the descriptor that the call opens.
    pub number: Option<i32>,
    /// The description that its descriptor stood for when it began to wait.
    pub waits_on: Option<i32>,
}

impl Call {
    /// A call that is about to begin.
    #[must_use]
    pub fn start(request: Request) -> Self {
        Self {
            request,
            reply: Reply::None,
            progress: Progress::default(),
        }
    }

    /// When a blocked call gives up by itself (`SO_RCVTIMEO`, `SO_SNDTIMEO`, the time of `poll` and
    /// `epoll_wait`), on the context's clock; `None`: never.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.progress.deadline_ns
    }

    /// Bytes that a call which waits has moved so far. A signal that ends the call makes them its
    /// value.
    #[must_use]
    pub fn moved(&self) -> usize {
        self.progress.before + self.progress.done
    }

    /// The call's name and arguments.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The results of a call that is done.
    #[must_use]
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The results of a call that is done.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        self.reply
    }
}
