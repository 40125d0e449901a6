//! Checks of a wire: its interface, XDP, offloads, queues, rings, firewall and addresses.

use packetio::Check;
use serde_json::Value;

use super::super::Finding;
use super::super::facts::{MemifPlace, WireFacts};
use super::{number, value};

/// Drivers with native XDP, as `ethtool -i` names them, and whether they support zero-copy AF_XDP.
const XDP_DRIVERS: [(&str, bool); 33] = [
    ("atlantic", false),
    ("bnxt_en", false),
    ("bonding", false),
    ("ena", false),
    ("fec", false),
    ("fsl_dpaa2_eth", true),
    ("fsl_enetc", false),
    ("gve", true),
    ("hv_netvsc", false),
    ("i40e", true),
    ("ice", true),
    ("idpf", true),
    ("igb", true),
    ("igc", true),
    ("ixgbe", true),
    ("ixgbevf", false),
    ("mana", false),
    ("mlx4_en", false),
    ("mlx5_core", true),
    ("mvneta", false),
    ("mvpp2", false),
    ("nfp", true),
    ("nicvf", false),
    ("qede", false),
    ("sfc", false),
    ("st_gmac", true),
    ("st_xgmac", true),
    ("tsnep", true),
    ("tun", false),
    ("veth", false),
    ("vif", false),
    ("virtio_net", true),
    ("vmxnet3", false),
];
/// Largest MTU whose frames fit one page beside the overhead of native XDP.
const NATIVE_MTU_MAX: u64 = 3498;
/// Receive slots below which a burst of one scheduling interval is lost at 1 Mpps.
const RX_SLOTS_MIN: u64 = 1024;

/// All checks that apply to the kind of wire.
pub fn all(wire: &WireFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(service(wire));
    if wire.kind == "tap" {
        findings.push(tun(wire));
    }
    if let Some((path, place)) = &wire.memif {
        findings.push(memif(path, place));
    }
    if wire.kind == "dpdk" {
        findings.push(plugin(wire));
    }
    if let Some(name) = &wire.interface {
        findings.push(interface(wire, name));
        if wire.has_interface {
            if wire.kind == "xdp" {
                findings.push(xdp(wire, name));
            }
            if wire.wants_bulk {
                findings.push(bulk(wire));
            }
            findings.push(offloads(wire, name));
            findings.extend(queues(wire, name));
            findings.push(rings(wire, name));
        }
    }
    if matches!(wire.kind, "xdp" | "packet" | "tap") {
        findings.push(firewall(wire));
        findings.push(addresses(wire));
    }
    findings
}

/// The service behind a `mux` wire answers and admits this user.
fn service(wire: &WireFacts) -> Option<Finding> {
    let (path, error) = wire.service.as_ref()?;
    let check = Check::Service;
    Some(match error {
        None => Finding::ok(check.name(), format!("{path} answers")),
        Some(error) => {
            let found = format!("{path}: {error}");
            Finding::failure(check.name(), found, check.fix(""))
        }
    })
}

/// The path of a `memif` wire's socket can be used.
fn memif(path: &str, place: &MemifPlace) -> Finding {
    let name = Check::Memif.name();
    let directory = match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    };
    match place {
        MemifPlace::Socket => Finding::ok(name, format!("{path}: a socket")),
        MemifPlace::Nothing => Finding::ok(name, format!("{path}: no socket yet")),
        MemifPlace::NoDirectory => {
            let found = format!("{path}: no directory {directory}");
            Finding::failure(name, found, format!("`mkdir -p {directory}`"))
        }
        MemifPlace::OtherFile => {
            let found = format!("{path}: a file that is no socket");
            Finding::failure(name, found, "name another path, or remove the file")
        }
        MemifPlace::Denied => {
            let found = format!("{path}: this user may not use it");
            let fix = format!("`ls -ld {directory} {path}` shows whose they are");
            Finding::failure(name, found, fix)
        }
    }
}

