//! Properties of an interface: index, MAC address, MTU, driver, queues. They are read by ioctl in
//! the calling thread's network namespace.
//!
//! The module also holds multicast memberships of an interface, because a NIC drops neighbour
//! solicitations for groups that were not joined. `interface.rs` calls it at open; nothing here is
//! on the data path.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::port::MacAddr;

/// Offload: the device computes checksums of sent packets (`ETHTOOL_STXCSUM`).
pub const TX_CHECKSUM: u32 = 0x17;
/// Offload: the device cuts long TCP segments (`ETHTOOL_STSO`).
pub const TSO: u32 = 0x1f;
/// Offload: long packets are cut as late as possible (`ETHTOOL_SGSO`).
pub const GSO: u32 = 0x24;
/// Offload: received packets are merged (`ETHTOOL_SGRO`).
pub const GRO: u32 = 0x2c;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// The string set with the names of counters.
const ETH_SS_STATS: u32 = 1;
/// Bytes of a counter's name.
const NAME_BYTES: usize = 32;
/// Most counters of a veth: sixteen for each of 4,096 queues in both directions.
const VETH_COUNTERS_MAX: usize = 1 << 17;

/// The properties of an interface at the time of the query.
#[derive(Clone, Debug)]
pub struct Device {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface in its namespace.
    pub index: u32,
    /// MAC address of the interface.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// It is set up.
    pub is_up: bool,
    /// Name of the driver, such as `veth` or `ixgbe`; empty if unknown.
    pub driver: String,
    /// Number of receive queues in use; `None` if the driver does not tell.
    pub queues: Option<usize>,
}

/// The step that failed, and its error.
pub type Failed = (&'static str, Errno);

impl Device {
    /// Queries the interface `name`.
    ///
    /// # Errors
    /// The ioctl that failed; `NODEV` if there is no such interface.
    pub fn find(name: &str) -> Result<Self, Failed> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
            return Err(("interface name", Errno::INVAL));
        }
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| ("socket", errno))?;
        let ask = |request, step| {
            Request::new(name)
                .call(&socket, request)
                .map_err(|e| (step, e))
        };
        Ok(Self {
            name: name.to_owned(),
            index: ask(libc::SIOCGIFINDEX, "SIOCGIFINDEX")?.word(),
            mac: ask(libc::SIOCGIFHWADDR, "SIOCGIFHWADDR")?.mac(),
            mtu: ask(libc::SIOCGIFMTU, "SIOCGIFMTU")?.word() as usize,
            is_up: ask(libc::SIOCGIFFLAGS, "SIOCGIFFLAGS")?.is_up(),
            driver: driver(&socket, name),
            queues: queues(&socket, name),
        })
    }
}

/// Turns one of the offloads above on or off for the interface `name`.
///
/// # Errors
/// `OPNOTSUPP` if the driver cannot; `INVAL` for another number; else the error of the ioctl.
pub fn set_offload(name: &str, offload: u32, on: bool) -> Result<(), Errno> {
    if !matches!(offload, TX_CHECKSUM | TSO | GSO | GRO) {
        return Err(Errno::INVAL);
    }
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut value = [offload, u32::from(on)];
    // SAFETY: these commands read a `struct ethtool_value` of two words, and write no more.
    unsafe { ethtool(&socket, name, &mut value) }
}

