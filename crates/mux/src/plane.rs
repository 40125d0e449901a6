//! The interface between the service and its data plane.
//!
//! Owns nothing. The service decides and calls; the data plane does. The one of `mill mux` is
//! `dataplane`, tests of the service have one that only keeps books.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};

use packetio::MacAddr;
use packetio::ledger::ENTRY_BYTES;
use packetio::mux::message::{Memory, PortKind};
use rustix::io::Errno;

/// A virtual port that a service before this one made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The application.
    pub application: u16,
    /// Its context.
    pub context: u16,
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
}

/// Traffic of one context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames to the application.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames of the application that left.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Those of them that left by the bulk lane, before the NIC cuts them into segments.
    pub bulk_frames: u64,
    /// Their bytes.
    pub bulk_bytes: u64,
    /// Frames that were dropped, by the reason's name.
    pub drops: Vec<(&'static str, u64)>,
}

/// The list of a context's connections, after the application's death.
pub trait Ledger: std::fmt::Debug + Send {
    /// The bytes of entry `index`; `None` beyond the last one.
    fn entry(&self, index: u32) -> Option<[u8; ENTRY_BYTES]>;
}

/// A data plane.
pub trait Plane {
    /// Makes the virtual port of a context; the bound AF_XDP socket and its `SO_COOKIE`.
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

    /// The kind of the virtual ports: made by [`port_add`](Self::port_add), or by
    /// [`channel_add`](Self::channel_add).
    fn kind(&self) -> PortKind {
        PortKind::Xdp
    }

    /// Makes the virtual port of a context, or the memif channel of one that it has: the
    /// application's end of the control channel, and its `SO_COOKIE`.
    ///
    /// # Errors
    /// An errno for the application; `OPNOTSUPP` where virtual ports are AF_XDP sockets.
    fn channel_add(&mut self, application: u16, context: u16) -> Result<(OwnedFd, u64), Errno> {
        let _ = (application, context);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes the ledger of a context that has a virtual port. The ledger outlives the service, and
    /// goes with the virtual port.
    ///
    /// # Errors
    /// Why there is none: the context goes on without.
    fn ledger_add(
        &mut self,
        application: u16,
        context: u16,
        entries: u32,
    ) -> Result<OwnedFd, Errno>;

    /// The ledger of a context that is about to go, also one that a service before this one made.
    fn ledger(&self, application: u16, context: u16) -> Option<Box<dyn Ledger>>;

    /// Makes the bulk lane of a context that has a virtual port: a TAP that the application writes
    /// to. The lane goes with the virtual port.
    ///
    /// # Errors
    /// Why there is none: the context sends all by its virtual port.
    fn bulk_add(&mut self, application: u16, context: u16) -> Result<OwnedFd, Errno>;

    /// Removes the virtual port of a context.
    fn port_remove(&mut self, application: u16, context: u16);

    /// From now on `place` belongs to the application, and `contexts` listen there. SYNs wait while
    /// none does.
    ///
    /// # Errors
    /// An errno for the application.
    fn claim_set(
        &mut self,
        place: SocketAddr,
        application: u16,
        contexts: &[u16],
    ) -> Result<(), Errno>;

    /// From now on `place` is the kernel's.
    fn claim_remove(&mut self, place: SocketAddr);

    /// From now on the segments of this connection, which has this host's end first, come to the
    /// context. A context that is gone changes nothing.
    fn flow_set(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr));

    /// The context does not have this connection, which has this host's end first: the next SYN
    /// begins a new one. A connection of another context stays.
    fn flow_forget(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr));

    /// From now on these local ports belong to the context.
    ///
    /// # Errors
    /// An errno for the application.
    fn lease_add(
        &mut self,
        ports: RangeInclusive<u16>,
        application: u16,
        context: u16,
    ) -> Result<(), Errno>;

    /// From now on these local ports are the kernel's.
    fn lease_remove(&mut self, ports: RangeInclusive<u16>);

    /// The NIC has this address.
    fn address_add(&mut self, address: IpAddr, broadcast: Option<IpAddr>);

    /// The NIC has this address, or this broadcast address, no more.
    fn address_remove(&mut self, address: IpAddr);

    /// Addresses that the NIC and its subnets have, as the data plane knows it; also those of a
    /// service before this one.
    fn addresses(&self) -> Vec<IpAddr>;

    /// MAC addresses that applications may send to, also those of a service before this one.
    fn next_hops(&self) -> Vec<MacAddr>;

    /// Applications may send to this MAC address, or may not.
    fn next_hop_set(&mut self, mac: MacAddr, on: bool);

    /// The NIC has this MAC address and MTU.
    fn host_set(&mut self, mac: MacAddr, mtu: u32);

    /// The NIC was removed and is back.
    ///
    /// # Errors
    /// One line that says why its traffic cannot be had.
    fn nic_back(&mut self) -> Result<(), String>;

    /// The MAC address behind which the NIC's own addresses are, for applications; `None`: frames
    /// for them are dropped.
    fn own_hop(&self) -> Option<MacAddr>;

    /// Bytes a second that each context may send; 0: as many as it likes.
    fn rate(&self) -> u64 {
        0
    }

    /// Virtual ports that were there when the data plane was taken over.
    fn recovered(&self) -> Vec<Recovered>;

    /// Traffic of a context.
    fn traffic(&self, application: u16, context: u16) -> Traffic;

    /// Frames from the NIC that were dropped, by the reason's name.
    fn ingress_drops(&self) -> Vec<(&'static str, u64)>;

    /// Tests every hop; each by name, with what is wrong.
    fn check(&mut self) -> Vec<(String, Result<(), String>)>;

    /// How the NIC is attached, for people.
    fn mode(&self) -> String;

    /// Removes everything.
    fn close(self);
}
