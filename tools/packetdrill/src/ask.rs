//! Requests of packetdrill's threads to the thread that owns the stack, and its answers.
//!
//! A context stays on its thread. Each call of the interface therefore becomes an [`Ask`] in a
//! queue, and the caller sleeps until the [`Answer`] is there. The caller must really sleep (on a
//! futex): packetdrill reads a thread's state in `/proc` to see whether a call blocks. The answer
//! is handed over by rendezvous, so the giver knows that the caller has it.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use posix::{Errno, Reply, Request};
use rustix::thread::{Pid, gettid};

/// The kind of a request.
#[derive(Debug)]
pub enum What {
    /// A socket call.
    Call(Request),
    /// Lets a packet arrive.
    Inject(Vec<u8>),
    /// Asks for the next packet that leaves.
    Next,
    /// Lets time pass.
    Sleep { ns: u64 },
    /// Asks for the time.
    Now,
    /// Ends the stack's thread.
    Quit,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// To [`What::Call`].
    Call {
        result: Result<i64, Errno>,
        reply: Reply,
        /// The time at which the call ended, which matters if it blocked.
        at_ns: u64,
        has_blocked: bool,
    },
    /// To [`What::Next`].
    Packet { packet: Vec<u8>, at_ns: u64 },
    /// To [`What::Now`], [`What::Sleep`], [`What::Inject`] and [`What::Quit`], with the time at
    /// which it was done.
    Done { at_ns: u64 },
    /// The request can never be answered, for this reason.
    Never(String),
}

/// A request and its sender.
#[derive(Debug)]
pub struct Ask {
    pub what: What,
    pub from: Pid,
    answer: SyncSender<Answer>,
}

impl Ask {
    /// Gives the answer, and returns when the asker has it.
    pub fn answer(self, answer: Answer) {
        // An asker that has gone needs no answer.
        let _ = self.answer.send(answer);
    }

    /// Splits off the sender, for a call that blocks.
    pub fn into_asker(self) -> (What, Asker) {
        let asker = Asker {
            thread: self.from,
            answer: self.answer,
        };
        (self.what, asker)
    }
}

/// A thread that sleeps until it is answered.
#[derive(Debug)]
pub struct Asker {
    pub thread: Pid,
    answer: SyncSender<Answer>,
}

impl Asker {
    /// Gives the answer, like [`Ask::answer`].
    pub fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

/// The end of the queue into which requests go.
#[derive(Clone, Debug)]
pub struct Asks(Sender<Ask>);

/// A queue of requests.
pub fn queue() -> (Asks, Receiver<Ask>) {
    let (asks, asked) = mpsc::channel();
    (Asks(asks), asked)
}

impl Asks {
    /// Sends a request, and sleeps until its answer is there. `None`: the stack's thread has ended.
    pub fn ask(&self, what: What) -> Option<Answer> {
        let (answer, answered) = mpsc::sync_channel(0);
        let ask = Ask {
            what,
            from: gettid(),
            answer,
        };
        self.0.send(ask).ok()?;
        answered.recv().ok()
    }
}
