//! Descriptors that a peer sent, and a thread that closes those which may be slow to close.
//!
//! A peer may send any descriptor, and once it has closed its own copy, ours is the last. `close`
//! then does what the file requires. A lingering TCP socket, or a file whose file system is the
//! peer's program, may block as long as the peer likes. A stack's thread therefore closes nothing
//! from a peer unless it is known to be memory or a bell, which close at once. The same goes for
//! sockets in whose queues unread descriptors may lie. The control channel uses this module.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::CLOSING_MAX;
use crate::signals_unsafe::BlockedSignals;

/// Closes descriptors on a thread that lives while there are any.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<Mutex<Closing>>);

#[derive(Debug, Default)]
struct Closing {
    waiting: Vec<OwnedFd>,
    /// True while the thread runs.
    at_it: bool,
}

impl Closer {
    /// Closes `descriptor` at some later time.
    pub fn close(&self, descriptor: OwnedFd) {
        let mut closing = self.lock();
        closing.waiting.push(descriptor);
        self.begin(&mut closing);
    }

    /// True if too many descriptors wait, so that no further peer may be served: each could bring a
    /// few more.
    pub fn is_full(&self) -> bool {
        self.waiting() >= CLOSING_MAX
    }

    /// How many wait, beside one that is being closed.
    pub fn waiting(&self) -> usize {
        let mut closing = self.lock();
        // Starting the thread may have failed the last time.
        self.begin(&mut closing);
        closing.waiting.len()
    }

    /// Whether nothing waits and nothing is being closed, so that there is no thread.
    pub fn is_idle(&self) -> bool {
        let mut closing = self.lock();
        self.begin(&mut closing);
        closing.waiting.is_empty() && !closing.at_it
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
            let _blocked = BlockedSignals::new();
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

/// The descriptor that came with a message, if any. Dropping it leaves the descriptor to the
/// closer.
#[derive(Debug)]
pub struct Foreign {
    descriptor: Option<OwnedFd>,
    closer: Closer,
}

impl Foreign {
    /// Wraps the descriptor of a message.
    pub fn new(descriptor: Option<OwnedFd>, closer: &Closer) -> Self {
        Self {
            descriptor,
            closer: closer.clone(),
        }
    }

    /// Keeps the descriptor once `check` has found it of a kind that closes at once, and fit for
    /// its purpose.
    ///
    /// # Errors
    /// `missing` without a descriptor, or the errors of `check`. `check` must not query the file's
    /// own file system, which may be the peer's and never answer.
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

/// The value of line `name` in the kernel's description of an open file in `/proc`, which does not
/// query the file itself. `None` without such a line or without `/proc`.
pub fn fdinfo(descriptor: BorrowedFd<'_>, name: &str) -> Option<String> {
    let path = format!("/proc/thread-self/fdinfo/{}", descriptor.as_raw_fd());
    let info = std::fs::read_to_string(path).ok()?;
    // Some files have lines with names chosen by others, but such lines never come first.
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