/// The DPDK plug-in can be loaded.
fn plugin(wire: &WireFacts) -> Finding {
    let check = Check::Plugin;
    match &*wire.plugin_refusal {
        "" => Finding::ok(check.name(), "it can be loaded"),
        why => Finding::failure(check.name(), why, check.fix("")),
    }
}

fn tun(wire: &WireFacts) -> Finding {
    match wire.has_tun {
        true => Finding::ok(Check::Tun.name(), "/dev/net/tun"),
        false => Finding::failure(Check::Tun.name(), "no /dev/net/tun", Check::Tun.fix("")),
    }
}

/// The interface as `ip -d -j link` describes it.
fn link(wire: &WireFacts) -> Option<Value> {
    let links: Value = serde_json::from_str(&wire.link).ok()?;
    links.get(0).cloned()
}

fn interface(wire: &WireFacts, name: &str) -> Finding {
    let check = Check::Interface;
    if !wire.has_interface {
        let found = format!("{name}: no such interface in this namespace");
        return Finding::failure(check.name(), found, check.fix(name));
    }
    let Some(link) = link(wire) else {
        return Finding::not_looked(check.name(), "`ip` does not answer", "install iproute2");
    };
    let flags: Vec<&str> = match link["flags"].as_array() {
        Some(flags) => flags.iter().filter_map(Value::as_str).collect(),
        None => Vec::new(),
    };
    if !flags.contains(&"UP") {
        let fix = format!("`ip link set dev {name} up`");
        return Finding::failure(check.name(), format!("{name} is down"), fix);
    }
    if flags.contains(&"NO-CARRIER") {
        let fix = format!("connect the cable, or bring the peer of {name} up");
        return Finding::warning(check.name(), format!("{name} has no carrier"), fix);
    }
    let mtu = link["mtu"].as_u64().unwrap_or(0);
    let address = link["address"].as_str().unwrap_or("without address");
    Finding::ok(check.name(), format!("{name}, {address}, MTU {mtu}"))
}

/// The number of the XDP program on an interface, as `ip -d -j link` describes it.
pub fn xdp_program(link: &str) -> Option<u64> {
    let links: Value = serde_json::from_str(link).ok()?;
    Some(attached(links.get(0)?)?.0)
}

/// The first attached program, and the word of `ip link` for its mode. Programs of several modes
/// are a list.
fn attached(link: &Value) -> Option<(u64, &'static str)> {
    let xdp = &link["xdp"];
    let first = match xdp["attached"].get(0) {
        Some(first) => first,
        None => xdp,
    };
    // Without the mode, `xdp off` means the driver's program, and leaves a generic one.
    let word = match first["mode"].as_u64() {
        Some(1) => "xdpdrv",
        Some(2) => "xdpgeneric",
        Some(3) => "xdpoffload",
        _ => "xdp",
    };
    Some((first["prog"]["id"].as_u64()?, word))
}

/// The finding for an interface that another program has.
fn taken(wire: &WireFacts, name: &str, program: u64, word: &str) -> Finding {
    let found = format!("{name} has XDP program {program} already");
    match &wire.holder {
        // The kernel keeps the program while a process has its link.
        Some((pid, holder)) => Finding::failure(
            Check::Xdp.name(),
            format!("{found}, which {holder} ({pid}) holds"),
            format!("`kill {pid}`"),
        ),
        None => Finding::failure(
            Check::Xdp.name(),
            found,
            format!("`ip link set dev {name} {word} off`; root sees whether a process holds it"),
        ),
    }
}

/// The driver's name: of ethtool, of `/sys`, or the kind of a virtual interface.
fn driver<'a>(wire: &'a WireFacts, link: &'a Value) -> &'a str {
    let kind = link["linkinfo"]["info_kind"].as_str();
    let names = [
        value(&wire.driver, "driver"),
        Some(&*wire.sys_driver),
        kind.map(|kind| if kind == "bond" { "bonding" } else { kind }),
    ];
    let mut names = names.into_iter().flatten();
    names.find(|name| !name.is_empty()).unwrap_or("")
}

