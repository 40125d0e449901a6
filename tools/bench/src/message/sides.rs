//! Starts a server and a client as processes of their own, or one process that is both, and reads
//! what the client saw.
//!
//! The server's first line says where it listens; it leaves when its stdin closes. The client's
//! first line says that its idle connections stand, the next that the warm-up is over, the last
//! what it saw. The server's use is read at the last two, so the CPU time of the warm-up does not
//! count.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::measure::{Batches, Plan, Seen, cpu};
use millstream::HugePages;
use serde::{Deserialize, Serialize};

use super::crowd;
use super::system::{Place, Stack, System};
use crate::frame::namespace::{self, Loopback, Veth, VethOptions};
use crate::frame::{Process, Repeats, memory, process};
use crate::mux::service::Service;
use crate::profile::{Sampler, attribution};

/// Addresses when the wire is a memif; the client's idle connections have others behind this one.
const SERVER_ADDRESS: &str = "10.93.0.2/16";
const CLIENT_ADDRESS: &str = "10.93.0.1/16";
/// Idle connections for which a client takes another address.
const IDLE_PER_ADDRESS: usize = 25_000;
/// Beyond this many connections the tables are made larger than they are by default.
const CONNECTIONS_BY_DEFAULT: usize = 16_384;
/// Part of the counted time in which samples are taken. The sampler starts late, and the processes
/// must still run at its end.
const SAMPLED_PART: f64 = 0.8;

/// One run of one system.
#[derive(Clone, Debug)]
pub struct Run {
    pub plan: Plan,
    pub server_core: usize,
    pub client_core: usize,
    /// Stacks of each side, a thread for each.
    pub contexts: usize,
    /// Microseconds that a stack of Millstream's looks for work before it sleeps; its default if
    /// none.
    pub spin_us: Option<u64>,
    /// Pages under the tables and buffers of Millstream's stacks.
    pub hugetlb: HugePages,
    /// Properties of the veth pair, where there is one.
    pub wire: Wire,
    /// Number of the server's cores: its own first, then also the client's.
    pub server_cores: usize,
    /// Both processes are sampled while transactions count.
    pub is_sampled: bool,
}

impl Run {
    /// A run of this plan with the times and cores of a benchmark's options.
    pub fn of(repeats: &Repeats, plan: Plan) -> Self {
        Self {
            plan: Plan {
                seconds: repeats.seconds,
                warm_up: repeats.warm_up,
                ..plan
            },
            server_core: repeats.server_core,
            client_core: repeats.client_core,
            ..Self::default()
        }
    }
}

impl Default for Run {
    /// The plain transaction, the server on core 0 and the client on core 1.
    fn default() -> Self {
        Self {
            plan: Plan::default(),
            server_core: 0,
            client_core: 1,
            contexts: 1,
            spin_us: None,
            hugetlb: HugePages::default(),
            wire: Wire::default(),
            server_cores: 1,
            is_sampled: false,
        }
    }
}

impl Run {
    /// The server's cores.
    fn cores(&self) -> Vec<usize> {
        let cores = [self.server_core, self.client_core];
        cores[..self.server_cores.clamp(1, cores.len())].to_vec()
    }
}

/// Properties of a veth pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    /// The pair keeps what veth offers: segmentation and merging.
    pub segmentation: bool,
    /// The pair is set up as for a service, also for systems without one, so that all meet the
    /// same.
    pub is_shared: bool,
}

/// The server's first line.
#[derive(Deserialize)]
struct Ready {
    address: SocketAddr,
}

/// Namespaces, wires and addresses of the two sides.
struct Where {
    server_namespace: Option<String>,
    client_namespace: Option<String>,
    server_wire: String,
    client_wire: String,
    server_addresses: Vec<String>,
    client_addresses: Vec<String>,
    /// The namespace with a loopback, which goes away with this value.
    _loopback: Option<Loopback>,
    /// The service. Fields are dropped in order: it must end while the pair's interface is there.
    _service: Option<Service>,
    _veth: Option<Veth>,
    socket: Option<PathBuf>,
}

