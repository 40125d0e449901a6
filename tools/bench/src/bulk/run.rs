//! One transfer: two processes over a wire, or both ends in one process.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::measure::cpu;
use serde::Deserialize;

use super::bursts::segment_bytes;
use super::one_thread::Moved;
use super::side::Received;
use super::{Load, PARTS, Receiver, Seen, System, Wired};
use crate::frame::namespace::{self, Loopback, Veth, VethOptions};
use crate::frame::{Process, machine, process};
use crate::profile::{SAMPLES_PER_SECOND, Sampler, attribution};
use mill::net::options::Acks;

/// Bytes of a memif's buffer beside the IP packet.
const BUFFER_OVERHEAD_BYTES: usize = 18;
const SERVER_ADDRESS: &str = "10.92.0.2/24";
const CLIENT_ADDRESS: &str = "10.92.0.1/24";

/// Bytes of the receive windows of all flows together, in runs that measure ACKs.
const WINDOWS_BYTES: u32 = 1 << 20;
/// Bytes of the smallest window of one flow: a few runs of segments.
const WINDOW_BYTES_MIN: u32 = 128 << 10;
/// Range of ACKs for each segment in those runs: one for two, and more where many flows have short
/// runs.
const ANSWERS_PER_FRAME: std::ops::Range<f64> = 0.4..0.7;

/// Part of the counted time in which samples are taken: the sampler starts late.
const SAMPLED_PART: f64 = 0.8;

/// Mebibytes that one thread moves in a second, roughly. They turn seconds into lengths of a run.
const MEBIBYTES_PER_SECOND: f64 = 2_000.0;

/// The server's first line.
#[derive(Deserialize)]
struct Ready {
    address: SocketAddr,
}

