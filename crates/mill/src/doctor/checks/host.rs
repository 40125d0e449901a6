//! Checks of the host: kernel, rights, memory, CPU and clock.

use packetio::Check;

use super::super::Finding;
use super::super::facts::{Facts, WireFacts};
use super::{number, value};

/// The first kernel that has everything for each kind of wire (AF_XDP with need-wakeup, and links
/// of XDP programs).
const KERNEL_MIN: (u32, u32) = (5, 10);
/// The first kernel whose BPF maps do not count towards `RLIMIT_MEMLOCK`.
const KERNEL_BPF_WITHOUT_MEMLOCK: (u32, u32) = (5, 11);
/// Bytes that one context pins at the default limits: 4,096 chunks of an AF_XDP port.
const PINNED_BYTES: u64 = 8 << 20;

/// Bits of `CapEff`.
const CAPABILITIES: [(u32, &str); 4] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (39, "CAP_BPF"),
    // The verifier lets only its holders add to pointers of packets.
    (38, "CAP_PERFMON"),
];
const SYS_ADMIN: u32 = 21;
const IPC_LOCK: u32 = 14;

/// Checks that the kernel is recent enough.
pub fn kernel(facts: &Facts) -> Finding {
    let release = facts.kernel.trim();
    match version(release) {
        None => Finding::warning("kernel", "its release cannot be read", "`uname -r`"),
        Some(version) if version < KERNEL_MIN => {
            let found = format!("{release}: AF_XDP as Millstream uses it needs 5.10");
            let fix = "boot a newer kernel, or use the wire packet:IFACE";
            match uses_xdp(facts) {
                true => Finding::failure("kernel", found, fix),
                false => Finding::warning("kernel", found, fix),
            }
        }
        Some(_) => Finding::ok("kernel", release),
    }
}

/// Checks that the process may open the wire.
pub fn capabilities(facts: &Facts) -> Finding {
    let name = Check::Capabilities.name();
    let Some(held) = effective(facts) else {
        return Finding::warning(name, "/proc/self/status cannot be read", "mount /proc");
    };
    let is_held = |bit: u32| held >> bit & 1 == 1;
    let needed: &[(u32, &str)] = match facts.wire.as_ref().map(|wire| wire.kind) {
        // Drivers of DPDK differ: VFIO goes by the rights of its device files.
        Some("memif" | "loopback" | "mux" | "dpdk") => &[],
        Some("tap") => &CAPABILITIES[..1],
        Some("packet") => &CAPABILITIES[1..2],
        _ => &CAPABILITIES,
    };
    let missing: Vec<&str> = needed
        .iter()
        // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
        .filter(|(bit, _)| !(is_held(*bit) || *bit >= 38 && is_held(SYS_ADMIN)))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return match facts.wire {
            Some(_) => Finding::ok(name, "all that the wire needs"),
            None => Finding::ok(name, "all that any wire needs"),
        };
    }
    let found = format!("missing: {}", missing.join(", "));
    let is_root = value(&facts.status, "Uid").is_some_and(|ids| ids.starts_with("0\t"));
    let fix = match is_root {
        // A container's root, or that of a unit.
        true => format!(
            "`--cap-add` for each of them to the container, or CapabilityBoundingSet={} in the unit",
            missing.join(" ")
        ),
        false => Check::Capabilities
            .fix("")
            .replace(
                &CAPABILITIES.map(|(_, name)| name).join(",").to_lowercase(),
                &needed_names(needed),
            )
            .replace("PROGRAM", &facts.program),
    };
    match facts.wire {
        Some(_) => Finding::failure(name, found, fix),
        None => Finding::warning(name, found, fix),
    }
}

/// Capabilities as `setcap` takes them.
fn needed_names(needed: &[(u32, &str)]) -> String {
    let names: Vec<&str> = needed.iter().map(|(_, name)| *name).collect();
    names.join(",").to_lowercase()
}

/// Checks that the process may pin the memory of its rings.
pub fn memlock(facts: &Facts) -> Finding {
    let name = Check::Memlock.name();
    let fix = Check::Memlock.fix("");
    let Some(limit) = soft_limit(&facts.limits, "Max locked memory") else {
        return Finding::warning(name, "/proc/self/limits cannot be read", fix);
    };
    let exempt = effective(facts).is_some_and(|held| held >> IPC_LOCK & 1 == 1);
    let contexts = facts.wire.as_ref().map_or(1, |wire| wire.contexts).max(1);
    let needed = PINNED_BYTES * u64::from(contexts);
    let maps_count =
        version(facts.kernel.trim()).is_some_and(|version| version < KERNEL_BPF_WITHOUT_MEMLOCK);
    if facts.wire.is_some() && !uses_xdp(facts) {
        return Finding::ok(name, "the process pins none for this wire");
    }
    match limit {
        None => Finding::ok(name, "unlimited"),
        Some(bytes) if maps_count => {
            let found = format!("{bytes} bytes, and BPF maps count before kernel 5.11");
            Finding::warning(name, found, fix)
        }
        Some(bytes) if exempt => {
            Finding::ok(name, format!("{bytes} bytes, which CAP_IPC_LOCK lifts"))
        }
        Some(bytes) if bytes >= needed => Finding::ok(name, format!("{bytes} bytes")),
        Some(bytes) => {
            let found = format!("{bytes} bytes, AF_XDP pins {needed} for {contexts} contexts");
            match uses_xdp(facts) {
                true => Finding::failure(name, found, fix),
                false => Finding::warning(name, found, fix),
            }
        }
    }
}