/// Checks for another XDP program, the driver's mode, and the MTU.
fn xdp(wire: &WireFacts, name: &str) -> Finding {
    let check = Check::Xdp;
    let link = link(wire).unwrap_or_default();
    if let Some((program, word)) = attached(&link) {
        return taken(wire, name, program, word);
    }
    let driver = driver(wire, &link);
    if wire.generic_only {
        let found = format!("generic, as `mode=` says: {driver} copies each frame");
        return Finding::ok(check.name(), found);
    }
    let known = XDP_DRIVERS.iter().find(|(one, _)| *one == driver);
    let mtu = link["mtu"].as_u64().unwrap_or(0);
    let (found, fix) = match known {
        None if driver.is_empty() => (
            "the driver is unknown: no ethtool, or no answer".to_owned(),
            "install ethtool, or try `mode=generic`".to_owned(),
        ),
        None => (
            format!("driver {driver} is not known to have XDP: generic mode copies each frame"),
            "use a NIC whose driver has XDP; `mode=generic` works meanwhile".to_owned(),
        ),
        Some(_) if mtu > NATIVE_MTU_MAX => (
            format!("MTU {mtu}: native XDP needs a frame to fit one page"),
            match driver {
                "veth" => format!(
                    "`ip link set dev {name} mtu {NATIVE_MTU_MAX}`, and the same for its peer"
                ),
                _ => format!("`ip link set dev {name} mtu {NATIVE_MTU_MAX}`"),
            },
        ),
        Some((_, zero_copy)) => {
            let copies = if *zero_copy { "zero-copy" } else { "copy mode" };
            return Finding::ok(check.name(), format!("driver {driver}: native, {copies}"));
        }
    };
    match wire.native_only {
        true => Finding::failure(check.name(), found, fix),
        false => Finding::warning(check.name(), found, fix),
    }
}

/// Checks the packet socket through which large packets leave beside AF_XDP.
fn bulk(wire: &WireFacts) -> Finding {
    if wire.bulk_refusal.is_empty() {
        return Finding::ok("bulk", "a packet socket sends large packets");
    }
    let found = format!("large packets are cut here: {}", wire.bulk_refusal);
    let fix = "CAP_NET_RAW, and AF_PACKET in the unit's RestrictAddressFamilies=; or `bulk=off`";
    Finding::warning("bulk", found, fix)
}

/// Checks for offloads that hide or merge frames before Millstream sees them.
fn offloads(wire: &WireFacts, name: &str) -> Finding {
    if wire.features.is_empty() {
        let fix = "install ethtool";
        return Finding::warning("offloads", "unknown: no ethtool, or no answer", fix);
    }
    let is_on = |key: &str| value(&wire.features, key).is_some_and(|state| state.starts_with("on"));
    let merging = [("large-receive-offload", "lro"), ("rx-gro-hw", "rx-gro-hw")];
    let mut found: Vec<&str> = merging
        .iter()
        .filter(|(key, _)| is_on(key))
        .map(|(_, short)| *short)
        .collect();
    // A packet socket without offloads is cut short by packets that the kernel has merged. With
    // offloads it wants them.
    if wire.kind == "packet" && !wire.takes_merged && is_on("generic-receive-offload") {
        found.push("gro");
    }
    if found.is_empty() {
        return Finding::ok("offloads", "none that merges frames on receipt");
    }
    let off: Vec<String> = found.iter().map(|short| format!("{short} off")).collect();
    let fix = format!("`ethtool -K {name} {}`", off.join(" "));
    let on = format!(
        "{} merges frames before they are received",
        found.join(", ")
    );
    match found.contains(&"lro") && wire.native_only {
        true => Finding::failure("offloads", on, fix),
        false => Finding::warning("offloads", on, fix),
    }
}

