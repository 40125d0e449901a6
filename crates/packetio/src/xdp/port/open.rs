//! Opening a queue: from its number to a bound AF_XDP socket with a full fill ring.
//!
//! The kernel prescribes the order of the calls: UMEM, ring sizes, mappings, bind, map of sockets.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::super::device_unsafe::{Device, set_tx_budget};
use super::super::frame_store_unsafe::FrameStore;
use super::super::interface::{Shared, XdpInterface, wire_name};
use super::super::options::{XdpMode, XdpOptions, Zerocopy};
use super::super::rings_unsafe::{Consumer, Desc, Producer};
use super::super::sizes::Sizes;
use super::super::umem_unsafe::Umem;
use super::{Counters, LongFrames, XdpPort};
use crate::limits::{
    FRAME_HEADER_MAX, XDP_BATCH_MAX, XDP_BIND_WAIT_NS_MAX, XDP_RX_HEADROOM_BYTES, XDP_TX_SLOTS,
};
use crate::open_error::OpenError;
use crate::port::{Capabilities, ChecksumPolicy};
use crate::wait::monotonic_ns;

/// Chunk sizes: for usual MTUs, and the largest that the kernel allows (a page).
const CHUNK_BYTES: [u32; 2] = [2048, 4096];
/// Pause between two attempts to bind.
const BIND_PAUSE: Duration = Duration::from_millis(2);

impl XdpInterface {
    /// Opens the port of queue `queue` of this wire, counted from the first queue in the options.
    ///
    /// # Errors
    /// One line that names cause and place. A queue can have one port at a time.
    pub fn port(&self, queue: usize) -> Result<XdpPort, OpenError> {
        let (interface, number, options) = self.queue(queue)?;
        open(interface, number, options)
    }
}

pub(super) fn open(
    interface: Arc<Shared>,
    queue: usize,
    options: &XdpOptions,
) -> Result<XdpPort, OpenError> {
    let device = &interface.device;
    let wire = format!("{} queue {queue}", wire_name(&device.name));
    let failed = |step: &'static str| {
        let wire = wire.clone();
        move |errno: Errno| OpenError::io(wire, step, errno)
    };
    let number = u32::try_from(queue).map_err(|_| failed("bind")(Errno::INVAL))?;

    let mut port = bound(device, number, interface.mode, options)
        .map_err(|(step, errno)| failed(step)(errno))?;
    interface
        .loaded
        .set_socket(number, port.socket.as_fd())
        .map_err(failed("XSKMAP"))?;
    port.interface = Some(interface);
    Ok(port)
}

/// Opens the port of queue `queue` of a device whose program and map are the caller's, who puts the
/// port's [socket](XdpPort::socket) into the map. `mode`: how the program is attached. Of the
/// options, sizes and zero copy are used.
///
/// # Errors
/// One line that names cause and place: no privilege, no such queue, or the queue has a socket
/// already.
pub fn bare(
    device: &Device,
    queue: u32,
    mode: XdpMode,
    options: &XdpOptions,
) -> Result<XdpPort, OpenError> {
    let wire = format!("{} queue {queue}", wire_name(&device.name));
    bound(device, queue, mode, options).map_err(|(step, errno)| OpenError::io(wire, step, errno))
}

