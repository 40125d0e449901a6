//! `path=memif`: memif channels in place of veth pairs, and sockets of the service for the NIC's
//! frames.
//!
//! The same maps hold claims, leases and flows, and a further program finds owners in them
//! (`bpf/mux_switch.c`). It redirects frames to AF_XDP sockets that are opened here, one for each
//! queue of the NIC. The frames' threads also get the rights that the egress check needs. Owns the
//! choice of the path, the frames' threads and the maps of sockets. Called by `mod`, `nic`, `local`
//! and `check`.

use std::os::fd::{AsRawFd as _, OwnedFd};

use packetio::limits::CHANNEL_QUEUES_MAX;
use packetio::memif;
use packetio::mux::channel_options;
use packetio::xdp::bpf::Map;
use packetio::xdp::{Device, XdpMode, XdpOptions, XdpPort, bare};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use super::layout::{self, SlotValue};
use super::maps::Maps;
use super::namespace_unsafe::errno_of;
use super::{Dataplane, DataplaneError, DataplaneOptions, DeviceCounters, NewPort, owner};
use crate::frames::{Channel, Flow, FlowBook, Frames, Right, Word};
use crate::limits::CHANNEL_BYTES_MAX;
use crate::reason::Reason;

/// Bit of `settings.note`: the data path is `path=memif`.
pub(super) const NOTE_MEMIF: u16 = 2;
/// Bit of `settings.note`: the NIC's program is attached in generic mode.
pub(super) const NOTE_GENERIC: u16 = 1;
/// Queues of a NIC for which the map of sockets has room.
const QUEUES_MAX: usize = 256;
/// Ring slots of the socket that only tests whether the driver works without copies.
const PROBE_SLOTS: u32 = 64;
/// `FLOW_ENDED`
const ENDED: u32 = 0x10000;

/// The path of frames to applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPath {
    /// Memif if the NIC's driver delivers frames without a copy, otherwise veth pairs.
    #[default]
    Auto,
    /// Veth pairs, with the egress check in the kernel.
    Veth,
    /// Memif channels, with the egress check in the service.
    Memif,
}

/// The frames' threads of a service with `path=memif`.
pub(super) type NicFrames = Frames<XdpPort>;

/// Starts the frames' threads if the path is memif. The path is that of the previous service, or
/// the one in the options.
pub(super) fn choose(
    options: &DataplaneOptions,
    nic: &Device,
    maps: &Maps,
) -> Result<Option<NicFrames>, DataplaneError> {
    let refused = |why: &str| Err(DataplaneError::refused("path", why.to_owned()));
    let before = match maps.are_recovered {
        true => Some(note(maps)? & NOTE_MEMIF != 0),
        false => None,
    };
    let is_memif = match (options.path, before) {
        (DataPath::Memif, Some(false)) => {
            return refused("the service before had path=veth; `mill mux stop` removes it");
        }
        (DataPath::Veth, Some(true)) => {
            return refused("the service before had path=memif; `mill mux stop` removes it");
        }
        (DataPath::Memif, _) => true,
        (DataPath::Veth, _) => false,
        (DataPath::Auto, Some(before)) => before,
        (DataPath::Auto, None) => binds_without_copy(nic),
    };
    if !is_memif {
        return Ok(None);
    }
    let mut books: Vec<Box<dyn FlowBook>> = Vec::new();
    for _ in 0..threads(nic) {
        books.push(Box::new(Tables::open(maps)?));
    }
    let started = Frames::start(books);
    let started = started.map_err(|error| DataplaneError::io("mux-frames", errno_of(&error)))?;
    Ok(Some(started))
}

/// Number of frames' threads: one for each queue of the NIC, but no more than CPUs.
fn threads(nic: &Device) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let queues = nic.queues.unwrap_or(1);
    queues.min(cpus).clamp(1, CHANNEL_QUEUES_MAX)
}

/// `settings.note` of the previous service.
pub(super) fn note(maps: &Maps) -> Result<u16, DataplaneError> {
    let mut value = [0; layout::SETTINGS_BYTES];
    maps.map("settings")?
        .lookup(&0u32.to_ne_bytes(), &mut value)
        .map_err(|errno| DataplaneError::io("map settings", errno))?;
    Ok(u16::from_ne_bytes([value[6], value[7]]))
}

