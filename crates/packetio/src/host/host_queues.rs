//! The queues between a context's port and the thread of this process that talks to the host.
//!
//! The module owns both ends and the bells that wake them. That thread never handles frames. `mux`
//! and `mirror` make the queues.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ring::spsc::{Consumer, Producer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Change, NoPorts, Transfer, Wish};
use crate::limits::{HOST_QUEUE_MAX, HOST_TRANSFERS_MAX};

/// The port's end of the queues.
pub(crate) struct HostQueues {
    changes: Consumer<Change>,
    leases: Consumer<Result<(u16, u16), NoPorts>>,
    transfers: Consumer<Transfer>,
    wanted: Producer<Wish>,
    /// Number of changes that found the queue full.
    lost: Arc<Mutex<u64>>,
    /// Rings when news for the stack arrives.
    bell: Arc<OwnedFd>,
    /// Wakes the thread that talks to the host.
    control: Arc<OwnedFd>,
}

/// The thread's end of the queues.
pub(crate) struct Link {
    changes: Producer<Change>,
    leases: Producer<Result<(u16, u16), NoPorts>>,
    transfers: Producer<Transfer>,
    wanted: Consumer<Wish>,
    lost: Arc<Mutex<u64>>,
    bell: Arc<OwnedFd>,
}

/// Makes both ends; `control` wakes the thread.
///
/// # Errors
/// The error of `eventfd`.
pub(crate) fn pair(control: &Arc<OwnedFd>) -> Result<(HostQueues, Link), Errno> {
    let bell = new_bell()?;
    let lost = Arc::new(Mutex::new(0));
    let (changes_in, changes) = ring::spsc::queue(HOST_QUEUE_MAX);
    let (wanted, wanted_out) = ring::spsc::queue(HOST_QUEUE_MAX);
    let (leases_in, leases) = ring::spsc::queue(1);
    let (transfers_in, transfers) = ring::spsc::queue(HOST_TRANSFERS_MAX);
    let host_queues = HostQueues {
        changes,
        leases,
        transfers,
        wanted,
        lost: Arc::clone(&lost),
        bell: Arc::clone(&bell),
        control: Arc::clone(control),
    };
    let link = Link {
        changes: changes_in,
        leases: leases_in,
        transfers: transfers_in,
        wanted: wanted_out,
        lost,
        bell,
    };
    Ok((host_queues, link))
}

pub(crate) fn new_bell() -> Result<Arc<OwnedFd>, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

pub(crate) fn ring_bell(bell: &OwnedFd) {
    // A full counter means that the bell has rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Resets the bell, without blocking.
pub(crate) fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

impl HostQueues {
    /// Sends a wish. False: too many are open.
    pub fn ask(&mut self, wish: Wish) -> bool {
        let is_taken = self.wanted.push(wish).is_ok();
        ring_bell(&self.control);
        is_taken
    }

    /// The next change, in order.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop()
    }

    /// The answer to [`Wish::LocalPorts`].
    pub fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.leases.pop()
    }

    /// The next connection for this stack, or the next answer to one that left.
    pub fn next_transfer(&mut self) -> Option<Transfer> {
        self.transfers.pop()
    }

    /// True if news waits for the stack.
    pub fn has_news(&mut self) -> bool {
        !self.changes.is_empty() || !self.leases.is_empty() || !self.transfers.is_empty()
    }

    /// Descriptor that is readable when news has arrived.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Resets the bell after a sleep.
    pub fn silence(&self) {
        silence(&self.bell);
    }

    /// Number of changes that found the queue full. The thread takes the lock only when it loses a
    /// change.
    pub fn lost(&self) -> u64 {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Sends a change to the port. If the port has not looked for so long that its queue is full,
    /// the change is lost and counted. The port asks again where it matters.
    pub fn tell(&mut self, change: Change) {
        if self.changes.push(change).is_err() {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        ring_bell(&self.bell);
    }

    /// Answers [`Wish::LocalPorts`]. The stack has only one such wish open, so there is room.
    pub fn lend(&mut self, ports: Result<(u16, u16), NoPorts>) {
        let _ = self.leases.push(ports);
        ring_bell(&self.bell);
    }

    /// Sends a connection to the stack, or the answer to one that left. False: the queue is full.
    pub fn give(&mut self, transfer: Transfer) -> bool {
        let is_given = self.transfers.push(transfer).is_ok();
        ring_bell(&self.bell);
        is_given
    }

    /// The next wish of the port.
    pub fn next_wish(&mut self) -> Option<Wish> {
        self.wanted.pop()
    }

    /// True if the port is gone.
    pub fn is_abandoned(&self) -> bool {
        self.changes.is_abandoned()
    }
}
