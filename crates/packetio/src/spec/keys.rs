//! The meaning of each key: fills the option structs of backends and wrappers from `key=value`.
//!
//! Only the parser calls it. An `Err` is the reason, in words for the user; the parser adds the
//! place.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use crate::dpdk::DpdkOptions;
use crate::fault::LineOptions;
use crate::limits::{
    FAULT_SLOTS_MAX, LOOPBACK_SLOTS_DEFAULT, MTU_MAX, MTU_MIN, MUX_LEASE_PORTS_MAX, NAME_BYTES_MAX,
    QUEUES_MAX, XDP_RING_SLOTS_MAX, XDP_RING_SLOTS_MIN,
};
use crate::loopback::LoopbackOptions;
use crate::memif::{MemifOptions, MemifRole};
use crate::mux::MuxOptions;
use crate::packet::PacketOptions;
use crate::port::{ChecksumPolicy, MacAddr};
use crate::tap::TapOptions;
use crate::xdp::{Bulk, Take, XdpMode, XdpOptions, Zerocopy};

use super::{Backend, Bits, Bytes, Nanos, WireSpec};

/// The keys of each backend, for error messages.
const XDP_KEYS: &str = "mode, queues, queue, ring, zerocopy, mirror";
const MEMIF_KEYS: &str = "role, id, ring, buffer, queues, secret, mac";
const MUX_KEYS: &str = "ring, ports";
const DPDK_KEYS: &str = "queues, mtu, offload, plugin, eal";
const TAP_KEYS: &str = "mac, mtu, up, queues, offload";
const PACKET_KEYS: &str = "mac, promiscuous, queues, offload";
const LOOPBACK_KEYS: &str = "mac, mtu, batch";
const COMMON_KEYS: &str =
    "checksum, pcap, loss, dup, reorder, corrupt, delay, jitter, rate, limit, seed, slots";

/// Parses the backend's part, such as `xdp:eth0`.
pub(super) fn backend(head: &str) -> Result<Backend, String> {
    let (kind, name) = match head.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (head, None),
    };
    match (kind, name) {
        ("xdp", Some(name)) => Ok(Backend::Xdp(XdpOptions {
            interface: interface(name)?,
            ..XdpOptions::default()
        })),
        ("memif", Some("")) => Err("expected a socket path after memif:".to_owned()),
        ("memif", Some(path)) => Ok(Backend::Memif(MemifOptions {
            path: path.to_owned(),
            ..MemifOptions::default()
        })),
        ("mux", path) => Ok(Backend::Mux(MuxOptions {
            path: path.unwrap_or_default().to_owned(),
            ..MuxOptions::default()
        })),
        ("dpdk", Some(name)) => Ok(Backend::Dpdk(DpdkOptions {
            port: dpdk_port(name)?,
            ..DpdkOptions::default()
        })),
        ("tap", Some(name)) => Ok(Backend::Tap(TapOptions {
            name: interface(name)?,
            ..TapOptions::default()
        })),
        ("packet", Some(name)) => Ok(Backend::Packet(PacketOptions {
            interface: interface(name)?,
            ..PacketOptions::default()
        })),
        ("loopback", name) => Ok(Backend::Loopback(LoopbackOptions {
            name: name.unwrap_or_default().to_owned(),
            ..LoopbackOptions::default()
        })),
        ("xdp" | "memif" | "dpdk" | "tap" | "packet", None) => {
            Err(format!("expected a name, as in {kind}:NAME"))
        }
        _ => Err(
            "expected xdp:IFACE, mux:, memif:PATH, dpdk:PORT, tap:NAME, packet:IFACE or loopback"
                .to_owned(),
        ),
    }
}

/// Checks a name that the kernel accepts for an interface.
fn interface(name: &str) -> Result<String, String> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0';
    match name {
        "" => Err("the interface's name is missing".to_owned()),
        "." | ".." => Err("no interface has this name".to_owned()),
        _ if name.len() > NAME_BYTES_MAX => Err(format!(
            "an interface's name has at most {NAME_BYTES_MAX} bytes"
        )),
        _ if name.contains(bad) => Err("an interface's name has no '/', ':' or space".to_owned()),
        _ => Ok(name.to_owned()),
    }
}

/// A DPDK port: its number, also in mTCP's form (`dpdk0`), or a device's name.
fn dpdk_port(name: &str) -> Result<String, String> {
    let number = name.strip_prefix("dpdk").unwrap_or(name);
    match (name, number.parse::<u16>()) {
        ("", _) => Err("the port's number or name is missing".to_owned()),
        (_, Ok(number)) => Ok(number.to_string()),
        _ if name.contains(|c: char| c.is_whitespace() || c == '\0') => {
            Err("a port's name has no space".to_owned())
        }
        _ => Ok(name.to_owned()),
    }
}