/// True if the driver uses the memory of an AF_XDP socket without a copy. Opens and closes one.
fn binds_without_copy(nic: &Device) -> bool {
    let options = XdpOptions {
        ring_slots: Some(PROBE_SLOTS),
        ..XdpOptions::default()
    };
    bare(nic, 0, XdpMode::Native, &options).is_ok_and(|port| port.is_zerocopy())
}

impl Dataplane {
    /// Opens a socket for each queue of the NIC and lets the program deliver frames to it.
    pub(super) fn nic_sockets(&mut self) -> Result<(), DataplaneError> {
        let Some(frames) = &mut self.frames else {
            return Ok(());
        };
        frames.set(&Right::Host(self.mac, self.mtu as usize));
        // If the interface has come back, these sockets replace those of the removed one.
        frames.set_nic(Vec::new());
        let queues = self.nic.queues.unwrap_or(1).clamp(1, QUEUES_MAX);
        if queues < frames.threads() {
            let why = format!(
                "it has {queues} queues now, and the service a thread for each of {}: start the \
                 service again",
                frames.threads()
            );
            return Err(DataplaneError::refused(&self.nic.name, why));
        }
        let ports = sockets(&self.nic, queues, self.mode)?;
        for (queue, port) in (0u32..).zip(&ports) {
            let fd = port.socket().as_raw_fd().to_ne_bytes();
            self.maps.set("nic_sockets", &queue.to_ne_bytes(), &fd)?;
        }
        frames.set_nic(ports);
        Ok(())
    }

    /// Opens a socket for each thread at the veth pair for clients of the same host, in the calling
    /// thread's network namespace, and lets the program deliver frames to it.
    pub(super) fn local_sockets(&self, end: &Device) -> Result<Vec<XdpPort>, DataplaneError> {
        let ports = sockets(end, self.threads(), XdpMode::Native)?;
        for (queue, port) in (0u32..).zip(&ports) {
            let fd = port.socket().as_raw_fd().to_ne_bytes();
            self.maps.set("local_sockets", &queue.to_ne_bytes(), &fd)?;
        }
        Ok(ports)
    }

    /// Number of frames' threads; 1 if virtual ports are veth pairs.
    pub(super) fn threads(&self) -> usize {
        self.frames.as_ref().map_or(1, Frames::threads)
    }