/// Number of frames that XDP programs have redirected to the veth `name` and that its peer took. A
/// peer without an XDP program and without GRO takes none, and no other counter shows that.
///
/// # Errors
/// `OPNOTSUPP` if the interface is not a veth; else the error of the ioctl.
pub fn veth_redirects(name: &str) -> Result<u64, Errno> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    if driver(&socket, name) != "veth" {
        return Err(Errno::OPNOTSUPP);
    }
    // cmd, reserved, mask of sets (two words), room for the size of one set
    let mut sizes = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0, 0];
    // SAFETY: ETHTOOL_GSSET_INFO with one set in its mask writes four words and one size.
    unsafe { ethtool(&socket, name, &mut sizes) }?;
    let count = (sizes[4] as usize).min(VETH_COUNTERS_MAX);
    let mut names = vec![0u32; 3 + VETH_COUNTERS_MAX * NAME_BYTES / 4];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32]);
    // SAFETY: the driver writes a header of three words and as many names as it has counters. It is
    // veth's, which has at most `VETH_COUNTERS_MAX`.
    unsafe { ethtool_slice(&socket, name, &mut names) }?;
    let mut counters = vec![0u64; 1 + VETH_COUNTERS_MAX];
    // cmd and the number of counters share a word.
    let head = [ETHTOOL_GSTATS.to_ne_bytes(), (count as u32).to_ne_bytes()].concat();
    counters[0] = u64::from_ne_bytes(head.try_into().unwrap_or_default());
    // SAFETY: as above, with a header of one word and a word for each counter.
    unsafe { ethtool_slice(&socket, name, &mut counters) }?;
    let title = |at: usize| -> String {
        let words = names
            .iter()
            .skip(3 + at * NAME_BYTES / 4)
            .take(NAME_BYTES / 4);
        let bytes = words.flat_map(|word| word.to_ne_bytes());
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let is_redirects = |title: &str| title.starts_with("tx_queue_") && title.ends_with("_xdp_xmit");
    let of_queues = (0..count).filter(|at| is_redirects(&title(*at)));
    Ok(of_queues.filter_map(|at| counters.get(1 + at)).sum())
}

/// `struct ifreq`: a name and a union.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    /// The 24 bytes of the union, aligned for a pointer.
    value: [u64; 3],
}

impl Request {
    /// Makes a request for `name`, which must be shorter than `IFNAMSIZ`.
    fn new(name: &str) -> Self {
        let mut request = Self {
            name: [0; libc::IFNAMSIZ],
            value: [0; 3],
        };
        for (to, from) in request.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        request
    }

    /// Performs a request whose answer is a value in the union.
    fn call(mut self, socket: &OwnedFd, request: libc::c_ulong) -> Result<Self, Errno> {
        // SAFETY: the argument is a whole `struct ifreq`, which SIOCGIF* requests fill in place and
        // which outlives the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut self) };
        if result < 0 {
            return Err(last_errno());
        }
        Ok(self)
    }

    fn bytes(&self) -> [u8; 8] {
        self.value[0].to_ne_bytes()
    }

    fn word(&self) -> u32 {
        let b = self.bytes();
        u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
    }

    /// `IFF_UP` of the flags, which are a half word.
    fn is_up(&self) -> bool {
        let b = self.bytes();
        u16::from_ne_bytes([b[0], b[1]]) & libc::IFF_UP as u16 != 0
    }

    /// The hardware address in a `struct sockaddr`, which follows the address family.
    fn mac(&self) -> MacAddr {
        let b = self.bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

/// Performs an ethtool command; `data` starts with the command word.
///
/// # Safety
/// `T` must be plain integers and at least as large as the structure of the command. The command
/// must write no more than that.
unsafe fn ethtool<T>(socket: &OwnedFd, name: &str, data: &mut T) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { ethtool_slice(socket, name, std::slice::from_mut(data)) }
}

/// Performs an ethtool command like [`ethtool`], with a structure that ends in an array.
///
/// # Safety
/// `data` must be at least as long as what its command writes.
pub(super) unsafe fn ethtool_slice<T>(
    socket: &OwnedFd,
    name: &str,
    data: &mut [T],
) -> Result<(), Errno> {
    let mut request = Request::new(name);
    request.value[0] = data.as_mut_ptr() as u64;
    // SAFETY: the union holds the address of the command's structure (the caller's promise), and
    // both outlive the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    match result {
        0.. => Ok(()),
        _ => Err(last_errno()),
    }
}