/// Checks that each context has a queue, that no queue is left to the kernel, and that the hash
/// spreads over all queues. Only AF_XDP has the NIC's queues: a packet socket has one for each
/// context, whatever the NIC has.
fn queues(wire: &WireFacts, name: &str) -> Option<Finding> {
    let check = Check::Queues.name();
    if wire.kind != "xdp" {
        return None;
    }
    if !wire.has_ethtool {
        return Some(Finding::not_looked(check, "no ethtool", "install ethtool"));
    }
    let contexts = u64::from(wire.contexts.max(1));
    let mut parts = wire.channels.split("Current hardware settings");
    let (most, current) = (parts.next().map(channels), parts.next().map(channels));
    let (kind, there) = match current {
        Some((kind, count)) if count > 0 => (kind, count),
        // The wire takes one queue of such an interface.
        _ => ("combined", 1),
    };
    let (first, used) = wire.queues.unwrap_or((0, there));
    let found = format!("queues: {there}, contexts: {contexts}");
    if used == 0 || first.saturating_add(used) > there {
        let found = format!("{found}, and the wire wants {used} from {first} on");
        let fix = format!("`ethtool -L {name} {kind} {}`", first.saturating_add(used));
        return Some(Finding::failure(check, found, fix));
    }
    if used < there {
        let found = format!(
            "{found}: frames of {} queues go to the kernel",
            there - used
        );
        let fix = format!("leave out `queues=` and `queue=`, or `ethtool -L {name} {kind} {used}`");
        return Some(Finding::warning(check, found, fix));
    }
    if used < contexts {
        let found = format!("{found}: a thread carries each frame between them");
        let fix = match most {
            Some((_, most)) if most >= contexts => format!("`ethtool -L {name} {kind} {contexts}`"),
            _ => format!("`--contexts {used}`, or an interface with more queues"),
        };
        return Some(Finding::warning(check, found, fix));
    }
    let reached = spread_over(&wire.spread);
    if reached > 0 && reached < contexts {
        let found = format!("{found}, but RSS spreads over {reached}");
        let fix = format!("`ethtool -X {name} equal {used}`");
        return Some(Finding::warning(check, found, fix));
    }
    Some(Finding::ok(check, found))
}

/// The kind and number of receive queues in a part of what `ethtool -l` prints.
fn channels(part: &str) -> (&'static str, u64) {
    let count = |key: &str| number(part, key).unwrap_or(0);
    match (count("Combined"), count("RX")) {
        (0, receiving) => ("rx", receiving),
        (combined, receiving) => ("combined", combined + receiving),
    }
}

/// Number of queues in the indirection table; 0 if there is no table.
fn spread_over(spread: &str) -> u64 {
    let mut queues: Vec<u64> = Vec::new();
    for line in spread.lines() {
        let Some((at, row)) = line.split_once(':') else {
            continue;
        };
        if at.trim().parse::<u64>().is_ok() {
            queues.extend(
                row.split_whitespace()
                    .filter_map(|word| word.parse::<u64>().ok()),
            );
        }
    }
    queues.sort_unstable();
    queues.dedup();
    queues.len() as u64
}

/// Checks that receive rings hold a burst.
fn rings(wire: &WireFacts, name: &str) -> Finding {
    if !wire.has_ethtool {
        return Finding::not_looked("rings", "no ethtool", "install ethtool");
    }
    let mut parts = wire.rings.split("Current hardware settings");
    let (maximum, current) = (parts.next(), parts.next());
    let slots = |text: Option<&str>| text.and_then(|text| number(text, "RX"));
    match (slots(maximum), slots(current)) {
        (Some(most), Some(now)) if now < RX_SLOTS_MIN && now < most => Finding::warning(
            "rings",
            format!("{now} receive slots of {most}"),
            format!("`ethtool -G {name} rx {}`", most.min(4096)),
        ),
        (_, Some(now)) => Finding::ok("rings", format!("{now} receive slots")),
        _ => Finding::ok("rings", "the driver has none to set"),
    }
}

