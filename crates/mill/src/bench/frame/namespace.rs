//! Two namespaces with a veth pair between them, gone when dropped. Needs root.

use super::process::ip;

/// Addresses of the two ends, whoever uses them.
pub const SERVER: &str = "10.94.0.2";
pub const CLIENT: &str = "10.94.0.1";
/// The name of the device at either end.
pub const DEVICE: &str = "own";

/// What the pair is to be.
#[derive(Clone, Copy, Debug)]
pub struct VethOptions {
    /// Bytes of IP.
    pub mtu: usize,
    /// Whose end the kernel uses: it then has the address.
    pub kernel_server: bool,
    pub kernel_client: bool,
    /// Leave on what veth offers: segmentation and merging. Checksums are computed in any case.
    pub segmentation: bool,
}

/// The namespaces.
pub struct Veth {
    prefix: String,
}

impl Veth {
    /// Makes them.
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
    let mtu = options.mtu.to_string();
    ip(&["-n", namespace, "link", "set", "dev", DEVICE, "mtu", &mtu])?;
    let mut off = vec!["ethtool", "-K", DEVICE, "tx", "off"];
    if !options.segmentation {
        off.extend(["tso", "off", "gso", "off", "gro", "off"]);
    }
    in_namespace(&off)?;
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
            // What was never made cannot be removed, and that is no news.
            let _ = ip(&["netns", "delete", &namespace]);
        }
    }
}
