//! Local addresses from which connections to one destination leave: mTCP's address pool
//! (`mtcp_init_rss`).
//!
//! A pool serves opens of one stack that name neither address nor port. If the stack knows how the
//! card spreads flows, only some ports of each address serve: those for which the destination's
//! answers arrive at the stack's own queue.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// See the module's documentation.
///
/// ```
/// use stack::context::SourcePool;
/// let mut pool = SourcePool::new("10.0.0.9:80".parse()?, "10.0.0.1".parse()?, 2);
/// let taken = [pool.take(), pool.take(), pool.take()].map(|ip| ip.unwrap().to_string());
/// assert_eq!(taken, ["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePool {
    remote: SocketAddrV4,
    first: Ipv4Addr,
    count: u32,
    /// Position of the next address, counted from the first.
    next: u32,
}

impl SourcePool {
    /// Makes a pool of `count` addresses (at least one) from `first` on, for connections to
    /// `remote`. An unspecified `first` stands for the address that the stack would choose.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use stack::context::SourcePool;
    /// let own = SourcePool::new("10.0.0.9:80".parse()?, Ipv4Addr::UNSPECIFIED, 5);
    /// assert_eq!(own.len(), 1);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn new(remote: SocketAddrV4, first: Ipv4Addr, count: u32) -> Self {
        Self {
            remote,
            first,
            count: if first.is_unspecified() {
                1
            } else {
                count.max(1)
            },
            next: 0,
        }
    }

    /// Number of addresses.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// True if the pool is for connections to this destination.
    #[must_use]
    pub fn is_for(&self, remote: SocketAddr) -> bool {
        SocketAddr::V4(self.remote) == remote
    }

    /// The next address in turn; `None`: the stack chooses.
    pub fn take(&mut self) -> Option<IpAddr> {
        let at = self.next;
        self.next = (at + 1) % self.count;
        let ip = Ipv4Addr::from(u32::from(self.first).wrapping_add(at));
        (!self.first.is_unspecified()).then_some(ip.into())
    }
}
