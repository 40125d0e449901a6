//! Every key with its values and its meaning.

use std::net::{IpAddr, Ipv4Addr};

use millstream::{CongestionAlgorithm, IpCidr};

use super::{Io, Line, Settings};
use crate::limits::{
    BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, CONCURRENCY_MAX, CONCURRENCY_MIN, CONTEXTS_MAX,
};

/// Longest time that a setting may have, in seconds: a day.
const SECONDS_MAX: i32 = 86_400;

/// Keys of mTCP without a meaning here; mtcp(7) gives the reasons.
const WITHOUT_MEANING: [&str; 7] = [
    "core_mask",
    "multiprocess",
    "num_ip",
    "onvm_inst",
    "onvm_serv",
    "onvm_dest",
    "onvm_nf",
];

/// Keys that forks of mTCP have added, and their equivalents here.
const OF_FORKS: [(&str, &str); 15] = [
    ("arp_conf_path", ARP_TABLE),
    ("arp_conf", ARP_TABLE),
    ("route_conf_path", ROUTE_TABLE),
    ("route_conf", ROUTE_TABLE),
    ("ip", ADDRESS),
    ("host_ip", ADDRESS),
    ("netmask", ADDRESS),
    ("stack_thread", THREADS),
    ("app_thread", THREADS),
    ("pri_enable", "segments have no priorities here"),
    ("cc_number", "cc names the congestion control"),
    ("drop_syn_nth", NO_FAULTS),
    ("drop_synack_nth", NO_FAULTS),
    ("drop_fin_nth", NO_FAULTS),
    ("drop_data_rate", NO_FAULTS),
];
const ARP_TABLE: &str = "config/arp.conf beside this file is read";
const ROUTE_TABLE: &str = "config/route.conf beside this file is read";
const ADDRESS: &str = "ip_addr = ADDRESS/BITS says which address is ours";
const THREADS: &str = "num_cores and crank = dedicated say how many threads there are";
const NO_FAULTS: &str = "nothing is dropped on purpose here";

/// Makes one setting.
///
/// # Errors
/// The error in the key or its value, in words that follow file and line.
pub fn set(settings: &mut Settings, key: &str, value: &str, line: Line) -> Result<(), String> {
    if set_number(settings, key, value)? {
        return Ok(());
    }
    match key {
        "io" => settings.io = Some((io(value)?, line)),
        "port" => {
            settings.ports = value.split_whitespace().map(str::to_owned).collect();
            settings.port_line = line;
        }
        "wire" => settings.wire = Some((value.to_owned(), line)),
        "ip_addr" => {
            let cidrs = parts(value).map(own_address).collect::<Result<_, _>>();
            settings.addresses = cidrs.map_err(|why| format!("{key}: {why}"))?;
        }
        "gateway" => {
            let gateways = parts(value).map(|part| {
                part.parse::<IpAddr>()
                    .map_err(|_| format!("{key}: \"{part}\": expected an address"))
            });
            settings.gateways = gateways.collect::<Result<_, _>>()?;
        }
        "cores" => {
            let list: Vec<&str> = parts(value).collect();
            let cores = millstream::cpu_list(&list.join(","));
            settings.cores = cores.map_err(|why| format!("{key}: {why}"))?;
            if settings.cores.len() > CONTEXTS_MAX {
                return Err(format!("{key}: \"{value}\": at most {CONTEXTS_MAX} CPUs"));
            }
        }
        "hugetlb" => {
            settings.hugetlb = value.parse().map_err(|why| format!("{key}: {why}"))?;
        }
        "cc" => settings.congestion = Some(congestion(value)?),
        "crank" => {
            settings.is_dedicated = match value {
                "inline" => false,
                "dedicated" => true,
                _ => {
                    return Err(format!("crank: \"{value}\": expected inline or dedicated"));
                }
            }
        }
        "num_mem_ch" => {
            let channels = number(key, value, 0, i32::MAX)?;
            settings.dpdk.memory_channels = Some((channels, line));
        }
        "dpdk_args" => settings.dpdk.arguments = Some((value.to_owned(), line)),
        "stat_print" => settings.prints_statistics = true,
        "spin_us" => settings.spin_us = Some(number(key, value, 0, 1_000_000)? as u64),
        _ => return without_meaning(settings, key, value, line),
    }
    Ok(())
}

