//! A port whose addresses, routes and next hops are the kernel's.
//!
//! A [`MirrorPort`] owns a port of any kind and its end of the queues to the thread that follows
//! the kernel. [`Follower::port`](super::Follower::port) makes it.

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use crate::host::doors::Doors;
use crate::host::{Change, Host, NoPorts, Wish};
use crate::ledger::LedgerFile;
use crate::port::{Port, PortCounters};

/// See the module's documentation.
pub struct MirrorPort {
    port: Box<dyn Port + Send>,
    doors: Doors,
}

impl MirrorPort {
    pub(super) fn new(port: Box<dyn Port + Send>, doors: Doors) -> Self {
        Self { port, doors }
    }
}

impl Host for MirrorPort {
    fn ask(&mut self, wish: Wish) -> bool {
        self.doors.ask(wish)
    }

    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.doors.next_lease()
    }

    /// Limits a new MTU to what the port's memory was made for.
    fn next_change(&mut self) -> Option<Change> {
        let opened = self.port.capabilities().mtu;
        self.doors.next_change().map(|change| match change {
            Change::Mtu(mtu) => Change::Mtu(mtu.min(opened as u32)),
            other => other,
        })
    }

    fn take_ledger(&mut self) -> Option<LedgerFile> {
        None
    }
}

impl Port for MirrorPort {
    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.port.prepare_wait(want_tx) || self.doors.has_news()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
        self.doors.silence();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.port.poll_fds(want_tx, fds);
        fds(self.doors.bell(), PollFlags::IN);
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        counters.push("mirror_changes_lost", self.doors.lost());
        counters
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        Some(self)
    }

    crate::forward_port!(self => self.port; capabilities receive release drain waiting
        accept_merged reserve reserved send deadline_ns mover_shares_cpu);
}