/// Checks for a firewall, which does not see a wire's frames, or drops those between a wire and the
/// kernel.
fn firewall(wire: &WireFacts) -> Finding {
    let Some(firewall) = &wire.firewall else {
        let fix = "install nftables, and run `mill doctor` as root";
        return Finding::not_looked("firewall", "neither nft nor iptables-save answers", fix);
    };
    let lines = firewall.lines().map(str::trim);
    let rules = lines.filter(|line| is_rule(line)).count();
    if rules == 0 {
        return Finding::ok("firewall", "no rules");
    }
    match wire.kind {
        "tap" => Finding::warning(
            "firewall",
            format!("{rules} rules see the frames of this wire"),
            "`nft list ruleset` shows whether they let our addresses pass",
        ),
        _ => Finding::warning(
            "firewall",
            format!("{rules} rules, and none sees the frames of this wire"),
            "filter in front of this host, or listen on addresses that may be reached",
        ),
    }
}

/// Lines of `nft list ruleset` and `iptables-save` that decide about packets.
fn is_rule(line: &str) -> bool {
    let verdicts = [
        "drop",
        "reject",
        "accept",
        "-j DROP",
        "-j REJECT",
        "-j ACCEPT",
    ];
    let is_policy = line.starts_with("type ") || line.starts_with(':');
    match is_policy {
        // A chain whose policy is to accept drops nothing.
        true => line.contains("policy drop") || line.contains(" DROP "),
        false => verdicts.iter().any(|verdict| line.contains(verdict)),
    }
}

/// Checks that no other host or kernel has our addresses.
fn addresses(wire: &WireFacts) -> Finding {
    let Some(held) = &wire.kernel_addresses else {
        let fix = "install iproute2";
        return Finding::not_looked("addresses", "`ip` does not answer", fix);
    };
    let interfaces: Value = serde_json::from_str(held).unwrap_or_default();
    let interfaces = interfaces.as_array().map_or(&[][..], Vec::as_slice);
    if wire.is_mirror {
        return mirrored(wire, interfaces);
    }
    for interface in interfaces {
        let name = interface["ifname"].as_str().unwrap_or("?");
        let held = interface["addr_info"].as_array();
        for entry in held.into_iter().flatten() {
            let local = entry["local"].as_str().unwrap_or("");
            let prefix = entry["prefixlen"].as_u64().unwrap_or(0);
            let ours = |one: &&crate::net::options::Cidr| one.address.to_string() == local;
            if wire.addresses.iter().any(|one| ours(&one)) {
                return conflict(wire, name, local, prefix);
            }
        }
    }
    match wire.addresses.is_empty() {
        true => Finding::ok("addresses", "none given: name them with --addr"),
        false => Finding::ok("addresses", "none of ours is the kernel's"),
    }
}

/// Checks the addresses of a mirror, which takes the kernel's own.
fn mirrored(wire: &WireFacts, interfaces: &[Value]) -> Finding {
    let name = wire.interface.as_deref().unwrap_or("");
    let interface = interfaces.iter().find(|one| one["ifname"] == name);
    let held = interface.and_then(|one| one["addr_info"].as_array());
    let held: Vec<&str> = held
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["local"].as_str())
        .collect();
    let mut ours = wire.addresses.iter();
    let missing = ours.find(|one| !held.contains(&&*one.address.to_string()));
    if let Some(missing) = missing {
        let found = format!("the kernel does not have {missing} on {name}");
        let fix = format!("`ip addr add {missing} dev {name}`");
        return Finding::warning("addresses", found, fix);
    }
    if held.is_empty() {
        let found = format!("{name} has no address that could be mirrored");
        let fix = format!("`ip addr add ADDRESS/PREFIX dev {name}`");
        return Finding::warning("addresses", found, fix);
    }
    Finding::ok("addresses", "the kernel's own, which the wire mirrors")
}

/// The finding for an address that the kernel has, too. With XDP the kernel sees no frame for it,
/// but answers ARP and delivers local programs' packets itself. On other wires it resets our
/// connections.
fn conflict(wire: &WireFacts, name: &str, local: &str, prefix: u64) -> Finding {
    let fix = format!("`ip addr del {local}/{prefix} dev {name}`");
    let found = format!("{local} is the kernel's too, on {name}");
    match wire.kind {
        "xdp" => Finding::warning("addresses", found, fix),
        _ => {
            let found = format!("{found}: it resets our connections");
            Finding::failure("addresses", found, fix)
        }
    }
}