/// Wires, addresses and namespaces of a run.
struct Place {
    wires: (String, String),
    addresses: (String, String),
    /// Namespaces of server and client; none if both run in ours.
    namespaces: Option<(String, String)>,
    /// The veth pair, which goes away with this value.
    _veth: Option<Veth>,
    _loopback: Option<Loopback>,
    /// The memif's socket file, removed with this value.
    socket: Option<PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Runs one transfer.
pub fn run(system: System, load: Load) -> Result<Seen, String> {
    let together = match system {
        System::Smoltcp(mtu) => Some(("rivals", "smoltcp-bulk", mtu)),
        System::Gvisor(mtu) => Some(("netstack", "-bulk", mtu)),
        _ => None,
    };
    if let Some((name, word, mtu)) = together {
        return self::together(name, word, mtu, load);
    }
    match system {
        System::Saturated(limit, acks) => return in_one_thread((limit, acks), None, system, load),
        System::Interleaved(Wired::OneThread(merging), burst) => {
            return in_one_thread(merging.options(), Some(burst), system, load);
        }
        _ => {}
    }
    let place = place(system)?;
    let namespace = place.namespaces.as_ref().map(|both| both.0.as_str());
    let mut words = words("server", &place.wires.0, &place.addresses.0, load);
    words.extend(choices(system, load));
    if let System::Interleaved(_, burst) = system {
        words.extend(["--burst".to_owned(), burst.to_string()]);
    }
    let mut server = Process::ourselves(namespace, &words)?;
    let ready: Ready = server.says().map_err(|cause| format!("server: {cause}"))?;
    let mut words = self::words("client", &place.wires.1, &place.addresses.1, load);
    words.extend(["--server".to_owned(), ready.address.to_string()]);
    words.extend(choices(system, load));
    let namespace = place.namespaces.as_ref().map(|both| both.1.as_str());
    let mut client = Process::ourselves(namespace, &words)?;
    let (receiver, sender) = match load.up {
        true => (&mut server, &client),
        false => (&mut client, &server),
    };
    let seen = watch(system, load, receiver, sender)?;
    // The receiver exits after its report, and that ends the sender.
    for (name, end) in [("client", client), ("server", server)] {
        end.leave().map_err(|cause| format!("{name}: {cause}"))?;
    }
    Ok(seen)
}

/// Options for both ends.
fn choices(system: System, load: Load) -> Vec<String> {
    if matches!(system, System::Dedicated(_)) {
        return ["--crank", "dedicated"].map(str::to_owned).to_vec();
    }
    let (limit, acks) = match system {
        System::Aggregated(limit, acks) => (limit, acks),
        System::Interleaved(wired, _) => return wired.words(),
        _ => return Vec::new(),
    };
    let limit = limit.to_string();
    let window = (WINDOWS_BYTES / load.flows as u32).max(WINDOW_BYTES_MIN);
    let window = window.to_string();
    let words = ["--aggregation-max", &limit, "--acks", acks.name()];
    words
        .into_iter()
        .chain(["--window", &window])
        .map(str::to_owned)
        .collect()
}

/// Checks that the receiver sent about one ACK for two segments, unless one ACK stands for all.
/// With another share the figure would not be about the treatment of ACKs.
fn answers(system: System, per_frame: Option<f64>) -> Result<(), String> {
    let (System::Aggregated(_, acks) | System::Saturated(_, acks), Some(share)) =
        (system, per_frame)
    else {
        return Ok(());
    };
    match acks == Acks::Merge || ANSWERS_PER_FRAME.contains(&share) {
        true => Ok(()),
        false => Err(format!(
            "{share:.3} ACKs for each segment; one for two is what is to be measured"
        )),
    }
}

/// Waits for the receiver's report, and measures the CPU time that both ends use while it counts.
fn watch(
    system: System,
    load: Load,
    receiver: &mut Process,
    sender: &Process,
) -> Result<Seen, String> {
    let named = |cause: String| format!("receiver: {cause}");
    receiver.line().map_err(named)?;
    let sampler = match load.is_sampled {
        true => Some(Sampling::start(system, load, receiver, sender)?),
        false => None,
    };
    let spent_by = |end: &Process| cpu::time_ns(end.id()).ok_or("its CPU time is not told");
    let used = (spent_by(receiver)?, spent_by(sender)?);
    let received: Received = receiver.says().map_err(named)?;
    let receiver_ns = spent_by(receiver)?.saturating_sub(used.0);
    // A receiver that is faster than its sender spends time looking for frames. That time is no
    // cost of the bytes that came.
    let receiver_s = (receiver_ns as f64 / 1e9 - received.looked_seconds).max(0.0);
    let sender_ns = spent_by(sender)?.saturating_sub(used.1);
    if received.bytes == 0 {
        return Err("nothing came".to_owned());
    }
    answers(system, received.answers_per_frame)?;
    let bytes = received.bytes as f64;
    let packets_per_second = bytes / segment_bytes(1500) as f64 / received.seconds;
    let parts = sampler.map(|sampler| sampler.finish(packets_per_second));
    Ok(Seen {
        gbit_per_second: bytes * 8.0 / 1e9 / received.seconds,
        receiver_ns_per_byte: Some(receiver_s * 1e9 / bytes),
        sender_ns_per_byte: Some(sender_ns as f64 / bytes),
        jain: received.jain,
        parts: parts.transpose()?,
    })
}

/// The samples of a receiver's work.
struct Sampling {
    sampler: Sampler,
    seconds: f64,
    /// True if the receiver is the kernel. Its work on an arrival runs in the sender's process, so
    /// both processes are sampled, and only the kernel's functions count.
    is_kernel: bool,
}

impl Sampling {
    fn start(
        system: System,
        load: Load,
        receiver: &Process,
        sender: &Process,
    ) -> Result<Self, String> {
        let is_kernel = matches!(system, System::Interleaved(Wired::Kernel { .. }, _));
        let ids = [receiver.id(), sender.id()];
        let ids = if is_kernel { &ids[..] } else { &ids[..1] };
        let seconds = load.seconds * SAMPLED_PART;
        Ok(Self {
            sampler: Sampler::start(ids, seconds)?,
            seconds,
            is_kernel,
        })
    }

