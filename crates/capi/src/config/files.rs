//! `config/route.conf` and `config/arp.conf`, in mTCP's format: a line with the number of entries,
//! then the entries.
//!
//! ```text
//! ROUTES 2                                ARP_ENTRY 1
//! 10.0.1.0/24 eth1     reached directly   10.0.0.1/32 00:00:00:00:00:01
//! 10.0.0.1/0 eth1      the gateway
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use super::{Problem, Settings, keys, lines};
use crate::limits::NEIGHBOURS_PER_LINE_MAX;

/// Adds one entry, given as text.
type Add = fn(&mut Settings, &str) -> Result<(), String>;

/// Reads both files, if they exist.
pub fn read_beside(settings: &mut Settings, config: &Path) -> Result<(), Problem> {
    read_file(settings, config, "route.conf", "ROUTES", add_route)?;
    read_file(settings, config, "arp.conf", "ARP_ENTRY", add_neighbour)
}

/// The places to look for a table, in order. The first is `config` beside the configuration file,
/// or the file's own directory if that is called `config`. The last is `config` in the working
/// directory, where mTCP looked.
fn places(config: &Path, name: &str) -> Vec<PathBuf> {
    let home = config.parent().unwrap_or(Path::new(""));
    let mut places = vec![home.join("config").join(name)];
    if home.file_name().is_some_and(|own| own == "config") {
        places.push(home.join(name));
    }
    places.push(Path::new("config").join(name));
    places
}

fn read_file(
    settings: &mut Settings,
    config: &Path,
    name: &str,
    heading: &str,
    add: Add,
) -> Result<(), Problem> {
    let places = places(config, name);
    let Some(file) = places.iter().find(|place| place.exists()) else {
        return Ok(());
    };
    let text = lines::text_of(file)?;
    let mut left = 0_usize;
    for (at, line) in lines::numbered(&text) {
        let fail = |why: String| Problem::at(file, at, why);
        if let Some(count) = line.strip_prefix(heading) {
            let count = count.trim();
            left = count
                .parse()
                .map_err(|_| fail(format!("{heading}: \"{count}\": expected a number")))?;
            continue;
        }
        left = left
            .checked_sub(1)
            .ok_or_else(|| fail(format!("more entries than {heading} says")))?;
        add(settings, line).map_err(fail)?;
    }
    match left {
        0 => Ok(()),
        left => Err(Problem::at(
            file,
            0,
            format!("{left} entries fewer than {heading} says"),
        )),
    }
}

/// `ADDRESS/BITS [DEVICE]`: a subnet on the link; with 0 bits, the gateway.
pub fn add_route(settings: &mut Settings, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let prefix = words.next().unwrap_or("");
    // The device's name is ignored, since there is only one.
    if words.nth(1).is_some() {
        return Err(format!("\"{line}\": expected ADDRESS/BITS DEVICE"));
    }
    let cidr = keys::cidr(prefix)?;
    match cidr.prefix_len() {
        0 => settings.gateways.push(cidr.address()),
        _ => settings.on_link.push(cidr.network()),
    }
    Ok(())
}

/// `ADDRESS/BITS MAC`: the hosts of a subnet and their MAC address.
pub fn add_neighbour(settings: &mut Settings, line: &str) -> Result<(), String> {
    let expected = || format!("\"{line}\": expected ADDRESS/BITS MAC");
    let (prefix, mac) = line
        .split_once(|c: char| c.is_ascii_whitespace())
        .ok_or_else(expected)?;
    let mac = mac_address(mac.trim()).ok_or_else(expected)?;
    let cidr = keys::cidr(prefix)?;
    let host_bits = match cidr.address() {
        IpAddr::V4(_) => 32 - u32::from(cidr.prefix_len()),
        IpAddr::V6(_) => 128 - u32::from(cidr.prefix_len()),
    };
    if host_bits == 0 {
        settings.neighbours.push((cidr.address(), mac));
        return Ok(());
    }
    let IpAddr::V4(first) = cidr.network().address() else {
        return Err(format!("\"{prefix}\": expected one host"));
    };
    let count = 1_u32.checked_shl(host_bits).unwrap_or(u32::MAX);
    if count > NEIGHBOURS_PER_LINE_MAX {
        return Err(format!(
            "\"{prefix}\": at most {NEIGHBOURS_PER_LINE_MAX} hosts of one line"
        ));
    }
    let hosts = (0..count).map(|n| IpAddr::from(Ipv4Addr::from(u32::from(first) + n)));
    settings.neighbours.extend(hosts.map(|host| (host, mac)));
    Ok(())
}

fn mac_address(text: &str) -> Option<[u8; 6]> {
    let mut parts = text.split(':');
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
