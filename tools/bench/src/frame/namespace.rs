//! Namespaces of a run, gone when dropped: two with a veth pair between them, or one with a
//! loopback of its own. They need root.

use super::process::ip;

/// Addresses of the two ends.
pub const SERVER: &str = "10.94.0.2";
pub const CLIENT: &str = "10.94.0.1";
/// The name of the device at either end.
pub const DEVICE: &str = "own";

/// Properties of the pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct VethOptions {
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// The kernel uses the server's end, whose device then has the address.
    pub kernel_server: bool,
    /// The same for the client's end.
    pub kernel_client: bool,
    /// Leave on what veth offers: segmentation, merging, and checksums that are left to a card.
    pub segmentation: bool,
    /// A service shares the server's end. A veth device takes redirected frames only if its peer
    /// merges, so the client's end then does (GRO).
    pub is_shared: bool,
    /// The client's end merges what arrives (GRO), also where nothing else is left on.
    pub client_merges: bool,
}

/// Settings of the kernel's stack in the namespaces. The congestion control is CUBIC, Millstream's
/// default, whatever the machine has set. A crowd may wait to be accepted, as at Millstream's
/// listeners. With so many local ports, none has to be searched for.
const TUNED: [&str; 4] = [
    "net.ipv4.tcp_congestion_control=cubic",
    "net.core.somaxconn=65535",
    "net.ipv4.tcp_max_syn_backlog=65535",
    "net.ipv4.ip_local_port_range=1024 65535",
];

/// Those settings in words, for a report.
pub fn settings() -> String {
    match is_allowed() {
        true => TUNED.join(", "),
        false => "none: they take root, the kernel is measured as it is set".to_owned(),
    }
}

fn is_allowed() -> bool {
    rustix::process::geteuid().is_root()
}

/// The congestion controls that Linux allows in other namespaces than the first. The list need only
/// contain the machine's own choice.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

fn tune(namespace: &str) -> Result<(), String> {
    let allowed = std::fs::read_to_string(ALLOWED).unwrap_or_default();
    if !allowed.split_whitespace().any(|name| name == "cubic") {
        // If this fails, the `sysctl` below fails too and says so.
        let _ = std::fs::write(ALLOWED, format!("{} cubic", allowed.trim()));
    }
    ip(&[&["netns", "exec", namespace, "sysctl", "-qw"][..], &TUNED].concat())
}

/// A namespace with nothing but a loopback.
pub struct Loopback {
    name: String,
}

impl Loopback {
    /// Makes the namespace. Without root there is none, and the kernel is measured as it is set.
    pub fn new() -> Result<Option<Self>, String> {
        if !is_allowed() {
            return Ok(None);
        }
        let loopback = Self {
            name: format!("mst-{}-loopback", std::process::id()),
        };
        let name = loopback.name();
        ip(&["netns", "add", &name])?;
        tune(&name)?;
        ip(&["-n", &name, "link", "set", "dev", "lo", "up"])?;
        Ok(Some(loopback))
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // A namespace that was never made cannot be removed; that is expected.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// The namespaces of a veth pair.
pub struct Veth {
    prefix: String,
}

impl Veth {
    /// Makes the namespaces and the pair.
    pub fn new(options: VethOptions) -> Result<Self, String> {
        let veth = Self {
            prefix: format!("mst-{}", std::process::id()),
        };
        let (server, client) = (veth.server(), veth.client());
        ip(&["netns", "add", &server])?;
        ip(&["netns", "add", &client])?;
        ip(&[
            "-n", &server, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns",
            &client,
        ])?;
        let ends = [
            (&server, SERVER, options.kernel_server),
            (&client, CLIENT, options.kernel_client),
        ];
        for (namespace, address, kernel) in ends {
            end(namespace, address, kernel, &options)?;
        }
        if options.is_shared || options.client_merges {
            let words = ["netns", "exec", &client, "ethtool", "-K", DEVICE];
            ip(&[&words[..], &["gro", "on"]].concat())?;
        }
        Ok(veth)
    }

    pub fn server(&self) -> String {
        format!("{}-server", self.prefix)
    }

    pub fn client(&self) -> String {
        format!("{}-client", self.prefix)
    }
}

fn end(namespace: &str, address: &str, kernel: bool, options: &VethOptions) -> Result<(), String> {
    let in_namespace = |words: &[&str]| {
        let mut all = vec!["netns", "exec", namespace];
        all.extend(words);
        ip(&all)
    };
    tune(namespace)?;
    let mtu = options.mtu.to_string();
    ip(&["-n", namespace, "link", "set", "dev", DEVICE, "mtu", &mtu])?;
    if !options.segmentation {
        let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        in_namespace(&[&["ethtool", "-K", DEVICE], &off[..]].concat())?;
    }
    ip(&["-n", namespace, "link", "set", "dev", "lo", "up"])?;
    ip(&["-n", namespace, "link", "set", "dev", DEVICE, "up"])?;
    if kernel {
        let cidr = format!("{address}/24");
        ip(&["-n", namespace, "address", "add", &cidr, "dev", DEVICE])?;
    }
    Ok(())
}

impl Drop for Veth {
    fn drop(&mut self) {
        for namespace in [self.server(), self.client()] {
            // A namespace that was never made cannot be removed; that is expected.
            let _ = ip(&["netns", "delete", &namespace]);
        }
    }
}
