//! Counters of each port of a stack separately, for reports and observers.

use packetio::PortCounters;

use super::Stack;
use crate::context::PortReport;
use crate::drop_reasons;
use crate::engine::View;
use crate::ports::PortSide;

/// One port of a stack, by shared reference.
pub struct PortView<'a> {
    side: &'a PortSide,
    drops: [u64; drop_reasons::NAMES.len()],
}

impl Stack {
    /// The ports, the first one first.
    pub fn each_port(&self) -> impl ExactSizeIterator<Item = PortView<'_>> {
        let View { env, counters, .. } = self.view();
        let all = drop_reasons::counts(counters, &env.tcp_counters);
        self.ports.sides().iter().map(move |side| PortView {
            side,
            // With one port, the stack's counters are that port's.
            drops: side.drops.as_deref().copied().unwrap_or(all),
        })
    }
}

impl PortView<'_> {
    /// The port's name, such as `xdp:eth1`.
    pub fn name(&self) -> &str {
        &self.side.port.capabilities().name
    }

    /// True once the port is gone for good.
    pub fn is_gone(&self) -> bool {
        self.side.is_gone
    }

    /// The port's own counters, some of which the port may have to query from the kernel.
    pub fn counters(&self) -> PortCounters {
        self.side.port.counters()
    }

    /// Frames of this port that the stack dropped, by counter name.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        drop_reasons::NAMES.iter().copied().zip(self.drops)
    }

    pub(super) fn report(&self) -> PortReport {
        PortReport {
            name: self.name().to_owned(),
            counters: self.counters(),
            drops: self.drops().collect(),
        }
    }
}