/// Sets a key that takes a plain number. False: the key is not one of these.
fn set_number(settings: &mut Settings, key: &str, value: &str) -> Result<bool, String> {
    let (place, min, max) = match key {
        "num_cores" => (&mut settings.num_cores, 1, CONTEXTS_MAX as i32),
        "max_concurrency" => (
            &mut settings.max_concurrency,
            CONCURRENCY_MIN,
            CONCURRENCY_MAX,
        ),
        "max_num_buffers" => (&mut settings.max_num_buffers, 1, i32::MAX),
        "rcvbuf" => (&mut settings.rcvbuf, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX),
        "sndbuf" => (&mut settings.sndbuf, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX),
        "tcp_timeout" => (&mut settings.tcp_timeout_s, -1, SECONDS_MAX),
        "tcp_timewait" => (&mut settings.tcp_timewait_s, 0, SECONDS_MAX),
        "return_memory_s" => (&mut settings.return_memory_s, 0, SECONDS_MAX),
        "story_one_in" => (&mut settings.story_one_in, 0, i32::MAX),
        _ => return Ok(false),
    };
    *place = Some(number(key, value, min, max)?);
    Ok(true)
}

fn number(key: &str, value: &str, min: i32, max: i32) -> Result<i32, String> {
    match value.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!(
            "{key}: \"{value}\": expected a number from {min} to {max}"
        )),
    }
}

/// The values of a key that takes several.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    let parts = value.split([' ', '\t', ',']);
    parts.filter(|part| !part.is_empty())
}

fn io(value: &str) -> Result<Io, String> {
    Ok(match value {
        "xdp" => Io::Xdp,
        "mux" => Io::Mux,
        "memif" => Io::Memif,
        "tap" => Io::Tap,
        "packet" => Io::Packet,
        "loopback" => Io::Loopback,
        "dpdk" => Io::Dpdk,
        "psio" | "netmap" | "onvm" => {
            return Err(format!(
                "io: \"{value}\": Millstream does not have it; io = xdp drives any interface of the kernel's"
            ));
        }
        _ => {
            return Err(format!(
                "io: \"{value}\": expected xdp, mux, memif, tap, packet, loopback or dpdk"
            ));
        }
    })
}

fn congestion(value: &str) -> Result<CongestionAlgorithm, String> {
    CongestionAlgorithm::from_name(value)
        .ok_or_else(|| format!("cc: \"{value}\": expected reno, cubic, dctcp or bbr"))
}

/// Checks a key of mTCP without a meaning here. Its value must still be valid in mTCP.
fn without_meaning(
    settings: &mut Settings,
    key: &str,
    value: &str,
    line: Line,
) -> Result<(), String> {
    if !WITHOUT_MEANING.contains(&key) {
        return Err(no_such_key(key));
    }
    let is_good = match key {
        "core_mask" => u128::from_str_radix(value.trim_start_matches("0x"), 16).is_ok(),
        // The number of this process, and whether it is the master.
        "multiprocess" => value
            .split_whitespace()
            .next()
            .is_some_and(|core| core.parse::<i64>().is_ok()),
        _ => value.parse::<i64>().is_ok(),
    };
    if !is_good {
        return Err(format!("{key}: \"{value}\": expected a number"));
    }
    settings.without_meaning.push((key.to_owned(), line));
    Ok(())
}

/// The reason why a key is refused: only a fork of mTCP has it, or it does not exist.
fn no_such_key(key: &str) -> String {
    match OF_FORKS.iter().find(|(name, _)| *name == key) {
        Some((_, instead)) => {
            format!("{key}: mTCP does not have this key, only a fork of it: {instead}")
        }
        None => format!("{key}: there is no such key"),
    }
}

/// An address of this host. It needs a prefix length, or no host on the link could be reached.
fn own_address(text: &str) -> Result<IpCidr, String> {
    if !text.contains('/') && text.parse::<IpAddr>().is_ok() {
        return Err(format!(
            "\"{text}\": expected ADDRESS/BITS: how many bits of it name the subnet, as in {text}/24"
        ));
    }
    cidr(text)
}

/// A subnet or a host: `ADDRESS`, `ADDRESS/BITS`, or `ADDRESS/NETMASK` as with `ifconfig`.
pub fn cidr(text: &str) -> Result<IpCidr, String> {
    let expected = || format!("\"{text}\": expected ADDRESS/BITS");
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse().map_err(|_| expected());
    };
    let Ok(mask) = mask.parse::<Ipv4Addr>() else {
        return text.parse().map_err(|_| expected());
    };
    let bits = mask.to_bits().leading_ones();
    if mask.to_bits().count_ones() != bits {
        return Err(format!("\"{text}\": the netmask has gaps"));
    }
    format!("{address}/{bits}").parse().map_err(|_| expected())
}
