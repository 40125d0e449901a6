//! The part of the work that a sampled function belongs to.
//!
//! The kernel's functions are told apart by their names, ours by their crate. A function that the
//! compiler put into its caller counts as the caller: the calls of a port's small functions are
//! part of the stack.

use std::collections::BTreeMap;

/// A function that was running, and the file that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub symbol: String,
    pub file: String,
}

impl Sample {
    /// Reads a line of `perf script --fields ip,sym,dso`: address, function, file in parentheses.
    pub fn parse(line: &str) -> Option<Self> {
        let (address, rest) = line.trim().split_once(' ')?;
        u64::from_str_radix(address, 16).ok()?;
        let (symbol, file) = rest.trim().rsplit_once(" (")?;
        Some(Self {
            symbol: symbol.trim().to_owned(),
            file: file.strip_suffix(')')?.to_owned(),
        })
    }

    /// The kernel, or one of its modules.
    pub fn is_kernel(&self) -> bool {
        self.file.starts_with('[') && self.file != "[vdso]"
    }

    /// The crate of a function of ours, from its name as written in the source or as mangled.
    fn crate_name(&self) -> Option<&str> {
        // `<tcp::Connection as core::fmt::Debug>::fmt`, `tcp::connection::run`
        let name = self.symbol.trim_start_matches(['<', '&', '*', '(']);
        let name = name.strip_prefix("mut ").unwrap_or(name);
        if let Some(mangled) = name.strip_prefix("_ZN") {
            return legacy(mangled);
        }
        if name.starts_with("_R") {
            return v0(name);
        }
        name.split_once("::").map(|(first, _)| first)
    }
}

/// The first part of a name in the legacy mangling: `3tcp10connection...`.
fn legacy(mangled: &str) -> Option<&str> {
    let digits = mangled.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = mangled[..digits].parse().ok()?;
    let name = mangled.get(digits..digits + length)?;
    // `_$LT$tcp..Connection$u20$as...` is `<tcp::Connection as ...`
    match name.strip_prefix("_$LT$").or(name.strip_prefix("$LT$")) {
        Some(inside) => inside.split("..").next(),
        None => Some(name),
    }
}

/// The first crate that a name in the mangling v0 tells of: `Cs1234_3tcp`.
fn v0(name: &str) -> Option<&str> {
    let behind = name.split_once("Cs")?.1.split_once('_')?.1;
    let digits = behind.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = behind[..digits].parse().ok()?;
    behind.get(digits..digits + length)
}

/// A kind of work, in the order in which figures show them.
pub trait Work: Copy + Ord + 'static {
    const ALL: &'static [Self];
    fn of(sample: &Sample) -> Self;
    fn name(self) -> &'static str;
}

/// Number of samples of each kind of work, also of those without one.
pub fn count<W: Work>(samples: &[Sample]) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<W, u64> = W::ALL.iter().map(|&work| (work, 0)).collect();
    for sample in samples {
        *counts.entry(W::of(sample)).or_default() += 1;
    }
    let named = counts.into_iter();
    named
        .map(|(work, count)| (work.name().to_owned(), count))
        .collect()
}

/// The parts of figures 1 and 2 of the mTCP paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The kernel without its TCP/IP and its devices: system calls, files, epoll, scheduling.
    Kernel,
    /// Devices, their queues, and for a stack in user space its port.
    PacketIo,
    /// TCP/IP with its buffers; for a stack in user space also its sockets.
    Tcp,
    Application,
}

/// Beginnings of the names of the kernel's TCP/IP functions, without leading underscores.
const TCP: [&str; 16] = [
    "tcp",
    "ip_",
    "ipv4",
    "inet",
    "fib_",
    "sk_",
    "skb_",
    "kfree_skb",
    "alloc_skb",
    "consume_skb",
    "napi_skb",
    "lock_sock",
    "release_sock",
    "sock_r",
    "sock_w",
    "sock_def",
];
/// Beginnings of the names of functions of the kernel's devices and of the queues in front of them.
const PACKET_IO: [&str; 16] = [
    "veth",
    "loopback",
    "netif",
    "net_rx",
    "net_tx",
    "napi",
    "dev_",
    "validate_xmit",
    "eth_",
    "process_backlog",
    "enqueue_to_backlog",
    "sch_",
    "qdisc",
    "xsk",
    "xdp",
    "bpf_prog",
];