impl Drop for Where {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Runs a system once.
pub fn run(system: System, run: &Run) -> Result<Seen, String> {
    run_with(system, run, None)
}

/// The report of a Millstream server at a mark.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Cycles of each stage, if it was built to count them.
    pub stages: Vec<(String, f64)>,
    /// Seconds for which its threads looked for work before they slept: CPU time without work.
    pub looked_seconds: f64,
    /// Sizes of its turns' batches so far.
    #[serde(default)]
    pub batches: Vec<Batches>,
}

/// As [`run`], with another `bench` as the server.
pub fn run_with(system: System, run: &Run, server: Option<&Path>) -> Result<Seen, String> {
    if system.is_http() {
        return crowd::run(system, run);
    }
    if system.place() == Place::Together {
        return together(system, run);
    }
    let place = place(system, run)?;
    let (server_stack, client_stack) = system.stacks();
    let (address, mut servers) = start_servers(system, &place, run, server)?;
    let held_by = |servers: &[Process]| {
        let each = servers.iter().map(|server| memory::held_bytes(server.id()));
        let held: Option<u64> = each.sum();
        held.ok_or("server: what it holds is not told".to_owned())
    };
    let held_before = held_by(&servers)?;
    // With several contexts, only one of them would read a mark from stdin. Such runs do not look
    // for work either, so no mark is needed.
    let is_marked = run.contexts == 1 && matches!(server_stack, Stack::Inline | Stack::Dedicated);
    let mut words = side_words(
        client_stack,
        &place.client_wire,
        &place.client_addresses,
        run,
    );
    words.extend(choices(system));
    words.extend(["--role", "client", "--core"].map(str::to_owned));
    words.push(run.client_core.to_string());
    words.extend(["--server".to_owned(), address.to_string()]);
    let mut client = start(
        client_stack,
        place.client_namespace.as_deref(),
        &words,
        None,
    )?;
    let named = |cause: String| format!("client: {cause}");
    client.line().map_err(named)?;
    let held = held_by(&servers)?;
    client.line().map_err(named)?;
    let before = Used::of(&mut servers, is_marked)?;
    let sampler = match run.is_sampled {
        true => {
            let ids = servers.iter().chain([&client]).map(Process::id);
            let ids: Vec<u32> = ids.collect();
            Some(Sampler::start(&ids, run.plan.seconds * SAMPLED_PART)?)
        }
        false => None,
    };
    let mut seen: Seen = client.says().map_err(named)?;
    let after = Used::of(&mut servers, is_marked)?;
    after.note(&before, &mut seen);
    if let Some(sampler) = sampler {
        seen.samples = attribution::count::<attribution::Part>(&sampler.finish()?);
    }
    seen.idle_bytes = held.saturating_sub(held_before) as f64 / run.plan.idle.max(1) as f64;
    seen.held_bytes = held as f64;
    client.finish().map_err(named)?;
    for server in servers {
        server.leave().map_err(|cause| format!("server: {cause}"))?;
    }
    judged(seen, run.plan.connections)
}

/// Starts the server: a process for each core where the system's processes share a port, and one
/// for all cores otherwise.
fn start_servers(
    system: System,
    place: &Where,
    run: &Run,
    program: Option<&Path>,
) -> Result<(SocketAddr, Vec<Process>), String> {
    let (stack, _) = system.stacks();
    let cores = run.cores();
    let places: Vec<&[usize]> = match system.has_process_per_core() {
        true => cores.chunks(1).collect(),
        false => vec![&cores],
    };
    let namespace = place.server_namespace.as_deref();
    let mut address: Option<SocketAddr> = None;
    let mut servers = Vec::new();
    for cores in places {
        let mut words = side_words(stack, &place.server_wire, &place.server_addresses, run);
        words.extend(choices(system));
        words.extend(["--role", "server", "--core"].map(str::to_owned));
        words.push(cores[0].to_string());
        for core in &cores[1..] {
            words.extend(["--more-cores".to_owned(), core.to_string()]);
        }
        if let Some(first) = address {
            words.extend(["--port".to_owned(), first.port().to_string()]);
        }
        let mut server = start(stack, namespace, &words, program)?;
        let ready: Ready = server.says().map_err(|cause| format!("server: {cause}"))?;
        address.get_or_insert(ready.address);
        servers.push(server);
    }
    let address = address.ok_or("server: none was started")?;
    Ok((address, servers))
}

