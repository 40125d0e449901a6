//! Requests of packetdrill's threads to the thread that owns the stack, and its answers.
//!
//! A context does not leave its thread, so each call of the interface becomes an [`Ask`] in a
//! queue, and the caller sleeps until the [`Answer`] is there. It really sleeps (on a futex):
//! packetdrill looks at the state of a thread in `/proc` to find out whether a call blocks. The
//! answer is handed over by rendezvous: who gave it knows that the caller has it.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use posix::{Errno, Reply, Request};
use rustix::thread::{Pid, gettid};

/// The kind of a request.
#[derive(Debug)]
pub enum What {
    /// A socket call.
    Call(Request),
    /// A packet arrives.
    Inject(Vec<u8>),
    /// The next packet that leaves.
    Next,
    /// Time passes.
    Sleep { ns: u64 },
    /// The present time.
    Now,
    /// The end.
    Quit,
}

/// The answer to it.
#[derive(Debug)]
pub enum Answer {
    /// To [`What::Call`].
    Call {
        result: Result<i64, Errno>,
        reply: Reply,
        /// When it was over; of interest if it had blocked.
        at_ns: u64,
        has_blocked: bool,
    },
    /// To [`What::Next`].
    Packet { packet: Vec<u8>, at_ns: u64 },
    /// To [`What::Now`], [`What::Sleep`], [`What::Inject`] and [`What::Quit`]: done, and when.
    Done { at_ns: u64 },
    /// The request can never be answered, for this reason.
    Never(String),
}

/// A question with its sender.
#[derive(Debug)]
pub struct Ask {
    pub what: What,
    pub from: Pid,
    answer: SyncSender<Answer>,
}

impl Ask {
    /// Gives the answer; returns when the asker has it.
    pub fn answer(self, answer: Answer) {
        // An asker that is gone needs none.
        let _ = self.answer.send(answer);
    }

    /// For a call that blocks: the sender, without the question.
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
    /// As [`Ask::answer`].
    pub fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

/// The askers' end of the queue.
#[derive(Clone, Debug)]
pub struct Asks(Sender<Ask>);

/// A queue of questions.
pub fn queue() -> (Asks, Receiver<Ask>) {
    let (asks, asked) = mpsc::channel();
    (Asks(asks), asked)
}

impl Asks {
    /// Asks, and sleeps until the answer is there. `None` if the answering thread has ended.
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
