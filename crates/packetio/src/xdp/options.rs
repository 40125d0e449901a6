//! Options of an AF_XDP wire.
//!
//! Plain values: `spec.rs` parses them, the runtime adds addresses, and
//! [`XdpInterface`](super::XdpInterface) uses them.

use std::net::IpAddr;

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// Native mode, or generic mode if the driver lacks it.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic path, on socket buffers.
    Generic,
}

/// Whether the driver shares its buffers with us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zerocopy {
    /// Zero copy if the driver supports it.
    #[default]
    Auto,
    /// No zero copy.
    Off,
}

/// The frames that the program takes from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// Frames for the owned addresses, with their ARP and neighbour solicitations.
    #[default]
    Owned,
    /// TCP for the owned addresses, which are the kernel's too, and ICMP errors about it. The
    /// kernel keeps ARP, neighbour discovery, ICMP and UDP.
    Tcp,
    /// All frames: the kernel receives nothing from this interface.
    All,
}

/// Whether large packets leave by a packet socket beside the AF_XDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bulk {
    /// A bulk lane if the kernel allows one.
    #[default]
    Auto,
    /// No bulk lane.
    Off,
}

/// The options of
/// `xdp:IFACE[,mode=auto|native|generic][,queues=N][,queue=K][,ring=N][,zerocopy=auto|off]`
/// `[,bulk=auto|off][,mirror]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// Name of the interface.
    pub interface: String,
    /// How the program is attached.
    pub mode: XdpMode,
    /// Number of queues to use; `None`: all of the interface.
    pub queues: Option<usize>,
    /// The first or only queue; `None`: 0.
    pub queue: Option<usize>,
    /// Slots of the RX and fill rings, a power of two; `None`: derived from `sockets`.
    pub ring_slots: Option<u32>,
    /// Whether the driver shares its buffers with us.
    pub zerocopy: Zerocopy,
    /// Whether large packets leave by a bulk lane.
    pub bulk: Bulk,
    /// Which frames are taken from the kernel.
    pub take: Take,
    /// Addresses whose packets are taken from the time of opening;
    /// [`XdpInterface::set_owned`](super::XdpInterface::set_owned) can change them. They are not
    /// part of the wire's text: the runtime sets them.
    pub addresses: Vec<IpAddr>,
    /// Most sockets that one queue serves, from which rings and memory follow. Not part of the
    /// wire's text: the runtime sets it. `None`: that of a context's default limits.
    pub sockets: Option<usize>,
}