/// CPU time that all processes of a server had used at some moment.
struct Used {
    cpu_ns: u64,
    spent: Spent,
}

impl Used {
    fn of(servers: &mut [Process], is_marked: bool) -> Result<Self, String> {
        let each = servers.iter().map(|server| cpu::time_ns(server.id()));
        let cpu_ns: Option<u64> = each.sum();
        let cpu_ns = cpu_ns.ok_or("server: its CPU time is not told")?;
        let spent = match servers {
            [server] if is_marked => server.mark().and_then(|()| server.says()),
            _ => Ok(Spent::default()),
        };
        let spent = spent.map_err(|cause| format!("server: {cause}"))?;
        Ok(Self { cpu_ns, spent })
    }

    /// Charges the CPU time since `before` to the transactions that counted.
    fn note(self, before: &Self, seen: &mut Seen) {
        let each = seen.transactions.max(1) as f64;
        let cpu_ns = self.cpu_ns.saturating_sub(before.cpu_ns);
        seen.server_cpu_us = cpu_ns as f64 / 1e3 / each;
        let looked_seconds = self.spent.looked_seconds - before.spent.looked_seconds;
        seen.server_looked_us = looked_seconds * 1e6 / each;
        let batches = self.spent.batches.iter().zip(&before.spent.batches);
        seen.batches = batches.map(|(now, then)| now.since(then)).collect();
        let stages = self.spent.stages.into_iter().zip(&before.spent.stages);
        seen.stages = stages
            .map(|((name, cycles), (_, before))| (name, (cycles - before) / each))
            .collect();
    }
}