/// Applies one key to the wire.
pub(super) fn apply(spec: &mut WireSpec, key: &str, value: &str) -> Result<(), String> {
    if common(spec, key, value)? || fault(spec, key, value)? {
        return Ok(());
    }
    let (known, keys) = match &mut spec.backend {
        Backend::Xdp(o) => (xdp(o, key, value)?, XDP_KEYS),
        Backend::Memif(o) => (memif(o, key, value)?, MEMIF_KEYS),
        Backend::Mux(o) => (mux(o, key, value)?, MUX_KEYS),
        Backend::Dpdk(o) => (dpdk(o, key, value)?, DPDK_KEYS),
        Backend::Tap(o) => (tap(o, key, value)?, TAP_KEYS),
        Backend::Packet(o) => (packet(o, key, value)?, PACKET_KEYS),
        Backend::Loopback(o) => (loopback(o, key, value)?, LOOPBACK_KEYS),
    };
    match known {
        true => Ok(()),
        false => Err(format!(
            "unknown key {key}; known here: {keys}, {COMMON_KEYS}"
        )),
    }
}

/// Checks rules that concern several keys.
pub(super) fn check(spec: &WireSpec) -> Result<(), String> {
    let slots = match &spec.backend {
        Backend::Memif(o) => o.ring_slots,
        Backend::Xdp(o) => o.ring_slots.map(|slots| slots as usize),
        Backend::Mux(o) => o.ring_slots.map(|slots| slots as usize),
        _ => None,
    };
    match slots {
        Some(slots) if !slots.is_power_of_two() => {
            Err(format!("ring={slots} is not a power of two"))
        }
        _ => Ok(()),
    }
}

fn common(spec: &mut WireSpec, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "checksum" => {
            spec.checksum = Some(one_of(
                value,
                &[
                    ("verify", ChecksumPolicy::Verify),
                    ("partial", ChecksumPolicy::AcceptPartial),
                    ("trust", ChecksumPolicy::Trust),
                ],
            )?);
        }
        "pcap" if value.is_empty() => return Err("expected a file name".to_owned()),
        "pcap" => spec.pcap = Some(PathBuf::from(value)),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies a key of the fault wrapper, such as `loss`, `rx.loss` or `tx.loss`.
fn fault(spec: &mut WireSpec, key: &str, value: &str) -> Result<bool, String> {
    let mut options = spec.fault.clone().unwrap_or_default();
    let known = match (key, key.split_once('.')) {
        ("seed", _) => {
            options.seed = number(value, 0, u64::MAX)?;
            true
        }
        ("slots", _) => {
            options.slots = Some(number(value, 1, FAULT_SLOTS_MAX)?);
            true
        }
        (_, Some(("rx", key))) => line(&mut options.rx, key, value)?,
        (_, Some(("tx", key))) => line(&mut options.tx, key, value)?,
        (_, Some(_)) => false,
        (key, None) => line(&mut options.rx, key, value)? && line(&mut options.tx, key, value)?,
    };
    if known {
        spec.fault = Some(options);
    }
    Ok(known)
}

/// Sets one fault of one direction (`loss`, `delay`, …), as in a wire's specification or after
/// `mill wire --`. `Ok(false)`: there is no such key.
///
/// # Errors
/// The expected form, in words for the user.
pub fn line(line: &mut LineOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "loss" => line.loss = parse(value)?,
        "dup" => line.duplicate = parse(value)?,
        "reorder" => line.reorder = parse(value)?,
        "corrupt" => line.corrupt = parse(value)?,
        "delay" => line.delay_ns = parse::<Nanos>(value)?.0,
        "jitter" => line.jitter_ns = parse::<Nanos>(value)?.0,
        "rate" => line.rate_bits = parse::<Bits>(value)?.0,
        "limit" => line.limit_bytes = parse::<Bytes>(value)?.0,
        _ => return Ok(false),
    }
    Ok(true)
}

