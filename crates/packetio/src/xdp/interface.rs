//! One interface driven by AF_XDP: its program and maps, which the ports of its queues share.
//!
//! The process's table of such interfaces lets two contexts that open the same wire share one
//! program. The program is detached when the last port and the last [`XdpInterface`] are gone.
//! `packetio::open` and the runtime use the module.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

use super::attach::{self, Hold, Loaded, Means};
use super::device_unsafe::{Device, Groups};
use super::options::{Take, XdpMode, XdpOptions};
use crate::limits::{XDP_OWNED_MAX, XDP_QUEUES_MAX};
use crate::open_error::OpenError;

/// Identifies an interface: device and inode of its network namespace, and its index there.
type Key = (u64, u64, u32);

/// The interfaces that this process drives.
static INTERFACES: Mutex<Vec<(Key, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The state that all ports of an interface share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Keeps the program attached; `None` only while the value is dropped.
    hold: Option<Hold>,
    pub loaded: Loaded,
    pub device: Device,
    /// Mode of the attached program: `Native` or `Generic`.
    pub mode: XdpMode,
    take: Take,
    owned: Mutex<Owned>,
}

#[derive(Debug, Default)]
struct Owned {
    addresses: Vec<IpAddr>,
    /// Multicast memberships; `None` until an IPv6 address is owned.
    groups: Option<Groups>,
}

/// An interface whose packets, all or those for the owned addresses, go to Millstream's ports.
#[derive(Clone, Debug)]
pub struct XdpInterface {
    shared: Arc<Shared>,
    options: XdpOptions,
    queue_first: usize,
    queues: usize,
}

impl XdpInterface {
    /// Loads and attaches the program, or joins the one that this process has on the interface.
    ///
    /// Packets for `owned` and `options.addresses` are taken from the kernel once their queue has a
    /// port.
    ///
    /// # Errors
    /// One line that names cause and place: no such interface, no permission, another program
    /// attached, a mode that the driver lacks, more queues than exist, or an interface open in this
    /// process in another mode.
    pub fn open(options: &XdpOptions, owned: &[IpAddr]) -> Result<Self, OpenError> {
        let wire = wire_name(&options.interface);
        let device = Device::find(&options.interface)
            .map_err(|(step, errno)| OpenError::io(&wire, step, errno))?;
        let (queue_first, queues) = queue_range(options, &device, &wire)?;
        let shared = join(options, device, &wire)?;
        let interface = Self {
            shared,
            options: options.clone(),
            queue_first,
            queues,
        };
        let addresses = [owned, &options.addresses].concat();
        interface.shared.own(&addresses, Others::Keep)?;
        Ok(interface)
    }

    /// The parts for opening queue `queue` of this wire: the interface, the queue's number on it,
    /// and the options.
    pub(super) fn queue(
        &self,
        queue: usize,
    ) -> Result<(Arc<Shared>, usize, &XdpOptions), OpenError> {
        if queue >= self.queues {
            let why = format!("queue {queue} of {} queues", self.queues);
            return Err(OpenError::refused(wire_name(self.name()), why));
        }
        Ok((
            Arc::clone(&self.shared),
            self.queue_first + queue,
            &self.options,
        ))
    }

    /// Number of queues of this wire.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.shared.device.name
    }

    /// The interface itself.
    pub(super) fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Mode of the attached program: `Native` or `Generic`.
    pub fn mode(&self) -> XdpMode {
        self.shared.mode
    }

    /// The owned addresses.
    pub fn owned(&self) -> Vec<IpAddr> {
        self.shared.owned_lock().addresses.clone()
    }

    /// Sets the owned addresses, whose packets are taken on all queues from now on.
    ///
    /// # Errors
    /// One line that names cause and place. An address that cannot be owned leaves everything
    /// unchanged.
    pub fn set_owned(&self, addresses: &[IpAddr]) -> Result<(), OpenError> {
        self.shared.own(addresses, Others::Disown)
    }

    /// Number of frames for us that arrived on a queue without a port and so went to the kernel.
    pub fn frames_without_port(&self) -> u64 {
        self.shared.loaded.no_socket()
    }
}

/// Number of queues of a wire, whether open or not.
///
/// # Errors
/// There is no such interface, or it has fewer queues.
pub fn queues(options: &XdpOptions) -> Result<usize, OpenError> {
    let wire = wire_name(&options.interface);
    let device = Device::find(&options.interface)
        .map_err(|(step, errno)| OpenError::io(&wire, step, errno))?;
    let (_, queues) = queue_range(options, &device, &wire)?;
    Ok(queues)
}

/// Sets the owned addresses of an interface that this process drives in the calling thread's
/// network namespace.
///
/// # Errors
/// The errors of [`XdpInterface::set_owned`]; also if the interface is not open.
pub fn set_owned(interface: &str, addresses: &[IpAddr]) -> Result<(), OpenError> {
    let wire = wire_name(interface);
    let device =
        Device::find(interface).map_err(|(step, errno)| OpenError::io(&wire, step, errno))?;
    let key = key(&device, &wire)?;
    let shared = find(&table(), key);
    match shared {
        Some(shared) => shared.own(addresses, Others::Disown),
        None => Err(OpenError::refused(&wire, "the interface is not open")),
    }
}

/// Whether addresses owned before stay owned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Keep,
    Disown,
}

impl Drop for Shared {
    /// Detaches under the table's lock, so that an open which finds no entry finds no program
    /// either.
    fn drop(&mut self) {
        let mut table = table();
        drop(self.hold.take());
        table.retain(|(_, shared)| shared.strong_count() > 0);
    }
}

