//! The memif backend: frames through memory shared with another process, without the kernel.
//!
//! The backend speaks version 2 of the memif protocol of VPP and DPDK (`net_memif`, libmemif), in
//! both roles. The client ("slave") owns the memory, the server ("master") listens on the UNIX
//! socket. Users write `memif:PATH[,role=..]` in a [`WireSpec`](crate::WireSpec). Code calls
//! [`Memif::connect`] for all queues at once, or [`open`] for one.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | the control channel's messages, bytes ⇄ values |
//! | `socket` | the control channel's sockets |
//! | `handover` | control channels that come as connected sockets, in place of a path |
//! | `foreign` | descriptors that a peer sent, and how they are closed |
//! | `server`, `client` | the two handshakes |
//! | `control` | what the queues share, behind a mutex, off the hot path |
//! | `layout` | where things lie in shared memory |
//! | `region_unsafe`, `ring_unsafe`, `batch_unsafe` | the memory itself: mappings, rings, batches of frames |
//! | `rx`, `tx` | the two halves of a queue; no `unsafe`, all the checks |
//! | `bell`, `ringer_unsafe` | interrupts, and how one is sent that cannot hold us up |
//! | `port` | one queue as a [`Port`] |
//! | `queues` | all queues of a connection as one [`Port`] |
//!
//! **Trust.** The peer may rewrite memory while we read it, and lie in every word. Descriptors are
//! read once and checked against the regions. An invalid one is dropped and counted (receive) or
//! ends the connection (transmit). A cursor past the lent slots ends the connection. The memory
//! cannot shrink (the server requires the seal; the client sets it) nor run out of pages (huge
//! pages are refused). DPDK's `zero-copy=yes` clients offer unsealed memory and are refused.
//!
//! A peer's descriptor can also block the thread that closes it. A separate thread therefore closes
//! all descriptors except memory and eventfds, and sockets with unread descriptors. While too many
//! wait for that thread no new peer is served (`crate::limits::CLOSING_MAX`), and the sender loses
//! its connection. An eventfd that one read does not silence (`EFD_SEMAPHORE`) is refused. An
//! eventfd that the peer fills and makes blocking blocks no thread (`ringer_unsafe`).
//!
//! **Frames.** Frames are received and transmitted in place. A received chain is copied into a side
//! buffer. We send chains only to a client with buffers smaller than ours; then every frame is
//! staged and copied. The MTU is the buffer size minus 18.
//!
//! **Sleeping.** A receiver that polls masks the interrupt, and then neither side makes system
//! calls. Freed transmit slots cause no interrupt, so a caller that waits for room gets a deadline
//! (`deadline_ns`) of 50 µs to 2 ms.

#[allow(unsafe_code)]
mod batch_unsafe;
mod bell;
mod client;
mod control;
mod handover;
mod layout;
pub mod limits;
mod link;
mod message;
mod port;
mod queues;
#[allow(unsafe_code)]
mod region_unsafe;
#[allow(unsafe_code)]
mod ring_unsafe;
#[allow(unsafe_code)]
mod ringer_unsafe;
mod rx;
mod server;
mod socket;
mod tx;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use handover::Handover;
pub use port::MemifPort;
pub use queues::MemifQueues;

use self::control::{Means, Shared};
use self::layout::RegionPlan;
use self::limits::{
    BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, QUEUES_MAX, REGION_BYTES_MAX, RING_BYTES_DEFAULT,
    RING_SLOTS_DEFAULT_MAX, RING_SLOTS_LOG2_MAX, RING_SLOTS_LOG2_MIN,
};
use crate::MacAddr;
use crate::open_error::OpenError;
use crate::port::{Capabilities, Port};

/// Our program's name in the handshake.
const PROGRAM_NAME: &str = concat!("millstream ", env!("CARGO_PKG_VERSION"));
/// Bytes of a buffer for Ethernet header and VLAN tag, which the IP packet cannot use.
pub(crate) const FRAME_OVERHEAD_BYTES: usize = 18;

/// The role of this end of a memif connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemifRole {
    /// This end listens on the socket ("master" in the protocol).
    #[default]
    Server,
    /// This end connects to the socket and owns the memory ("slave" in the protocol).
    Client,
}

