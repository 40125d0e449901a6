//! The options for wires and addresses, shared by every command that opens a wire.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use millstream::{CongestionAlgorithm, HugePages};
use packetio::WireSpec;

/// Wires, and our addresses on them.
#[derive(Args, Clone, Debug)]
pub struct NetOptions {
    /// The wire: xdp:IFACE, memif:PATH, dpdk:PORT, tap:NAME, packet:IFACE, mux: (a virtual port of
    /// `mill mux`), each with ,key=value; or `kernel`, the kernel's own sockets. Given several
    /// times, every context uses all of the wires
    #[arg(long = "wire", value_name = "SPEC", required = true)]
    pub wires: Vec<Wire>,
    /// Our address on the wire with the length of its subnet's prefix; may be given several times.
    /// `@2` behind it means the second wire
    #[arg(long = "addr", value_name = "IP/PREFIX[@N]")]
    pub addresses: Vec<OnWire<Cidr>>,
    /// Where packets go that are not for our subnet. Of several on a wire, the first that answers
    #[arg(long = "gateway", value_name = "IP[@N]")]
    pub gateways: Vec<OnWire<IpAddr>>,
    /// Contexts: each is a thread with a stack of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub contexts: u16,
    /// Thread that runs the stack: the one that uses it, or one of its own
    #[arg(long, value_enum, default_value_t = Crank::Inline)]
    pub crank: Crank,
    /// Connections that the tables of a context are made for; without it Millstream's defaults
    #[arg(long, value_name = "N")]
    pub sockets_max: Option<usize>,
    /// The CPU of each context, such as 2,3: its threads run there, and its memory is near
    #[arg(long, value_name = "CPUS")]
    pub cores: Option<CpuList>,
    /// Pages under connections, flow table and buffers: auto, require (reserved huge pages or no
    /// start), transparent (huge pages, none of them reserved) or off
    #[arg(long, value_name = "RULE", default_value_t)]
    pub hugetlb: HugePages,
    /// Microseconds to look for work before going to sleep, at most: lower latency for CPU time;
    /// without it Millstream's default
    #[arg(long, value_name = "US")]
    pub spin_us: Option<u64>,
    /// Congestion control of Millstream's connections: cubic, reno, dctcp or bbr
    #[arg(long, value_name = "NAME", value_parser = congestion)]
    pub congestion: Option<CongestionAlgorithm>,
    /// Segments of one flow that Millstream takes together; 1: each alone; its default without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub aggregation_max: Option<u16>,
    /// Treatment of ACKs that fall due together
    #[arg(long, value_enum, default_value_t)]
    pub acks: Acks,
    /// Packet rules of Millstream's stacks, a TOML file (see the operating guide): who may begin
    /// something
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Write the story of one in N new connections, for `mill ss -v`; 0: only when somebody asks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub story_one_in: u32,
}

/// CPUs, in the order of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        millstream::cpu_list(text).map(Self)
    }
}

/// Treatment of ACKs that fall due together at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Acks {
    /// They are expanded from one template.
    #[default]
    On,
    /// Each is made alone.
    Off,
    /// The last stands for all.
    Merge,
}

impl Acks {
    /// The name as an option's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Merge => "merge",
        }
    }

    /// Applies the choice to a configuration.
    pub fn apply(self, config: &mut millstream::Config) {
        config.merge_acks = self == Self::Merge;
        config.offload_acks = self != Self::Off;
    }
}

fn congestion(name: &str) -> Result<CongestionAlgorithm, String> {
    CongestionAlgorithm::from_name(name).ok_or_else(|| {
        let names = CongestionAlgorithm::ALL.map(CongestionAlgorithm::name);
        format!("`{name}` is none of {}", names.join(", "))
    })
}

/// The thread that turns the crank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Crank {
    /// The thread that uses the stack.
    Inline,
    /// A thread of the stack's own.
    Dedicated,
}

/// A wire of Millstream, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Sockets of Millstream over this wire.
    Millstream(Box<WireSpec>),
    /// The kernel's own sockets.
    Kernel,
}

impl FromStr for Wire {
    type Err = packetio::SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "kernel" {
            return Ok(Self::Kernel);
        }
        Ok(Self::Millstream(Box::new(text.parse()?)))
    }
}

/// A value and the wire that it belongs to: `VALUE@N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnWire<T> {
    /// The value.
    pub value: T,
    /// The wire's number in the order of the options, from 1.
    pub wire: usize,
}

impl<T: FromStr<Err: fmt::Display>> FromStr for OnWire<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (value, number) = text.split_once('@').unwrap_or((text, "1"));
        let wire = number.parse().ok().filter(|&wire| wire > 0);
        Ok(Self {
            value: value.parse().map_err(|error: T::Err| error.to_string())?,
            wire: wire.ok_or_else(|| format!("`{number}` is no number of a wire, from 1"))?,
        })
    }
}

