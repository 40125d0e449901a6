//! Numbers of descriptors, reserved in the kernel. packetdrill gives our descriptors to libc in
//! places, and none may equal one of its own.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use posix::{Descriptors, Errno};
use rustix::event::{EventfdFlags, eventfd};

/// The descriptors of one stack, shared by all threads. Each is an eventfd that no thread ever
/// writes.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<Mutex<BTreeMap<i32, OwnedFd>>>);

impl Held {
    /// Whether `fd` is one of the stack's.
    pub fn is_ours(&self, fd: i32) -> bool {
        self.lock().contains_key(&fd)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<i32, OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The source of descriptor numbers for `posix`.
#[derive(Debug)]
pub struct Placeholders(Held);

impl Placeholders {
    /// A source that records its numbers in `held`.
    pub fn new(held: Held) -> Self {
        Self(held)
    }
}

impl Descriptors for Placeholders {
    fn open(&mut self) -> Result<i32, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let number = fd.as_raw_fd();
        self.0.lock().insert(number, fd);
        Ok(number)
    }

    fn close(&mut self, fd: i32) {
        self.0.lock().remove(&fd);
    }
}