fn begins(symbol: &str, with: &[&str]) -> bool {
    let name = symbol.trim_start_matches('_');
    with.iter().any(|beginning| name.starts_with(beginning))
}

impl Work for Part {
    const ALL: &'static [Self] = &[Self::Kernel, Self::PacketIo, Self::Tcp, Self::Application];

    fn of(sample: &Sample) -> Self {
        if sample.is_kernel() {
            // TCP/IP comes first, because `napi_skb` names buffers and `napi` names devices.
            return match () {
                () if begins(&sample.symbol, &TCP) => Self::Tcp,
                () if begins(&sample.symbol, &PACKET_IO) => Self::PacketIo,
                () => Self::Kernel,
            };
        }
        match sample.crate_name() {
            Some("packetio") => Self::PacketIo,
            Some("tcp" | "wire" | "ring" | "stack" | "millstream") => Self::Tcp,
            _ => Self::Application,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel without TCP/IP",
            Self::PacketIo => "packet I/O",
            Self::Tcp => "TCP/IP",
            Self::Application => "application",
        }
    }
}

/// The parts of a receiver's work in figures 8 and 9 of Menon and Zwaenepoel (USENIX ATC 2008).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Received {
    /// Copies and checksums: the cost of bytes.
    PerByte,
    /// Devices and ports.
    Driver,
    /// Merging of packets.
    Aggregation,
    /// Headers and connections, for arrivals.
    Protocol,
    /// ACKs on their way out.
    Acks,
    /// Packet buffers.
    Buffers,
    /// System calls, waiting, scheduling, the application.
    Other,
}

impl Work for Received {
    const ALL: &'static [Self] = &[
        Self::PerByte,
        Self::Driver,
        Self::Aggregation,
        Self::Protocol,
        Self::Acks,
        Self::Buffers,
        Self::Other,
    ];

    fn of(sample: &Sample) -> Self {
        match sample.is_kernel() {
            true => Self::of_kernel(&sample.symbol),
            false => Self::of_ours(sample),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PerByte => "per byte: copies and checksums",
            Self::Driver => "driver or port",
            Self::Aggregation => "aggregation",
            Self::Protocol => "TCP/IP of arrivals",
            Self::Acks => "ACKs",
            Self::Buffers => "packet buffers",
            Self::Other => "other",
        }
    }
}