impl Shared {
    fn owned_lock(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self, addresses: &[IpAddr], others: Others) -> Result<(), OpenError> {
        let wire = wire_name(&self.device.name);
        let mut owned = self.owned_lock();
        let mut want: Vec<IpAddr> = match others {
            Others::Keep => owned.addresses.clone(),
            Others::Disown => Vec::new(),
        };
        for address in addresses.iter().map(IpAddr::to_canonical) {
            if address.is_unspecified() || address.is_multicast() {
                let why = format!("{address} is no address of one host");
                return Err(OpenError::refused(&wire, why));
            }
            if !want.contains(&address) {
                want.push(address);
            }
        }
        for v4 in [true, false] {
            let count = want.iter().filter(|a| a.is_ipv4() == v4).count();
            if count > XDP_OWNED_MAX {
                let why = format!("{count} addresses, at most {XDP_OWNED_MAX} of a family");
                return Err(OpenError::refused(&wire, why));
            }
        }
        owned
            .set(self, want)
            .map_err(|(step, errno)| OpenError::io(&wire, step, errno))
    }
}

impl Owned {
    /// Removes old entries before it adds new ones, because the map may be full.
    fn set(&mut self, shared: &Shared, want: Vec<IpAddr>) -> Result<(), (&'static str, Errno)> {
        for address in self.addresses.iter().filter(|a| !want.contains(a)) {
            let result = shared.loaded.disown(*address);
            result.map_err(|errno| ("BPF_MAP_DELETE_ELEM", errno))?;
        }
        self.addresses.retain(|address| want.contains(address));
        for address in want {
            if !self.addresses.contains(&address) {
                let result = shared.loaded.own(address);
                result.map_err(|errno| ("BPF_MAP_UPDATE_ELEM", errno))?;
                self.addresses.push(address);
            }
        }
        self.join_groups(shared.device.index)
            .map_err(|errno| ("PACKET_ADD_MEMBERSHIP", errno))
    }

    fn join_groups(&mut self, ifindex: u32) -> Result<(), Errno> {
        let v6: Vec<Ipv6Addr> = self
            .addresses
            .iter()
            .filter_map(|address| match address {
                IpAddr::V6(v6) => Some(*v6),
                IpAddr::V4(_) => None,
            })
            .collect();
        if v6.is_empty() && self.groups.is_none() {
            return Ok(());
        }
        let mut groups = match self.groups.take() {
            Some(groups) => groups,
            None => Groups::open(ifindex)?,
        };
        let result = groups.set(v6.iter());
        self.groups = Some(groups);
        result
    }
}

/// Joins the interface if this process drives it already, else attaches to it.
fn join(options: &XdpOptions, device: Device, wire: &str) -> Result<Arc<Shared>, OpenError> {
    let key = key(&device, wire)?;
    let mut table = table();
    if let Some(shared) = find(&table, key) {
        drop(table); // for `shared` may be the last one by now, and its drop takes the table
        let same_mode = options.mode == XdpMode::Auto || options.mode == shared.mode;
        if !same_mode || options.take != shared.take {
            let why = "this process has the interface open with another mode or take";
            return Err(OpenError::refused(wire, why));
        }
        return Ok(shared);
    }
    let loaded = Loaded::load(wire)?;
    loaded
        .set_take(options.take)
        .map_err(|errno| OpenError::io(wire, "BPF_MAP_UPDATE_ELEM", errno))?;
    let (hold, mode) = attach::attach(&loaded, wire, device.index, options.mode, Means::Any)?;
    let shared = Arc::new(Shared {
        hold: Some(hold),
        loaded,
        device,
        mode,
        take: options.take,
        owned: Mutex::default(),
    });
    table.push((key, Arc::downgrade(&shared)));
    Ok(shared)
}

fn table() -> MutexGuard<'static, Vec<(Key, Weak<Shared>)>> {
    // A panic under the lock leaves at worst an entry too few, so the table stays usable.
    INTERFACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(table: &[(Key, Weak<Shared>)], key: Key) -> Option<Arc<Shared>> {
    table
        .iter()
        .filter(|(of, _)| *of == key)
        .find_map(|(_, shared)| shared.upgrade())
}

fn key(device: &Device, wire: &str) -> Result<Key, OpenError> {
    let namespace = rustix::fs::stat("/proc/thread-self/ns/net")
        .map_err(|errno| OpenError::io(wire, "/proc/thread-self/ns/net", errno))?;
    Ok((namespace.st_dev, namespace.st_ino, device.index))
}

/// First queue and number of queues that the options ask for.
fn queue_range(
    options: &XdpOptions,
    device: &Device,
    wire: &str,
) -> Result<(usize, usize), OpenError> {
    let first = options.queue.unwrap_or(0);
    let queues = match (options.queues, options.queue) {
        (Some(queues), _) => queues,
        (None, Some(_)) => 1,
        (None, None) => device.queues.unwrap_or(1).min(XDP_QUEUES_MAX),
    };
    let there = device.queues.unwrap_or(XDP_QUEUES_MAX).min(XDP_QUEUES_MAX);
    let fits = first.checked_add(queues).is_some_and(|end| end <= there);
    if queues == 0 || !fits {
        let why = format!("{queues} queues from {first} on, the interface has {there}");
        return Err(OpenError::refused(wire, why));
    }
    Ok((first, queues))
}

/// Name of the wire for messages and metrics.
pub(super) fn wire_name(interface: &str) -> String {
    format!("xdp:{interface}")
}