    /// Makes the channel of a context. A context that has a virtual port gets a new channel for it.
    ///
    /// # Errors
    /// `OPNOTSUPP` if virtual ports are veth pairs; `BUSY` if all devices are in use; other errors
    /// of the kernel.
    pub fn channel_add(&mut self, slot: u16, context: u16) -> Result<NewPort, DataplaneError> {
        let step = |step: &'static str| move |errno| DataplaneError::io(step, errno);
        if self.frames.is_none() {
            return Err(step("channel")(Errno::OPNOTSUPP));
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(step("socketpair"))?;
        let cookie = sockopt::socket_cookie(&theirs).map_err(step("SO_COOKIE"))?;
        let options = channel_options(self.mtu as usize, None, self.threads());
        let ports = memif::serve_queues(ours, &options, CHANNEL_BYTES_MAX)
            .map_err(|error| DataplaneError::refused("channel", error.to_string()))?;
        let known = self.devices.get(&(slot, context)).copied();
        let device = match known {
            Some(device) => device,
            None => self.free_device()?,
        };
        if known.is_none() {
            self.unpin(device);
            self.bulk_remove(device);
            self.clear_counters(device)?;
        }
        let value = SlotValue {
            owner: owner(slot),
            note: u32::from(context) << 16 | u32::from(slot),
            cookie,
            rate: self.options.rate_bytes,
        };
        let number = u32::from(device).to_ne_bytes();
        self.maps.set("slots", &number, &value.encode())?;
        self.devices.insert((slot, context), device);
        self.cookies.insert((slot, context), cookie);
        if let Some(frames) = &mut self.frames {
            frames.join(Channel {
                device,
                slot,
                ports,
                rate: value.rate,
                burst: value.burst(),
            });
        }
        let socket: OwnedFd = theirs;
        Ok(NewPort { socket, cookie })
    }

    /// Passes a changed right to the frames' threads, if there are any.
    pub(super) fn set_right(&mut self, right: &Right) {
        if let Some(frames) = &mut self.frames {
            frames.set(right);
        }
    }

    /// Tells the frames' threads that the tables of flows changed for this flow.
    pub(super) fn flow_changed(&mut self, flow: Flow) {
        if let Some(frames) = &mut self.frames {
            frames.forget(flow);
        }
    }

    /// Adds the frames' threads' counts for a device.
    pub(super) fn add_frames_counters(&self, device: u16, counters: &mut DeviceCounters) {
        let Some(frames) = &self.frames else {
            return;
        };
        counters.tx_frames += frames.word(device, Word::TxFrames);
        counters.tx_bytes += frames.word(device, Word::TxBytes);
        counters.no_room = frames.word(device, Word::RxNoRoom);
        counters.too_long = frames.word(device, Word::RxTooLong);
        counters.other_queue = frames.word(device, Word::TxOtherQueue);
        for (drops, reason) in counters.drops.iter_mut().zip(Reason::ALL) {
            *drops += frames.drops(device, *reason);
        }
    }

    /// Checks the channel of a device, for `mill mux check`.
    pub(super) fn check_channel(&self, device: u16) -> Result<(), String> {
        let Some(frames) = &self.frames else {
            return Err("there are no frames' threads".to_owned());
        };
        if !frames.are_running() {
            return Err("a frames' thread has ended".to_owned());
        }
        let (queues, threads) = (frames.word(device, Word::Connected), frames.threads());
        match queues {
            0 => Err("the application has not connected to its channel".to_owned()),
            queues if queues == threads as u64 => Ok(()),
            queues => Err(format!("{queues} of {threads} queues are connected")),
        }
    }
}

/// Opens a socket for each of the first `queues` queues of an interface.
fn sockets(device: &Device, queues: usize, mode: XdpMode) -> Result<Vec<XdpPort>, DataplaneError> {
    let failed =
        |error: packetio::OpenError| DataplaneError::refused(&device.name, error.to_string());
    let open = |queue| bare(device, queue, mode, &XdpOptions::default()).map_err(failed);
    (0..queues as u32).map(open).collect()
}

/// The maps `flows` and `half_open`, by a frames' thread's own descriptors.
#[derive(Debug)]
struct Tables {
    flows: Map,
    half_open: Map,
}

impl Tables {
    fn open(maps: &Maps) -> Result<Self, DataplaneError> {
        let copy = |name: &'static str| {
            let copy = maps.map(name)?.try_clone();
            copy.map_err(|errno| DataplaneError::io(format!("map {name}"), errno))
        };
        Ok(Self {
            flows: copy("flows")?,
            half_open: copy("half_open")?,
        })
    }

    /// The map's value for a flow.
    fn value(&self, key: &[u8]) -> Option<u32> {
        let mut value = [0; 4];
        let found = self.flows.lookup(key, &mut value);
        found.ok().map(|()| u32::from_ne_bytes(value))
    }
}

// Errors of updates are ignored: a full table evicts another flow, and the next segment writes
// again.
impl FlowBook for Tables {
    fn half_open(&mut self, (local, remote): Flow, device: u16) {
        let value = layout::flow_value(device);
        let _ = self.half_open.update(&layout::flow(local, remote), &value);
    }

    fn open(&mut self, (local, remote): Flow, device: u16) {
        let key = layout::flow(local, remote);
        let is_its = |value: u32| layout::flow_device(value.to_ne_bytes()) == device;
        if !self.value(&key).is_some_and(is_its) {
            let _ = self.flows.update(&key, &layout::flow_value(device));
        }
    }

    fn end(&mut self, (local, remote): Flow, device: u16) {
        let value = (u32::from(device) | ENDED).to_ne_bytes();
        let _ = self.flows.update(&layout::flow(local, remote), &value);
    }

    fn reset(&mut self, (local, remote): Flow, device: u16) {
        let key = layout::flow(local, remote);
        if self.value(&key) == Some(u32::from(device)) {
            let value = (u32::from(device) | ENDED).to_ne_bytes();
            let _ = self.flows.update(&key, &value);
        }
    }
}