impl Received {
    fn of_kernel(symbol: &str) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| symbol.contains(word));
        match () {
            () if has(&["copy_", "csum", "memcpy", "rep_movs"]) => Self::PerByte,
            () if has(&["gro_", "_gro"]) => Self::Aggregation,
            () if has(&[
                "xmit",
                "transmit",
                "send_ack",
                "ip_queue",
                "ip_output",
                "ip_finish",
            ]) =>
            {
                Self::Acks
            }
            () if has(&["skb", "page_pool", "kmem_cache", "page_frag"]) => Self::Buffers,
            () if begins(symbol, &PACKET_IO) => Self::Driver,
            () if begins(symbol, &TCP) => Self::Protocol,
            () => Self::Other,
        }
    }

    fn of_ours(sample: &Sample) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| sample.symbol.contains(word));
        match sample.crate_name() {
            _ if has(&["copy", "checksum", "memcpy", "memmove"]) => Self::PerByte,
            Some("packetio") => Self::Driver,
            Some("stack") if has(&["::frame_order", "aggregat", "::run"]) => Self::Aggregation,
            Some("stack" | "wire" | "tcp")
                if has(&["departures", "transfer", "::ack", "_ack", "send"]) =>
            {
                Self::Acks
            }
            Some("ring") if has(&["chunk", "pool"]) => Self::Buffers,
            Some("stack" | "wire" | "tcp" | "ring") => Self::Protocol,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(symbol: &str, file: &str) -> Sample {
        Sample {
            symbol: symbol.to_owned(),
            file: file.to_owned(),
        }
    }

    const KERNEL: &str = "[kernel.kallsyms]";
    const OURS: &str = "/target/release/bench";

    #[test]
    fn line_of_perf_is_read_whatever_the_function_is_called() {
        let line = "     ffffffff820339c0 tcp_v4_rcv ([kernel.kallsyms])";
        assert_eq!(Sample::parse(line), Some(sample("tcp_v4_rcv", KERNEL)));
        let line = "  55d0 <tcp::A (b) as c::D>::e (/target/release/bench)";
        assert_eq!(
            Sample::parse(line),
            Some(sample("<tcp::A (b) as c::D>::e", OURS))
        );
        for broken in ["", "no address", "55d0 no_file", "zz tcp_v4_rcv (x)"] {
            assert_eq!(Sample::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn crate_is_found_in_plain_and_in_mangled_names() {
        for (symbol, wanted) in [
            ("tcp::connection::run", Some("tcp")),
            ("<stack::Stack as core::fmt::Debug>::fmt", Some("stack")),
            (
                "<&mut packetio::Memif as packetio::Port>::send",
                Some("packetio"),
            ),
            ("_ZN3tcp10connection3run17h0123456789abcdefE", Some("tcp")),
            (
                "_ZN55_$LT$stack..Stack$u20$as$u20$core..fmt..Debug$GT$3fmt17hE",
                Some("stack"),
            ),
            ("_RNvNtCs1234_3tcp10connection3run", Some("tcp")),
            ("__memmove_avx_unaligned_erms", None),
            ("_ZN999tcp", None),
            ("_R", None),
        ] {
            assert_eq!(sample(symbol, OURS).crate_name(), wanted, "{symbol}");
        }
    }

    #[test]
    fn work_of_a_transaction_is_of_four_parts() {
        for (symbol, file, wanted) in [
            ("tcp_v4_rcv", KERNEL, Part::Tcp),
            ("__inet_lookup_established", KERNEL, Part::Tcp),
            ("__netif_receive_skb_core", KERNEL, Part::PacketIo),
            ("veth_xmit", "[veth]", Part::PacketIo),
            ("do_syscall_64", KERNEL, Part::Kernel),
            ("ep_poll", KERNEL, Part::Kernel),
            ("stack::stack::Stack::turn", OURS, Part::Tcp),
            ("packetio::memif::ring::receive", OURS, Part::PacketIo),
            (
                "bench::message::kernel::Client::visit",
                OURS,
                Part::Application,
            ),
            ("__vdso_clock_gettime", "[vdso]", Part::Application),
            ("[unknown]", "/usr/lib/libc.so.6", Part::Application),
        ] {
            assert_eq!(Part::of(&sample(symbol, file)), wanted, "{symbol}");
        }
    }

    #[test]
    fn receiver_s_work_is_told_apart_for_both_stacks() {
        for (symbol, file, wanted) in [
            ("rep_movs_alternative", KERNEL, Received::PerByte),
            ("tcp_gro_receive", KERNEL, Received::Aggregation),
            ("__tcp_transmit_skb", KERNEL, Received::Acks),
            ("kfree_skb_partial", KERNEL, Received::Buffers),
            ("tcp_write_xmit", KERNEL, Received::Acks),
            ("tcp_rcv_established", KERNEL, Received::Protocol),
            ("process_backlog", KERNEL, Received::Driver),
            ("schedule", KERNEL, Received::Other),
            ("ring::copy_unsafe::copy", OURS, Received::PerByte),
            (
                "stack::arrivals::frame_order::FlowOrder::order",
                OURS,
                Received::Aggregation,
            ),
            (
                "stack::departures::ack_trains::expand",
                OURS,
                Received::Acks,
            ),
            ("packetio::memif::receive", OURS, Received::Driver),
            ("tcp::connection::arrival", OURS, Received::Protocol),
            ("stack::stack::Stack::turn", OURS, Received::Protocol),
        ] {
            assert_eq!(Received::of(&sample(symbol, file)), wanted, "{symbol}");
        }
    }

    #[test]
    fn counts_name_every_part_in_order() {
        let samples = [
            sample("do_syscall_64", KERNEL),
            sample("tcp_v4_rcv", KERNEL),
            sample("tcp_ack", KERNEL),
        ];
        let counts = count::<Part>(&samples);
        let counts: Vec<(&str, u64)> = counts
            .iter()
            .map(|(name, count)| (name.as_str(), *count))
            .collect();
        assert_eq!(
            counts,
            [
                ("kernel without TCP/IP", 1),
                ("packet I/O", 0),
                ("TCP/IP", 2),
                ("application", 0)
            ]
        );
    }
}
