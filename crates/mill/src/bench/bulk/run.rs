//! One transfer: two processes over a wire, or smoltcp's one.

use std::net::SocketAddr;
use std::path::PathBuf;

use measure::cpu;
use serde::Deserialize;

use super::side::Received;
use super::{Load, Seen, System};
use crate::bench::frame::namespace::{self, Loopback, Veth, VethOptions};
use crate::bench::frame::{Process, process};

/// What a memif's buffer holds beside the IP packet.
const BUFFER_OVERHEAD_BYTES: usize = 18;
const SERVER_ADDRESS: &str = "10.92.0.2/24";
const CLIENT_ADDRESS: &str = "10.92.0.1/24";

/// The server's first line.
#[derive(Deserialize)]
struct Ready {
    address: SocketAddr,
}

/// Where a run happens.
struct Place {
    wires: (String, String),
    addresses: (String, String),
    /// Where server and client run.
    namespaces: Option<(String, String)>,
    /// What goes away afterwards.
    _veth: Option<Veth>,
    _loopback: Option<Loopback>,
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
    let place = place(system)?;
    let namespace = place.namespaces.as_ref().map(|both| both.0.as_str());
    let mut words = words("server", &place.wires.0, &place.addresses.0, load);
    words.extend(choices(system));
    let mut server = Process::mill(namespace, &words)?;
    let ready: Ready = server.says().map_err(|cause| format!("server: {cause}"))?;
    let mut words = self::words("client", &place.wires.1, &place.addresses.1, load);
    words.extend(["--server".to_owned(), ready.address.to_string()]);
    words.extend(choices(system));
    let namespace = place.namespaces.as_ref().map(|both| both.1.as_str());
    let mut client = Process::mill(namespace, &words)?;
    let (receiver, sender) = match load.up {
        true => (&mut server, &client),
        false => (&mut client, &server),
    };
    let seen = watch(receiver, sender)?;
    // The receiver has left; its end is the sender's.
    for (name, end) in [("client", client), ("server", server)] {
        end.leave().map_err(|cause| format!("{name}: {cause}"))?;
    }
    Ok(seen)
}

/// What is set at both ends.
fn choices(system: System) -> Vec<String> {
    if matches!(system, System::Dedicated(_)) {
        return ["--crank", "dedicated"].map(str::to_owned).to_vec();
    }
    let System::Aggregated(limit, acks) = system else {
        return Vec::new();
    };
    let limit = limit.to_string();
    ["--aggregation-max", &limit, "--acks", acks.name()]
        .map(str::to_owned)
        .to_vec()
}

/// Waits for the receiver's count, and for what both ends use while it counts.
fn watch(receiver: &mut Process, sender: &Process) -> Result<Seen, String> {
    let named = |cause: String| format!("receiver: {cause}");
    receiver.line().map_err(named)?;
    let used = (cpu::time_ns(receiver.id()), cpu::time_ns(sender.id()));
    let received: Received = receiver.says().map_err(named)?;
    let receiver_ns = cpu::time_ns(receiver.id()).saturating_sub(used.0);
    // A receiver that is faster than its sender looks for more: that is no cost of what came.
    let receiver_s = (receiver_ns as f64 / 1e9 - received.looked_seconds).max(0.0);
    let sender_ns = cpu::time_ns(sender.id()).saturating_sub(used.1);
    if received.bytes == 0 {
        return Err("nothing came".to_owned());
    }
    let bytes = received.bytes as f64;
    Ok(Seen {
        gbit_per_second: bytes * 8.0 / 1e9 / received.seconds,
        receiver_ns_per_byte: Some(receiver_s * 1e9 / bytes),
        sender_ns_per_byte: Some(sender_ns as f64 / bytes),
        jain: received.jain,
    })
}

fn words(role: &str, wire: &str, address: &str, load: Load) -> Vec<String> {
    let head = [
        "bench",
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
    // Whoever the bytes do not go to sends them.
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
                segmentation: false,
            })?;
            let (server, client) = (namespace::SERVER, namespace::CLIENT);
            place.addresses = (format!("{server}/24"), format!("{client}/24"));
            place.namespaces = Some((veth.server(), veth.client()));
            place._veth = Some(veth);
        }
        System::KernelLoopback => {
            place._loopback = Loopback::new()?;
            let name = place._loopback.as_ref().map(Loopback::name);
            place.namespaces = name.map(|name| (name.clone(), name));
        }
        System::Smoltcp(_) | System::Gvisor(_) => {}
    }
    Ok(place)
}

fn over_memif(place: &mut Place, mtu: usize) {
    let path = std::env::temp_dir().join(format!("mst-{}-bulk.sock", std::process::id()));
    let buffer = mtu + BUFFER_OVERHEAD_BYTES;
    let wire = |role| format!("memif:{},role={role},buffer={buffer}", path.display());
    place.wires = (wire("server"), wire("client"));
    place.addresses = (SERVER_ADDRESS.to_owned(), CLIENT_ADDRESS.to_owned());
    place.socket = Some(path);
}

/// Both ends in one process, on the server's core.
fn together(name: &str, word: &str, mtu: usize, load: Load) -> Result<Seen, String> {
    let mut words = vec!["-c".to_owned(), load.cores.0.to_string()];
    words.push(process::beside(name)?.display().to_string());
    words.push(word.to_owned());
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
