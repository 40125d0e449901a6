//! A raw AF_PACKET socket on an interface: the slow and simple way to use any netdev, for the
//! bridge and where XDP is missing.
//!
//! [`open`](crate::open::open) makes the port, in the network namespace of the calling thread.
//! Several queues are one socket each, in one group. The kernel's own stack still receives
//! everything, so the interface should have no IP addresses. One `readv` or `writev` moves one
//! frame.
//!
//! A local kernel peer (the other end of a veth) leaves checksums and segmentation to hardware, and
//! the kernel merges received frames. The virtio header of each frame tells so. Callers that accept
//! merged frames get them as they are; for others the port makes frames that any wire may carry. No
//! `ethtool -K … tx off tso off gso off gro off` is needed at either end. By the same header a
//! caller can send packets of up to 64 KiB, which the kernel passes to the interface whole or cuts.
//! VLAN tags are removed by the kernel and lost.

mod fanout;

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::buffer_unsafe::FrameBuf;
use crate::fd_port::{FdPort, FrameIo, Read, Written, failure, frame_bytes_max};
use crate::interface_drops::InterfaceDrops;
use crate::limits::{
    PACKET_LINK_CHECK_NS, PACKET_RECEIVE_BYTES, PACKET_SEND_BYTES, SEGMENT_BYTES_MAX,
    SUPER_FRAME_BYTES_MAX,
};
use crate::netdev_unsafe::NetDevice;
use crate::open_error::OpenError;
use crate::packet_unsafe::{
    bind_to, bound_index, dropped_since_asked, ignore_outgoing, promiscuous, raw_socket,
    receive_room, send_room, want_virtio_header,
};
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, PortCounters, PortError};
use crate::virtio::{Unpacker, VIRTIO_HEADER_LEN, header_of};
use crate::wait::monotonic_ns;

/// The options of `packet:IFACE[,mac=..][,promiscuous=yes|no][,queues=N][,offload=auto|off]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Name of the interface.
    pub interface: String,
    /// Source MAC address; by default the interface's.
    pub mac: Option<MacAddr>,
    /// True to receive frames for any MAC address, as a bridge must.
    pub promiscuous: bool,
    /// Sockets among which the kernel spreads the interface's flows, to be opened in order; by
    /// default one per context.
    pub queues: Option<usize>,
    /// True to leave segmentation, merging and checksums to the kernel where the caller supports
    /// it.
    pub offload: bool,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            interface: String::new(),
            mac: None,
            promiscuous: true,
            queues: None,
            offload: true,
        }
    }
}

/// An AF_PACKET port.
pub type Packet = FdPort<PacketIo>;

impl Packet {
    /// Opens a queue of the interface, in the calling thread's network namespace.
    ///
    /// # Errors
    /// One line that names the interface and the step.
    pub fn open(options: &PacketOptions, queue: usize) -> Result<Self, OpenError> {
        let wire = format!("packet:{}", options.interface);
        let queues = options.queues.unwrap_or(1);
        if queue >= queues {
            let why = format!("queue {queue} of {queues} (say queues=N)");
            return Err(OpenError::refused(wire, why));
        }
        let fail = |step: &str, errno| OpenError::io(&wire, step, errno);
        let device = NetDevice::open(&options.interface).map_err(|e| fail("socket", e))?;
        let index = device.index().map_err(|e| fail("find interface", e))?;
        let mac = device.mac().map_err(|e| fail("read mac", e))?;
        let mtu = device.mtu().map_err(|e| fail("read mtu", e))?;
        let fd = raw_socket().map_err(|e| fail("AF_PACKET socket", e))?;
        want_virtio_header(&fd).map_err(|e| fail("PACKET_VNET_HDR", e))?;
        ignore_outgoing(&fd).map_err(|e| fail("PACKET_IGNORE_OUTGOING", e))?;
        // Buffers only help with bursts: without the privilege, the default sizes serve.
        let _ = receive_room(&fd, PACKET_RECEIVE_BYTES);
        let _ = send_room(&fd, PACKET_SEND_BYTES);
        bind_to(&fd, index).map_err(|e| fail("bind", e))?;
        if queues > 1 {
            fanout::join(&fd, index, queue).map_err(|e| fail("PACKET_FANOUT", e))?;
        }
        if options.promiscuous {
            promiscuous(&fd, index).map_err(|e| fail("promiscuous mode", e))?;
        }
        let capabilities = Capabilities {
            mac: options.mac.unwrap_or(mac),
            mtu,
            rx_checksum: ChecksumPolicy::Verify,
            tx_checksum_offload: options.offload,
            segment_bytes_max: if options.offload {
                SEGMENT_BYTES_MAX
            } else {
                0
            },
            batch_max: 0,
            name: wire,
            queue,
        };
        let drops = InterfaceDrops::of(&options.interface);
        Ok(Self::new(
            PacketIo::new(fd, drops, mtu, options.offload),
            capabilities,
        ))
    }
}