/// Options for both ends.
fn choices(system: System) -> Vec<String> {
    match system {
        System::InlineAlone => ["--aggregation-max", "1", "--acks", "off"]
            .map(str::to_owned)
            .to_vec(),
        System::KernelLooks => ["--spin-us", "50"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

/// Refuses a run of a crowd only if no request was answered: late and failed requests are counted.
pub(super) fn judged_by_answers(seen: Seen) -> Result<Seen, String> {
    match seen.transactions {
        0 => Err(format!(
            "no request was answered in the time that counts ({} failed, {} unanswered)",
            seen.failures, seen.unanswered
        )),
        _ => Ok(seen),
    }
}

/// Refuses a run that says nothing: one without transactions, with more than one failure in 1,000,
/// or with too many connections that hung.
fn judged(seen: Seen, connections: usize) -> Result<Seen, String> {
    if seen.transactions == 0 {
        return Err(format!(
            "no transaction ended in the time that counts ({} failed)",
            seen.failures
        ));
    }
    if seen.failures > seen.transactions_all / 1000 {
        return Err(format!(
            "{} of {} transactions failed",
            seen.failures, seen.transactions_all
        ));
    }
    // A single connection that hung, as by a timeout, is only noted.
    if seen.stalled > 1 + connections as u64 / 1000 {
        return Err(format!(
            "{} of {connections} connections hung to the end",
            seen.stalled
        ));
    }
    Ok(seen)
}

/// Both sides in one process: in one thread on the server's core, or gVisor's many on both.
fn together(system: System, run: &Run) -> Result<Seen, String> {
    let (program, mut words) = match system {
        System::OneThread => (process::ourselves()?, vec!["one-thread".to_owned()]),
        System::Gvisor => (process::beside("netstack")?, Vec::new()),
        _ => (process::beside("rivals")?, vec!["smoltcp".to_owned()]),
    };
    words.extend(run.plan.words());
    let cores = match system {
        System::Gvisor => format!("{},{}", run.server_core, run.client_core),
        _ => run.server_core.to_string(),
    };
    let mut all = vec!["-c".to_owned(), cores, program.display().to_string()];
    all.extend(words);
    let mut both = Process::start(None, "taskset".into(), &all)?;
    let seen = both.says()?;
    both.finish()?;
    judged(seen, run.plan.connections)
}

fn start(
    stack: Stack,
    namespace: Option<&str>,
    words: &[String],
    program: Option<&Path>,
) -> Result<Process, String> {
    if stack == Stack::Uring {
        return Process::start(namespace, process::beside("rivals")?, words);
    }
    let mut all = vec!["message-side".to_owned()];
    all.extend_from_slice(words);
    match program {
        Some(program) => Process::start(namespace, program.to_owned(), &all),
        None => Process::ourselves(namespace, &all),
    }
}

fn side_words(stack: Stack, wire: &str, addresses: &[String], run: &Run) -> Vec<String> {
    let mut words = Vec::new();
    if stack == Stack::Uring {
        words.push("uring".to_owned());
    } else {
        words.extend(["--wire".to_owned(), wire.to_owned()]);
        for address in addresses {
            words.extend(["--addr".to_owned(), address.clone()]);
        }
    }
    let crank = match stack {
        Stack::Kernel | Stack::Uring => None,
        Stack::Inline => Some("inline"),
        Stack::Dedicated => Some("dedicated"),
    };
    if let Some(crank) = crank {
        words.extend(["--crank", crank, "--contexts"].map(str::to_owned));
        words.push(run.contexts.to_string());
        if let Some(spin_us) = run.spin_us {
            words.extend(["--spin-us".to_owned(), spin_us.to_string()]);
        }
        if run.hugetlb != HugePages::default() {
            words.extend(["--hugetlb".to_owned(), run.hugetlb.to_string()]);
        }
        let connections = run.plan.connections + run.plan.idle;
        if connections > CONNECTIONS_BY_DEFAULT {
            let each = connections / run.contexts + 1024;
            words.extend(["--sockets-max".to_owned(), each.to_string()]);
        }
    }
    words.extend(run.plan.words());
    words
}

fn place(system: System, run: &Run) -> Result<Where, String> {
    let mut place = Where {
        server_namespace: None,
        client_namespace: None,
        server_wire: "kernel".to_owned(),
        client_wire: "kernel".to_owned(),
        server_addresses: vec!["127.0.0.1/8".to_owned()],
        client_addresses: vec!["127.0.0.1/8".to_owned()],
        _loopback: None,
        _service: None,
        _veth: None,
        socket: None,
    };
    let more = run.plan.idle / IDLE_PER_ADDRESS;
    match system.place() {
        Place::Loopback => {
            place
                .client_addresses
                .extend((0..more).map(|n| format!("127.0.1.{}/8", n + 1)));
            let loopback = Loopback::new()?;
            place.server_namespace = loopback.as_ref().map(Loopback::name);
            place.client_namespace = place.server_namespace.clone();
            place._loopback = loopback;
        }
        Place::Together => {}
        Place::Memif => {
            let socket =
                std::env::temp_dir().join(format!("mst-{}-message.sock", std::process::id()));
            let queues = run.contexts;
            let wire = |role| format!("memif:{},role={role},queues={queues}", socket.display());
            (place.server_wire, place.client_wire) = (wire("server"), wire("client"));
            place.server_addresses = vec![SERVER_ADDRESS.to_owned()];
            place.client_addresses = vec![CLIENT_ADDRESS.to_owned()];
            place
                .client_addresses
                .extend((0..more).map(|n| format!("10.93.1.{}/16", n + 1)));
            place.socket = Some(socket);
        }
        Place::Veth => {
            let (server, client) = system.stacks();
            let options = VethOptions {
                mtu: 1500,
                kernel_server: server == Stack::Kernel || system.is_shared(),
                kernel_client: client == Stack::Kernel,
                segmentation: run.wire.segmentation,
                is_shared: run.wire.is_shared,
                ..VethOptions::default()
            };
            let veth = Veth::new(options)?;
            let path = system.mux_path();
            place._service = path.map(|path| Service::start(&veth, path)).transpose()?;
            let wire = |stack| match stack {
                Stack::Kernel => "kernel".to_owned(),
                _ => system.wire(namespace::DEVICE),
            };
            (place.server_wire, place.client_wire) = (wire(server), wire(client));
            if let Some(service) = &place._service {
                place.server_wire = service.wire();
            }
            place.server_addresses = vec![format!("{}/24", namespace::SERVER)];
            place.client_addresses = vec![format!("{}/24", namespace::CLIENT)];
            place.server_namespace = Some(veth.server());
            place.client_namespace = Some(veth.client());
            place._veth = Some(veth);
        }
    }
    Ok(place)
}
