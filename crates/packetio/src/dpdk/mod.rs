//! The DPDK backend: any NIC that DPDK has a poll-mode driver for, through a plug-in library that
//! is loaded at run time.
//!
//! ```text
//!   DpdkPort ── Queue ──┐ millstream_dpdk.h ┌── libmillstream_dpdk.so ── libdpdk ── driver ── NIC
//!   (port.rs)           └───────────────────┘   (plugins/dpdk/, C)
//! ```
//!
//! Nothing here needs DPDK to be built. Owns finding and loading the plug-in, EAL's arguments, and
//! which ports of the process are open. [`open`] is what `packetio::open` calls. Why it is built
//! like this: `docs/decisions/0027-dpdk-run-time-plug-in.md`.
//!
//! * **The plug-in** is `plugin=FILE`, else the file that `MILLSTREAM_DPDK` names. Else it is
//!   `libmillstream_dpdk.so` beside the program or library that holds this code, in a directory
//!   `millstream` beside it, or in `../lib/millstream` of it. Else the loader looks for it. `cargo
//!   xtask dpdk` builds it.
//! * **EAL** starts once in a process, with the first port, and never ends. Its arguments are ours
//!   (`load.rs`), those of `eal=`, and those of `MILLSTREAM_DPDK_ARGS`. A later port has the same
//!   ones. It survives no `fork`: a child is refused.
//! * **Frames** are received and sent in place, in mbufs; one frame, one mbuf.
//! * **Large packets.** Behind each slot for a frame of the MTU stands a large mbuf, from which a
//!   packet of many segments leaves by the same queue ([`crate::TxFrame::take_bulk_lane`]). The
//!   driver cuts it (TSO), or the plug-in, where the driver cannot. Packets that a driver has merged
//!   (LRO) are joined in one piece and lent as they are, or cut for a caller who takes none.
//! * **Checksums.** What a driver has verified is not verified again, TCP's of what is sent is the
//!   driver's work if it offers to. The rest is as on any wire: over a veth (`net_af_packet`,
//!   `net_af_xdp`), a kernel peer leaves sums partial, and `checksum=partial` takes them.
//! * **Sleeping.** With interrupts, on the driver's descriptor. Without, for ever longer moments:
//!   50 µs, doubled as long as nothing comes, up to 1 ms.
//! * **Trust.** DPDK's drivers are in this process and are trusted, as is what they say about an
//!   mbuf. The frames that they deliver are not trusted. A frame that is shorter than an Ethernet
//!   header, longer than the MTU allows, or in pieces that no mbuf holds, is dropped and counted.

mod load;
#[allow(unsafe_code)]
mod plugin_unsafe;
mod port;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use port::DpdkPort;

use self::plugin_unsafe::{Device, Queue};
use crate::notice;
use crate::open_error::OpenError;
use crate::port::Port;

/// `dpdk:PORT[,queues=N][,mtu=N][,offload=auto|off][,plugin=FILE][,eal=ARGUMENTS...]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// DPDK's number of the port, or the device's name: `0`, `0000:3b:00.0`, `net_tap0`.
    pub port: String,
    /// Queue pairs.
    pub queues: usize,
    /// Largest IP packet in bytes; what the device says if absent.
    pub mtu: Option<usize>,
    /// Checksums, cutting and merging of packets are the driver's work, as far as it offers them.
    pub offload: bool,
    /// The plug-in's file; looked for if absent.
    pub plugin: Option<PathBuf>,
    /// Arguments for EAL, separated by spaces.
    pub eal: String,
}

impl Default for DpdkOptions {
    fn default() -> Self {
        Self {
            port: "0".to_owned(),
            queues: 1,
            mtu: None,
            offload: true,
            plugin: None,
            eal: String::new(),
        }
    }
}

type Registry = Vec<(DpdkOptions, Weak<Device>)>;

/// The ports of this process that have an open queue. Whoever opens or closes a queue holds the
/// lock: the plug-in wants one at a time, and a port that is about to stop is not found here.
fn registry() -> MutexGuard<'static, Registry> {
    static OPEN: Mutex<Registry> = Mutex::new(Vec::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens queue `queue` of the port; the port starts with its first queue and stops with its last.
///
/// # Errors
/// One line that says what and where.
pub fn open(options: &DpdkOptions, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    let wire = format!("dpdk:{}", options.port);
    let refused = |why: String| OpenError::refused(&wire, why);
    if queue >= options.queues {
        let why = format!("queue {queue} of {} (say queues=N)", options.queues);
        return Err(refused(why));
    }
    let mut open = registry();
    open.retain(|(_, device)| device.strong_count() > 0);
    let same = open.iter().find(|(other, _)| other.port == options.port);
    let device = match same.and_then(|(other, device)| Some((other, device.upgrade()?))) {
        Some((other, device)) if other == options => device,
        Some(_) => return Err(refused("open already, with other options".to_owned())),
        None => {
            let device = Arc::new(load::device(options).map_err(refused)?);
            if device.lacks_buffers {
                notice::tell(|| {
                    format!("{wire}: sends single segments: no memory for large buffers of DPDK's")
                });
            }
            open.push((options.clone(), Arc::downgrade(&device)));
            device
        }
    };
    match Queue::take(device, queue) {
        Some(taken) => Ok(Box::new(DpdkPort::new(taken, wire, queue))),
        None => Err(refused(format!("queue {queue} is open already"))),
    }
}