    /// Cycles of each kind of work for a packet.
    fn finish(self, packets_per_second: f64) -> Result<[f64; PARTS], String> {
        let mut samples = self.sampler.finish()?;
        samples.retain(|sample| !self.is_kernel || sample.is_kernel());
        let counts = attribution::count::<attribution::Received>(&samples);
        let packets = (packets_per_second * self.seconds).max(1.0);
        let cycles_each = machine::gigahertz() * 1e9 / f64::from(SAMPLES_PER_SECOND) / packets;
        let mut parts = [0.0; PARTS];
        for (part, (_, count)) in parts.iter_mut().zip(counts) {
            *part = count as f64 * cycles_each;
        }
        Ok(parts)
    }
}

fn words(role: &str, wire: &str, address: &str, load: Load) -> Vec<String> {
    let head = [
        "bulk-side",
        "--role",
        role,
        "--wire",
        wire,
        "--addr",
        address,
    ];
    let mut words: Vec<String> = head.map(str::to_owned).to_vec();
    let is_server = role == "server";
    let core = match is_server {
        true => load.cores.0,
        false => load.cores.1,
    };
    for (name, value) in [
        ("--core", core.to_string()),
        ("--flows", load.flows.to_string()),
        ("--seconds", load.seconds.to_string()),
        ("--warm-up", load.warm_up.to_string()),
    ] {
        words.extend([name.to_owned(), value]);
    }
    // The side that does not receive the bytes sends them.
    words.extend((is_server != load.up).then(|| "--sends".to_owned()));
    words
}

fn place(system: System) -> Result<Place, String> {
    let kernel = || "kernel".to_owned();
    let both = |server: &str, client: &str| (server.to_owned(), client.to_owned());
    let mut place = Place {
        wires: (kernel(), kernel()),
        addresses: both("127.0.0.1/8", "127.0.0.1/8"),
        namespaces: None,
        _veth: None,
        _loopback: None,
        socket: None,
    };
    match system {
        System::Memif(mtu) | System::Dedicated(mtu) => over_memif(&mut place, mtu),
        System::Aggregated(..) => over_memif(&mut place, 1500),
        System::KernelVeth(mtu) => {
            let veth = Veth::new(VethOptions {
                mtu,
                kernel_server: true,
                kernel_client: true,
                ..VethOptions::default()
            })?;
            over_veth(&mut place, veth);
        }
        System::Interleaved(Wired::Memif(_), _) => over_memif(&mut place, 1500),
        System::Interleaved(wired, _) => {
            let kernel_client = matches!(wired, Wired::Kernel { .. });
            let veth = Veth::new(VethOptions {
                mtu: 1500,
                kernel_client,
                client_merges: matches!(wired, Wired::Kernel { merges: true }),
                ..VethOptions::default()
            })?;
            over_veth(&mut place, veth);
            let xdp = format!("xdp:{}", namespace::DEVICE);
            place.wires = match kernel_client {
                true => (xdp, kernel()),
                false => (xdp.clone(), xdp),
            };
        }
        System::Receiver(receiver) => {
            let veth = Veth::new(VethOptions {
                mtu: 1500,
                kernel_server: receiver == Receiver::Kernel,
                kernel_client: true,
                segmentation: true,
                ..VethOptions::default()
            })?;
            over_veth(&mut place, veth);
            place.wires.0 = receiver.wire(namespace::DEVICE);
        }
        System::KernelLoopback => {
            place._loopback = Loopback::new()?;
            let name = place._loopback.as_ref().map(Loopback::name);
            place.namespaces = name.map(|name| (name.clone(), name));
        }
        System::Saturated(..) | System::Smoltcp(_) | System::Gvisor(_) => {}
    }
    Ok(place)
}

fn over_veth(place: &mut Place, veth: Veth) {
    let (server, client) = (namespace::SERVER, namespace::CLIENT);
    place.addresses = (format!("{server}/24"), format!("{client}/24"));
    place.namespaces = Some((veth.server(), veth.client()));
    place._veth = Some(veth);
}

fn over_memif(place: &mut Place, mtu: usize) {
    let path = std::env::temp_dir().join(format!("mst-{}-bulk.sock", std::process::id()));
    let buffer = mtu + BUFFER_OVERHEAD_BYTES;
    let wire = |role| format!("memif:{},role={role},buffer={buffer}", path.display());
    place.wires = (wire("server"), wire("client"));
    place.addresses = (SERVER_ADDRESS.to_owned(), CLIENT_ADDRESS.to_owned());
    place.socket = Some(path);
}

/// Runs both ends in one process: in one thread on the server's core, or gVisor's many on both.
fn together(name: &str, word: &str, mtu: usize, load: Load) -> Result<Seen, String> {
    let cores = match name {
        "netstack" => format!("{},{}", load.cores.0, load.cores.1),
        _ => load.cores.0.to_string(),
    };
    let program = process::beside(name)?.display().to_string();
    let mut words = vec!["-c".to_owned(), cores, program, word.to_owned()];
    for (name, value) in [
        ("--mtu", mtu.to_string()),
        ("--seconds", load.seconds.to_string()),
        ("--warm-up", load.warm_up.to_string()),
    ] {
        words.extend([name.to_owned(), value]);
    }
    let mut both = Process::start(None, "taskset".into(), &words)?;
    let received: Received = both.says()?;
    both.finish()?;
    if received.bytes == 0 {
        return Err("nothing came".to_owned());
    }
    Ok(Seen {
        gbit_per_second: received.bytes as f64 * 8.0 / 1e9 / received.seconds,
        jain: 1.0,
        ..Seen::default()
    })
}

/// Runs both ends in one thread on the server's core, where the receiver takes a whole batch in
/// each turn. With a burst the flows interleave.
fn in_one_thread(
    (limit, acks): (u16, Acks),
    burst: Option<usize>,
    system: System,
    load: Load,
) -> Result<Seen, String> {
    let mebibytes = |seconds: f64| (seconds * MEBIBYTES_PER_SECOND).max(1.0) as u64;
    let mut words = vec!["-c".to_owned(), load.cores.0.to_string()];
    words.push(process::ourselves()?.display().to_string());
    words.push("bulk-thread".to_owned());
    for (name, value) in [
        ("--mebibytes", mebibytes(load.seconds).to_string()),
        ("--warm-up-mebibytes", mebibytes(load.warm_up).to_string()),
        ("--aggregation-max", limit.to_string()),
        ("--acks", acks.name().to_owned()),
    ] {
        words.extend([name.to_owned(), value]);
    }
    if let Some(burst) = burst {
        words.extend(["--burst".to_owned(), burst.to_string()]);
        words.extend(["--flows".to_owned(), load.flows.to_string()]);
    }
    let mut both = Process::start(None, "taskset".into(), &words)?;
    let moved: Moved = both.says()?;
    both.finish()?;
    // A frame that is no segment with payload is an ACK.
    let per_frame = moved.segments as f64 / moved.transactions_all.max(1) as f64 - 1.0;
    answers(system, Some(per_frame))?;
    let bytes = moved.bytes.max(1) as f64;
    let (receiver_ns, both_ns) = (moved.receiver_ns as f64, moved.both_ns.max(1) as f64);
    Ok(Seen {
        gbit_per_second: bytes * 8.0 / both_ns,
        receiver_ns_per_byte: Some(receiver_ns / bytes),
        sender_ns_per_byte: Some((both_ns - receiver_ns) / bytes),
        jain: 1.0,
        parts: None,
    })
}