fn xdp(o: &mut XdpOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "mode" => {
            o.mode = one_of(
                value,
                &[
                    ("auto", XdpMode::Auto),
                    ("native", XdpMode::Native),
                    ("generic", XdpMode::Generic),
                ],
            )?;
        }
        "queues" => o.queues = Some(number(value, 1, QUEUES_MAX)?),
        "queue" => o.queue = Some(number(value, 0, QUEUES_MAX - 1)?),
        "ring" => o.ring_slots = Some(number(value, XDP_RING_SLOTS_MIN, XDP_RING_SLOTS_MAX)?),
        "zerocopy" => {
            o.zerocopy = one_of(value, &[("auto", Zerocopy::Auto), ("off", Zerocopy::Off)])?;
        }
        "bulk" => o.bulk = one_of(value, &[("auto", Bulk::Auto), ("off", Bulk::Off)])?,
        "mirror" => o.take = one_of(value, &[("yes", Take::Tcp), ("no", Take::Owned)])?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn memif(o: &mut MemifOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "role" => {
            o.role = one_of(
                value,
                &[("server", MemifRole::Server), ("client", MemifRole::Client)],
            )?;
        }
        "id" => o.id = number(value, 0, u32::MAX)?,
        "ring" => o.ring_slots = Some(number(value, 2, 1 << 14)?),
        "buffer" => o.buffer_bytes = number(value, 64, 1 << 16)?,
        "queues" => o.queues = number(value, 1, QUEUES_MAX)?,
        "secret" if value.len() > 24 => return Err("a secret has at most 24 bytes".to_owned()),
        "secret" => o.secret = Some(value.to_owned()),
        "mac" => o.mac = Some(mac(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn mux(o: &mut MuxOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "ring" => o.ring_slots = Some(number(value, XDP_RING_SLOTS_MIN, XDP_RING_SLOTS_MAX)?),
        "ports" => o.ports = Some(number(value, 1, MUX_LEASE_PORTS_MAX)?),
        "bulk" => o.has_bulk = one_of(value, &[("auto", true), ("off", false)])?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn dpdk(o: &mut DpdkOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "queues" => o.queues = number(value, 1, QUEUES_MAX)?,
        "mtu" => o.mtu = Some(number(value, MTU_MIN, MTU_MAX)?),
        "plugin" if value.is_empty() => return Err("expected a file name".to_owned()),
        "plugin" => o.plugin = Some(PathBuf::from(value)),
        "offload" => o.offload = auto_or_off(value)?,
        "eal" => o.eal = value.trim().to_owned(),
        _ => return Ok(false),
    }
    Ok(true)
}

fn tap(o: &mut TapOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "mac" => o.mac = Some(mac(value)?),
        "mtu" => o.mtu = Some(number(value, MTU_MIN, MTU_MAX)?),
        "up" => o.up = yes_or_no(value)?,
        "queues" => o.queues = number(value, 1, QUEUES_MAX)?,
        "offload" => o.offload = auto_or_off(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn packet(o: &mut PacketOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "mac" => o.mac = Some(mac(value)?),
        "promiscuous" => o.promiscuous = yes_or_no(value)?,
        "queues" => o.queues = Some(number(value, 1, QUEUES_MAX)?),
        "offload" => o.offload = auto_or_off(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn loopback(o: &mut LoopbackOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "mac" => o.mac = Some(mac(value)?),
        "mtu" => o.mtu = number(value, MTU_MIN, MTU_MAX)?,
        "batch" => o.batch = number(value, 1, LOOPBACK_SLOTS_DEFAULT)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn parse<T: FromStr<Err = &'static str>>(value: &str) -> Result<T, String> {
    value.parse().map_err(str::to_owned)
}

fn number<T: FromStr + PartialOrd + Display>(value: &str, min: T, max: T) -> Result<T, String> {
    match value.parse::<T>() {
        Ok(n) if n >= min && n <= max => Ok(n),
        _ => Err(format!("expected a number from {min} to {max}")),
    }
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    one_of(value, &[("yes", true), ("no", false)])
}

fn auto_or_off(value: &str) -> Result<bool, String> {
    one_of(value, &[("auto", true), ("off", false)])
}

fn one_of<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == value) {
        return Ok(*choice);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    Err(format!("expected {}", names.join(" or ")))
}

/// Parses a unicast MAC address, such as `02:00:00:00:00:01`.
fn mac(value: &str) -> Result<MacAddr, String> {
    const BAD: &str = "expected a MAC address such as 02:00:00:00:00:01";
    let mut octets = [0; 6];
    let mut digits = value.split(':');
    for octet in &mut octets {
        let text = digits.next().filter(|d| d.len() == 2).ok_or(BAD)?;
        *octet = u8::from_str_radix(text, 16).map_err(|_| BAD)?;
    }
    if digits.next().is_some() {
        return Err(BAD.to_owned());
    }
    if octets[0] & 1 == 1 || octets == [0; 6] {
        return Err("this is no unicast MAC address".to_owned());
    }
    Ok(MacAddr(octets))
}
