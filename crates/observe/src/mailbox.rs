//! The queues between the agent and one context. Neither end waits for the other.
//!
//! ```text
//!   agent                                        context, at the end of a turn
//!   Sender ── requests, with room for the answer ──▶ Mailbox
//!          ◀───────────────────────────── answers ──
//! ```
//!
//! A request brings the memory for its answer, so that the context allocates nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ring::doorbell::StackBell;
use ring::due::Due;
use ring::spsc::{self, Consumer, Producer};
use rustix::io::Errno;

use crate::limits::{ANSWER_BYTES_MAX, MAILBOX_SLOTS};

/// A request to a context.
pub struct Request {
    /// One of [`kind`](crate::message::kind).
    pub kind: u16,
    /// The request's arguments. They come from another process: every length must be checked.
    pub body: Vec<u8>,
    /// The answer, at most [`ANSWER_BYTES_MAX`] bytes; its memory is already allocated.
    pub answer: Vec<u8>,
    /// A descriptor to send with the answer.
    pub file: Option<OwnedFd>,
    /// The agent's note of the reader that asked.
    pub token: u64,
}

impl Request {
    /// Bytes that still fit the answer.
    #[must_use]
    pub fn room(&self) -> usize {
        ANSWER_BYTES_MAX.saturating_sub(self.answer.len())
    }
}

/// A request that the context has answered.
pub struct Answered {
    /// The request, with its answer.
    pub request: Request,
    /// The error, if the request failed.
    pub outcome: Result<(), Errno>,
}

/// The context's end of a mailbox.
pub struct Mailbox {
    requests: Consumer<Request>,
    answers: Producer<Answered>,
    /// Wakes the agent.
    bell: StackBell,
}

/// The agent's end of a mailbox.
pub struct Sender {
    requests: Producer<Request>,
    answers: Consumer<Answered>,
    due: Arc<Due>,
    /// Wakes the context.
    bell: StackBell,
    /// Number of requests without an answer.
    open: usize,
}

/// A mailbox for a context that looks at `due` in each turn and sleeps on `context_bell`.
#[must_use]
pub fn mailbox(due: Arc<Due>, context_bell: StackBell, agent_bell: StackBell) -> (Sender, Mailbox) {
    let (requests_in, requests) = spsc::queue(MAILBOX_SLOTS);
    let (answers, answers_out) = spsc::queue(MAILBOX_SLOTS);
    let sender = Sender {
        requests: requests_in,
        answers: answers_out,
        due,
        bell: context_bell,
        open: 0,
    };
    let mailbox = Mailbox {
        requests,
        answers,
        bell: agent_bell,
    };
    (sender, mailbox)
}

impl Mailbox {
    /// Takes the next request. The caller answers it before it takes another.
    pub fn take(&mut self) -> Option<Request> {
        self.requests.pop()
    }

    /// True if more requests wait.
    pub fn has_more(&mut self) -> bool {
        !self.requests.is_empty()
    }

    /// Sends a request back with its answer.
    pub fn answer(&mut self, mut request: Request, outcome: Result<(), Errno>) {
        request.answer.truncate(ANSWER_BYTES_MAX);
        // The queue of answers is as long as that of requests, so there is always room.
        let _ = self.answers.push(Answered { request, outcome });
        self.bell.ring();
    }
}

impl Sender {
    /// Sends a request, and wakes the context.
    ///
    /// # Errors
    /// `AGAIN`: too many requests have no answer yet.
    pub fn send(&mut self, kind: u16, body: &[u8], token: u64) -> Result<(), Errno> {
        if self.open >= MAILBOX_SLOTS {
            return Err(Errno::AGAIN);
        }
        let request = Request {
            kind,
            body: body.to_vec(),
            answer: Vec::with_capacity(ANSWER_BYTES_MAX),
            file: None,
            token,
        };
        self.requests.push(request).map_err(|_| Errno::AGAIN)?;
        self.open += 1;
        self.due.ask();
        self.bell.ring();
        Ok(())
    }

    /// The next answer.
    pub fn receive(&mut self) -> Option<Answered> {
        let answered = self.answers.pop()?;
        self.open = self.open.saturating_sub(1);
        Some(answered)
    }
}
