//! The thread that makes a script's system calls.
//!
//! There is one call at a time. Requests go in by a channel, and answers come back by another. A
//! bell (an eventfd) rings, so the script's thread can sleep on packets and calls at once. Owned by
//! [`Kernel`](super::Kernel).

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use posix::Request;
use rustix::event::{EventfdFlags, eventfd};

use super::calls_unsafe::perform;
use crate::host::Answer;

/// Longest time for the thread to fall asleep in a call that blocks.
const ASLEEP_WAIT: Duration = Duration::from_millis(20);
/// Time between two looks at whether the thread sleeps.
const LOOK_EVERY: Duration = Duration::from_micros(20);

type Done = (Request, Answer);

pub(super) struct Caller {
    requests: Sender<Request>,
    answers: Receiver<Done>,
    bell: OwnedFd,
    /// The thread's id in the kernel.
    id: i32,
    /// An answer that came during [`Caller::wait_asleep`].
    early: Option<Done>,
    /// Number of calls that have not returned and whose results are no longer wanted.
    abandoned: usize,
    is_busy: bool,
}

impl Caller {
    pub(super) fn spawn() -> std::io::Result<Caller> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ring = bell.try_clone()?;
        let (requests, inbox) = mpsc::channel::<Request>();
        let (outbox, answers) = mpsc::channel();
        let (say, hear) = mpsc::channel();
        thread::Builder::new()
            .name("script-calls".to_owned())
            .spawn(move || {
                let _ = say.send(rustix::thread::gettid().as_raw_nonzero().get());
                while let Ok(request) = inbox.recv() {
                    let answer = perform(&request);
                    if outbox.send((request, answer)).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&ring, &1_u64.to_ne_bytes());
                }
            })?;
        let id = hear.recv().map_err(std::io::Error::other)?;
        Ok(Caller {
            requests,
            answers,
            bell,
            id,
            early: None,
            abandoned: 0,
            is_busy: false,
        })
    }

    /// Readable when a call is over.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn begin(&mut self, request: Request) {
        // The thread lives as long as the sender, so sending cannot fail.
        let _ = self.requests.send(request);
        self.is_busy = true;
    }

    /// Waits until the started call sleeps in the kernel, or is over.
    pub(super) fn wait_asleep(&mut self) {
        let since = Instant::now();
        while since.elapsed() < ASLEEP_WAIT && !self.sleeps_in_call() {
            self.early = self.early.take().or_else(|| self.answers.try_recv().ok());
            if self.early.is_some() {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether the thread sleeps in a call. A thread without a request sleeps in a futex.
    fn sleeps_in_call(&self) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/self/task/{}/syscall", self.id)) else {
            return false;
        };
        let number = text.split(' ').next().and_then(|n| n.parse().ok());
        number.is_some_and(|number: i64| number >= 0 && number != libc::SYS_futex)
    }

    /// The started call and its answer, once it is over.
    pub(super) fn outcome(&mut self) -> Option<Done> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        loop {
            let done = self.early.take().or_else(|| self.answers.try_recv().ok())?;
            if self.abandoned == 0 {
                self.is_busy = false;
                return Some(done);
            }
            self.abandoned -= 1;
        }
    }

    pub(super) fn abandon(&mut self) {
        if std::mem::take(&mut self.is_busy) {
            self.abandoned += 1;
        }
    }
}
