//! Options of an AF_XDP wire.
//!
//! Plain values, parsed by `spec.rs`, completed by the runtime (addresses), used by
//! [`XdpInterface`](super::XdpInterface).

use std::net::IpAddr;

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// Native, or generic where the driver has none.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic path (skb).
    Generic,
}

/// Whether the driver shares its buffers with us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zerocopy {
    /// If the driver can.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Which frames the program takes from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// Those for the owned addresses, with their ARP and neighbour solicitations.
    #[default]
    Owned,
    /// TCP for the owned addresses, which are the kernel's as well, and ICMP errors about it. The
    /// kernel keeps ARP, neighbour discovery, ICMP and UDP.
    Tcp,
    /// All: the kernel sees nothing of this interface any more.
    All,
}

/// Whether large packets leave by a packet socket beside the AF_XDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bulk {
    /// If the kernel lets us open one.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// `xdp:IFACE[,mode=auto|native|generic][,queues=N][,queue=K][,ring=N][,zerocopy=auto|off]`
/// `[,bulk=auto|off][,mirror]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// How the program is attached.
    pub mode: XdpMode,
    /// Queues to use; `None` for all that the interface has.
    pub queues: Option<usize>,
    /// The first (or only) queue; `None` for 0.
    pub queue: Option<usize>,
    /// Slots of the RX ring and of the fill ring, a power of two; `None`: as `sockets` asks for.
    pub ring_slots: Option<u32>,
    /// Whether the driver shares its buffers with us.
    pub zerocopy: Zerocopy,
    /// Whether large packets leave by a lane of their own.
    pub bulk: Bulk,
    /// Which frames are taken from the kernel.
    pub take: Take,
    /// Addresses whose packets are ours, from the moment of opening; more can follow by
    /// [`XdpInterface::set_owned`](super::XdpInterface::set_owned). Not part of the wire's text:
    /// the runtime knows them.
    pub addresses: Vec<IpAddr>,
    /// Sockets that one queue serves at most: rings and memory follow from it. Not part of the
    /// wire's text: the runtime knows the number. `None`: as for the default limits of a context.
    pub sockets: Option<usize>,
}