/// The system calls of a packet socket, its super-frame that is being cut, and its drop counters.
#[derive(Debug)]
pub struct PacketIo {
    fd: OwnedFd,
    drops: InterfaceDrops,
    /// Frames without room in the socket, as far as the kernel was asked.
    rx_no_room: Cell<u64>,
    unpacker: Unpacker,
    /// True if merged frames may be lent to a caller that accepts them.
    has_offload: bool,
    /// Time to check whether an interface that went down still exists, ns; `None`: it has not gone
    /// down, or frames came since.
    look_at_ns: Option<u64>,
    /// True once the queue was found empty after the interface went down.
    is_drained: bool,
    tx_link_down: u64,
    tx_refused: u64,
}

impl PacketIo {
    fn new(fd: OwnedFd, drops: InterfaceDrops, mtu: usize, has_offload: bool) -> Self {
        Self {
            fd,
            drops,
            rx_no_room: Cell::new(0),
            unpacker: Unpacker::new(frame_bytes_max(mtu)),
            has_offload,
            look_at_ns: None,
            is_drained: false,
            tx_link_down: 0,
            tx_refused: 0,
        }
    }

    fn look_if_due(&mut self) -> Result<Read, PortError> {
        match self.look_at_ns {
            Some(at_ns) if at_ns <= monotonic_ns() => self.check_link(),
            _ => Ok(Read::Empty),
        }
    }

    /// Checks an interface that went down, for a while or for good. One that is removed goes down
    /// first, and then the kernel reports nothing more.
    #[cold]
    fn check_link(&mut self) -> Result<Read, PortError> {
        if bound_index(&self.fd).map_err(|errno| failure("getsockname", errno))? <= 0 {
            return Err(PortError::Gone);
        }
        self.look_at_ns = Some(monotonic_ns() + PACKET_LINK_CHECK_NS);
        Ok(Read::Empty)
    }
}

impl FrameIo for PacketIo {
    const TX_FAILED: &'static str = "packet_tx_dropped_failed";

    /// Room for a kernel peer's whole super-frame, whether the port or the caller cuts it.
    fn frame_bytes(_capabilities: &Capabilities) -> usize {
        SUPER_FRAME_BYTES_MAX
    }

    fn read(&mut self, into: &mut FrameBuf) -> Result<Read, PortError> {
        if self.unpacker.holds_frames() {
            return Ok(self.unpacker.next_segment(into));
        }
        let mut header = [0; VIRTIO_HEADER_LEN];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(into.space())];
        match rustix::io::readv(&self.fd, &mut parts) {
            Ok(0) => Ok(Read::Empty),
            Ok(len) => {
                // Frames queued before the interface went down do not show that it is up again.
                if self.is_drained {
                    self.look_at_ns = None;
                }
                into.set_len(len.saturating_sub(VIRTIO_HEADER_LEN));
                Ok(self.unpacker.unpack(&header, into))
            }
            Err(Errno::NETDOWN) => {
                self.is_drained = false;
                self.check_link()
            }
            Err(Errno::AGAIN) => {
                self.is_drained = true;
                self.look_if_due()
            }
            Err(Errno::INTR) => self.look_if_due(),
            Err(errno) => Err(failure("read", errno)),
        }
    }

    fn write(&mut self, frame: &FrameBuf) -> Result<Written, PortError> {
        let header = header_of(frame);
        let parts = [IoSlice::new(&header), IoSlice::new(frame.bytes())];
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => Ok(Written::Sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Written::Full),
            Err(Errno::NETDOWN) => {
                self.tx_link_down += 1;
                Ok(Written::Dropped)
            }
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::NOBUFS) => {
                self.tx_refused += 1;
                Ok(Written::Dropped)
            }
            Err(errno) => Err(failure("write", errno)),
        }
    }

    fn holds_frames(&self) -> bool {
        self.unpacker.holds_frames()
    }

    fn accept_merged(&mut self) -> bool {
        self.unpacker.merges = self.has_offload;
        self.has_offload
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.look_at_ns
    }

    fn export(&self, into: &mut PortCounters) {
        into.push("packet_rx_dropped_too_long", self.unpacker.too_long);
        into.push("packet_rx_dropped_bad_offload", self.unpacker.bad_offload);
        into.push("packet_rx_segmented", self.unpacker.segmented);
        into.push("packet_rx_merged", self.unpacker.merged);
        into.push("packet_rx_checksum_completed", self.unpacker.completed);
        into.push("packet_tx_dropped_link_down", self.tx_link_down);
        into.push("packet_tx_dropped_refused", self.tx_refused);
        // The kernel counts from zero again after each query.
        let more = dropped_since_asked(&self.fd).unwrap_or(0);
        self.rx_no_room.set(self.rx_no_room.get() + more);
        into.push("packet_rx_dropped_no_room", self.rx_no_room.get());
        self.drops.refresh();
        self.drops.export(into);
    }
}
