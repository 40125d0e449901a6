//! A TAP interface: the kernel's own stack is the peer. For debugging, and where XDP is missing.
//!
//! Owns the descriptor; a TAP that was made here vanishes with it. Called through
//! [`open`](crate::open::open). The interface is made if it does not exist; it is made in the
//! network namespace of the calling thread. One `readv` or `writev` moves one frame, so small
//! frames are slow. A virtio header stands before each frame. The kernel leaves checksums and
//! segmentation to a caller who accepts merged frames. Other callers get whole, checksummed frames
//! of at most the MTU. The kernel takes packets of up to 64 KiB from every caller.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::buffer_unsafe::FrameBuf;
use crate::fd_port::{FdPort, FrameIo, Read, Written, failure, frame_bytes_max};
use crate::interface_drops::InterfaceDrops;
use crate::limits::{SEGMENT_BYTES_MAX, SUPER_FRAME_BYTES_MAX, TAP_QUEUE_FRAMES};
use crate::mac::local_mac;
use crate::netdev_unsafe::{NetDevice, tun_attach, tun_index, tun_offloads, tun_persist};
use crate::open_error::OpenError;
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, PortCounters, PortError};
use crate::virtio::{Unpacker, VIRTIO_HEADER_LEN, header_of};

/// `TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`, `TUN_F_TSO_ECN` (linux/if_tun.h).
const TUN_OFFLOADS: u32 = 1 | 2 | 4 | 8;

/// `tap:NAME[,mac=..][,mtu=N][,up=yes|no][,queues=N][,offload=auto|off]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// The interface's name; `%d` in it lets the kernel choose.
    pub name: String,
    /// The address of this end (the kernel's end has its own); made up if absent.
    pub mac: Option<MacAddr>,
    /// Sets the interface's MTU; as it is if absent.
    pub mtu: Option<usize>,
    /// Brings the interface up.
    pub up: bool,
    /// Queues; more than one makes a multi-queue interface, to be opened once per queue.
    pub queues: usize,
    /// Large segments, merged frames and checksums are left to the kernel where the caller can.
    pub offload: bool,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            mac: None,
            mtu: None,
            up: false,
            queues: 1,
            offload: true,
        }
    }
}

/// A TAP port.
pub type Tap = FdPort<TapIo>;

impl Tap {
    /// Opens one queue of the interface, making it if need be, in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// One line that names the interface and the step.
    pub fn open(options: &TapOptions, queue: usize) -> Result<Self, OpenError> {
        let wire = format!("tap:{}", options.name);
        if queue >= options.queues {
            let why = format!("queue {queue} of {} (say queues=N)", options.queues);
            return Err(OpenError::refused(wire, why));
        }
        let fail = |step: &str, errno| OpenError::io(&wire, step, errno);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(|e| fail("open /dev/net/tun", e))?;
        let mut kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if options.queues > 1 {
            kind |= libc::IFF_MULTI_QUEUE;
        }
        tun_attach(&fd, &options.name, kind as u16).map_err(|e| fail("TUNSETIFF", e))?;
        if queue == 0 {
            // An interface that outlives its users remembers what the last one took.
            tun_offloads(&fd, 0).map_err(|e| fail("TUNSETOFFLOAD", e))?;
        }
        let device = NetDevice::open(&options.name).map_err(|e| fail("socket", e))?;
        if let Some(mtu) = options.mtu {
            device.set_mtu(mtu).map_err(|e| fail("set mtu", e))?;
        }
        // Only room for bursts: without the privilege the device's own length will do.
        let _ = device.lengthen_queue(TAP_QUEUE_FRAMES);
        if options.up {
            device.bring_up().map_err(|e| fail("bring up", e))?;
        }
        let mtu = device.mtu().map_err(|e| fail("read mtu", e))?;
        let capabilities = Capabilities {
            mac: options.mac.unwrap_or_else(|| local_mac(&wire)),
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
        let io = TapIo {
            fd,
            drops: InterfaceDrops::of(&options.name),
            unpacker: Unpacker::new(frame_bytes_max(mtu)),
            has_offload: options.offload,
            tx_link_down: 0,
            tx_refused: 0,
        };
        Ok(Self::new(io, capabilities))
    }
}

/// Makes a TUN interface (raw IP packets, no Ethernet) in the calling thread's network namespace,
/// for whoever plays all of its other side. It vanishes with the descriptor, which does not block.
/// With `has_header` a `struct virtio_net_hdr` stands before every packet that is read or written.
///
/// # Errors
/// One line that names the interface and the step.
pub fn open_tun(name: &str, has_header: bool) -> Result<OwnedFd, OpenError> {
    let wire = format!("tun:{name}");
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|e| OpenError::io(&wire, "open /dev/net/tun", e))?;
    let header = if has_header { libc::IFF_VNET_HDR } else { 0 };
    let kind = (libc::IFF_TUN | libc::IFF_NO_PI | header) as u16;
    tun_attach(&fd, name, kind).map_err(|e| OpenError::io(&wire, "TUNSETIFF", e))?;
    Ok(fd)
}

/// Makes a TAP named `name` with interface index `index` in the calling thread's network namespace,
/// whose holder writes frames behind a `struct virtio_net_hdr`. It is down, and vanishes with the
/// descriptor, which does not block.
///
/// # Errors
/// `BUSY` if the name or the index is taken; what the kernel says.
pub fn open_lane(name: &str, index: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    tun_index(&fd, index)?;
    let kind = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    tun_attach(&fd, name, kind)?;
    Ok(fd)
}

/// The interface outlives its descriptor (`TUNSETPERSIST`): what the holder of a lane may do to it.
///
/// # Errors
/// The kernel's.
pub fn make_persistent(tap: impl AsFd) -> Result<(), Errno> {
    tun_persist(tap)
}

/// The system calls, and what they dropped.
#[derive(Debug)]
pub struct TapIo {
    fd: OwnedFd,
    /// Frames of the kernel's that find no room in the queue are its own `tx`.
    drops: InterfaceDrops,
    unpacker: Unpacker,
    /// Merged frames are lent to a caller who takes them.
    has_offload: bool,
    tx_link_down: u64,
    tx_refused: u64,
}

impl FrameIo for TapIo {
    const TX_FAILED: &'static str = "tap_tx_dropped_failed";

    /// Super-frames are read whole: another queue's owner may have asked for them.
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
            Ok(n) => {
                into.set_len(n.saturating_sub(VIRTIO_HEADER_LEN));
                Ok(self.unpacker.unpack(&header, into))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Empty),
            Err(errno) => Err(failure("read", errno)),
        }
    }

    fn write(&mut self, frame: &FrameBuf) -> Result<Written, PortError> {
        let header = header_of(frame);
        let parts = [IoSlice::new(&header), IoSlice::new(frame.bytes())];
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => Ok(Written::Sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Written::Full),
            Err(Errno::IO) => {
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
        self.unpacker.merges = self.has_offload && tun_offloads(&self.fd, TUN_OFFLOADS).is_ok();
        self.unpacker.merges
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn export(&self, into: &mut PortCounters) {
        into.push("tap_rx_dropped_too_long", self.unpacker.too_long);
        into.push("tap_rx_dropped_bad_offload", self.unpacker.bad_offload);
        into.push("tap_rx_merged", self.unpacker.merged);
        into.push("tap_tx_dropped_link_down", self.tx_link_down);
        into.push("tap_tx_dropped_refused", self.tx_refused);
        self.drops.refresh();
        self.drops.export(into);
    }
}
