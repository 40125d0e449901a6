//! Converts settings to Millstream's configuration.

use std::net::IpAddr;

use millstream::{BufferSizes, Config, Crank, IpCidr, Limits, WireSpec};

use super::Conf;
use super::{Io, Problem, RCVBUF_DEFAULT, SNDBUF_DEFAULT, Settings};
use crate::interfaces_unsafe;
use crate::limits::{CHUNKS, LOCAL_PORTS};

/// The address of a loopback's first context, unless one is set. The next contexts have the
/// following addresses.
const LOOPBACK_ADDRESS: &str = "10.77.0.1/24";
/// TIME_WAIT time that stands for zero seconds, in ns.
const TIME_WAIT_NS_MIN: u64 = 1_000_000;
/// Size of a large chunk in bytes.
const CHUNK_BYTES: usize = 4_096;
const SECOND_NS: u64 = 1_000_000_000;

const IO_MISSING: &str = "port: io says of what kind it is, and is missing";

impl Settings {
    /// Adds what the kernel knows, and checks that the settings describe a wire.
    pub fn complete(mut self) -> Result<Self, Problem> {
        if self.wire.is_none() && self.io.is_none() && self.ports.is_empty() {
            // There is no file, or it names no wire.
            self.io = Some((Io::Loopback, 0));
        }
        self.note_dpdk();
        let (spec, line) = self.spec()?;
        let wire = self.parse(&spec, line)?;
        if wire.has_host() {
            self.leave_to_host(line);
            return Ok(self);
        }
        let given = self.addresses.clone();
        if given.is_empty() {
            self.addresses = self.addresses_of(&wire, line)?;
        }
        let gateway = match self.gateways.is_empty() {
            true => interface_of(&wire).and_then(interfaces_unsafe::default_gateway),
            false => None,
        };
        self.add_further_ports(&given)?;
        let is_near = |gateway: &IpAddr| self.addresses.iter().any(|a| a.contains(*gateway));
        self.gateways.extend(gateway.filter(is_near));
        Ok(self)
    }

    pub(super) fn parse(&self, spec: &str, line: usize) -> Result<WireSpec, Problem> {
        spec.parse::<WireSpec>()
            .map_err(|error| self.problem(line, error.to_string()))
    }

    /// The wire's specification, and the line that named it.
    fn spec(&self) -> Result<(String, usize), Problem> {
        if let Some((wire, line)) = &self.wire {
            return Ok((wire.clone(), *line));
        }
        let Some((io, io_line)) = self.io else {
            return Err(self.problem(self.port_line, IO_MISSING));
        };
        let kind = io.kind();
        match &self.ports[..] {
            ports if io == Io::Mux && !ports.iter().any(|port| is_socket(port)) => {
                Ok(("mux:".to_owned(), io_line))
            }
            [] if io == Io::Loopback => Ok((kind.to_owned(), io_line)),
            [] => Err(self.problem(io_line, format!("io: {kind}: port is missing"))),
            [first, ..] => self.spec_of(first),
        }
    }

    /// The specification of a port's wire, and the line that named the port.
    pub(super) fn spec_of(&self, port: &str) -> Result<(String, usize), Problem> {
        let Some((io, _)) = self.io else {
            return Err(self.problem(self.port_line, IO_MISSING));
        };
        let kind = match port.starts_with(&format!("{}:", io.kind())) {
            true => String::new(),
            false => format!("{}:", io.kind()),
        };
        Ok((format!("{kind}{port}{}", self.eal(port)), self.port_line))
    }

    /// Arguments for EAL after the port's name, with `io = dpdk`; `num_mem_ch` is EAL's `-n`.
    fn eal(&self, port: &str) -> String {
        if !self.is_dpdk() {
            return String::new();
        }
        let channels = match self.dpdk.memory_channels {
            Some((channels, _)) if channels > 0 => format!("-n {channels}"),
            _ => String::new(),
        };
        let more = self.dpdk.arguments.as_ref().map_or("", |(text, _)| text);
        let words = format!("{channels} {more}");
        match (words.trim(), port.contains(",eal=")) {
            ("", _) => String::new(),
            (words, true) => format!(" {words}"),
            (words, false) => format!(",eal={words}"),
        }
    }

    /// True with `io = dpdk`, unless a wire specification replaces it.
    fn is_dpdk(&self) -> bool {
        self.wire.is_none() && matches!(self.io, Some((Io::Dpdk, _)))
    }

    /// Notes settings of DPDK's as without a meaning on other wires.
    fn note_dpdk(&mut self) {
        if self.is_dpdk() {
            return;
        }
        let channels = self.dpdk.memory_channels.map(|(_, line)| line);
        let arguments = self.dpdk.arguments.as_ref().map(|(_, line)| *line);
        for (key, line) in [("num_mem_ch", channels), ("dpdk_args", arguments)] {
            let noted = line.map(|line| (key.to_owned(), line));
            self.without_meaning.extend(noted);
        }
        self.without_meaning.sort_by_key(|(_, line)| *line);
    }