/// Makes a port whose socket is bound but in no map.
fn bound(
    device: &Device,
    queue: u32,
    mode: XdpMode,
    options: &XdpOptions,
) -> Result<XdpPort, (&'static str, Errno)> {
    let step = |step: &'static str| move |errno| (step, errno);
    let chunk_bytes = chunk_bytes(device.mtu);
    let sizes = Sizes::of(options.sockets, options.ring_slots);
    let umem = Umem::new(chunk_bytes, sizes.rx_chunks, XDP_TX_SLOTS).map_err(step("UMEM"))?;
    let socket = socket(&umem, chunk_bytes, sizes)?;
    let capabilities = capabilities(device, chunk_bytes, queue as usize);
    let mut port = over(socket, umem, sizes, capabilities, &device.name)?;
    let parts = bind_queue(&port.socket, (device.index, queue), mode, options.zerocopy)
        .map_err(step("bind"))?;
    port.zerocopy = sockopt::xdp_options(&port.socket)
        .is_ok_and(|flags| flags.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
    if parts == Parts::Several {
        port.long = Some(Box::new(LongFrames::new(port.capabilities.mtu)));
    }
    port.queue = queue;
    Ok(port)
}

/// The port over a socket whose UMEM is registered and whose rings are sized, with a full fill
/// ring. Its drops are those of `interface`.
pub(super) fn over(
    socket: OwnedFd,
    umem: Umem,
    sizes: Sizes,
    capabilities: Capabilities,
    interface: &str,
) -> Result<XdpPort, (&'static str, Errno)> {
    let early = FrameStore::new(sizes.store_bytes, XDP_BATCH_MAX)
        .map_err(|errno| ("frame store", errno))?;
    let rings = Rings::map(&socket, sizes)?;
    let mut fill = rings.fill;
    if fill.free(sizes.rx_chunks) < sizes.rx_chunks {
        return Err(("fill ring", Errno::NOBUFS));
    }
    umem.rx_offsets().for_each(|chunk| fill.put(chunk));
    fill.publish();
    Ok(XdpPort {
        frame_bytes_max: (capabilities.mtu + FRAME_HEADER_MAX) as u32,
        tx_free: umem.tx_offsets().collect(),
        socket,
        fill,
        completion: rings.completion,
        rx: rings.rx,
        tx: rings.tx,
        umem,
        rx_frames: Vec::with_capacity(XDP_BATCH_MAX),
        rx_chunks: Vec::with_capacity(XDP_BATCH_MAX),
        early,
        drain_at: sizes.drain_at(),
        long: None,
        reserved: Vec::with_capacity(XDP_BATCH_MAX),
        reserved_chunks: Vec::with_capacity(XDP_BATCH_MAX),
        capabilities,
        queue: 0,
        zerocopy: false,
        tx_pending: false,
        gone: false,
        wake_at_ns: 0,
        receives: 0,
        looked_at_ns: 0,
        pid: std::process::id(),
        counters: Counters::of(interface),
        interface: None,
    })
}

/// The mapped rings of a socket.
struct Rings {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<Desc>,
    tx: Producer<Desc>,
}

impl Rings {
    fn map(socket: &OwnedFd, sizes: Sizes) -> Result<Self, (&'static str, Errno)> {
        let step = |step: &'static str| move |errno| (step, errno);
        let layout = sockopt::xdp_mmap_offsets(socket).map_err(step("XDP_MMAP_OFFSETS"))?;
        let fd = socket.as_fd();
        Ok(Self {
            fill: Producer::map(fd, &layout.fr, sizes.rx_slots, XDP_UMEM_PGOFF_FILL_RING)
                .map_err(step("mmap of the fill ring"))?,
            completion: Consumer::map(fd, &layout.cr, XDP_TX_SLOTS, XDP_UMEM_PGOFF_COMPLETION_RING)
                .map_err(step("mmap of the completion ring"))?,
            rx: Consumer::map(fd, &layout.rx, sizes.rx_slots, XDP_PGOFF_RX_RING)
                .map_err(step("mmap of the RX ring"))?,
            tx: Producer::map(fd, &layout.tx, XDP_TX_SLOTS, XDP_PGOFF_TX_RING)
                .map_err(step("mmap of the TX ring"))?,
        })
    }
}

/// Makes a socket, registers its UMEM and sets the sizes of its rings.
fn socket(umem: &Umem, chunk_bytes: u32, sizes: Sizes) -> Result<OwnedFd, (&'static str, Errno)> {
    let socket = socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| ("socket(AF_XDP)", errno))?;
    let (addr, len) = umem.region();
    let region = XdpUmemReg {
        addr,
        len,
        chunk_size: chunk_bytes,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let step = |step: &'static str| move |errno| (step, errno);
    sockopt::set_xdp_umem_reg(&socket, region).map_err(step("XDP_UMEM_REG"))?;
    sockopt::set_xdp_umem_fill_ring_size(&socket, sizes.rx_slots)
        .map_err(step("XDP_UMEM_FILL_RING"))?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, XDP_TX_SLOTS)
        .map_err(step("XDP_UMEM_COMPLETION_RING"))?;
    sockopt::set_xdp_rx_ring_size(&socket, sizes.rx_slots).map_err(step("XDP_RX_RING"))?;
    sockopt::set_xdp_tx_ring_size(&socket, XDP_TX_SLOTS).map_err(step("XDP_TX_RING"))?;
    // Copy mode charges a kernel packet per frame to this buffer. Chunks should be the limit
    // instead, and a batch should leave by one call. Both settings only save time, so a refusal is
    // no failure.
    let charge = XDP_TX_SLOTS as usize * 2 * chunk_bytes as usize;
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, charge);
    let _ = set_tx_budget(&socket, XDP_BATCH_MAX as u32);
    Ok(socket)
}

