//! Two contexts on a wire with two queues. At its far end is the kernel, which needs root, or
//! another stack.
//!
//! XPS at the far end of a veth selects the queue by which the kernel sends. So a test can make all
//! frames arrive at one context in the middle of its connections.

mod common;

#[path = "queues/agent.rs"]
mod agent;
#[path = "../../packetio/tests/dpdk_common/mod.rs"]
mod dpdk_common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::process::Command;
use std::time::Duration;

use agent::{Agent, Process};
use common::lab::{self, Namespace};
use millstream::{Config, Runtime, TcpListener, TcpStream};

const LONG: Duration = Duration::from_secs(40);
const CLIENTS: usize = 16;
/// Bits of the queues by which XPS lets the kernel send.
const BOTH: [u8; 2] = [3, 3];
const FIRST: [u8; 2] = [3, 0];
const SECOND: [u8; 2] = [0, 3];

/// A veth with two queues whose far end is the kernel's.
struct Veth {
    near: Namespace,
    far: Namespace,
}

impl Veth {
    fn new() -> Self {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        let queues = "numtxqueues 2 numrxqueues 2";
        near.ip(&format!(
            "link add name q0 {queues} type veth peer name q1 {queues}"
        ));
        near.ip(&format!("link set q1 netns {}", far.name()));
        near.ip("link set q0 up");
        far.ip("link set q1 up");
        far.ip("addr add 10.77.0.2/24 dev q1");
        Self { near, far }
    }

    /// Sets the CPUs that use each of the kernel's queues.
    fn steer(&self, cpus: [u8; 2]) {
        for (queue, cpus) in cpus.into_iter().enumerate() {
            let path = format!("/sys/class/net/q1/queues/tx-{queue}/xps_cpus");
            let output = Command::new("ip")
                .args(["netns", "exec", self.far.name(), "sh", "-c"])
                .arg(format!("echo {cpus:x} > {path}"))
                .output()
                .expect("sh");
            assert!(output.status.success(), "{path}: {output:?}");
        }
    }

    fn process(&self, wire: &str) -> Process {
        Process::start(&self.near, wire, 2)
    }
}

/// The kernel's connections, each with the context that it reached first.
struct Clients(Vec<(KernelStream, u8)>);

impl Clients {
    fn connect(far: &Namespace, count: usize) -> Self {
        let each = far.inside(|| {
            let one = |_| KernelStream::connect(agent::OURS).expect("connect");
            (0..count).map(one).collect::<Vec<_>>()
        });
        let mut clients = Self(each.into_iter().map(|stream| (stream, u8::MAX)).collect());
        for (stream, context) in &mut clients.0 {
            stream.set_read_timeout(Some(LONG)).expect("timeout");
            *context = ask(stream);
        }
        clients
    }

    /// Checks that each connection is answered by the context that it reached first.
    fn assert_unmoved(&mut self) {
        for (stream, context) in &mut self.0 {
            assert_eq!(ask(stream), *context);
        }
    }

    fn at(&self, context: u8) -> usize {
        self.0.iter().filter(|(_, at)| *at == context).count()
    }
}

/// The number of the context that answers.
fn ask(stream: &mut (impl Read + Write)) -> u8 {
    stream.write_all(b"?").expect("a question");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("an answer");
    answer[0]
}

fn handed(agents: &[Agent]) -> u64 {
    let counts = agents.iter().map(|agent| {
        let report = agent.report();
        assert_eq!(report.stack.hand_over_full, 0);
        assert_eq!(report.stack.hand_over_unlisted, 0);
        report.stack.handed_over
    });
    counts.sum()
}

#[test]
fn flows_stay_with_their_context_when_the_kernel_changes_their_queue() {
    let Some(_turn) = lab::turn_as_root("queues: flows") else {
        return;
    };
    let veth = Veth::new();
    veth.steer(BOTH);
    let process = veth.process("xdp:q0");
    let agents = &process.agents;
    agents.iter().for_each(Agent::listen);
    assert!(!agent::has_thread("millstream-swit"), "no switch");
    let mut clients = Clients::connect(&veth.far, CLIENTS);
    assert!(clients.at(0) > 0 && clients.at(1) > 0, "both take part");
    assert_eq!(clients.at(0) + clients.at(1), CLIENTS);
    for queues in [FIRST, SECOND] {
        veth.steer(queues);
        let before = handed(agents);
        clients.assert_unmoved();
        assert!(handed(agents) > before, "some came to the wrong context");
    }
    let before = handed(agents);
    let at_second = Clients::connect(&veth.far, CLIENTS);
    assert_eq!(
        at_second.at(1),
        CLIENTS,
        "a new flow stays where it arrives"
    );
    assert_eq!(handed(agents), before, "and needs no help");
}