    /// On a wire of the host's, leaves addresses, routes and neighbours to the host. Addresses in
    /// the file only select among the host's; the port's name is that of another driver.
    fn leave_to_host(&mut self, line: usize) {
        let is_mux = matches!(self.io, Some((Io::Mux, _))) && self.wire.is_none();
        let is_unused = is_mux && !self.ports.iter().any(|port| is_socket(port));
        let unused = [
            ("port", is_unused && !self.ports.is_empty(), self.port_line),
            ("gateway", !self.gateways.is_empty(), line),
            ("routes", !self.on_link.is_empty(), line),
            ("arp", !self.neighbours.is_empty(), line),
        ];
        let noted = unused.into_iter().filter(|(_, is_set, _)| *is_set);
        let noted = noted.map(|(key, _, line)| (key.to_owned(), line));
        self.without_meaning.extend(noted);
        self.gateways.clear();
        self.on_link.clear();
        self.neighbours.clear();
    }

    /// The addresses if none is set: those of the interface, as in mTCP.
    pub(super) fn addresses_of(
        &self,
        wire: &WireSpec,
        line: usize,
    ) -> Result<Vec<IpCidr>, Problem> {
        if is_loopback(wire) {
            return keys_cidr(LOOPBACK_ADDRESS).map_err(|why| self.problem(line, why));
        }
        let Some(interface) = interface_of(wire) else {
            return Err(self.problem(
                line,
                format!(
                    "{wire}: the kernel knows no address of it: ip_addr = ADDRESS/BITS is missing"
                ),
            ));
        };
        let found = interfaces_unsafe::addresses(&interface);
        match found {
            Some(found) if !found.is_empty() => Ok(found),
            Some(_) => Err(self.problem(
                line,
                format!("{interface}: the interface has no address: ip_addr = ADDRESS/BITS says which is ours"),
            )),
            None => Err(self.problem(line, format!("{interface}: there is no such interface"))),
        }
    }

    /// Millstream's configuration.
    pub fn config(&self, conf: &Conf) -> Result<Config, Problem> {
        let (spec, line) = self.spec()?;
        let mut config = Config::new(self.parse(&spec, line)?);
        config.further_wires.clone_from(&self.further);
        config.addresses.clone_from(&self.addresses);
        config.gateways.clone_from(&self.gateways);
        config.on_link.clone_from(&self.on_link);
        config.neighbours.clone_from(&self.neighbours);
        config.contexts = conf.num_cores as usize;
        config.cores.clone_from(&self.cores);
        config.hugetlb = self.hugetlb;
        config.local_ports = LOCAL_PORTS;
        if let Some(spin_us) = self.spin_us {
            config.spin_ns = spin_us * 1_000;
        }
        if let Some(seconds) = self.return_memory_s {
            config.return_memory_ns = seconds as u64 * SECOND_NS;
        }
        config.rules.clone_from(&self.rules);
        config.story_one_in = self.story_one_in.unwrap_or(0) as u32;
        if self.is_dedicated {
            config.crank = Crank::Dedicated;
        }
        config.limits = limits(conf);
        tcp(self, conf, &mut config);
        Ok(config)
    }
}

/// True if `port` is a service's socket or options of a `mux` wire, not another driver's port such
/// as `dpdk0`.
fn is_socket(port: &str) -> bool {
    port.contains(['/', '@']) || port.starts_with(',') || port.starts_with("mux:")
}

fn keys_cidr(text: &str) -> Result<Vec<IpCidr>, String> {
    Ok(vec![super::keys::cidr(text)?])
}

fn limits(conf: &Conf) -> Limits {
    let mut limits = Limits::for_connections(conf.max_concurrency as usize);
    let each = conf.rcvbuf_size as usize + conf.sndbuf_size as usize;
    let wanted = (conf.max_num_buffers as usize).saturating_mul(each) / CHUNK_BYTES;
    limits.large_chunks = wanted.clamp(CHUNKS.0, CHUNKS.1);
    limits
}

fn tcp(settings: &Settings, conf: &Conf, config: &mut Config) {
    let tcp = &mut config.tcp;
    tcp.time_wait_ns = (conf.tcp_timewait as u64 * SECOND_NS).max(TIME_WAIT_NS_MIN);
    if let Some(choice) = settings.congestion {
        tcp.congestion = choice;
    }
    if conf.tcp_timeout > 0 {
        // Three probes fit in the second half of the timeout.
        let timeout_ns = conf.tcp_timeout as u64 * SECOND_NS;
        tcp.keepalive_idle_ns = (timeout_ns / 2).max(SECOND_NS);
        tcp.keepalive_interval_ns = (timeout_ns / 6).max(SECOND_NS);
        tcp.keepalive_probes_max = 3;
    }
    if conf.rcvbuf_size != RCVBUF_DEFAULT {
        tcp.recv_buffer = fixed(conf.rcvbuf_size);
        tcp.recv_buffer_moderate = false;
    }
    if conf.sndbuf_size != SNDBUF_DEFAULT {
        tcp.send_buffer = fixed(conf.sndbuf_size);
    }
}

/// A buffer of `bytes` bytes that does not grow. Half of a buffer's size is for overhead, as in
/// Linux.
fn fixed(bytes: i32) -> BufferSizes {
    let counted = (bytes as u32).max(BUFFER_BYTES_USEFUL_MIN) * 2;
    BufferSizes {
        bytes_min: counted.min(4_608),
        bytes_default: counted,
        bytes_max: counted,
    }
}

/// Smallest useful buffer in bytes for segments of 1,460 bytes; Linux has the same minimum.
const BUFFER_BYTES_USEFUL_MIN: u32 = 2_304;

fn is_loopback(wire: &WireSpec) -> bool {
    wire.kind() == "loopback"
}

/// The kernel's interface whose addresses the wire uses.
pub(super) fn interface_of(wire: &WireSpec) -> Option<String> {
    wire.interface().map(str::to_owned)
}