/// An address and the length of its subnet's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Number of leading bits that the subnet has in common.
    pub prefix_bits: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is no IPv4 or IPv6 address"))?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            "" if !text.contains('/') => {
                return Err(format!("no prefix length: write {text}/24 or such"));
            }
            prefix => prefix.parse().ok().filter(|&bits| bits <= bits_max),
        };
        let prefix_bits = prefix_bits
            .ok_or_else(|| format!("prefix length `{prefix}` is no number from 0 to {bits_max}"))?;
        Ok(Self {
            address,
            prefix_bits,
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

impl NetOptions {
    /// The first wire.
    pub fn wire(&self) -> &Wire {
        // The parser requires at least one wire.
        self.wires.first().unwrap_or(&Wire::Kernel)
    }

    /// Addresses at which a server listens: all of ours, or any address of the kernel.
    pub fn listen_addresses(&self, port: u16) -> Vec<SocketAddr> {
        let any = SocketAddr::from(([0, 0, 0, 0], port));
        match self.wire() {
            Wire::Millstream(_) if self.addresses.is_empty() => {
                return vec![any, SocketAddr::from(([0; 16], port))];
            }
            Wire::Kernel if self.addresses.is_empty() => return vec![any],
            _ => {}
        }
        let addresses = self.addresses.iter().map(|cidr| cidr.value.address);
        addresses
            .map(|address| SocketAddr::new(address, port))
            .collect()
    }

    /// The first address at which a server listens.
    pub fn listen_address(&self, port: u16) -> SocketAddr {
        self.listen_addresses(port)[0]
    }

    /// Checks that the options fit together. The error is one line.
    pub fn check(&self) -> Result<(), String> {
        if self.wires.len() > 1 && self.wires.contains(&Wire::Kernel) {
            return Err("--wire kernel: stands alone".to_owned());
        }
        let addresses = self.addresses.iter().map(|address| address.wire);
        let gateways = self.gateways.iter().map(|gateway| gateway.wire);
        if let Some(wire) = addresses
            .chain(gateways)
            .find(|&wire| wire > self.wires.len())
        {
            return Err(format!(
                "@{wire}: --wire is given {} times",
                self.wires.len()
            ));
        }
        match self.wire() {
            Wire::Kernel if self.congestion.is_some() => Err(
                "--congestion: the kernel's is a sysctl, net.ipv4.tcp_congestion_control"
                    .to_owned(),
            ),
            Wire::Kernel if self.cores.is_some() => {
                Err("--cores: the kernel's sockets have no contexts: taskset binds".to_owned())
            }
            Wire::Kernel if self.hugetlb != HugePages::default() => {
                Err("--hugetlb: the kernel's sockets are in memory of its own".to_owned())
            }
            Wire::Kernel if self.rules.is_some() => {
                Err("--rules: the kernel's are those of nftables".to_owned())
            }
            Wire::Kernel => Ok(()),
            Wire::Millstream(wire) if wire.has_host() => Ok(()),
            Wire::Millstream(_) if self.addresses.is_empty() => {
                Err("--addr is missing: which address is ours on this wire?".to_owned())
            }
            Wire::Millstream(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidr_reads_and_prints() {
        for text in ["10.0.0.2/24", "fd00::2/64", "10.0.0.2/32", "::/0"] {
            assert_eq!(
                text.parse::<Cidr>().map(|cidr| cidr.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn value_on_a_wire_reads_with_its_number_or_means_the_first() {
        let on = |text: &str| {
            let read = text.parse::<OnWire<Cidr>>();
            read.map(|one| (one.value.to_string(), one.wire))
        };
        assert_eq!(on("10.0.0.2/24"), Ok(("10.0.0.2/24".to_owned(), 1)));
        assert_eq!(on("fd00::2/64@3"), Ok(("fd00::2/64".to_owned(), 3)));
        for wrong in ["10.0.0.2/24@0", "10.0.0.2/24@", "10.0.0.2/24@b"] {
            assert!(on(wrong).unwrap_err().contains("no number of a wire"));
        }
    }

    #[test]
    fn congestion_is_known_by_name() {
        assert_eq!(congestion("bbr"), Ok(CongestionAlgorithm::Bbr));
        let error = congestion("tahoe").unwrap_err();
        assert_eq!(error, "`tahoe` is none of cubic, reno, dctcp, bbr");
    }

    #[test]
    fn wrong_cidr_says_what() {
        for (text, part) in [
            ("10.0.0.2", "no prefix length"),
            ("10.0.0.2/", "prefix length ``"),
            (
                "10.0.0.2/33",
                "prefix length `33` is no number from 0 to 32",
            ),
            ("10.0.0/8", "`10.0.0` is no IPv4 or IPv6 address"),
            ("", "no IPv4"),
            ("fd00::1/129", "0 to 128"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
