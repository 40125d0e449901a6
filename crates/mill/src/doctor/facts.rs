//! Facts about a host, as raw text: the input of all checks. Tests use recorded ones.

use rustix::io::Errno;

use crate::net::options::Cidr;

/// Facts about the host and the wire, if one was named.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `/sys` is mounted. Without it, checks that read it cannot look.
    pub has_sys: bool,
    /// `/proc/sys/kernel/osrelease`.
    pub kernel: String,
    /// `/proc/self/status`.
    pub status: String,
    /// `/proc/self/limits`.
    pub limits: String,
    /// `/proc/meminfo`.
    pub meminfo: String,
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled`.
    pub huge_shmem: String,
    /// `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub huge_own: String,
    /// `/sys/devices/system/node/online`.
    pub nodes: String,
    /// The frequency governor of each CPU that has one.
    pub governors: Vec<String>,
    /// `current_clocksource` of sysfs.
    pub clock: String,
    /// `available_clocksource` of sysfs.
    pub clocks: String,
    /// The running program.
    pub program: String,
    /// Facts about the wire.
    pub wire: Option<WireFacts>,
}

/// The file at the path of a `memif` wire's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemifPlace {
    /// A socket, or a name that is no file.
    Socket,
    /// Nothing yet, in a directory where this user may make the socket.
    Nothing,
    /// The directory is missing.
    NoDirectory,
    /// A file that is no socket.
    OtherFile,
    /// This user may not make or use the socket.
    Denied,
}

/// Facts about a wire.
#[derive(Clone, Debug, Default)]
pub struct WireFacts {
    /// `xdp`, `packet`, `tap`, `memif`, `dpdk`, `mux`, `loopback`.
    pub kind: &'static str,
    /// The kernel's interface, if the wire has one.
    pub interface: Option<String>,
    /// The kernel has an interface of this name in this namespace.
    pub has_interface: bool,
    /// The wire takes the kernel's own addresses (`mirror`).
    pub is_mirror: bool,
    /// The wire takes packets that the kernel has merged (`packet` with `offload=auto`).
    pub takes_merged: bool,
    /// The wire asks for generic XDP.
    pub generic_only: bool,
    /// First queue and number of queues, if the wire names either.
    pub queues: Option<(u64, u64)>,
    /// DPDK takes its memory from reserved huge pages: the wire does not say `--no-huge`.
    pub needs_huge_pages: bool,
    /// The wire requires XDP in the driver.
    pub native_only: bool,
    /// The wire sends large packets by a packet socket, if possible.
    pub wants_bulk: bool,
    /// The error of the kernel for that socket; empty: none.
    pub bulk_refusal: String,
    /// Contexts that share the wire.
    pub contexts: u16,
    /// Our addresses.
    pub addresses: Vec<Cidr>,
    /// `ip -d -j link show dev IFACE`; empty if there is no such interface.
    pub link: String,
    /// `ip -j addr show`; `None`: `ip` did not answer.
    pub kernel_addresses: Option<String>,
    /// The process whose BPF link holds the interface's XDP program: its number and name.
    pub holder: Option<(u32, String)>,
    /// The driver that `/sys/class/net/IFACE/device/driver` names.
    pub sys_driver: String,
    /// Whether ethtool is installed.
    pub has_ethtool: bool,
    /// `ethtool -i IFACE`.
    pub driver: String,
    /// `ethtool -k IFACE`.
    pub features: String,
    /// `ethtool -g IFACE`.
    pub rings: String,
    /// `ethtool -l IFACE`.
    pub channels: String,
    /// `ethtool -x IFACE`.
    pub spread: String,
    /// `nft list ruleset`, or `iptables-save`; `None`: neither answered.
    pub firewall: Option<String>,
    /// The socket of the service of a `mux` wire, and the error of a connection to it.
    pub service: Option<(String, Option<Errno>)>,
    /// The path of a `memif` wire's socket, and what is there.
    pub memif: Option<(String, MemifPlace)>,
    /// The error of loading the DPDK plug-in; empty: none, or another kind of wire.
    pub plugin_refusal: String,
    /// `/dev/net/tun` exists.
    pub has_tun: bool,
}