#[test]
fn listener_closed_its_flows_go_on_and_the_other_context_gets_the_new_ones() {
    let Some(_turn) = lab::turn_as_root("queues: listener") else {
        return;
    };
    let veth = Veth::new();
    veth.steer(SECOND);
    let process = veth.process("xdp:q0");
    let agents = &process.agents;
    agents.iter().for_each(Agent::listen);
    let mut old = Clients::connect(&veth.far, CLIENTS);
    assert_eq!(old.at(1), CLIENTS);
    agents[1].close_listener();
    old.assert_unmoved();
    let before = handed(agents);
    let mut new = Clients::connect(&veth.far, CLIENTS);
    assert_eq!(new.at(0), CLIENTS, "it is the only one that listens");
    assert!(handed(agents) >= before + 2 * CLIENTS as u64);
    veth.steer(FIRST);
    old.assert_unmoved();
    new.assert_unmoved();
    agents[0].close_listener();
    agents[1].listen();
    old.assert_unmoved();
    new.assert_unmoved();
    assert_eq!(Clients::connect(&veth.far, 1).at(1), 1);
}

#[test]
fn connection_out_is_answered_at_its_context_wherever_the_answers_arrive() {
    let Some(_turn) = lab::turn_as_root("queues: out") else {
        return;
    };
    let veth = Veth::new();
    veth.steer(FIRST);
    let process = veth.process("xdp:q0");
    let server = veth.far.inside(|| {
        let any = SocketAddr::from(([0; 4], 7001));
        KernelListener::bind(any).expect("bind")
    });
    for queues in [FIRST, SECOND] {
        veth.steer(queues);
        for (index, agent) in process.agents.iter().enumerate() {
            agent.connect("10.77.0.2:7001".parse().expect("an address"));
            let (mut stream, _) = server.accept().expect("accept");
            stream.set_read_timeout(Some(LONG)).expect("timeout");
            assert_eq!(usize::from(ask(&mut stream)), index);
        }
    }
    assert!(handed(&process.agents) >= 6);
}

#[test]
fn context_gone_its_queue_is_driven_by_the_other_until_it_comes_again() {
    let Some(_turn) = lab::turn_as_root("queues: gone") else {
        return;
    };
    let veth = Veth::new();
    veth.steer(SECOND);
    let mut process = veth.process("xdp:q0");
    process.agents.iter().for_each(Agent::listen);
    let mut others = Clients::connect(&veth.far, 1);
    assert_eq!(others.at(1), 1);
    process.end(1);
    let mut clients = Clients::connect(&veth.far, CLIENTS);
    assert_eq!(clients.at(0), CLIENTS);
    let (stream, _) = &mut others.0[0];
    assert!(
        matches!(stream.read(&mut [0]), Ok(0) | Err(_)),
        "it is over"
    );
    process.begin(1);
    process.agents[1].listen();
    clients.assert_unmoved();
    assert_eq!(Clients::connect(&veth.far, 1).at(1), 1);
    assert!(handed(&process.agents) > 0);
}

/// The kernel distributes a packet socket's flows by an unknown hash, so about half of the answers
/// arrive at the wrong context.
#[test]
fn packet_sockets_of_two_contexts_share_an_interface() {
    let Some(_turn) = lab::turn_as_root("queues: packet") else {
        return;
    };
    let veth = Veth::new();
    let process = veth.process("packet:q0");
    assert!(!agent::has_thread("millstream-swit"), "no switch");
    shares(&veth.far, &process.agents);
}

/// The kernel's TAP remembers the queue by which a flow was sent. A flow that the kernel begins has
/// not been sent yet.
#[test]
fn tap_of_two_queues_is_shared_by_two_contexts() {
    let Some(_turn) = lab::turn_as_root("queues: tap") else {
        return;
    };
    let far = Namespace::new("far");
    let process = Process::start(&far, "tap:qt0,up=yes,queues=2", 2);
    far.ip("addr add 10.77.0.2/24 dev qt0");
    assert!(!agent::has_thread("millstream-swit"), "no switch");
    shares(&far, &process.agents);
}

/// Queue *k* of DPDK's TAP driver is queue *k* of the kernel's TAP. Queue 0 alone counts for the
/// device.
#[test]
fn dpdk_port_of_two_queues_is_shared_by_two_contexts() {
    let Some(_turn) = lab::turn_as_root("queues: dpdk") else {
        return;
    };
    let Some(plugin) = dpdk_common::plugin() else {
        return;
    };
    let far = Namespace::new("far");
    let eal = "--no-huge -m 256 --no-pci --vdev=net_tap0,iface=qd0";
    let plugin = plugin.display();
    let wire = format!("dpdk:net_tap0,plugin={plugin},queues=2,eal={eal}");
    let process = Process::start(&far, &wire, 2);
    far.ip("addr add 10.77.0.2/24 dev qd0");
    far.ip("link set qd0 up");
    assert!(!agent::has_thread("millstream-swit"), "no switch");
    shares(&far, &process.agents);
    for (index, agent) in process.agents.iter().enumerate() {
        let port = agent.report().port;
        assert!(port.rx_frames > 0 && port.tx_frames > 0, "{port:?}");
        let is_first = port.value("dpdk_device_rx_missed").is_some();
        assert_eq!(is_first, index == 0, "{port:?}");
    }
}

