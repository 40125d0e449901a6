//! A member's end of the switch: the near end of a loopback, and counts of frames dropped by the
//! switch.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ring::last_cpu::LastCpu;
use ring::published::Published64;
use rustix::event::PollFlags;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::loopback::Loopback;
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// Frames that one member lost. The switch's thread counts them.
#[derive(Debug, Default)]
pub struct Drops {
    /// Frames to the member without room, because its stack is slow.
    pub to_full: Published64,
    /// Frames to the member that exceed its longest frame.
    pub to_too_long: Published64,
    /// Frames that arrived before any member was present.
    pub to_nobody: Published64,
    /// Frames from the member to another one without room, or to a wire that failed.
    pub from_full: Published64,
    /// Frames from the member that exceed the other side's longest frame.
    pub from_too_long: Published64,
    /// Frames from the member to a MAC address that no present member has.
    pub from_nobody: Published64,
    /// Flows of the member that were displaced from the table and may not have ended. If the port's
    /// listeners have changed, the flow's next segment goes to the wrong member.
    pub flows_forgotten: Published64,
}

/// A member's port.
pub struct Member {
    pub near: Loopback,
    pub drops: Arc<Drops>,
    /// The CPU on which the switch's thread ran last.
    pub cpu: Arc<LastCpu>,
}

impl Port for Member {
    fn capabilities(&self) -> &Capabilities {
        self.near.capabilities()
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        // The switch drops a member's other end only when no more frames will come.
        self.near.receive().map_err(|error| match error {
            PortError::Disconnected => PortError::Gone,
            error => error,
        })
    }

    fn release(&mut self) {
        self.near.release();
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.near.reserve(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.near.reserved()
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

    fn mover_shares_cpu(&self) -> bool {
        self.cpu.is_ours()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.near.counters();
        let Drops {
            to_full,
            to_too_long,
            to_nobody,
            from_full,
            from_too_long,
            from_nobody,
            flows_forgotten,
        } = &*self.drops;
        for (name, count) in [
            ("switch_rx_dropped_full", to_full),
            ("switch_rx_dropped_too_long", to_too_long),
            ("switch_rx_dropped_no_member", to_nobody),
            ("switch_tx_dropped", from_full),
            ("switch_tx_dropped_too_long", from_too_long),
            ("switch_tx_dropped_no_member", from_nobody),
            ("switch_flows_forgotten", flows_forgotten),
        ] {
            counters.push(name, count.load());
        }
        counters
    }
}