/// `struct ethtool_drvinfo`, 196 bytes, as words so that it is aligned.
const DRVINFO_WORDS: usize = 49;

fn driver(socket: &OwnedFd, name: &str) -> String {
    let mut info = [0u32; DRVINFO_WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    // SAFETY: ETHTOOL_GDRVINFO fills a structure of 196 bytes, which this is.
    if unsafe { ethtool(socket, name, &mut info) }.is_err() {
        return String::new();
    }
    // `driver` is the 32 bytes behind the command.
    let bytes = info[1..9].iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn queues(socket: &OwnedFd, name: &str) -> Option<usize> {
    // cmd, max_{rx,tx,other,combined}, {rx,tx,other,combined}_count
    let mut channels = [0u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    // SAFETY: ETHTOOL_GCHANNELS fills a structure of nine words, which this is.
    unsafe { ethtool(socket, name, &mut channels) }.ok()?;
    let queues = channels[5] as usize + channels[8] as usize;
    (queues > 0).then_some(queues)
}

/// Memberships in the solicited-node groups of the owned IPv6 addresses. They last while the value
/// and the process live.
///
/// The socket receives nothing (protocol 0); it only keeps the interface's filter open.
#[derive(Debug)]
pub(super) struct Groups {
    socket: OwnedFd,
    ifindex: u32,
    joined: Vec<[u8; 6]>,
}

impl Groups {
    /// # Errors
    /// The errno of `socket`: `PERM` without `CAP_NET_RAW`.
    pub(super) fn open(ifindex: u32) -> Result<Self, Errno> {
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self {
            socket,
            ifindex,
            joined: Vec::new(),
        })
    }

    /// Joins the groups of exactly these addresses, and leaves others.
    ///
    /// # Errors
    /// The errno of `PACKET_ADD_MEMBERSHIP`. Groups joined before the failure stay joined.
    pub(super) fn set<'a>(
        &mut self,
        addresses: impl Iterator<Item = &'a Ipv6Addr>,
    ) -> Result<(), Errno> {
        let mut want: Vec<[u8; 6]> = addresses.map(solicited_node_mac).collect();
        want.sort_unstable();
        want.dedup();
        for mac in &want {
            if !self.joined.contains(mac) {
                self.change(libc::PACKET_ADD_MEMBERSHIP, mac)?;
                self.joined.push(*mac);
            }
        }
        let (keep, leave): (Vec<_>, Vec<_>) =
            self.joined.drain(..).partition(|mac| want.contains(mac));
        self.joined = keep;
        for mac in leave {
            self.change(libc::PACKET_DROP_MEMBERSHIP, &mac)?;
        }
        Ok(())
    }

    fn change(&self, option: libc::c_int, mac: &[u8; 6]) -> Result<(), Errno> {
        let mut request = libc::packet_mreq {
            mr_ifindex: self.ifindex.cast_signed(),
            mr_type: libc::PACKET_MR_MULTICAST as _,
            mr_alen: 6,
            mr_address: [0; 8],
        };
        request.mr_address[..6].copy_from_slice(mac);
        set_option(&self.socket, libc::SOL_PACKET, option, &request)
    }
}

/// The multicast MAC address of a solicited-node group (RFC 4291 section 2.7.1, RFC 2464 section
/// 7): `33:33:ff` and the last three bytes.
fn solicited_node_mac(address: &Ipv6Addr) -> [u8; 6] {
    let o = address.octets();
    [0x33, 0x33, 0xff, o[13], o[14], o[15]]
}

/// Sets the number of frames that one system call sends in copy mode (`XDP_MAX_TX_SKB_BUDGET`,
/// kernel 6.17).
///
/// # Errors
/// `NOPROTOOPT` on an older kernel.
pub(super) fn set_tx_budget(socket: impl AsFd, frames: u32) -> Result<(), Errno> {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &frames)
}

/// Sets a socket option. `T` must be the option's type: plain data without padding.
fn set_option<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
