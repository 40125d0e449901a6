//! How a card spreads flows over its queues (receive-side scaling), as far as it can be computed: a
//! Toeplitz hash whose lower bits name an entry of a table of queues.
//!
//! `xdp` reads it from the driver where `ethtool` can. The stack chooses local ports by it whose
//! answers arrive at its own queue. A veth, a TAP and a packet socket spread flows by a hash that
//! nobody knows.

use wire::FlowKey;
use wire::toeplitz::{ByLocalPort, Toeplitz};

use crate::limits::SPREAD_ENTRIES_MAX;

/// See the module's documentation.
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
    /// Queues by the hash's lower bits; a power of two of entries.
    table: Vec<u32>,
}

impl Spread {
    /// A spread by this hash and table. `None`: the table's length is not a power of two, or above
    /// [`SPREAD_ENTRIES_MAX`].
    #[must_use]
    pub fn new(hash: Toeplitz, table: Vec<u32>) -> Option<Self> {
        let is_table = table.len().is_power_of_two() && table.len() <= SPREAD_ENTRIES_MAX;
        is_table.then_some(Self { hash, table })
    }

    /// One more than the highest queue of the table.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.table.iter().max().map_or(0, |&last| last as usize + 1)
    }

    /// The spread over so many contexts, of which number *k* drives the queues *q* with *q* mod
    /// `contexts` = *k*.
    #[must_use]
    pub fn among(mut self, contexts: usize) -> Self {
        let contexts = contexts.max(1) as u32;
        self.table.iter_mut().for_each(|queue| *queue %= contexts);
        self
    }

    /// The queue at which the peer's packets of this flow arrive.
    #[must_use]
    pub fn queue(&self, key: &FlowKey) -> usize {
        self.entry(self.hash.hash_incoming(key))
    }

    /// The hashes of a flow as its local port changes, for [`queue_of`](Self::queue_of).
    #[must_use]
    pub fn by_local_port(&self, key: &FlowKey) -> ByLocalPort {
        self.hash.by_local_port(key)
    }

    /// The queue at which the peer's packets arrive with this local port.
    #[must_use]
    pub fn queue_of(&self, flow: &ByLocalPort, local_port: u16) -> usize {
        self.entry(flow.hash(local_port))
    }

    fn entry(&self, hash: u32) -> usize {
        self.table[hash as usize & (self.table.len() - 1)] as usize
    }
}
