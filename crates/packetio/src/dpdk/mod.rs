//! The DPDK backend: any NIC with a poll-mode driver of DPDK, through a plug-in library that is
//! loaded at run time.
//!
//! ```text
//!   DpdkPort ── Queue ──┐ millstream_dpdk.h ┌── libmillstream_dpdk.so ── libdpdk ── driver ── NIC
//!   (port.rs)           └───────────────────┘   (plugins/dpdk/, C)
//! ```
//!
//! Building this module needs no DPDK. It finds and loads the plug-in, composes EAL's arguments,
//! and keeps track of the open ports. [`open`] is what `packetio::open` calls. The design is
//! explained in `docs/decisions/0027-dpdk-run-time-plug-in.md`.
//!
//! * **The plug-in** is `plugin=FILE`, else the file in `MILLSTREAM_DPDK`, else
//!   `libmillstream_dpdk.so`. The latter is looked for beside the program or library that holds
//!   this code, in a directory `millstream` beside it, in `../lib/millstream`, then by the loader.
//!   `cargo xtask dpdk` builds it.
//! * **EAL** starts once per process, with the first port, and never ends. Its arguments are our
//!   defaults (`load.rs`), those of `eal=` and those of `MILLSTREAM_DPDK_ARGS`. A later port must
//!   have the same ones. EAL does not survive `fork`, so a child is refused.
//! * **Frames** are received and sent in place, one frame per mbuf.
//! * **Large packets.** Each slot of MTU size has a large mbuf behind it, from which a packet of
//!   many segments leaves by the same queue ([`crate::TxFrame::take_bulk_lane`]). The driver cuts
//!   it (TSO), or the plug-in if the driver cannot. Packets merged by a driver (LRO) are joined
//!   into one piece. A caller that accepts no merged frames gets them cut.
//! * **Checksums.** What a driver has verified is not verified again. The driver also computes
//!   TCP's checksums of sent packets if it can. Otherwise the rules of any wire hold: over a veth
//!   (`net_af_packet`, `net_af_xdp`) a kernel peer leaves partial sums, which `checksum=partial`
//!   accepts.
//! * **Sleeping.** With interrupts, a sleep waits on the driver's descriptor. Without, sleeps last
//!   50 µs, doubled up to 1 ms while nothing arrives.
//! * **Trust.** DPDK's drivers run in this process, so they and their word about mbufs are trusted.
//!   Received frames are not. A frame that is shorter than an Ethernet header, longer than the MTU
//!   allows, or too fragmented for an mbuf is dropped and counted.

mod load;
#[allow(unsafe_code)]
mod plugin_unsafe;
mod port;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use port::DpdkPort;

use self::plugin_unsafe::{Device, Queue};
use crate::notice;
use crate::open_error::{Check, OpenError};
use crate::port::Port;

/// The options of
/// `dpdk:PORT[,queues=N][,mtu=N][,offload=auto|off][,plugin=FILE][,eal=ARGUMENTS...]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// DPDK's port number, or the device's name: `0`, `0000:3b:00.0`, `net_tap0`.
    pub port: String,
    /// Number of queue pairs.
    pub queues: usize,
    /// Largest IP packet in bytes; by default the device's own value.
    pub mtu: Option<usize>,
    /// True if the driver does checksums, cutting and merging, as far as it can.
    pub offload: bool,
    /// File of the plug-in; by default the usual places are searched.
    pub plugin: Option<PathBuf>,
    /// Additional arguments for EAL, separated by spaces.
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

/// The ports of this process with an open queue. Opening or closing a queue holds the lock, because
/// the plug-in allows one such call at a time, and so that a stopping port is not found here.
fn registry() -> MutexGuard<'static, Registry> {
    static OPEN: Mutex<Registry> = Mutex::new(Vec::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests whether the plug-in can be loaded. EAL is not started.
///
/// # Errors
/// One line that names the file and the loader's error.
pub fn try_plugin(options: &DpdkOptions) -> Result<(), String> {
    load::try_plugin(options)
}

/// Opens queue `queue` of the port; the port starts with its first queue and stops with its last.
///
/// # Errors
/// One line that names cause and place.
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
            let failed = |why: String| match try_plugin(options) {
                Ok(()) => refused(why),
                Err(_) => OpenError::refused_by(Check::Plugin, &wire, why),
            };
            let device = Arc::new(load::device(options).map_err(failed)?);
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
