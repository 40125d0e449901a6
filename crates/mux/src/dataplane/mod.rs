//! The data path of one NIC: private namespace, virtual ports, BPF programs and maps, AF_XDP
//! sockets.
//!
//! ```text
//!           host's namespace                    private namespace of the service
//!   wire ── NIC ── mux_ingress ──device map──▶ near ═══veth═══ far ── mux_far ──▶ AF_XDP socket ──▶ application
//!            ▲                                   │                                     │
//!            └────────device map──── mux_egress ─┘◀════════════════════════════════════┘
//! ```
//!
//! A redirect into a veth pair picks the far queue by CPU, so a queue cannot belong to a context.
//! Each context of an application has a pair of its own, called its *device* here. The ends of
//! device *n* have the interface indices 2n + 2 and 2n + 3, which tell programs the device.
//!
//! Owns everything below the run directory: the namespace's mount, and a BPF file system with maps
//! and links, so that traffic continues while no service runs. [`Dataplane::close`] removes
//! everything. Called by the service on its only thread.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use packetio::MacAddr;
use packetio::mux::message::Memory;
use packetio::xdp::{Device, XdpMode, bpf};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::egress::{AddressKind, Owner};
use crate::frames::Right;
use crate::reason::Reason;
pub use channel::DataPath;
use layout::{SLOTS, SlotValue};
use maps::Maps;
pub use namespace_unsafe::remove_mounts;
use namespace_unsafe::{Namespace, bpf_file_system, errno_of, remove_bpf_file_system};

mod bulk;
mod channel;
mod check;
mod layout;
mod ledger;
mod local;
mod maps;
#[allow(unsafe_code)]
mod namespace_unsafe;
mod nic;
mod plane;
mod probe;
#[allow(unsafe_code)]
mod socket_unsafe;
#[cfg(test)]
mod tests;
mod veth;

/// The reason why the data path could not be built or changed, in one line with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataplaneError {
    /// The kernel refused a step.
    #[error("{step}: {errno}")]
    Io {
        /// The action that failed.
        step: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The request is valid but cannot be granted.
    #[error("{what}: {why}")]
    Refused {
        /// The resource that was asked for.
        what: String,
        /// The reason, in one line.
        why: String,
    },
}

impl DataplaneError {
    fn io(step: impl Into<String>, errno: Errno) -> Self {
        let step = step.into();
        Self::Io { step, errno }
    }

    fn refused(what: impl Into<String>, why: String) -> Self {
        let what = what.into();
        Self::Refused { what, why }
    }

    /// The errno that an application gets for the error.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Io { errno, .. } => *errno,
            Self::Refused { .. } => Errno::INVAL,
        }
    }
}

/// Options of a data path.
#[derive(Clone, Debug)]
pub struct DataplaneOptions {
    /// Name of the NIC in the network namespace of the calling thread.
    pub interface: String,
    /// Directory in which the namespace and the pins are mounted, such as `/run/millstream/eth0`.
    pub run_dir: PathBuf,
    /// The way to attach to the NIC.
    pub mode: XdpMode,
    /// Rate limit of each context in bytes per second; 0: none.
    pub rate_bytes: u64,
    /// Clients on the same host can reach applications, and applications the host's servers.
    pub is_local: bool,
    /// The path of frames to applications.
    pub path: DataPath,
    /// Applications may have bulk lanes.
    pub has_bulk: bool,
}

/// The socket of a virtual port. The service passes it on and closes its own copy.
#[derive(Debug)]
pub struct NewPort {
    /// The bound AF_XDP socket, or the application's end of a memif channel.
    pub socket: OwnedFd,
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
}

/// A virtual port that a previous service made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredPort {
    /// The application's slot.
    pub slot: u16,
    /// The context's number in the application.
    pub context: u16,
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
}

/// Frames that one virtual port carried or dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Frames to the application.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Frames of the application that left through the NIC.
    pub tx_frames: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Packets among `tx_frames` that left through the bulk lane, counted before the NIC cuts them.
    pub bulk_frames: u64,
    /// Bytes of these packets.
    pub bulk_bytes: u64,
    /// Frames for a closed socket.
    pub no_socket: u64,
    /// Frames for the application whose memif ring was full, or not connected.
    pub no_room: u64,
    /// Frames that exceeded the application's buffers.
    pub too_long: u64,
    /// Frames that the application sent through another queue of its channel than the first.
    pub other_queue: u64,
    /// Frames of the application that were dropped, by reason: `drops[reason as usize]`.
    pub drops: Vec<u64>,
}

