//! AF_XDP: frames of any netdev, past the kernel's stack, in memory shared with the kernel.
//!
//! ```text
//!             NIC queue k ──> XDP program (bpf/xdp_port.c) ──else──> the kernel's stack
//!                                   │ owned address, its ARP and ND
//!                                   v
//!   UMEM <── fill ring ── [ AF_XDP socket of queue k ] ── RX ring ──> receive()
//!        ── completion ─>                              <── TX ring ── send()
//! ```
//!
//! The module covers everything from an interface's name to the rings: the program with its maps
//! ([`XdpInterface`], one per interface and process), and per queue a socket with its UMEM
//! ([`XdpPort`]). [`open`] is what `packetio::open` calls. The runtime calls [`set_owned`] when its
//! addresses change.
//!
//! # What to know about interfaces
//!
//! * **Addresses.** The program takes packets for the owned addresses, with their ARP and neighbour
//!   solicitations. Everything else, and VLAN-tagged frames, stays with the kernel. [`Take::All`]
//!   takes all; [`Take::Tcp`] shares addresses with the kernel and takes their TCP. Otherwise an
//!   owned address should not be the kernel's too. A frame for us on a queue without a port goes to
//!   the kernel and is counted.
//! * **veth.** A kernel peer leaves partial checksums unless its offload is off (`ethtool -K PEER
//!   tx off`), so the port has [`ChecksumPolicy::AcceptPartial`](crate::ChecksumPolicy) there. In
//!   native mode the kernel cuts the peer's TSO frames. In generic mode the port cuts them
//!   (`xdp_rx_cut`) at the cost of two copies. So `ethtool -K PEER tso off gso off` is faster
//!   there, and needed before Linux 6.6 (`xdp_rx_dropped`). Redirecting *to* a veth from elsewhere
//!   needs a program or GRO on the far end; a port needs neither.
//! * **MTU.** A received frame must fit one chunk behind 256 bytes of headroom. The port's MTU is
//!   what fits, at most 3822. Most drivers refuse native mode if the interface's MTU is above about
//!   3500; `mode=auto` then takes generic mode.
//! * **GRO/LRO** on the interface merges frames before generic XDP sees them, so it should be off
//!   too.
//! * **Ring sizes** follow the number of sockets that the queue serves ([`XdpOptions::sockets`]),
//!   or `ring=`. The UMEM's memory is pinned when the port is opened. While the stack is busy the
//!   port moves frames from a filling RX ring to a store, whose memory is touched only then
//!   (`xdp_rx_early`).
//! * **Drops.** `xdp_rx_ring_full` and `xdp_rx_fill_ring_empty` count frames without room here,
//!   `interface_rx_dropped` and `interface_tx_dropped` the interface's losses since the port was
//!   opened. A veth's sender drops frames beyond 256 that the other end has not read; only the
//!   peer's counter (`ip -s link show PEER`) shows these.
//! * **Large packets** leave by the bulk lane, a packet socket on the interface, because AF_XDP has
//!   no segmentation offload. The interface cuts them, or the kernel if the interface's TSO is off.
//!   They pass the interface's queueing discipline; frames of the TX ring do not. `bulk=off` turns
//!   the lane off.
//! * **Zero copy** is requested in native mode unless `zerocopy=off`, and the kernel copies if the
//!   driver cannot. veth cannot, so that path is **untested** here.
//! * **A killed process** takes its program along (a BPF link). Before Linux 5.9 there are no
//!   links; the program then stays, harmless, until `ip link set dev IFACE xdp off`.

mod attach;
#[allow(unsafe_code)]
mod bpf_unsafe;
mod bulk_wire;
#[allow(unsafe_code)]
mod device_unsafe;
#[allow(unsafe_code)]
mod frame_store_unsafe;
mod interface;
mod netlink;
mod options;
mod port;
mod program;
#[allow(unsafe_code)]
mod rings_unsafe;
#[allow(unsafe_code)]
mod rss_unsafe;
mod sizes;
#[allow(unsafe_code)]
mod two_lanes_unsafe;
#[allow(unsafe_code)]
mod umem_unsafe;

pub(crate) use bulk_wire::BulkWire;
pub use device_unsafe::{Device, set_offload, veth_redirects};
pub use device_unsafe::{GRO, GSO, TSO, TX_CHECKSUM};
pub use interface::{XdpInterface, queues, set_owned};
pub use options::{Bulk, Take, XdpMode, XdpOptions, Zerocopy};
pub(crate) use port::PassedMemory;
pub use port::{Memory, XdpPort, bare};
pub use rss_unsafe::spread;
pub(crate) use two_lanes_unsafe::TwoLanes;

use crate::limits::SEGMENT_BYTES_MAX;
use crate::notice;
use crate::open_error::OpenError;
use crate::port::Port;

/// BPF objects of the kernel, for the service that shares a NIC: maps, programs, links, pins.
pub mod bpf {
    pub use super::bpf_unsafe::{
        Map, Refused, attached_to, dry_run, dry_run_tc, link, link_egress, link_ingress, live_run,
        load, load_kind, open_pinned, pin, update_link,
    };
    pub use super::program::{Aligned, INSN_BYTES, Kind, MapDef, Program};
}

/// Tests whether the interface's bulk lane can be opened.
///
/// # Errors
/// One line that names cause and place.
pub fn try_bulk_lane(interface: &str) -> Result<(), OpenError> {
    let wire = interface::wire_name(interface);
    let device =
        Device::find(interface).map_err(|(step, errno)| OpenError::io(&wire, step, errno))?;
    match BulkWire::packet_socket(&device) {
        Ok(_) => Ok(()),
        Err((step, errno)) => Err(OpenError::io(wire, step, errno)),
    }
}

/// Opens queue `queue` of the wire; the first queue attaches the program and the last one detaches
/// it. If the kernel refuses the bulk lane, a notice says so and the port works without it.
///
/// # Errors
/// One line that names cause and place.
pub fn open(options: &XdpOptions, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    let interface = XdpInterface::open(options, &[])?;
    let mut port = interface.port(queue)?;
    if options.bulk == Bulk::Off {
        return Ok(Box::new(port));
    }
    match BulkWire::packet_socket(interface.device()) {
        Ok(wire) => {
            port.announce_bulk(SEGMENT_BYTES_MAX);
            Ok(Box::new(TwoLanes::new(port, Some(wire))))
        }
        Err((step, errno)) => {
            notice::tell(|| {
                let name = interface.name();
                format!("xdp:{name}: goes on without the bulk lane: {step}: {errno}")
            });
            Ok(Box::new(port))
        }
    }
}
