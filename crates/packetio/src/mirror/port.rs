//! A port whose addresses, routes and next hops are the kernel's.
//!
//! A [`MirrorPort`] owns a port of any kind and its end of the queues to the thread that follows
//! the kernel. [`Follower::port`](super::Follower::port) makes it.

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use crate::host::host_queues::HostQueues;
use crate::host::{Change, Host, NoPorts, Wish};
use crate::ledger::LedgerFile;
use crate::port::{Port, PortCounters};

/// See the module's documentation.
pub struct MirrorPort {
    port: Box<dyn Port + Send>,
    host_queues: HostQueues,
}

impl MirrorPort {
    pub(super) fn new(port: Box<dyn Port + Send>, host_queues: HostQueues) -> Self {
        Self { port, host_queues }
    }
}

impl Host for MirrorPort {
    fn ask(&mut self, wish: Wish) -> bool {
        self.host_queues.ask(wish)
    }

    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.host_queues.next_lease()
    }

    /// Limits a new MTU to what the port's memory was made for.
    fn next_change(&mut self) -> Option<Change> {
        let opened = self.port.capabilities().mtu;
        self.host_queues.next_change().map(|change| match change {
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
        self.port.prepare_wait(want_tx) || self.host_queues.has_news()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
        self.host_queues.silence();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.port.poll_fds(want_tx, fds);
        fds(self.host_queues.bell(), PollFlags::IN);
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        counters.push("mirror_changes_lost", self.host_queues.lost());
        counters
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        Some(self)
    }

    crate::forward_port!(self => self.port; capabilities receive release drain waiting
        accept_merged reserve reserved send deadline_ns mover_shares_cpu);
}