/// Whether a frame may arrive in several chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    One,
    Several,
}

/// Binds the socket, with zero copy if it is allowed and the driver can.
fn bind_queue(
    socket: &OwnedFd,
    (ifindex, queue): (u32, u32),
    mode: XdpMode,
    zerocopy: Zerocopy,
) -> Result<Parts, Errno> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if zerocopy == Zerocopy::Off || mode == XdpMode::Generic {
        flags |= SocketAddrXdpFlags::XDP_COPY; // without it the kernel tries zero copy first
    }
    let address = |flags| SocketAddrXdp::new(flags, ifindex, queue);
    if mode == XdpMode::Generic {
        let several = flags | SocketAddrXdpFlags::XDP_USE_SG;
        match bind_patiently(socket, &address(several)) {
            Err(Errno::INVAL) => {} // a kernel before 6.6
            result => return result.map(|()| Parts::Several),
        }
    }
    bind_patiently(socket, &address(flags)).map(|()| Parts::One)
}

/// Binds; waits for a queue that its last owner has just closed.
fn bind_patiently(socket: &OwnedFd, address: &SocketAddrXdp) -> Result<(), Errno> {
    let give_up_at_ns = monotonic_ns() + XDP_BIND_WAIT_NS_MAX;
    loop {
        match bind(socket, address) {
            Err(Errno::BUSY) if monotonic_ns() < give_up_at_ns => std::thread::sleep(BIND_PAUSE),
            result => return result,
        }
    }
}

/// Longest frame that the kernel puts into a chunk, bytes.
pub(super) fn frame_room(chunk_bytes: u32) -> usize {
    (chunk_bytes - XDP_RX_HEADROOM_BYTES) as usize
}

/// The smallest chunk size for frames of this MTU, else the largest size.
pub(super) fn chunk_bytes(mtu: usize) -> u32 {
    let [small, large] = CHUNK_BYTES;
    if mtu + FRAME_HEADER_MAX <= frame_room(small) {
        small
    } else {
        large
    }
}

fn capabilities(device: &Device, chunk_bytes: u32, queue: usize) -> Capabilities {
    Capabilities {
        mac: device.mac,
        mtu: device.mtu.min(frame_room(chunk_bytes) - FRAME_HEADER_MAX),
        rx_checksum: checksum_policy(&device.driver),
        tx_checksum_offload: false,
        segment_bytes_max: 0,
        batch_max: XDP_BATCH_MAX,
        name: wire_name(&device.name),
        queue,
    }
}

/// The policy for received checksums: a driver whose peer is this host's kernel delivers partial
/// ones.
fn checksum_policy(driver: &str) -> ChecksumPolicy {
    match driver {
        "veth" => ChecksumPolicy::AcceptPartial,
        _ => ChecksumPolicy::Verify,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_holds_the_largest_frame_of_its_mtu() {
        assert_eq!(chunk_bytes(1500), 2048);
        assert_eq!(chunk_bytes(1774), 2048);
        assert_eq!(chunk_bytes(1775), 4096);
        assert_eq!(chunk_bytes(65_536), 4096);
    }
}
