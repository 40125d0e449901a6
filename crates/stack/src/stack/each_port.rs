//! What each port of a stack has counted, apart from the others: for reports and for observers.

use packetio::PortCounters;

use super::Stack;
use crate::context::PortReport;
use crate::drop_reasons;
use crate::engine::View;
use crate::ports::PortSide;

/// One port of a stack, to be looked at.
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
            // A stack with one port counts its drops once.
            drops: side.drops.as_deref().copied().unwrap_or(all),
        })
    }
}

impl PortView<'_> {
    /// The port's name, such as `xdp:eth1`.
    pub fn name(&self) -> &str {
        &self.side.port.capabilities().name
    }

    /// The port's own counters. The port may have to ask the kernel for some.
    pub fn counters(&self) -> PortCounters {
        self.side.port.counters()
    }

    /// Frames of this port that the stack dropped, by the name of their counter.
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
