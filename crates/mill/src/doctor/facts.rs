//! Facts about a host, as texts that were read: the input of all checks, recorded in tests.

use crate::net::options::Cidr;

/// Facts about the host and, if a wire was named, about the wire.
#[derive(Clone, Debug, Default)]
pub struct Facts {
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
    /// The program that runs.
    pub program: String,
    /// Facts about the wire.
    pub wire: Option<WireFacts>,
}

/// Facts about a wire.
#[derive(Clone, Debug, Default)]
pub struct WireFacts {
    /// `xdp`, `packet`, `tap`, `memif`, `dpdk`, `mux`, `loopback`.
    pub kind: &'static str,
    /// The kernel's interface, if the wire has one.
    pub interface: Option<String>,
    /// Whether the wire asks for XDP in the driver: it does not work otherwise.
    pub native_only: bool,
    /// Whether the wire sends large packets by a packet socket where it can.
    pub wants_bulk: bool,
    /// The reason why the kernel gives no such socket; empty: it does.
    pub bulk_refusal: String,
    /// Contexts that share the wire.
    pub contexts: u16,
    /// Our addresses.
    pub addresses: Vec<Cidr>,
    /// `ip -d -j link show dev IFACE`; empty if there is no such interface.
    pub link: String,
    /// `ip -j addr show`.
    pub kernel_addresses: String,
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
    /// `nft list ruleset`, or `iptables-save`.
    pub firewall: String,
    /// Whether `/dev/net/tun` exists.
    pub has_tun: bool,
}
