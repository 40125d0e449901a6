//! A raw AF_PACKET socket on an interface: the slow and simple way onto any netdev, for the bridge
//! and where XDP is missing.
//!
//! Owns the socket. Called through [`open`](crate::open::open), in the network namespace of the
//! calling thread. The kernel's own stack still sees what arrives, so the interface should have no
//! IP addresses. One `read` or `write` moves one frame.
//!
//! A local kernel peer (the other end of a veth) leaves checksums and segmentation to hardware. The
//! socket asks for the virtio header that tells so, and the port makes the frames good before it
//! lends them: no `ethtool -K … tx off tso off gso off gro off` is needed on either end. VLAN tags
//! are taken off by the kernel and lost.

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::buffer_unsafe::FrameBuf;
use crate::fd_port::{FdPort, FrameIo, Read, Written, failure};
use crate::frame_unsafe::RxChecksum;
use crate::interface_drops::InterfaceDrops;
use crate::limits::{PACKET_LINK_CHECK_NS, PACKET_RECEIVE_BYTES, SUPER_FRAME_BYTES_MAX};
use crate::netdev_unsafe::NetDevice;
use crate::offload::{Segmenter, complete_at};
use crate::open_error::OpenError;
use crate::packet_unsafe::{
    bind_to, bound_index, dropped_since_asked, ignore_outgoing, promiscuous, raw_socket,
    receive_room, want_virtio_header,
};
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, PortCounters, PortError};
use crate::wait::monotonic_ns;

/// `packet:IFACE[,mac=..][,promiscuous=yes|no]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// The address to send from; the interface's if absent.
    pub mac: Option<MacAddr>,
    /// Takes frames for any address, as a bridge must.
    pub promiscuous: bool,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            interface: String::new(),
            mac: None,
            promiscuous: true,
        }
    }
}

/// An AF_PACKET port.
pub type Packet = FdPort<PacketIo>;

impl Packet {
    /// Opens the interface, in the calling thread's network namespace. It has one queue.
    ///
    /// # Errors
    /// One line that names the interface and the step.
    pub fn open(options: &PacketOptions, queue: usize) -> Result<Self, OpenError> {
        let wire = format!("packet:{}", options.interface);
        if queue > 0 {
            let why = format!("queue {queue}: a packet port has one queue");
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
        // Only room for bursts: without the privilege the default will do.
        let _ = receive_room(&fd, PACKET_RECEIVE_BYTES);
        bind_to(&fd, index).map_err(|e| fail("bind", e))?;
        if options.promiscuous {
            promiscuous(&fd, index).map_err(|e| fail("promiscuous mode", e))?;
        }
        let capabilities = Capabilities {
            mac: options.mac.unwrap_or(mac),
            mtu,
            rx_checksum: ChecksumPolicy::Verify,
            tx_checksum_offload: false,
            tso: false,
            batch_max: 0,
            name: wire,
            queue,
        };
        let drops = InterfaceDrops::of(&options.interface);
        Ok(Self::new(PacketIo::new(fd, drops), capabilities))
    }
}

/// `struct virtio_net_hdr`: what is left to do to the frame that follows.
#[derive(Clone, Copy, Debug)]
struct Todo {
    needs_checksum: bool,
    is_valid: bool,
    gso_type: u8,
    gso_size: usize,
    checksum_start: usize,
    checksum_offset: usize,
}

/// Bytes of the virtio header.
const VIRTIO_HEADER_LEN: usize = 10;
const VIRTIO_NEEDS_CSUM: u8 = 1;
const VIRTIO_DATA_VALID: u8 = 2;
const VIRTIO_GSO_NONE: u8 = 0;
const VIRTIO_GSO_ECN: u8 = 0x80;

impl Todo {
    fn parse(header: &[u8; VIRTIO_HEADER_LEN]) -> Self {
        let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        Self {
            needs_checksum: header[0] & VIRTIO_NEEDS_CSUM != 0,
            is_valid: header[0] & VIRTIO_DATA_VALID != 0,
            gso_type: header[1] & !VIRTIO_GSO_ECN,
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }
}

/// The system calls, the super-frame under the knife, and what was dropped.
#[derive(Debug)]
pub struct PacketIo {
    fd: OwnedFd,
    drops: InterfaceDrops,
    /// Frames that found no room in the socket, as far as the kernel was asked.
    rx_no_room: Cell<u64>,
    staging: Vec<u8>,
    segmenter: Segmenter,
    /// The interface went down, and nothing has come since: when to look whether it is there.
    look_at_ns: Option<u64>,
    /// Nothing was queued when it was last read, since the interface went down.
    is_drained: bool,
    rx_too_long: u64,
    rx_bad_offload: u64,
    rx_segmented: u64,
    rx_completed: u64,
    tx_link_down: u64,
    tx_refused: u64,
}

impl PacketIo {
    fn new(fd: OwnedFd, drops: InterfaceDrops) -> Self {
        Self {
            fd,
            drops,
            rx_no_room: Cell::new(0),
            staging: vec![0; SUPER_FRAME_BYTES_MAX],
            segmenter: Segmenter::new(SUPER_FRAME_BYTES_MAX),
            look_at_ns: None,
            is_drained: false,
            rx_too_long: 0,
            rx_bad_offload: 0,
            rx_segmented: 0,
            rx_completed: 0,
            tx_link_down: 0,
            tx_refused: 0,
        }
    }

