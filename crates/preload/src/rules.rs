//! The rules that make listeners and connections Millstream's or the kernel's.

use std::net::{IpAddr, SocketAddr};

use millstream::IpCidr;

/// See the module's documentation. Without rules the wire's addresses and routes decide.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Ports that listeners of Millstream may have; empty: all.
    listen: Vec<u16>,
    /// Prefixes to which Millstream connects; empty: those that the wire leads to.
    connect: Vec<IpCidr>,
    /// Ports that stay the kernel's: local ones of listeners, remote ones of connections.
    not_ports: Vec<u16>,
    /// Addresses that stay the kernel's.
    not_prefixes: Vec<IpCidr>,
    /// Loopback addresses are Millstream's, too, between sockets of one process.
    loopback: bool,
}

/// The owner of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel only.
    Kernel,
    /// Millstream only: the listener has an address of the wire.
    Wire,
    /// Both: the listener has all addresses, or a loopback address that is also Millstream's.
    Both,
}

impl Rules {
    /// Adds a list of ports and prefixes.
    ///
    /// # Errors
    /// The first part that is neither a port nor a prefix.
    pub fn add(&mut self, key: &str, list: &str) -> Result<(), String> {
        for part in list.split(',').filter(|part| !part.is_empty()) {
            let port = part.parse::<u16>().ok();
            let prefix = match part.contains('/') {
                true => part.parse::<IpCidr>().ok(),
                false => part.parse::<IpAddr>().ok().and_then(host),
            };
            match (key, port, prefix) {
                ("listen", Some(port), _) => self.listen.push(port),
                ("connect", _, Some(prefix)) => self.connect.push(prefix),
                ("not", Some(port), _) => self.not_ports.push(port),
                ("not", _, Some(prefix)) => self.not_prefixes.push(prefix),
                _ => return Err(format!("`{part}` is not what {key} takes")),
            }
        }
        Ok(())
    }

    /// Makes loopback addresses Millstream's, too.
    pub fn add_loopback(&mut self) {
        self.loopback = true;
    }

    /// True if loopback addresses are Millstream's, too.
    #[must_use]
    pub fn has_loopback(&self) -> bool {
        self.loopback
    }

    /// True if a connection to `remote` may end at a listener of this process. `wire`: the wire's
    /// addresses.
    #[must_use]
    pub fn may_stay_inside(&self, remote: SocketAddr, wire: &[IpAddr]) -> bool {
        let ip = remote.ip().to_canonical();
        let is_kept = self.not_ports.contains(&remote.port()) || self.is_kept(ip);
        let is_loopback = ip.is_loopback() || ip.is_unspecified();
        !is_kept && ((self.loopback && is_loopback) || wire.contains(&ip))
    }

    /// The owner of a listener that is bound to `local`. `wire`: the wire's addresses.
    #[must_use]
    pub fn listener(&self, local: SocketAddr, wire: &[IpAddr]) -> Owner {
        let ip = local.ip().to_canonical();
        let port = local.port();
        // Port 0 is chosen later, so no rule matches it.
        let is_chosen = self.listen.is_empty() || port == 0 || self.listen.contains(&port);
        if !is_chosen || self.not_ports.contains(&port) || self.is_kept(ip) {
            return Owner::Kernel;
        }
        match ip.is_unspecified() {
            true => Owner::Both,
            // Connections from other processes arrive through the kernel.
            false if ip.is_loopback() && self.loopback => Owner::Both,
            false if wire.contains(&ip) => Owner::Wire,
            false => Owner::Kernel,
        }
    }

    /// True if a connection to `remote` is Millstream's. `reach`: the prefixes that the wire leads
    /// to; `wire`: the wire's own addresses.
    #[must_use]
    pub fn connects(&self, remote: SocketAddr, reach: &[IpCidr], wire: &[IpAddr]) -> bool {
        let ip = remote.ip().to_canonical();
        if ip.is_loopback() || ip.is_unspecified() || wire.contains(&ip) {
            return false;
        }
        if self.not_ports.contains(&remote.port()) || self.is_kept(ip) {
            return false;
        }
        let prefixes = match self.connect.is_empty() {
            true => reach,
            false => &self.connect,
        };
        prefixes.iter().any(|prefix| prefix.contains(ip))
    }

