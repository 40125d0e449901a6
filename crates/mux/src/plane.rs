//! The interface between the service and its data plane.
//!
//! Owns nothing. The service decides; the data plane carries out. `mill mux` uses `dataplane`;
//! tests of the service use one that only records calls.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};

use packetio::MacAddr;
use packetio::ledger::ENTRY_BYTES;
use packetio::mux::message::{Memory, PortKind};
use rustix::io::Errno;

/// A virtual port that a previous service made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The application.
    pub application: u16,
    /// The context.
    pub context: u16,
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
}

/// Traffic of one context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames to the application.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Frames of the application that left.
    pub tx_frames: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Packets among `tx_frames` that left through the bulk lane, before the NIC cuts them into
    /// segments.
    pub bulk_frames: u64,
    /// Bytes of these packets.
    pub bulk_bytes: u64,
    /// Dropped frames by the reason's name.
    pub drops: Vec<(&'static str, u64)>,
}

/// The list of a context's connections, for use after the application's death.
pub trait Ledger: std::fmt::Debug + Send {
    /// The bytes of entry `index`; `None` beyond the last one.
    fn entry(&self, index: u32) -> Option<[u8; ENTRY_BYTES]>;
}

/// A data plane.
pub trait Plane {
    /// Makes the virtual port of a context. Returns the bound AF_XDP socket and its `SO_COOKIE`.
    ///
    /// # Errors
    /// An errno for the application.
    fn port_add(
        &mut self,
        application: u16,
        context: u16,
        memory: &Memory,
        file: BorrowedFd<'_>,
    ) -> Result<(OwnedFd, u64), Errno>;

    /// The kind of virtual ports, which decides between [`port_add`](Self::port_add) and
    /// [`channel_add`](Self::channel_add).
    fn kind(&self) -> PortKind {
        PortKind::Xdp
    }

    /// Makes the virtual port of a context, or a new memif channel for one that exists. Returns the
    /// application's end of the control channel and its `SO_COOKIE`.
    ///
    /// # Errors
    /// An errno for the application; `OPNOTSUPP` if virtual ports are AF_XDP sockets.
    fn channel_add(&mut self, application: u16, context: u16) -> Result<(OwnedFd, u64), Errno> {
        let _ = (application, context);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes the ledger of a context that has a virtual port. The ledger outlives the service and
    /// ends with the virtual port.
    ///
    /// # Errors
    /// The reason why there is none. The context works without one.
    fn ledger_add(
        &mut self,
        application: u16,
        context: u16,
        entries: u32,
    ) -> Result<OwnedFd, Errno>;

    /// The ledger of a context that is about to end. A previous service may have made it.
    fn ledger(&self, application: u16, context: u16) -> Option<Box<dyn Ledger>>;

    /// Keeps the ledger of a context that is about to end, under the number that it returns: the
    /// ledger outlives the virtual port, and the service. `None`: there is none, or it cannot be
    /// kept.
    fn ledger_keep(&mut self, application: u16, context: u16) -> Option<u32>;

    /// The numbers of all kept ledgers, also those of a service before this one.
    fn ledgers_kept(&self) -> Vec<u32>;

    /// A kept ledger.
    fn ledger_kept(&self, number: u32) -> Option<Box<dyn Ledger>>;

    /// Removes a kept ledger.
    fn ledger_drop(&mut self, number: u32);

    /// Makes the bulk lane of a context that has a virtual port: a TAP that the application writes
    /// to. The lane ends with the virtual port.
    ///
    /// # Errors
    /// The reason why there is none. The context sends everything through its virtual port.
    fn bulk_add(&mut self, application: u16, context: u16) -> Result<OwnedFd, Errno>;

    /// Removes the virtual port of a context.
    fn port_remove(&mut self, application: u16, context: u16);

    /// Gives `endpoint` to the application, with `contexts` listening. Without listeners SYNs are
    /// dropped, and peers retransmit them.
    ///
    /// # Errors
    /// An errno for the application.
    fn claim_set(
        &mut self,
        endpoint: SocketAddr,
        application: u16,
        contexts: &[u16],
    ) -> Result<(), Errno>;

    /// Returns `endpoint` to the kernel.
    fn claim_remove(&mut self, endpoint: SocketAddr);

    /// Gives the segments of a connection, whose first end is this host's, to the context. No
    /// effect for a context that is gone.
    fn flow_set(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr));

    /// Takes a connection, whose first end is this host's, from the context, so that the next SYN
    /// begins a new one. No effect on another context's connection.
    fn flow_forget(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr));

    /// Gives these local ports to the context.
    ///
    /// # Errors
    /// An errno for the application.
    fn lease_add(
        &mut self,
        ports: RangeInclusive<u16>,
        application: u16,
        context: u16,
    ) -> Result<(), Errno>;

    /// Returns these local ports to the kernel.
    fn lease_remove(&mut self, ports: RangeInclusive<u16>);

    /// Adds an address of the NIC, with the broadcast address of its subnet.
    fn address_add(&mut self, address: IpAddr, broadcast: Option<IpAddr>);

    /// Removes an address of the NIC, or a broadcast address.
    fn address_remove(&mut self, address: IpAddr);

    /// Addresses that the NIC and its subnets have, as the data plane knows it; also those of a
    /// service before this one.
    fn addresses(&self) -> Vec<IpAddr>;

    /// MAC addresses that applications may send to, also those of a service before this one.
    fn next_hops(&self) -> Vec<MacAddr>;

    /// Sets whether applications may send to this MAC address.
    fn next_hop_set(&mut self, mac: MacAddr, on: bool);

    /// Sets the NIC's MAC address and MTU.
    fn host_set(&mut self, mac: MacAddr, mtu: u32);

    /// Attaches to the NIC after it was removed and came back.
    ///
    /// # Errors
    /// One line with the reason why the NIC's traffic is not available.
    fn nic_back(&mut self) -> Result<(), String>;

    /// The MAC address of the next hop for the NIC's own addresses, for applications. `None`:
    /// frames to these addresses are dropped.
    fn own_hop(&self) -> Option<MacAddr>;

    /// Bytes a second that each context may send; 0: as many as it likes.
    fn rate(&self) -> u64 {
        0
    }

    /// Virtual ports that were taken over from a previous service.
    fn recovered(&self) -> Vec<Recovered>;

    /// Traffic of a context.
    fn traffic(&self, application: u16, context: u16) -> Traffic;

    /// Dropped frames from the NIC, by the reason's name.
    fn ingress_drops(&self) -> Vec<(&'static str, u64)>;

    /// Tests every hop; returns each by name with its fault, if there is one.
    fn check(&mut self) -> Vec<(String, Result<(), String>)>;

    /// The mode of attachment to the NIC, human-readable.
    fn mode(&self) -> String;

    /// Removes everything.
    fn close(self);
}
