//! Checks of a wire: its interface, XDP, offloads, queues, rings, firewall and addresses.

use packetio::Check;
use serde_json::Value;

use super::super::Finding;
use super::super::facts::WireFacts;
use super::{number, value};

/// Drivers with native XDP, and whether they support zero-copy AF_XDP.
const XDP_DRIVERS: [(&str, bool); 20] = [
    ("atlantic", false),
    ("bnxt_en", false),
    ("ena", false),
    ("gve", true),
    ("hv_netvsc", false),
    ("i40e", true),
    ("ice", true),
    ("idpf", true),
    ("igb", true),
    ("igc", true),
    ("ixgbe", true),
    ("ixgbevf", false),
    ("mlx4_en", false),
    ("mlx5_core", true),
    ("mvneta", false),
    ("nfp", true),
    ("stmmac", true),
    ("tun", false),
    ("veth", false),
    ("virtio_net", true),
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
    if let Some(name) = &wire.interface {
        findings.push(interface(wire, name));
        if link(wire).is_some() {
            if wire.kind == "xdp" {
                findings.push(xdp(wire, name));
            }
            if wire.wants_bulk {
                findings.push(bulk(wire));
            }
            findings.push(offloads(wire, name));
            findings.push(queues(wire, name));
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
    let Some(link) = link(wire) else {
        let found = format!("{name}: no such interface here, or no `ip` to ask");
        return Finding::failure(check.name(), found, check.fix(name));
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

/// Checks for another XDP program, the driver's mode, and the MTU.
fn xdp(wire: &WireFacts, name: &str) -> Finding {
    let check = Check::Xdp;
    let link = link(wire).unwrap_or_default();
    if let Some(program) = link["xdp"]["prog"]["id"].as_u64() {
        let found = format!("{name} has XDP program {program} already");
        return Finding::failure(check.name(), found, check.fix(name));
    }
    let driver = value(&wire.driver, "driver").unwrap_or("");
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
            format!("`ip link set dev {name} mtu {NATIVE_MTU_MAX}`"),
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
    // With generic XDP and packet sockets, frames that the kernel merges can exceed the MTU.
    let is_generic = wire.kind == "packet";
    if is_generic && is_on("generic-receive-offload") {
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

/// Checks for one queue per context, and a hash that spreads over all queues.
fn queues(wire: &WireFacts, name: &str) -> Finding {
    let check = Check::Queues.name();
    if !wire.has_ethtool {
        return Finding::not_looked(check, "no ethtool", "install ethtool");
    }
    let current = wire.channels.split("Current hardware settings").nth(1);
    let count = |key: &str| current.and_then(|text| number(text, key)).unwrap_or(0);
    let queues = count("Combined") + count("RX");
    let contexts = u64::from(wire.contexts.max(1));
    if queues == 0 {
        return match contexts {
            1 => Finding::ok(check, "the driver does not say; one context needs one"),
            _ => Finding::warning(check, "the driver does not say", "`--contexts 1`"),
        };
    }
    let kind = if count("Combined") > 0 {
        "combined"
    } else {
        "rx"
    };
    let found = format!("queues: {queues}, contexts: {contexts}");
    let fix = format!("`ethtool -L {name} {kind} {contexts}`");
    if queues < contexts && wire.kind == "xdp" {
        return Finding::failure(check, found, fix);
    }
    if queues > contexts && wire.kind == "xdp" {
        let found = format!("{found}: frames of queues without a context go to the kernel");
        return Finding::warning(check, found, fix);
    }
    let used = spread_over(&wire.spread);
    if used > 0 && used < contexts {
        let found = format!("{found}, but RSS spreads over {used}");
        return Finding::warning(
            check,
            found,
            format!("`ethtool -X {name} equal {contexts}`"),
        );
    }
    Finding::ok(check, found)
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
