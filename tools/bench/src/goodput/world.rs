//! Namespaces of one transfer: one for each end, and one between them with the wire. They are
//! removed when dropped.

use super::side::Received;
use super::{Cell, GoodputOptions, Pair};
use crate::frame::Process;
use crate::frame::process::ip;

const SENDER: &str = "10.78.0.1";
const RECEIVER: &str = "10.78.0.2";

/// One transfer: its two stacks, the faults of its wire, and its time.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    pub cell: &'a Cell,
    pub pair: Pair,
    pub seconds: f64,
    pub seed: u32,
    /// Number of this wire among those that run at once; part of the namespaces' names.
    pub job: u32,
}

/// Runs the transfer. Returns its goodput in megabits per second.
pub fn run(options: &GoodputOptions, transfer: &Transfer<'_>) -> Result<f64, String> {
    let named = |cause: String| format!("{transfer:?}: {cause}");
    let world = congestion(options)
        .and_then(|congestion| World::new(transfer.pair, transfer.job, congestion))
        .map_err(named)?;
    carry(&world, options, transfer).map_err(named)
}

/// The congestion control of kernel and Millstream: the user's choice, or else the machine's.
pub fn congestion(options: &GoodputOptions) -> Result<String, String> {
    if let Some(name) = &options.congestion {
        return Ok(name.clone());
    }
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    match std::fs::read_to_string(path) {
        Ok(name) => Ok(name.trim().to_owned()),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

fn carry(world: &World, options: &GoodputOptions, transfer: &Transfer<'_>) -> Result<f64, String> {
    let mut wire = world.wire(options, transfer.cell, transfer.seed)?;
    wire.line()?;
    let (pair, seconds) = (transfer.pair, transfer.seconds.to_string());
    let receiver_is_ours = pair == Pair::KernelToOurs;
    let mut words = world.end(RECEIVER, receiver_is_ours);
    words.extend(["--role", "receive", "--seconds", &seconds].map(str::to_owned));
    let mut receiver = Process::ourselves(Some(&world.namespace("right")), &words)?;
    receiver.line()?;
    let sender_is_ours = pair == Pair::OursToKernel;
    let mut words = world.end(SENDER, sender_is_ours);
    words.extend(["--role", "send", "--receiver", RECEIVER].map(str::to_owned));
    let _sender = Process::ourselves(Some(&world.namespace("left")), &words)?;
    let received: Received = receiver.says()?;
    Ok(received.bytes as f64 * 8.0 / received.seconds / 1e6)
}

/// Three namespaces; `left` and `right` each have a veth pair into `between`.
struct World {
    prefix: String,
    congestion: String,
}

impl World {
    fn new(pair: Pair, job: u32, congestion: String) -> Result<Self, String> {
        let world = Self {
            prefix: format!("mst-{}-{job}", std::process::id()),
            congestion,
        };
        for side in ["left", "right", "between"] {
            ip(&["netns", "add", &world.namespace(side)])?;
        }
        for (side, address, ours) in [
            ("left", SENDER, pair == Pair::OursToKernel),
            ("right", RECEIVER, pair == Pair::KernelToOurs),
        ] {
            world.join(side, address, ours)?;
        }
        Ok(world)
    }

    /// A veth pair from the side to the middle, without offloads, so that the wire carries frames
    /// as a real one does.
    fn join(&self, side: &str, address: &str, ours: bool) -> Result<(), String> {
        let (own, between) = (self.namespace(side), self.namespace("between"));
        let far = format!("to-{side}");
        ip(&[
            "-n", &own, "link", "add", "own", "type", "veth", "peer", "name", &far, "netns",
            &between,
        ])?;
        for (namespace, device) in [(&own, "own"), (&between, far.as_str())] {
            let offloads = [
                "tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off",
            ];
            let mut words = vec!["netns", "exec", namespace, "ethtool", "-K", device];
            words.extend(offloads);
            ip(&words)?;
            ip(&["-n", namespace, "link", "set", "dev", device, "up"])?;
        }
        if !ours {
            let setting = format!("net.ipv4.tcp_congestion_control={}", self.congestion);
            ip(&["netns", "exec", &own, "sysctl", "-qw", &setting])?;
            let cidr = format!("{address}/24");
            ip(&["-n", &own, "address", "add", &cidr, "dev", "own"])?;
        }
        Ok(())
    }

    fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.prefix)
    }

    fn wire(&self, options: &GoodputOptions, cell: &Cell, seed: u32) -> Result<Process, String> {
        let mut words = ["wire", "packet:to-left", "packet:to-right"]
            .map(str::to_owned)
            .to_vec();
        let seed = seed.to_string();
        for (name, value) in [
            ("--loss", &cell.loss),
            ("--delay", &cell.delay),
            ("--reorder", &cell.reorder),
            ("--rate", &options.rate),
            ("--limit", &options.limit),
            ("--seed", &seed),
        ] {
            words.extend([name.to_owned(), value.clone()]);
        }
        Process::ourselves(Some(&self.namespace("between")), &words)
    }

    /// Arguments that start one end, without its role.
    fn end(&self, address: &str, ours: bool) -> Vec<String> {
        let cidr = format!("{address}/24");
        let wire = if ours { "packet:own" } else { "kernel" };
        let words = ["goodput-side", "--wire", wire, "--addr", &cidr];
        let mut words = words.map(str::to_owned).to_vec();
        if ours {
            words.extend(["--congestion", &self.congestion].map(str::to_owned));
        }
        words
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for side in ["left", "right", "between"] {
            // A namespace that was never made cannot be removed; that is expected.
            let _ = ip(&["netns", "delete", &self.namespace(side)]);
        }
    }
}

/// Permission for namespaces to choose further congestion controls. It lasts as long as this value.
pub struct Permission {
    before: Option<String>,
}

/// The machine's list of what namespaces may choose; the namespaces have none of their own.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

impl Permission {
    /// Lets namespaces choose `name`, which must be a loaded congestion control.
    pub fn to_use(name: Option<&str>) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{ALLOWED}: {error}");
        let Some(name) = name else {
            return Ok(Self { before: None });
        };
        let before = std::fs::read_to_string(ALLOWED).map_err(named)?;
        if before.split_whitespace().any(|allowed| allowed == name) {
            return Ok(Self { before: None });
        }
        std::fs::write(ALLOWED, format!("{} {name}", before.trim())).map_err(named)?;
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for Permission {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A failure cannot be reported from here, and a list that stays longer does no harm.
            let _ = std::fs::write(ALLOWED, before);
        }
    }
}
