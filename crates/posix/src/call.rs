//! A call in progress.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::request::{ControlMessage, EpollEvent, PollFd, Request};

/// The result of polling a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is over, with its return value or errno. Its other results are in the [`Reply`].
    Done(Result<i64, Errno>),
    /// The call blocks. The caller polls it again after turning the stack, and at
    /// [`Call::deadline_ns`] at the latest.
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
    /// Bytes read, or the value of an option.
    Bytes(Vec<u8>),
    /// `recvmsg`.
    Message {
        /// The bytes read.
        bytes: Vec<u8>,
        /// Control messages that fit the caller's room.
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
    /// The time at which the call gives up, on the context's clock; `None`: it has not blocked yet,
    /// or waits without a limit.
    pub deadline_ns: Option<u64>,
    /// The call sent the SYN.
    pub connecting: bool,
    /// The call has blocked before.
    pub began: bool,
    /// Bytes of the present piece that were written or read so far.
    pub done: usize,
    /// Bytes of the pieces before the present one, in a call with several.
    pub before: usize,
    /// The call waits for something without an event, so the caller has to look again from time to
    /// time.
    pub is_unannounced: bool,
    /// A signal ended the wait: the next step is the last one.
    pub is_interrupted: bool,
    /// The number, chosen by the caller, for the descriptor that the call opens.
    pub number: Option<i32>,
    /// The description behind the call's descriptor when the call began to wait.
    pub waits_on: Option<i32>,
}

impl Call {
    /// A call that has not begun.
    #[must_use]
    pub fn start(request: Request) -> Self {
        Self {
            request,
            reply: Reply::None,
            progress: Progress::default(),
        }
    }

    /// The time at which a blocked call gives up (`SO_RCVTIMEO`, `SO_SNDTIMEO`, the timeout of
    /// `poll` and `epoll_wait`), on the context's clock; `None`: never.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.progress.deadline_ns
    }

    /// Number of bytes that a waiting call has moved so far. A call that a signal ends returns this
    /// number.
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
