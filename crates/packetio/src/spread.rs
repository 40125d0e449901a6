//! How a card spreads flows over its queues (receive-side scaling): a Toeplitz hash, whose lower
//! bits select an entry of a table of queues.
//!
//! `xdp` reads it from the driver where `ethtool` can. By it the stack chooses local ports whose
//! answers arrive at its own queue. The hash of a veth, a TAP or a packet socket is unknown.

use wire::FlowKey;
use wire::toeplitz::{ByLocalPort, Toeplitz};

use crate::limits::SPREAD_ENTRIES_MAX;

/// The spread of one card.
///
/// ```
/// use packetio::spread::Spread;
/// use wire::toeplitz::{MICROSOFT_KEY, Toeplitz};
/// let spread = Spread::new(Toeplitz::new(MICROSOFT_KEY), vec![0, 1, 2, 3]);
/// assert!(spread.is_some_and(|spread| spread.queues() == 4));
/// ```
#[derive(Clone, Debug)]
pub struct Spread {
    hash: Toeplitz,
    /// Queues by the hash's lower bits; the length is a power of two.
    table: Vec<u32>,
}

impl Spread {
    /// Makes a spread with this hash and table. `None`: the table's length is not a power of two,
    /// or exceeds [`SPREAD_ENTRIES_MAX`].
    #[must_use]
    pub fn new(hash: Toeplitz, table: Vec<u32>) -> Option<Self> {
        let is_table = table.len().is_power_of_two() && table.len() <= SPREAD_ENTRIES_MAX;
        is_table.then_some(Self { hash, table })
    }

    /// One more than the highest queue in the table.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.table.iter().max().map_or(0, |&last| last as usize + 1)
    }

    /// The spread over contexts instead of queues: context *k* drives the queues *q* with *q* mod
    /// `contexts` = *k*.
    #[must_use]
    pub fn among(mut self, contexts: usize) -> Self {
        let contexts = contexts.max(1) as u32;
        self.table.iter_mut().for_each(|queue| *queue %= contexts);
        self
    }

    /// The queue at which packets of the flow's peer arrive.
    #[must_use]
    pub fn queue(&self, key: &FlowKey) -> usize {
        self.entry(self.hash.hash_incoming(key))
    }

    /// The part of a flow's hash that does not depend on its local port, for
    /// [`queue_of`](Self::queue_of).
    #[must_use]
    pub fn by_local_port(&self, key: &FlowKey) -> ByLocalPort {
        self.hash.by_local_port(key)
    }

    /// The queue at which packets of the peer arrive for this local port.
    #[must_use]
    pub fn queue_of(&self, flow: &ByLocalPort, local_port: u16) -> usize {
        self.entry(flow.hash(local_port))
    }

    fn entry(&self, hash: u32) -> usize {
        self.table[hash as usize & (self.table.len() - 1)] as usize
    }
}