    fn is_kept(&self, ip: IpAddr) -> bool {
        self.not_prefixes.iter().any(|prefix| prefix.contains(ip))
    }
}

fn host(ip: IpAddr) -> Option<IpCidr> {
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    IpCidr::new(ip, bits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn reach() -> Vec<IpCidr> {
        vec!["10.0.0.2/24".parse().expect("a prefix")]
    }

    fn wire() -> Vec<IpAddr> {
        vec!["10.0.0.2".parse().expect("an address")]
    }

    #[test]
    fn no_rules_go_by_the_wires_addresses() {
        let rules = Rules::default();
        assert_eq!(rules.listener(at("0.0.0.0:80"), &wire()), Owner::Both);
        assert_eq!(rules.listener(at("[::]:80"), &wire()), Owner::Both);
        assert_eq!(rules.listener(at("10.0.0.2:80"), &wire()), Owner::Wire);
        assert_eq!(rules.listener(at("127.0.0.1:80"), &wire()), Owner::Kernel);
        assert!(rules.connects(at("10.0.0.7:80"), &reach(), &wire()));
        assert!(rules.connects(at("[::ffff:10.0.0.7]:80"), &reach(), &wire()));
        assert!(!rules.connects(at("10.0.0.2:80"), &reach(), &wire()));
        assert!(!rules.connects(at("10.0.1.7:80"), &reach(), &wire()));
        assert!(!rules.connects(at("127.0.0.1:80"), &reach(), &wire()));
    }

    #[test]
    fn loopback_is_shared_with_the_kernel_where_it_is_asked_for() {
        let mut rules = Rules::default();
        assert!(!rules.may_stay_inside(at("127.0.0.1:80"), &wire()));
        assert!(rules.may_stay_inside(at("10.0.0.2:80"), &wire()));
        rules.add_loopback();
        rules.add("not", "22").expect("a port");
        assert_eq!(rules.listener(at("127.0.0.1:80"), &wire()), Owner::Both);
        assert_eq!(rules.listener(at("[::1]:80"), &wire()), Owner::Both);
        assert_eq!(rules.listener(at("127.0.0.1:22"), &wire()), Owner::Kernel);
        assert!(rules.may_stay_inside(at("127.0.0.1:80"), &wire()));
        assert!(rules.may_stay_inside(at("[::ffff:127.0.0.1]:80"), &wire()));
        assert!(rules.may_stay_inside(at("0.0.0.0:80"), &wire()));
        assert!(!rules.may_stay_inside(at("127.0.0.1:22"), &wire()));
        assert!(!rules.may_stay_inside(at("10.0.0.7:80"), &wire()));
    }

    #[test]
    fn rules_narrow_and_widen_the_share() {
        let mut rules = Rules::default();
        rules.add("listen", "80,443").expect("ports");
        rules
            .add("connect", "192.168.0.0/16,10.0.0.9")
            .expect("prefixes");
        rules.add("not", "443,192.168.7.0/24").expect("both");
        assert_eq!(rules.listener(at("0.0.0.0:80"), &wire()), Owner::Both);
        assert_eq!(rules.listener(at("0.0.0.0:443"), &wire()), Owner::Kernel);
        assert_eq!(rules.listener(at("0.0.0.0:22"), &wire()), Owner::Kernel);
        assert!(rules.connects(at("192.168.1.1:80"), &reach(), &wire()));
        assert!(rules.connects(at("10.0.0.9:80"), &reach(), &wire()));
        assert!(!rules.connects(at("10.0.0.7:80"), &reach(), &wire()));
        assert!(!rules.connects(at("192.168.1.1:443"), &reach(), &wire()));
        assert!(!rules.connects(at("192.168.7.1:80"), &reach(), &wire()));
        assert!(rules.add("listen", "ten").is_err());
    }
}