/// The options of
/// `memif:PATH[,role=server|client][,id=N][,ring=N][,buffer=2048][,queues=N][,secret=..][,mac=..]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// Path of the UNIX socket; `@name` for an abstract one.
    pub path: String,
    /// Role of this end.
    pub role: MemifRole,
    /// Id of the interface; both ends must use the same.
    pub id: u32,
    /// Slots of each ring, a power of two from 8 to 16384; the client's number counts. By default
    /// [`slots`](Self::slots) chooses it by the buffer size.
    pub ring_slots: Option<usize>,
    /// Bytes of each buffer, 128 to 65536; the MTU is 18 less.
    pub buffer_bytes: usize,
    /// Queue pairs, 1 to 255.
    pub queues: usize,
    /// Shared secret of the control channel, up to 23 bytes.
    pub secret: Option<String>,
    /// MAC address of this end; generated by default.
    pub mac: Option<MacAddr>,
}

impl Default for MemifOptions {
    fn default() -> Self {
        Self {
            path: String::new(),
            role: MemifRole::Server,
            id: 0,
            ring_slots: None,
            buffer_bytes: 2048,
            queues: 1,
            secret: None,
            mac: None,
        }
    }
}

impl MemifOptions {
    /// Slots of each ring: the number asked for, else 1,024, and fewer with large buffers. All
    /// buffers of a ring are used in turn, so they should stay in the caches. Those of 1,024 slots
    /// of 64 KiB would not (decision 0045).
    ///
    /// ```
    /// use packetio::memif::MemifOptions;
    ///
    /// let mut options = MemifOptions::default();
    /// assert_eq!(options.slots(), 1024);
    /// options.buffer_bytes = 65_018;
    /// assert_eq!(options.slots(), 128);
    /// ```
    pub fn slots(&self) -> usize {
        self.ring_slots.unwrap_or_else(|| {
            let fit = (RING_BYTES_DEFAULT / self.buffer_bytes.max(1)).max(1);
            RING_SLOTS_DEFAULT_MAX.min(1 << fit.ilog2())
        })
    }
}

/// The entry point for opening memif interfaces.
pub struct Memif;

impl Memif {
    /// Opens all queues of the interface, one port each, in order, to be moved to the threads that
    /// use them.
    ///
    /// The call returns at once. Until the peer connects, the ports receive nothing and have no
    /// slots.
    ///
    /// # Errors
    /// One line that names cause and place.
    pub fn connect(options: &MemifOptions) -> Result<Vec<MemifPort>, OpenError> {
        (0..options.queues.max(1))
            .map(|queue| open_queue(options, queue))
            .collect()
    }
}

/// Opens queue `queue` of the interface. Ports of one interface in one process share its
/// connection.
///
/// # Errors
/// One line that names cause and place.
pub fn open(options: &MemifOptions, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    Ok(Box::new(open_queue(options, queue)?))
}

/// The interfaces of this process with an open queue, which further queues join.
static INTERFACES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn open_queue(options: &MemifOptions, queue: usize) -> Result<MemifPort, OpenError> {
    let refused = |why: String| OpenError::refused(format_args!("memif:{}", options.path), why);
    check(options).map_err(refused)?;
    if queue >= options.queues {
        return Err(refused(format!("queue {queue} of {}", options.queues)));
    }
    let mut interfaces = INTERFACES.lock().unwrap_or_else(PoisonError::into_inner);
    interfaces.retain(|interface| interface.strong_count() > 0);
    let same = |shared: &Arc<Shared>| {
        shared.options.path == options.path
            && shared.options.role == options.role
            && shared.options.id == options.id
    };
    let shared = match interfaces.iter().filter_map(Weak::upgrade).find(same) {
        Some(shared) if shared.options == *options => shared,
        Some(_) => return Err(refused("open already, with other options".to_owned())),
        None => {
            let mac = options.mac.unwrap_or_else(made_up_mac);
            let shared = Shared::new(options, mac, Means::Path)?;
            interfaces.push(Arc::downgrade(&shared));
            shared
        }
    };
    if !shared.control().take_queue(queue) {
        return Err(refused(format!("queue {queue} is open already")));
    }
    Ok(MemifPort::new(shared, queue))
}

/// Serves the first queue of an interface; see [`serve_queues`].
///
/// # Errors
/// One line that names cause and place.
pub fn serve(
    socket: OwnedFd,
    options: &MemifOptions,
    region_bytes_max: u64,
) -> Result<MemifPort, OpenError> {
    let options = MemifOptions {
        queues: 1,
        ..options.clone()
    };
    let mut ports = serve_queues(socket, &options, region_bytes_max)?;
    ports.pop().ok_or_else(|| no_queue(&options))
}

