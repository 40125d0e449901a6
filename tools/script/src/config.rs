//! The options of a script: addresses, ports, tolerance.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::limits::{MTU_MAX, MTU_MIN};

use super::ast::Micros;
use crate::limits::SCRIPT_US_MAX;

/// Settings from the script's `--name=value` lines and from the caller.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The family of sockets whose call names none.
    pub is_v6_socket: bool,
    /// The family of packets. It differs from the sockets' family with IPv4-mapped addresses.
    pub is_v6_wire: bool,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub bind_port: u16,
    pub connect_port: u16,
    pub mtu: usize,
    /// Segment size in bytes that aggregation merged injected packets from. 0: injected packets are
    /// not aggregates.
    pub mss: usize,
    pub tolerance: Micros,
    pub tolerance_percent: f64,
    /// An echoed timestamp that was never sent is computed from the first one.
    pub scales_echo: bool,
    /// Microseconds of a tick of the timestamp clock; 0: timestamps are not compared.
    pub timestamp_tick: Micros,
    pub strict_segments: bool,
    /// Files whose commands run before the script's own, separated by commas.
    pub init_scripts: Option<String>,
    /// A packet that differs is reported, and the script goes on.
    pub packets_may_differ: bool,
    /// A call with another result is reported, and the script goes on.
    pub calls_may_differ: bool,
}

/// The words that test suites define from outside, with the values for which their scripts were
/// written.
pub(super) fn suite_defines(is_v6: bool) -> BTreeMap<String, String> {
    let (cookie, zero, level, kind) = if is_v6 {
        (
            "c1d1e9742a47a9bc",
            "82af1a8f9a205c34",
            "SOL_IPV6",
            "IPV6_RECVERR",
        )
    } else {
        (
            "3021b9d889017eeb",
            "b7c12350a90dc8f5",
            "SOL_IP",
            "IP_RECVERR",
        )
    };
    [
        ("TFO_COOKIE", cookie),
        ("TFO_COOKIE_ZERO", zero),
        ("CMSG_LEVEL_IP", level),
        ("CMSG_TYPE_RECVERR", kind),
        ("CODE", "host_unreachable"),
    ]
    .map(|(word, meaning)| (word.to_owned(), meaning.to_owned()))
    .into()
}

impl Config {
    /// Settings from `options`, in order. The last of several with one name counts.
    pub(super) fn new(options: &[(String, Option<String>)]) -> Result<Config, String> {
        let last = |name: &str| {
            let mut found = options.iter().filter(|option| option.0 == name);
            found
                .next_back()
                .map(|option| option.1.as_deref().unwrap_or(""))
        };
        let mut config = Config::of_family(last("ip_version").unwrap_or("ipv4"))?;
        for (name, value) in options {
            config.set(name, value.as_deref().unwrap_or(""))?;
        }
        if config.local.is_ipv6() != config.is_v6_wire
            || config.remote.is_ipv6() != config.is_v6_wire
        {
            return Err("addresses and --ip_version do not agree".to_owned());
        }
        Ok(config)
    }

    fn of_family(version: &str) -> Result<Config, String> {
        let (is_v6_socket, is_v6_wire) = match version {
            "ipv4" => (false, false),
            "ipv4-mapped-ipv6" => (true, false),
            "ipv6" => (true, true),
            other => return Err(format!("--ip_version={other}")),
        };
        let (local, remote): (IpAddr, IpAddr) = if is_v6_wire {
            (
                Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1).into(),
                Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1).into(),
            )
        } else {
            (
                Ipv4Addr::new(192, 168, 0, 1).into(),
                Ipv4Addr::new(192, 0, 2, 1).into(),
            )
        };
        Ok(Config {
            is_v6_socket,
            is_v6_wire,
            local,
            remote,
            bind_port: 8080,
            connect_port: 8080,
            // IPv6's header is 20 bytes longer. The larger MTU keeps segments as long as with IPv4.
            mtu: if is_v6_wire { 1520 } else { 1500 },
            mss: 0,
            tolerance: 4000,
            tolerance_percent: 12.5,
            scales_echo: false,
            timestamp_tick: 0,
            strict_segments: false,
            init_scripts: None,
            packets_may_differ: false,
            calls_may_differ: false,
        })
    }

    /// Sets the size in bytes of the largest packet that the device takes.
    pub(super) fn set_mtu(&mut self, bytes: usize) -> Result<(), String> {
        if !(MTU_MIN..=MTU_MAX).contains(&bytes) {
            return Err(format!(
                "an MTU of {bytes}: the device takes one from {MTU_MIN} to {MTU_MAX}"
            ));
        }
        self.mtu = bytes;
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = || format!("bad --{name}: {value}");
        let addr = || -> Result<IpAddr, String> {
            let addr = value.split('/').next().unwrap_or(value);
            addr.parse().map_err(|_| bad())
        };
        let micros = || {
            let micros = value.parse().ok();
            micros.filter(|micros| (0..=SCRIPT_US_MAX).contains(micros))
        };
        match name {
            "local_ip" => self.local = addr()?,
            "remote_ip" => self.remote = addr()?,
            "bind_port" => self.bind_port = value.parse().map_err(|_| bad())?,
            "connect_port" => self.connect_port = value.parse().map_err(|_| bad())?,
            "mtu" => self.set_mtu(value.parse().map_err(|_| bad())?)?,
            "mss" => self.mss = value.parse().ok().filter(|mss| *mss > 0).ok_or_else(bad)?,
            "tolerance_usecs" => self.tolerance = micros().ok_or_else(bad)?,
            "tolerance_percent" => self.tolerance_percent = value.parse().map_err(|_| bad())?,
            "tcp_ts_ecr_scaled" => self.scales_echo = true,
            "tcp_ts_tick_usecs" => self.timestamp_tick = micros().ok_or_else(bad)?,
            "strict_segments" => self.strict_segments = true,
            "init_scripts" => self.init_scripts = Some(value.to_owned()),
            "non_fatal" => {
                self.packets_may_differ = value.contains("packet");
                self.calls_may_differ = value.contains("syscall");
            }
            // Options that concern only the machine on which packetdrill runs are ignored.
            "ip_version" | "gateway_ip" | "netmask_ip" | "speed" | "code_command"
            | "code_format" | "code_sockopt" | "define" | "D" | "debug" | "verbose" | "dry_run"
            | "is_anyip" | "send_omit_free" | "wire_client" | "wire_server" | "wire_server_ip"
            | "wire_server_at" | "wire_server_port" | "wire_client_dev" | "wire_server_dev"
            | "so_filename" | "so_flags" | "psp_udp_port" => {}
            _ => return Err(format!("unknown option --{name}")),
        }
        Ok(())
    }
}