/// Checks that huge pages can back tables and buffers with `auto`. DPDK requires reserved ones.
pub fn huge_pages(facts: &Facts) -> Finding {
    let name = "huge-pages";
    // Pages that are promised to mappings count as free until they are touched.
    let promised = number(&facts.meminfo, "HugePages_Rsvd").unwrap_or(0);
    let free = number(&facts.meminfo, "HugePages_Free").unwrap_or(0);
    let free = free.saturating_sub(promised);
    let total = number(&facts.meminfo, "HugePages_Total").unwrap_or(0);
    let reserve = "`sysctl vm.nr_hugepages=512`";
    if facts
        .wire
        .as_ref()
        .is_some_and(|wire| wire.needs_huge_pages)
        && free == 0
    {
        let found = format!("none of {total} reserved huge pages is free, and DPDK needs them");
        return Finding::failure(name, found, reserve);
    }
    if free > 0 {
        let found = format!("{free} of {total} reserved are free: hugetlb = auto takes them");
        return Finding::ok(name, found);
    }
    if !facts.has_sys {
        return no_sys(name);
    }
    let grants = |setting: &str| !matches!(bracketed(setting), None | Some("never" | "deny"));
    let (tables, buffers) = (grants(&facts.huge_own), grants(&facts.huge_shmem));
    let found = |what: &str| format!("none reserved is free; transparent ones for {what}");
    match (tables, buffers) {
        (true, true) => Finding::ok(name, found("tables and buffers")),
        (true, false) => Finding::warning(
            name,
            found("tables alone"),
            "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`",
        ),
        (false, true) => Finding::warning(
            name,
            found("buffers alone"),
            "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`",
        ),
        (false, false) => {
            let found = "none reserved is free, and the kernel grants no transparent ones";
            Finding::warning(name, found, reserve)
        }
    }
}

/// Reports whether memory may be nearer to some CPUs than to others.
pub fn numa(facts: &Facts) -> Finding {
    if !facts.has_sys {
        return no_sys("numa");
    }
    let nodes = millstream::cpu_list(&facts.nodes).map_or(1, |nodes| nodes.len());
    Finding::ok(
        "numa",
        match nodes {
            1 => "one memory node: all memory is equally near".to_owned(),
            nodes => format!("{nodes} memory nodes: --cores keeps a context near its memory"),
        },
    )
}

/// Checks that CPUs run at full speed.
pub fn governor(facts: &Facts) -> Finding {
    if !facts.has_sys {
        return no_sys("cpu-governor");
    }
    let slow: Vec<&String> = facts
        .governors
        .iter()
        .filter(|name| *name != "performance")
        .collect();
    match (facts.governors.is_empty(), slow.first()) {
        (true, _) => Finding::ok("cpu-governor", "none: the platform sets the frequency"),
        (_, None) => Finding::ok("cpu-governor", "performance"),
        (_, Some(name)) => Finding::warning(
            "cpu-governor",
            format!("{name} on {} of {} CPUs", slow.len(), facts.governors.len()),
            "`cpupower frequency-set -g performance`",
        ),
    }
}

/// Checks that reading the clock takes no system call.
pub fn clock(facts: &Facts) -> Finding {
    let name = facts.clock.trim();
    if name.is_empty() {
        return no_sys("clock-source");
    }
    if matches!(name, "tsc" | "kvm-clock" | "arch_sys_counter") || name.starts_with("hyperv_") {
        return Finding::ok("clock-source", name);
    }
    let better = ["tsc", "kvm-clock"].into_iter();
    let better = better.filter(|one| facts.clocks.split_whitespace().any(|word| word == *one));
    let fix = match better.clone().next() {
        Some(one) => format!(
            "`echo {one} > /sys/devices/system/clocksource/clocksource0/current_clocksource`"
        ),
        None => "boot with `tsc=reliable` if the CPU has an invariant TSC".to_owned(),
    };
    let found = format!("{name}: each look at the clock is a system call");
    Finding::warning("clock-source", found, fix)
}

/// The finding of a check that reads `/sys`, where that is not mounted.
fn no_sys(check: &'static str) -> Finding {
    Finding::not_looked(check, "no /sys", "`mount -t sysfs sysfs /sys`")
}

fn uses_xdp(facts: &Facts) -> bool {
    let is_xdp = |wire: &WireFacts| wire.kind == "xdp";
    facts.wire.as_ref().is_some_and(is_xdp)
}

/// Major and minor number of a release such as `6.18.44-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn effective(facts: &Facts) -> Option<u64> {
    u64::from_str_radix(value(&facts.status, "CapEff")?, 16).ok()
}

/// The soft limit: `Some(None)` means unlimited.
fn soft_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = line.split_whitespace().next()?;
    match soft {
        "unlimited" => Some(None),
        bytes => bytes.parse().ok().map(Some),
    }
}

/// The selected word of a sysfs file such as `always [madvise] never`.
fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}