/// Serves all queues of an interface over a connected SOCK_SEQPACKET socket, one port each. The
/// peer's regions have at most `region_bytes_max` bytes altogether. The interface ends with this
/// connection.
///
/// # Errors
/// One line that names cause and place.
pub fn serve_queues(
    socket: OwnedFd,
    options: &MemifOptions,
    region_bytes_max: u64,
) -> Result<Vec<MemifPort>, OpenError> {
    let options = MemifOptions {
        role: MemifRole::Server,
        ..options.clone()
    };
    ports(&options, Means::Socket(socket, region_bytes_max))
}

/// Joins the first queue of an interface as client; see [`join_queues`].
///
/// # Errors
/// One line that names cause and place.
pub fn join(
    handover: &Handover,
    options: &MemifOptions,
    capabilities: Capabilities,
) -> Result<MemifPort, OpenError> {
    let options = MemifOptions {
        role: MemifRole::Client,
        queues: 1,
        ..options.clone()
    };
    let mut ports = ports(&options, Means::Handover(handover.clone()))?;
    let port = ports.pop().ok_or_else(|| no_queue(&options))?;
    Ok(port.named(capabilities))
}

/// Joins all queues of an interface as client, as one port with these `capabilities`. It connects
/// by the sockets that are handed over, each time the last connection has ended. With a server that
/// has fewer queues it uses only those.
///
/// # Errors
/// One line that names cause and place.
pub fn join_queues(
    handover: &Handover,
    options: &MemifOptions,
    capabilities: &Capabilities,
) -> Result<MemifQueues, OpenError> {
    let options = MemifOptions {
        role: MemifRole::Client,
        ..options.clone()
    };
    let ports = ports(&options, Means::Handover(handover.clone()))?;
    let named = ports
        .into_iter()
        .map(|port| port.named(capabilities.clone()));
    MemifQueues::new(named.collect()).ok_or_else(|| no_queue(&options))
}

fn no_queue(options: &MemifOptions) -> OpenError {
    OpenError::refused(format_args!("memif:{}", options.path), "no queue")
}

/// Makes the ports of all queues of an interface that is not shared by path.
fn ports(options: &MemifOptions, means: Means) -> Result<Vec<MemifPort>, OpenError> {
    let refused = |why: String| OpenError::refused(format_args!("memif:{}", options.path), why);
    check(options).map_err(refused)?;
    let mac = options.mac.unwrap_or_else(made_up_mac);
    let shared = Shared::new(options, mac, means)?;
    let port = |queue| {
        shared.control().take_queue(queue);
        MemifPort::new(Arc::clone(&shared), queue)
    };
    Ok((0..options.queues).map(port).collect())
}

fn check(options: &MemifOptions) -> Result<(), String> {
    let slots = options.slots();
    let slots_allowed = 1 << RING_SLOTS_LOG2_MIN..=1 << RING_SLOTS_LOG2_MAX;
    if !slots.is_power_of_two() || !slots_allowed.contains(&slots) {
        return Err(format!(
            "ring={slots}: a power of two from {} to {}",
            1 << RING_SLOTS_LOG2_MIN,
            1 << RING_SLOTS_LOG2_MAX
        ));
    }
    let buffer = options.buffer_bytes;
    if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&buffer) {
        return Err(format!(
            "buffer={buffer}: from {BUFFER_BYTES_MIN} to {BUFFER_BYTES_MAX} bytes"
        ));
    }
    if !(1..=QUEUES_MAX).contains(&options.queues) {
        return Err(format!("queues={}: from 1 to {QUEUES_MAX}", options.queues));
    }
    if options
        .secret
        .as_ref()
        .is_some_and(|secret| secret.is_empty() || secret.len() > 23 || secret.contains('\0'))
    {
        return Err("secret: 1 to 23 bytes".to_owned());
    }
    if options.path.trim_start_matches('@').is_empty() {
        return Err("no path".to_owned());
    }
    let plan = RegionPlan {
        queues: options.queues,
        slots_log2: slots.trailing_zeros() as u8,
        buffer_bytes: buffer,
    };
    if plan.region_bytes() as u64 > REGION_BYTES_MAX {
        return Err(format!(
            "queues, ring and buffer make {} bytes of shared memory; the most is {REGION_BYTES_MAX}",
            plan.region_bytes()
        ));
    }
    Ok(())
}

/// A random, locally administered unicast address.
fn made_up_mac() -> MacAddr {
    let random = RandomState::new().build_hasher().finish().to_ne_bytes();
    MacAddr([0x02, random[1], random[2], random[3], random[4], random[5]])
}

#[cfg(test)]
mod tests;