    /// Makes the `len` staged bytes a frame that any wire may carry.
    fn unpack(&mut self, len: usize, into: &mut FrameBuf) -> Read {
        let Some((header, frame)) = self.staging[..len].split_first_chunk_mut() else {
            return Read::Dropped;
        };
        let todo = Todo::parse(header);
        if todo.gso_type != VIRTIO_GSO_NONE {
            if !self.segmenter.load(frame, todo.gso_size) {
                self.rx_bad_offload += 1;
                return Read::Dropped;
            }
            self.rx_segmented += 1;
            return self.next_segment(into);
        }
        if todo.needs_checksum {
            if !complete_at(frame, todo.checksum_start, todo.checksum_offset) {
                self.rx_bad_offload += 1;
                return Read::Dropped;
            }
            self.rx_completed += 1;
        }
        if !into.copy_bytes(frame) {
            self.rx_too_long += 1;
            return Read::Dropped;
        }
        if todo.needs_checksum || todo.is_valid {
            into.checksum = RxChecksum::Verified;
        }
        Read::Frame
    }

    fn look_if_due(&mut self) -> Result<Read, PortError> {
        match self.look_at_ns {
            Some(at_ns) if at_ns <= monotonic_ns() => self.look(),
            _ => Ok(Read::Empty),
        }
    }

    /// The interface went down, for a while or for good: an interface that goes is down first, and
    /// then the kernel says nothing more of it.
    #[cold]
    fn look(&mut self) -> Result<Read, PortError> {
        if bound_index(&self.fd).map_err(|errno| failure("getsockname", errno))? <= 0 {
            return Err(PortError::Gone);
        }
        self.look_at_ns = Some(monotonic_ns() + PACKET_LINK_CHECK_NS);
        Ok(Read::Empty)
    }

    fn next_segment(&mut self, into: &mut FrameBuf) -> Read {
        let Some(len) = self.segmenter.cut(into.space()) else {
            self.rx_too_long += 1;
            return Read::Dropped;
        };
        into.set_len(len);
        into.checksum = RxChecksum::Verified;
        Read::Frame
    }
}

impl FrameIo for PacketIo {
    const TX_FAILED: &'static str = "packet_tx_dropped_failed";

    fn read(&mut self, into: &mut FrameBuf) -> Result<Read, PortError> {
        if !self.segmenter.is_empty() {
            return Ok(self.next_segment(into));
        }
        match rustix::io::read(&self.fd, &mut self.staging[..]) {
            Ok(0) => Ok(Read::Empty),
            Ok(len) => {
                // Frames queued before the interface went down do not show that it did.
                if self.is_drained {
                    self.look_at_ns = None;
                }
                Ok(self.unpack(len, into))
            }
            Err(Errno::NETDOWN) => {
                self.is_drained = false;
                self.look()
            }
            Err(Errno::AGAIN) => {
                self.is_drained = true;
                self.look_if_due()
            }
            Err(Errno::INTR) => self.look_if_due(),
            Err(errno) => Err(failure("read", errno)),
        }
    }

    fn write(&mut self, frame: &[u8]) -> Result<Written, PortError> {
        let nothing_to_do = [0; VIRTIO_HEADER_LEN];
        let parts = [IoSlice::new(&nothing_to_do), IoSlice::new(frame)];
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
        !self.segmenter.is_empty()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.look_at_ns
    }

    fn export(&self, into: &mut PortCounters) {
        into.push("packet_rx_dropped_too_long", self.rx_too_long);
        into.push("packet_rx_dropped_bad_offload", self.rx_bad_offload);
        into.push("packet_rx_segmented", self.rx_segmented);
        into.push("packet_rx_checksum_completed", self.rx_completed);
        into.push("packet_tx_dropped_link_down", self.tx_link_down);
        into.push("packet_tx_dropped_refused", self.tx_refused);
        // The kernel counts from zero again after each question.
        let more = dropped_since_asked(&self.fd).unwrap_or(0);
        self.rx_no_room.set(self.rx_no_room.get() + more);
        into.push("packet_rx_dropped_no_room", self.rx_no_room.get());
        self.drops.refresh();
        self.drops.export(into);
    }
}