/// A stack of ours is at the far end. Its only context drives both queues and sends by the first.
#[test]
fn memif_of_two_queues_is_shared_by_two_contexts() {
    let path = std::env::temp_dir().join(format!("mst-queues-{}.sock", std::process::id()));
    let wire = |role| format!("memif:{},role={role},queues=2", path.display());
    let process = Process::open(&wire("server"), 2);
    let agents = &process.agents;
    assert!(!agent::has_thread("millstream-swit"), "no switch");
    let mut config = Config::new(wire("client").parse().expect("a wire"));
    config
        .addresses
        .push("10.77.0.2/24".parse().expect("theirs"));
    let runtime = Runtime::new(config).expect("a runtime");
    let context = runtime.context(0).expect("a context");
    let ours = agent::OURS.parse().expect("ours");

    agents[1].listen();
    let mut at_second = TcpStream::connect(&context, ours).expect("connect");
    assert_eq!(ask(&mut at_second), 1, "the only one that listens");
    let before = handed(agents);
    assert!(before >= 3, "it is not the one that the segments reach");
    agents[0].listen();
    let mut at_first = TcpStream::connect(&context, ours).expect("connect");
    assert_eq!(ask(&mut at_first), 0, "a new flow stays where it arrives");
    assert_eq!(handed(agents), before, "and needs no help");
    agents[1].close_listener();
    assert_eq!(ask(&mut at_second), 1);
    let theirs = "10.77.0.2:7001".parse().expect("an address");
    let listener = TcpListener::bind(&context, theirs).expect("bind");
    for (index, agent) in agents.iter().enumerate() {
        agent.connect(theirs);
        let (mut stream, _) = listener.accept().expect("accept");
        assert_eq!(usize::from(ask(&mut stream)), index);
    }
    assert_eq!((ask(&mut at_first), ask(&mut at_second)), (0, 1));
}

/// Connections in both directions, and a listener that closes while its flows continue.
fn shares(far: &Namespace, agents: &[Agent]) {
    agents.iter().for_each(Agent::listen);
    let mut clients = Clients::connect(far, CLIENTS);
    assert!(clients.at(0) > 0 && clients.at(1) > 0, "both take part");
    agents[1].close_listener();
    clients.assert_unmoved();
    let mut new = Clients::connect(far, CLIENTS);
    assert_eq!(new.at(0), CLIENTS);
    assert!(
        handed(agents) > 0,
        "some reached the one that does not listen"
    );
    let server = far.inside(|| {
        let any = SocketAddr::from(([0; 4], 7001));
        KernelListener::bind(any).expect("bind")
    });
    for round in 0..CLIENTS {
        let index = round % agents.len();
        agents[index].connect("10.77.0.2:7001".parse().expect("an address"));
        let (mut stream, _) = server.accept().expect("accept");
        stream.set_read_timeout(Some(LONG)).expect("timeout");
        assert_eq!(usize::from(ask(&mut stream)), index);
    }
    clients.assert_unmoved();
    new.assert_unmoved();
}

/// Times that a context stays away until frames find no room in the queue to it.
const STALLS_MAX: u32 = 20;

/// A context that stays away for long falls behind. Frames without room in the queue to it are
/// dropped and counted, and TCP retransmits them.
#[test]
fn owner_away_the_queue_to_it_is_full_and_counts() {
    let Some(_turn) = lab::turn_as_root("queues: full") else {
        return;
    };
    let veth = Veth::new();
    veth.steer(SECOND);
    let process = veth.process("xdp:q0");
    let agents = &process.agents;
    agents[1].listen();
    let mut clients = Clients::connect(&veth.far, 1);
    veth.steer(FIRST);
    let bytes = 4_000_000;
    let count = |name: fn(&agent::Counters) -> u64| name(&agents[0].report().stack);
    let (stream, _) = &mut clients.0[0];
    // A peer that gets little of the CPU does not fill the queue each time.
    for _ in 0..STALLS_MAX {
        agents[1].stall();
        stream.write_all(&vec![agent::MUTE; bytes]).expect("sent");
        assert_eq!(ask(stream), 1, "all of it has come");
        if count(|stack| stack.hand_over_full) > 0 {
            break;
        }
    }
    let (done, full) = (
        count(|stack| stack.handed_over),
        count(|stack| stack.hand_over_full),
    );
    println!("{done} frames handed over, {full} found no room");
    assert!(done >= bytes as u64 / 65_536 && full > 0);
}
