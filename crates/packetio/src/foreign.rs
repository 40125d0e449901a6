//! Descriptors that a peer sent, and how those are closed that may be slow to close.
//!
//! A peer may send any descriptor, and as soon as it has closed its own, ours is the last. Then
//! `close` does what the file wants done. A TCP socket that lingers, or a file whose file system is
//! a program of the peer's, makes it wait for as long as the peer likes. So nothing that came from
//! a peer is closed on the thread of a stack, until it is known to be memory or a bell, which close
//! at once. That goes for sockets, too, in whose queue descriptors lie that nobody took. Called by
//! the control channel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::CLOSING_MAX;

/// Closes on a thread of its own, which lives as long as there is something to close.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<Mutex<Closing>>);

#[derive(Debug, Default)]
struct Closing {
    waiting: Vec<OwnedFd>,
    /// A thread is at it.
    at_it: bool,
}

impl Closer {
    /// Closes `descriptor`, some time.
    pub fn close(&self, descriptor: OwnedFd) {
        let mut closing = self.lock();
        closing.waiting.push(descriptor);
        self.begin(&mut closing);
    }

    /// Whether so many wait that no further peer shall be heard: each may bring some more, a few.
    pub fn is_full(&self) -> bool {
        self.waiting() >= CLOSING_MAX
    }

    /// How many wait, beside one that is being closed.
    pub fn waiting(&self) -> usize {
        let mut closing = self.lock();
        // Perhaps there was no thread to be had the last time.
        self.begin(&mut closing);
        closing.waiting.len()
    }

    /// Whether nothing waits and nobody else has a copy of the closer.
    pub fn is_unused(&self) -> bool {
        let closing = self.lock();
        let is_idle = closing.waiting.is_empty() && !closing.at_it;
        is_idle && Arc::strong_count(&self.0) == 1
    }

    fn begin(&self, closing: &mut Closing) {
        if !closing.at_it && !closing.waiting.is_empty() {
            let own = self.clone();
            let thread = std::thread::Builder::new().name("millstream-close".into());
            closing.at_it = thread.spawn(move || own.close_all()).is_ok();
        }
    }

    fn close_all(&self) {
        while let Some(descriptor) = self.next() {
            drop(descriptor);
        }
    }

    fn next(&self) -> Option<OwnedFd> {
        let mut closing = self.lock();
        let next = closing.waiting.pop();
        closing.at_it = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Closing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The descriptor that came with a message, if one did. It is left to the closer, unless it is
/// kept.
#[derive(Debug)]
pub struct Foreign {
    descriptor: Option<OwnedFd>,
    closer: Closer,
}

impl Foreign {
    /// `descriptor`, as it came.
    pub fn new(descriptor: Option<OwnedFd>, closer: &Closer) -> Self {
        Self {
            descriptor,
            closer: closer.clone(),
        }
    }

    /// The descriptor, once `check` has found it to be of a kind that closes at once, and fit for
    /// its purpose.
    ///
    /// # Errors
    /// `missing`, or those of `check`, which must not ask the file's own file system for anything:
    /// it may be the peer's, and never answer.
    pub fn keep_if(
        mut self,
        missing: &'static str,
        check: impl FnOnce(BorrowedFd<'_>) -> Result<(), &'static str>,
    ) -> Result<OwnedFd, &'static str> {
        check(self.descriptor.as_ref().ok_or(missing)?.as_fd())?;
        self.descriptor.take().ok_or(missing)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(descriptor);
        }
    }
}

/// The value of the line `name` in the kernel's description of an open file in `/proc`, read
/// without asking the file itself. `None` without such a line, or without `/proc`.
pub fn fdinfo(descriptor: BorrowedFd<'_>, name: &str) -> Option<String> {
    let path = format!("/proc/thread-self/fdinfo/{}", descriptor.as_raw_fd());
    let info = std::fs::read_to_string(path).ok()?;
    // Some files have lines with names that others chose, but none begins with one.
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
