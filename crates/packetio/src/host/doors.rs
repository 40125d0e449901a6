//! The queues between a context's port and the thread of this process that talks to the host.
//!
//! Owns both ends and the bells that wake them. Frames never meet that thread. Made by `mux` and
//! by `mirror`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ring::spsc::{Consumer, Producer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Change, NoPorts, Transfer, Wish};
use crate::limits::{HOST_QUEUE_MAX, HOST_TRANSFERS_MAX};

/// The port's end.
pub(crate) struct Doors {
    changes: Consumer<Change>,
    leases: Consumer<Result<(u16, u16), NoPorts>>,
    transfers: Consumer<Transfer>,
    wanted: Producer<Wish>,
    /// Changes that found the queue full.
    lost: Arc<Mutex<u64>>,
    /// Rings when something changed.
    bell: Arc<OwnedFd>,
    /// Wakes the thread.
    control: Arc<OwnedFd>,
}

/// The thread's end.
pub(crate) struct Link {
    changes: Producer<Change>,
    leases: Producer<Result<(u16, u16), NoPorts>>,
    transfers: Producer<Transfer>,
    wanted: Consumer<Wish>,
    lost: Arc<Mutex<u64>>,
    bell: Arc<OwnedFd>,
}

/// Both ends; `control` wakes the thread.
///
/// # Errors
/// The error of `eventfd`.
pub(crate) fn pair(control: &Arc<OwnedFd>) -> Result<(Doors, Link), Errno> {
    let bell = new_bell()?;
    let lost = Arc::new(Mutex::new(0));
    let (changes_in, changes) = ring::spsc::queue(HOST_QUEUE_MAX);
    let (wanted, wanted_out) = ring::spsc::queue(HOST_QUEUE_MAX);
    let (leases_in, leases) = ring::spsc::queue(1);
    let (transfers_in, transfers) = ring::spsc::queue(HOST_TRANSFERS_MAX);
    let doors = Doors {
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
    Ok((doors, link))
}

pub(crate) fn new_bell() -> Result<Arc<OwnedFd>, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new)
}

pub(crate) fn ring_bell(bell: &OwnedFd) {
    // A counter that is full has rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Takes back what the bell has rung; it does not block.
pub(crate) fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

impl Doors {
    /// Asks for something. False: too much was asked already.
    pub fn ask(&mut self, wish: Wish) -> bool {
        let is_taken = self.wanted.push(wish).is_ok();
        ring_bell(&self.control);
        is_taken
    }

    /// Something that changed, in order.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop()
    }

    /// The answer to [`Wish::LocalPorts`].
    pub fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.leases.pop()
    }

    /// A connection that comes, or the answer to one that left.
    pub fn next_transfer(&mut self) -> Option<Transfer> {
        self.transfers.pop()
    }

    /// Whether something waits for the stack.
    pub fn has_news(&mut self) -> bool {
        !self.changes.is_empty() || !self.leases.is_empty() || !self.transfers.is_empty()
    }

    /// Rings when something changed.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The sleep is over.
    pub fn silence(&self) {
        silence(&self.bell);
    }

    /// Changes that found the queue full. The thread takes the lock only for a change that it
    /// loses.
    pub fn lost(&self) -> u64 {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// A port that has not looked for so long that its queue is full misses the change, which is
    /// counted; it asks again where that matters.
    pub fn tell(&mut self, change: Change) {
        if self.changes.push(change).is_err() {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        ring_bell(&self.bell);
    }

    /// Answers [`Wish::LocalPorts`]. The stack has one question under way, so there is room.
    pub fn lend(&mut self, ports: Result<(u16, u16), NoPorts>) {
        let _ = self.leases.push(ports);
        ring_bell(&self.bell);
    }

    /// Gives the stack a connection, or the answer to one that left. False: the queue is full.
    pub fn give(&mut self, transfer: Transfer) -> bool {
        let is_given = self.transfers.push(transfer).is_ok();
        ring_bell(&self.bell);
        is_given
    }

    /// The next wish of the port.
    pub fn next_wish(&mut self) -> Option<Wish> {
        self.wanted.pop()
    }

    /// The port is gone.
    pub fn is_abandoned(&self) -> bool {
        self.changes.is_abandoned()
    }
}
