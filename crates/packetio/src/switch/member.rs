//! A member's end of the switch: the near end of a loopback, and the frames that the switch has not handed on.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ring::published::Published64;
use rustix::event::PollFlags;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::loopback::Loopback;
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// Frames of one member's that were lost on the way; written by the switch's thread.
#[derive(Debug, Default)]
pub struct Drops {
    /// To the member, which had no room: its stack is behind.
    pub to_member: Published64,
    /// From the member, to another one without room or to a wire that failed.
    pub from_member: Published64,
}

/// See the module's documentation.
pub struct Member {
    pub near: Loopback,
    pub drops: Arc<Drops>,
}

impl Port for Member {
    fn capabilities(&self) -> &Capabilities {
        self.near.capabilities()
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.near.receive()
    }

    fn release(&mut self) {
        self.near.release();
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.near.reserve(n)
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.near.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.near.prepare_wait(want_tx)
    }

    fn finish_wait(&mut self) {
        self.near.finish_wait();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.near.poll_fds(want_tx, fds);
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.near.counters();
        counters.push("switch_rx_dropped_full", self.drops.to_member.load());
        counters.push("switch_tx_dropped", self.drops.from_member.load());
        counters
    }
}