/// Frames dropped by the NIC's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressCounters {
    /// First fragments for owned ports.
    pub fragment: u64,
    /// IPv6 headers for our addresses that could not be parsed.
    pub ipv6_unparsed: u64,
    /// Frames for an owner whose virtual port was gone, or that with `path=memif` had another MAC
    /// address than the NIC's.
    pub no_port: u64,
    /// Frames from the wire for an owner whose source is an address of the NIC itself.
    pub forged: u64,
}

/// The identity of a context: the application's slot, and the context's number.
type ContextId = (u16, u16);

#[derive(Clone, Debug)]
struct ClaimEntry {
    slot: u16,
    contexts: Vec<u16>,
    tracks: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Dataplane {
    options: DataplaneOptions,
    nic: Device,
    mode: XdpMode,
    namespace: Namespace,
    maps: Maps,
    /// The frames' threads; `None`: virtual ports are veth pairs.
    frames: Option<channel::NicFrames>,
    hash_key: [u64; 2],
    mtu: u32,
    mac: MacAddr,
    /// The veth pair for clients of the same host.
    local: Option<local::Pair>,
    /// The device of each context.
    devices: HashMap<ContextId, u16>,
    cookies: HashMap<ContextId, u64>,
    /// Numbers of the ledgers that are kept after their virtual ports.
    kept_ledgers: BTreeSet<u32>,
    claims: HashMap<SocketAddr, ClaimEntry>,
    /// Number of claims by port, for the map `port_uses`.
    claims_at: HashMap<u16, u16>,
    /// Keeps other services away from the run directory.
    _lock: File,
}

/// Locks a run directory. The lock ends with the process; programs that the process starts do not
/// inherit it.
fn lock(run_dir: &Path) -> Result<File, DataplaneError> {
    let path = run_dir.join("lock");
    let failed = |errno| DataplaneError::io(format!("lock {}", path.display()), errno);
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let file = options
        .open(&path)
        .map_err(|error| failed(errno_of(&error)))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::ACCESS | Errno::AGAIN) => {
            let why = "another service shares this interface".to_owned();
            Err(DataplaneError::refused(run_dir.display().to_string(), why))
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// Interface index of a device's near end.
fn near_index(device: u16) -> u32 {
    2 * u32::from(device) + 2
}

/// Interface index of a device's far end.
fn far_index(device: u16) -> u32 {
    2 * u32::from(device) + 3
}

/// The value in the maps that names a slot as owner; 0 means none.
fn owner(slot: u16) -> u32 {
    u32::from(slot) + 1
}

impl Dataplane {
    /// Builds the data path, or takes over the one in the run directory that a previous service
    /// left.
    ///
    /// # Errors
    /// One line with cause and place: no such interface, no permission, or another XDP program on
    /// the interface.
    pub fn open(options: DataplaneOptions) -> Result<Self, DataplaneError> {
        let nic = nic::find(&options.interface)?;
        fs::create_dir_all(&options.run_dir).map_err(|error| {
            DataplaneError::io(
                format!("create {}", options.run_dir.display()),
                errno_of(&error),
            )
        })?;
        let lock = lock(&options.run_dir)?;
        let pins = options.run_dir.join("bpf");
        bpf_file_system(&pins)?;
        let (namespace, _) = Namespace::open(&options.run_dir.join("netns"))?;
        let maps = Maps::load(&pins, options.is_local)?;
        let mut plane = Self {
            mode: options.mode,
            hash_key: nic::hash_key(&maps)?,
            mtu: nic.mtu as u32,
            mac: nic.mac,
            namespace,
            frames: None,
            maps,
            nic,
            local: None,
            devices: HashMap::new(),
            cookies: HashMap::new(),
            kept_ledgers: BTreeSet::new(),
            claims: HashMap::new(),
            claims_at: HashMap::new(),
            _lock: lock,
            options,
        };
        match plane.start() {
            Ok(()) => Ok(plane),
            Err(error) if plane.maps.are_recovered => Err(error),
            Err(error) => {
                plane.remove_all();
                Err(error)
            }
        }
    }

    /// The mode in which the program is attached to the NIC: `Native` or `Generic`.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The NIC at the time of the last attachment.
    pub fn nic(&self) -> &Device {
        &self.nic
    }

    /// Virtual ports that were taken over. The service removes those whose applications do not
    /// return, by [`port_remove`](Self::port_remove).
    pub fn recovered(&self) -> Vec<RecoveredPort> {
        let port = |(&(slot, context), &cookie)| RecoveredPort {
            slot,
            context,
            cookie,
        };
        self.cookies.iter().map(port).collect()
    }

    /// Makes the virtual port of a context, on the application's memory file.
    ///
    /// # Errors
    /// `EXIST` if the context has one; `BUSY` if all devices are in use; `INVAL` for an invalid
    /// file or size.
    pub fn port_add(
        &mut self,
        slot: u16,
        context: u16,
        memory: &Memory,
        file: BorrowedFd<'_>,
    ) -> Result<NewPort, DataplaneError> {
        if self.devices.contains_key(&(slot, context)) {
            return Err(DataplaneError::io("virtual port", Errno::EXIST));
        }
        if self.frames.is_some() {
            return Err(DataplaneError::io("virtual port", Errno::OPNOTSUPP));
        }
        let device = self.free_device()?;
        self.devices.insert((slot, context), device);
        let made = self.device_make(device, (slot, context), memory, file);
        if made.is_err() {
            self.port_remove(slot, context);
        }
        made
    }

    /// An unused device.
    fn free_device(&self) -> Result<u16, DataplaneError> {
        let taken: Vec<u16> = self.devices.values().copied().collect();
        (0..SLOTS as u16)
            .find(|device| !taken.contains(device))
            .ok_or_else(|| DataplaneError::io("virtual port", Errno::BUSY))
    }

    /// Removes the virtual port of a context and its leases, if there is one.
    pub fn port_remove(&mut self, slot: u16, context: u16) {
        let Some(device) = self.devices.remove(&(slot, context)) else {
            return;
        };
        self.cookies.remove(&(slot, context));
        let number = u32::from(device).to_ne_bytes();
        // Errors are ignored: the kernel removes a device or a socket from its map when it
        // disappears.
        let _ = self
            .maps
            .set("slots", &number, &SlotValue::default().encode());
        let _ = self.maps.remove("sockets", &number);
        self.bulk_remove(device);
        match &mut self.frames {
            Some(frames) => frames.leave(device),
            None => {
                let _ = self.namespace.run(|| {
                    veth::remove(near_index(device))
                        .map_err(|errno| DataplaneError::io("veth", errno))
                });
            }
        }
        self.unpin(device);
    }

    /// Gives `endpoint` to the application of `slot`, with `contexts` listening. Without listeners
    /// SYNs are dropped, and peers retransmit them. An unspecified address means all addresses of
    /// its family that the NIC has. Flows keep their context when `contexts` changes.
    ///
    /// # Errors
    /// `NOENT` if a context has no virtual port; errors of the maps.
    pub fn claim_set(
        &mut self,
        endpoint: SocketAddr,
        slot: u16,
        contexts: &[u16],
    ) -> Result<(), DataplaneError> {
        let devices: Option<Vec<u16>> = contexts
            .iter()
            .map(|context| self.devices.get(&(slot, *context)).copied())
            .collect();
        let devices = devices.ok_or_else(|| DataplaneError::io("claim", Errno::NOENT))?;
        // A claim without listeners may get several. Once a claim tracks flows it goes on doing so:
        // contexts that come later must not get the segments of older flows.
        let tracked = self.claims.get(&endpoint).is_some_and(|claim| claim.tracks);
        let is_shared = self.devices.keys().filter(|(of, _)| *of == slot).count() > 1;
        let tracks = tracked || is_shared || contexts.is_empty();
        self.set_right(&Right::Claim(endpoint, Some(Owner { slot, tracks })));
        let value = layout::claim(owner(slot), &devices, tracks);
        self.maps
            .set("claims", &layout::endpoint(endpoint), &value)?;
        let entry = ClaimEntry {
            slot,
            contexts: contexts.to_vec(),
            tracks,
        };
        if self.claims.insert(endpoint, entry).is_none() {
            *self.claims_at.entry(endpoint.port()).or_default() += 1;
            self.write_claims_at(endpoint.port())?;
        }
        Ok(())
    }

    /// Returns `endpoint` to the kernel, if it is claimed.
    ///
    /// # Errors
    /// Errors of the maps.
    pub fn claim_remove(&mut self, endpoint: SocketAddr) -> Result<(), DataplaneError> {
        if self.claims.remove(&endpoint).is_none() {
            return Ok(());
        }
        self.set_right(&Right::Claim(endpoint, None));
        if let Some(count) = self.claims_at.get_mut(&endpoint.port()) {
            *count = count.saturating_sub(1);
        }
        self.write_claims_at(endpoint.port())?;
        self.maps.remove("claims", &layout::endpoint(endpoint))
    }

    /// Gives the flow between two ends, this host's first, to a context. No effect if the context
    /// has the flow: it may have ended the flow meanwhile.
    ///
    /// # Errors
    /// `NOENT` if the context has no virtual port; errors of the maps.
    pub fn flow_set(
        &mut self,
        slot: u16,
        context: u16,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(), DataplaneError> {
        let device = self.device_of(slot, context)?;
        let key = layout::flow(local, remote);
        if self.has_flow("flows", &key, device)? {
            return Ok(());
        }
        self.maps.set("flows", &key, &layout::flow_value(device))?;
        self.flow_changed((local, remote));
        Ok(())
    }

    /// Takes the flow between two ends, this host's first, from a context. No effect on another
    /// context's flow.
    ///
    /// # Errors
    /// `NOENT` if the context has no virtual port; errors of the maps.
    pub fn flow_forget(
        &mut self,
        slot: u16,
        context: u16,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(), DataplaneError> {
        let device = self.device_of(slot, context)?;
        let key = layout::flow(local, remote);
        for name in ["flows", "half_open"] {
            if self.has_flow(name, &key, device)? {
                self.maps.remove(name, &key)?;
            }
        }
        self.flow_changed((local, remote));
        Ok(())
    }

    /// The device of a context's virtual port.
    fn device_of(&self, slot: u16, context: u16) -> Result<u16, DataplaneError> {
        let device = self.devices.get(&(slot, context)).copied();
        device.ok_or_else(|| DataplaneError::io("flow", Errno::NOENT))
    }

    /// True if the map `name` gives a flow to the device.
    fn has_flow(
        &self,
        name: &'static str,
        key: &[u8],
        device: u16,
    ) -> Result<bool, DataplaneError> {
        let mut known = [0; 4];
        let found = self.maps.map(name)?.lookup(key, &mut known);
        Ok(found.is_ok() && layout::flow_device(known) == device)
    }

    /// The slot that owns `endpoint`, and the contexts that listen there.
    pub fn claim(&self, endpoint: SocketAddr) -> Option<(u16, &[u16])> {
        let entry = self.claims.get(&endpoint)?;
        Some((entry.slot, &entry.contexts))
    }

    /// Gives these local ports to a context, at every address of the NIC.
    ///
    /// # Errors
    /// `NOENT` if the context has no virtual port; errors of the maps.
    pub fn lease_add(
        &mut self,
        ports: RangeInclusive<u16>,
        slot: u16,
        context: u16,
    ) -> Result<(), DataplaneError> {
        let device = *self
            .devices
            .get(&(slot, context))
            .ok_or_else(|| DataplaneError::io("lease", Errno::NOENT))?;
        self.set_right(&Right::Lease(ports.clone(), Some(device)));
        self.write_leases(ports, Some(device))
    }

    /// Ends the lease of these local ports.
    ///
    /// # Errors
    /// Errors of the maps.
    pub fn lease_remove(&mut self, ports: RangeInclusive<u16>) -> Result<(), DataplaneError> {
        self.set_right(&Right::Lease(ports.clone(), None));
        self.write_leases(ports, None)
    }

    /// Adds an address of the NIC and, with IPv4, the broadcast address of its subnet.
    ///
    /// # Errors
    /// Errors of the maps.
    pub fn address_add(
        &mut self,
        address: IpAddr,
        broadcast: Option<IpAddr>,
    ) -> Result<(), DataplaneError> {
        self.set_right(&Right::Address(address, Some(AddressKind::Local)));
        if let Some(broadcast) = broadcast {
            self.set_right(&Right::Address(broadcast, Some(AddressKind::Broadcast)));
            let value = layout::ADDRESS_BROADCAST.to_ne_bytes();
            self.maps
                .set("addresses", &layout::address(broadcast), &value)?;
        }
        let value = layout::ADDRESS_LOCAL.to_ne_bytes();
        self.maps
            .set("addresses", &layout::address(address), &value)
    }

    /// Removes an address of the NIC, or a broadcast address.
    ///
    /// # Errors
    /// Errors of the maps.
    pub fn address_remove(&mut self, address: IpAddr) -> Result<(), DataplaneError> {
        self.set_right(&Right::Address(address, None));
        self.maps.remove("addresses", &layout::address(address))
    }

    /// Sets whether applications may send to this MAC address.
    ///
    /// # Errors
    /// Errors of the maps.
    pub fn next_hop_set(&mut self, mac: MacAddr, on: bool) -> Result<(), DataplaneError> {
        self.set_right(&Right::NextHop(mac, on));
        let key = layout::next_hop(mac);
        match on {
            true => self.maps.set("next_hops", &key, &1u32.to_ne_bytes()),
            false => self.maps.remove("next_hops", &key),
        }
    }

    /// Changes the NIC's MAC address and MTU in the egress check and in all virtual ports.
    ///
    /// # Errors
    /// Errors of the maps and of rtnetlink.
    pub fn host_set(&mut self, mac: MacAddr, mtu: u32) -> Result<(), DataplaneError> {
        (self.mac, self.mtu) = (mac, mtu);
        self.set_right(&Right::Host(mac, mtu as usize));
        self.write_settings()?;
        self.local_mtu(mtu)?;
        if self.frames.is_some() {
            return Ok(());
        }
        let devices: Vec<u16> = self.devices.values().copied().collect();
        self.namespace.run(move || {
            for device in devices {
                for index in [near_index(device), far_index(device)] {
                    veth::set(index, mtu)
                        .map_err(|errno| DataplaneError::io("MTU of a virtual port", errno))?;
                }
            }
            Ok(())
        })
    }

    /// The keys of a map; none if it cannot be read.
    fn keys_of<T>(&self, name: &'static str, decode: fn(&[u8]) -> Option<T>) -> Vec<T> {
        let map = self.maps.map(name).ok();
        let keys = map.and_then(|map| map.keys().ok()).unwrap_or_default();
        keys.iter().filter_map(|key| decode(key)).collect()
    }

    /// Frames that a context's virtual port carried or dropped.
    pub fn counters(&self, slot: u16, context: u16) -> DeviceCounters {
        let Some(&device) = self.devices.get(&(slot, context)) else {
            return DeviceCounters::default();
        };
        let first = u32::from(device) * layout::COUNTS_EACH;
        let read = |index| self.maps.counter("port_counters", first + index);
        let drops = 0..Reason::ALL.len() as u32;
        let bulk_frames = read(layout::COUNT_BULK_FRAMES);
        let bulk_bytes = read(layout::COUNT_BULK_FRAMES + 1);
        let mut counters = DeviceCounters {
            rx_frames: read(0),
            rx_bytes: read(1),
            tx_frames: read(2) + bulk_frames,
            tx_bytes: read(3) + bulk_bytes,
            bulk_frames,
            bulk_bytes,
            no_socket: read(layout::COUNT_NO_SOCKET),
            no_room: 0,
            too_long: 0,
            other_queue: 0,
            drops: drops
                .map(|reason| read(layout::COUNT_DROPS + reason))
                .collect(),
        };
        self.add_frames_counters(device, &mut counters);
        counters
    }

    /// Frames that the NIC's program dropped.
    pub fn ingress_counters(&self) -> IngressCounters {
        let read = |index| self.maps.counter("ingress_counters", index);
        IngressCounters {
            fragment: read(0),
            ipv6_unparsed: read(1),
            no_port: read(2),
            forged: read(3),
        }
    }

    /// Detaches and removes everything: devices, programs, maps, namespace, directory.
    pub fn close(mut self) {
        self.remove_all();
    }

    fn remove_all(&mut self) {
        let contexts: Vec<ContextId> = self.devices.keys().copied().collect();
        let _ = fs::remove_file(self.pin("link_nic"));
        self.local_close();
        for (slot, context) in contexts {
            self.port_remove(slot, context);
        }
        self.bulk_close();
        remove_bpf_file_system(&self.options.run_dir.join("bpf"));
        self.namespace.remove();
        let _ = fs::remove_file(self.options.run_dir.join("lock"));
        let _ = fs::remove_dir(&self.options.run_dir);
    }

    fn pin(&self, name: &str) -> PathBuf {
        self.options.run_dir.join("bpf").join(name)
    }

    /// Makes the veth pair, attaches its programs, binds the socket, and only then lets frames in.
    fn device_make(
        &self,
        device: u16,
        (slot, context): ContextId,
        memory: &Memory,
        file: BorrowedFd<'_>,
    ) -> Result<NewPort, DataplaneError> {
        let number = u32::from(device).to_ne_bytes();
        self.clear_counters(device)?;
        let mtu = self.mtu;
        self.unpin(device);
        self.bulk_remove(device);
        let (socket, cookie) = self.namespace.run(|| {
            // A killed service may have left a pair that no slot names.
            let _ = veth::remove(near_index(device));
            let (near, far) = (format!("near{device}"), format!("far{device}"));
            veth::add((&near, near_index(device)), (&far, far_index(device)), mtu)
                .map_err(|errno| DataplaneError::io("veth", errno))?;
            self.attach(
                &self.maps.egress,
                near_index(device),
                &format!("link_{near}"),
            )?;
            self.attach(&self.maps.far, far_index(device), &format!("link_{far}"))?;
            let made = socket_unsafe::open(file, memory, far_index(device))?;
            let near = near_index(device).to_ne_bytes();
            self.maps.set("devices", &number, &near)?;
            Ok(made)
        })?;
        let fd = socket.as_raw_fd().to_ne_bytes();
        self.maps.set("sockets", &number, &fd)?;
        let value = SlotValue {
            owner: owner(slot),
            note: u32::from(context) << 16 | u32::from(slot),
            cookie,
            rate: self.options.rate_bytes,
        };
        self.maps.set("slots", &number, &value.encode())?;
        Ok(NewPort { socket, cookie })
    }

    fn clear_counters(&self, device: u16) -> Result<(), DataplaneError> {
        let first = u32::from(device) * layout::COUNTS_EACH;
        for index in first..first + layout::COUNTS_EACH {
            self.maps
                .set("port_counters", &index.to_ne_bytes(), &0u64.to_ne_bytes())?;
        }
        Ok(())
    }

    fn unpin(&self, device: u16) {
        for end in ["near", "far"] {
            let _ = fs::remove_file(self.pin(&format!("link_{end}{device}")));
        }
        let _ = fs::remove_file(self.ledger_pin(device));
    }

    /// Attaches a program to an end of a virtual port. With generic XDP on the NIC, the near end's
    /// program must be generic, too, to redirect the packets of the kernel's stack.
    fn attach(&self, program: &OwnedFd, index: u32, pin: &str) -> Result<(), DataplaneError> {
        let flags = match self.mode {
            XdpMode::Generic if index.is_multiple_of(2) => nic::GENERIC,
            _ => nic::NATIVE,
        };
        let failed = |errno| DataplaneError::io(format!("XDP on {pin}"), errno);
        let link = bpf::link(program.as_fd(), index, flags).map_err(failed)?;
        bpf::pin(&link, &self.pin(pin)).map_err(failed)
    }

    fn write_claims_at(&self, port: u16) -> Result<(), DataplaneError> {
        let count = self.claims_at.get(&port).copied().unwrap_or(0);
        let value = layout::port_use(None, count);
        self.maps
            .set("port_uses", &u32::from(port).to_ne_bytes(), &value)
    }

    fn write_leases(
        &self,
        ports: RangeInclusive<u16>,
        device: Option<u16>,
    ) -> Result<(), DataplaneError> {
        for port in ports {
            let count = self.claims_at.get(&port).copied().unwrap_or(0);
            let value = layout::port_use(device, count);
            self.maps
                .set("port_uses", &u32::from(port).to_ne_bytes(), &value)?;
        }
        Ok(())
    }

    fn write_settings(&self) -> Result<(), DataplaneError> {
        let is_generic = self.mode == XdpMode::Generic;
        let note = (u16::from(is_generic) * channel::NOTE_GENERIC)
            | (u16::from(self.frames.is_some()) * channel::NOTE_MEMIF);
        let local = self.local.as_ref().map_or(0, |pair| pair.index);
        let value = layout::settings(self.mac, note, self.mtu, self.hash_key, local);
        self.maps.set("settings", &0u32.to_ne_bytes(), &value)
    }
}
