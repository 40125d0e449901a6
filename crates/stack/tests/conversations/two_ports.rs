//! A stack on two ports or three, each with a link, a peer and a gateway of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex};

use packetio::loopback::{self, Loopback, LoopbackOptions};
use packetio::{MacAddr, Port, PortError, RxFrame};
use ring::frame_log::FrameLogReader;
use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use stack::config::PortConfig;
use stack::rules::{Rule, RuleAction};
use stack::{ConfigError, IpCidr, Stack, StackConfig};
use wire::tcp::Flags;

use crate::common::app::App;
use crate::common::frames::{Seen, Tcp};
use crate::common::peer::{Client, Peer};
use crate::common::{self, PEER_V4, STACK_V4};

const SECOND: u64 = 1_000_000_000;
const MACS: [MacAddr; 3] = [
    MacAddr([2, 0, 0, 0, 0, 0x10]),
    MacAddr([2, 0, 0, 0, 0, 0x20]),
    MacAddr([2, 0, 0, 0, 0, 0x30]),
];
const OWN: [IpAddr; 3] = [
    STACK_V4,
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)),
];
const PEERS: [IpAddr; 3] = [
    PEER_V4,
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2)),
];
/// A host behind all gateways.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// A port that a test can make disappear.
struct Removable {
    inner: Loopback,
    is_gone: Arc<Mutex<bool>>,
}

impl Port for Removable {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        match *self.is_gone.lock().unwrap() {
            true => Err(PortError::Gone),
            false => self.inner.receive(),
        }
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        assert!(
            !*self.is_gone.lock().unwrap(),
            "nothing is sent by a port that is gone"
        );
        self.inner.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        assert!(
            !*self.is_gone.lock().unwrap(),
            "nobody sleeps on a port that is gone"
        );
        self.inner.prepare_wait(want_tx)
    }

    packetio::forward_port!(self => self.inner; capabilities release reserve reserved
        finish_wait poll_fds counters);
}

struct World {
    stack: Stack,
    app: App,
    peers: Vec<Peer>,
    is_gone: Vec<Arc<Mutex<bool>>>,
    now_ns: u64,
}

fn config() -> StackConfig {
    let mut config = common::config();
    config.gateways = vec![PEERS[0]];
    config.further_ports = vec![PortConfig {
        addresses: vec![
            "10.0.1.1/24".parse().unwrap(),
            "fd01::1/64".parse().unwrap(),
        ],
        gateways: vec![PEERS[1]],
        ..PortConfig::default()
    }];
    config
}

/// The same with a third port.
fn config_of_three() -> StackConfig {
    let mut config = config();
    config.further_ports.push(PortConfig {
        addresses: vec!["10.0.2.1/24".parse().unwrap()],
        gateways: vec![PEERS[2]],
        ..PortConfig::default()
    });
    config
}

impl World {
    fn new() -> Self {
        Self::with(config())
    }

    /// A world with as many ports as the settings name.
    fn with(config: StackConfig) -> Self {
        let count = 1 + config.further_ports.len();
        let is_gone: Vec<Arc<Mutex<bool>>> = (0..count).map(|_| Arc::default()).collect();
        let (mut ports, mut peers) = (Vec::<Box<dyn Port + Send>>::new(), Vec::new());
        for index in 0..count {
            let options = LoopbackOptions {
                mac: Some(MACS[index]),
                ..LoopbackOptions::default()
            };
            let (inner, far) = loopback::pair(&options).unwrap();
            let is_gone = Arc::clone(&is_gone[index]);
            ports.push(Box::new(Removable { inner, is_gone }));
            let mut peer = Peer::new(far);
            (peer.answers_for, peer.stack_mac) = (vec![PEERS[index]], MACS[index]);
            peers.push(peer);
        }
        let now_ns = 1_000 * SECOND;
        let (stack, side) = Stack::with_ports(config, ports, now_ns).unwrap();
        let mut world = Self {
            stack,
            app: App::new(side),
            peers,
            is_gone,
            now_ns,
        };
        world.settle();
        world.peers.iter_mut().for_each(Peer::forget);
        world
    }

    fn settle(&mut self) {
        for _ in 0..1_000 {
            let turned = self.stack.turn(self.now_ns);
            self.peers.iter_mut().for_each(Peer::collect);
            let due_ns = self.stack.next_timer_ns();
            let is_due = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
            let has_answers = self.peers.iter().any(Peer::has_answers);
            if !turned.busy && !is_due && !has_answers {
                return;
            }
        }
        panic!("the stack finds no rest: {:?}", self.stack.counters());
    }

    fn advance(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        self.settle();
        while let Some(due_ns) = self.stack.next_timer_ns().filter(|&due| due <= end_ns) {
            self.now_ns = due_ns.max(self.now_ns);
            self.settle();
        }
        self.now_ns = end_ns;
        self.settle();
    }

    fn send(&mut self, port: usize, segment: &Tcp) {
        let frame = segment.frame(self.peers[port].mac, MACS[port]);
        self.peers[port].transmit(&frame);
        self.settle();
    }

    /// Takes the next thing received on this port, which must be a TCP segment.
    fn tcp(&mut self, port: usize) -> Tcp {
        match self.peers[port].next() {
            Some(Seen::Tcp(segment)) => segment,
            other => panic!("a TCP segment was expected, not {other:?}"),
        }
    }

    fn silent(&mut self, port: usize) {
        let seen = self.peers[port].next();
        assert!(seen.is_none(), "nothing was expected, not {seen:?}");
    }

    /// Makes an accepted connection of this port's peer.
    fn accepted(&mut self, port: usize, listener: SocketId) -> (Client, SocketId) {
        let to = SocketAddr::new(OWN[port], common::PORT);
        let mut client = Client::new(SocketAddr::new(PEERS[port], 40_000), to);
        self.send(port, &client.syn());
        let syn_ack = self.tcp(port);
        assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
        client.on_syn_ack(&syn_ack);
        self.send(port, &client.ack());
        (client, self.app.accept(listener).expect("a connection"))
    }

    /// Makes a connection to `remote` that leaves by `port`.
    fn connected(&mut self, port: usize, remote: IpAddr) -> (Client, SocketId) {
        let socket = self.app.connect(SocketAddr::new(remote, common::PORT));
        self.settle();
        let syn = self.tcp(port);
        assert_eq!((syn.flags, syn.src), (Flags::SYN, OWN[port]));
        let mut client = Client::answering(&syn);
        self.send(port, &client.syn_ack());
        client.rcv = self.tcp(port).seq;
        (client, socket)
    }

    fn listen_everywhere(&mut self) -> SocketId {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, common::PORT));
        let listener = self.app.listen(any, 16);
        self.settle();
        listener
    }

    fn remove(&mut self, port: usize) {
        self.remove_at_once(&[port]);
    }

    /// The next turn finds all of these ports gone.
    fn remove_at_once(&mut self, ports: &[usize]) {
        for port in ports {
            *self.is_gone[*port].lock().unwrap() = true;
        }
        self.settle();
    }
}

#[test]
fn listener_everywhere_accepts_and_answers_on_both_ports() {
    let mut w = World::new();
    let listener = w.listen_everywhere();
    for port in 0..2 {
        let (mut client, socket) = w.accepted(port, listener);
        let request = client.data(b"ping");
        w.send(port, &request);
        assert_eq!(w.app.read(socket), b"ping");
        assert_eq!(w.app.write(socket, b"pong"), 4);
        w.settle();
        let answers = w.peers[port].take_tcp();
        let text: Vec<u8> = answers.iter().flat_map(|one| client.take(one)).collect();
        assert_eq!(text, b"pong");
        w.silent(1 - port);
    }
}

#[test]
fn connects_leave_by_the_port_whose_route_fits() {
    let mut w = World::new();
    for port in [1, 0] {
        let (mut client, socket) = w.connected(port, PEERS[port]);
        assert_eq!(w.app.write(socket, b"hello"), 5);
        w.settle();
        assert_eq!(client.take(&w.tcp(port)), b"hello");
        w.silent(1 - port);
    }
}

#[test]
fn burst_of_segments_is_acknowledged_on_its_own_port() {
    let mut w = World::new();
    let listener = w.listen_everywhere();
    let (mut client, socket) = w.accepted(1, listener);
    for _ in 0..8 {
        let segment = client.data(&[7; 1_000]);
        let frame = segment.frame(w.peers[1].mac, MACS[1]);
        w.peers[1].transmit(&frame);
    }
    w.settle();
    assert_eq!(w.app.read(socket).len(), 8_000);
    let acks = w.peers[1].take_tcp();
    assert!(acks.len() >= 4, "an ACK for two segments: {}", acks.len());
    assert_eq!(acks.last().unwrap().ack, client.nxt);
    w.silent(0);
}

#[test]
fn segment_without_a_connection_is_reset_on_the_port_of_its_address() {
    let mut w = World::new();
    for port in 0..2 {
        let to = SocketAddr::new(OWN[port], 9);
        let client = Client::new(SocketAddr::new(PEERS[port], 40_000), to);
        w.send(port, &client.ack());
        assert_eq!(w.tcp(port).flags, Flags::RST);
        w.silent(1 - port);
    }
}

/// Frames that still arrive on the wire of a lost port must not end a sleep.
#[test]
fn port_that_is_gone_is_not_slept_on() {
    let mut w = World::new();
    let watched = w.stack.watches();
    w.remove(0);
    assert_ne!(
        w.stack.watches(),
        watched,
        "the set of descriptors has changed"
    );
    let syn = Client::new(
        SocketAddr::new(PEERS[0], 40_000),
        SocketAddr::new(OWN[0], 9),
    )
    .syn();
    let frame = syn.frame(w.peers[0].mac, MACS[0]);
    w.peers[0].transmit(&frame);
    let is_interrupted = w.stack.wait(w.now_ns, Some(w.now_ns + 1), &[]).unwrap();
    assert!(!is_interrupted);
    assert!(w.stack.arm().unwrap().is_some(), "there is no work");
    w.stack.disarm();
}

#[test]
fn port_that_is_gone_takes_its_connections_and_routes_and_no_others() {
    let mut w = World::new();
    let listener = w.listen_everywhere();
    let (_, lost) = w.accepted(0, listener);
    let (mut client, kept) = w.accepted(1, listener);
    w.remove(0);
    assert_eq!(w.app.errno(lost), Some(Errno::NETDOWN));
    assert!(w.app.has(lost, SocketState::CLOSED));
    assert!(!w.stack.is_gone());
    assert_eq!(w.stack.counters().ports_lost, 1);
    let request = client.data(b"still there?");
    w.send(1, &request);
    assert_eq!(w.app.read(kept), b"still there?");
    assert_eq!(w.app.errno(kept), None);
    // No reset of a lost connection goes to the other link.
    let strays = w.peers[1].take_tcp();
    assert!(strays.iter().all(|one| one.dst == PEERS[1]), "{strays:?}");
    let refused = w.app.connect(SocketAddr::new(PEERS[0], common::PORT));
    w.settle();
    let syn = w.tcp(1);
    assert_eq!(
        (syn.src, syn.dst),
        (OWN[1], PEERS[0]),
        "by the other gateway"
    );
    w.app.abort(refused);
    w.settle();
    w.remove(1);
    assert_eq!(w.app.errno(kept), Some(Errno::NETDOWN));
    assert!(w.stack.is_gone());
}

#[test]
fn ports_that_are_gone_in_one_turn_take_their_connections_and_routes_each() {
    for (lost, kept) in [([0, 1], 2), ([1, 2], 0), ([0, 2], 1)] {
        let mut w = World::with(config_of_three());
        let listener = w.listen_everywhere();
        let ended = lost.map(|port| w.accepted(port, listener).1);
        let (mut client, open) = w.accepted(kept, listener);
        w.remove_at_once(&lost);
        for (port, socket) in lost.into_iter().zip(ended) {
            assert_eq!(w.app.errno(socket), Some(Errno::NETDOWN), "port {port}");
            assert!(w.app.has(socket, SocketState::CLOSED), "port {port}");
        }
        assert_eq!(w.stack.counters().ports_lost, 2);
        assert!(!w.stack.is_gone());
        let request = client.data(b"still there?");
        w.send(kept, &request);
        assert_eq!(w.app.read(open), b"still there?");
        assert_eq!(w.app.errno(open), None);
        // No reset of the lost connections strays to the link that is left.
        let strays = w.peers[kept].take_tcp();
        assert!(
            strays.iter().all(|one| one.dst == PEERS[kept]),
            "{strays:?}"
        );
        for port in lost {
            let socket = w.app.connect(SocketAddr::new(PEERS[port], common::PORT));
            w.settle();
            let syn = w.tcp(kept);
            let ends = (syn.src, syn.dst);
            assert_eq!(
                ends,
                (OWN[kept], PEERS[port]),
                "by the gateway that is left"
            );
            w.app.abort(socket);
            w.settle();
            w.peers[kept].forget();
        }
    }
}

#[test]
fn ports_that_are_all_gone_in_one_turn_end_all_connections() {
    let mut w = World::new();
    let listener = w.listen_everywhere();
    let accepted = [0, 1].map(|port| w.accepted(port, listener).1);
    w.remove_at_once(&[0, 1]);
    for socket in accepted {
        assert_eq!(w.app.errno(socket), Some(Errno::NETDOWN));
    }
    assert_eq!(w.stack.counters().ports_lost, 2);
    assert!(w.stack.is_gone());
}

#[test]
fn connection_behind_the_first_gateway_moves_on_when_its_port_is_gone() {
    let mut w = World::new();
    let (_, lost) = w.connected(0, FAR);
    w.remove(0);
    assert_eq!(w.app.errno(lost), Some(Errno::NETDOWN));
    let (mut client, socket) = w.connected(1, FAR);
    assert_eq!(w.app.write(socket, b"again"), 5);
    w.settle();
    assert_eq!(client.take(&w.tcp(1)), b"again");
}

#[test]
fn gateway_that_is_silent_leaves_new_connections_to_the_other() {
    let mut w = World::new();
    w.peers[0].answers_for.clear();
    let first = w.app.connect(SocketAddr::new(FAR, common::PORT));
    w.advance(3 * SECOND + SECOND / 10);
    assert_eq!(w.stack.neighbour_counters().failed, 1);
    w.app.abort(first);
    w.settle();
    w.peers[0].forget();
    w.connected(1, FAR);
    w.silent(0);
}

#[test]
fn bound_address_chooses_the_port() {
    let mut w = World::new();
    let local = SocketAddr::new(OWN[1], 0);
    let socket = w
        .app
        .connect_from(Some(local), SocketAddr::new(FAR, common::PORT));
    w.settle();
    let syn = w.tcp(1);
    assert_eq!((syn.src, syn.dst), (OWN[1], FAR));
    w.silent(0);
    w.app.abort(socket);
    w.settle();
}

/// Our link-local address on each port, and a peer's address that exists on both links.
const LOCAL: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
];
const LOCAL_PEER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

fn with_link_local() -> World {
    let mut config = config();
    config.addresses.push(IpCidr::new(LOCAL[0], 64).unwrap());
    let second = &mut config.further_ports[0].addresses;
    second.push(IpCidr::new(LOCAL[1], 64).unwrap());
    World::with(config)
}

#[test]
fn link_local_address_is_valid_on_its_own_link_only() {
    let mut w = with_link_local();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, common::PORT));
    w.app.listen(any, 16);
    w.settle();
    let to = SocketAddr::new(LOCAL[0], common::PORT);
    let from = SocketAddr::from((LOCAL_PEER, 40_000));
    let before = w.stack.counters().rx_drop_other_address;
    w.send(1, &Client::new(from, to).syn());
    assert_eq!(w.stack.counters().rx_drop_other_address, before + 1);
    w.silent(0);
    w.silent(1);
    w.send(0, &Client::new(from, to).syn());
    assert_eq!(w.stack.counters().rx_drop_other_address, before + 1);
    assert!(
        matches!(w.peers[0].next(), Some(Seen::Solicitation { target, .. }) if target == LOCAL_PEER)
    );
    w.silent(1);
}

#[test]
fn link_local_peer_that_is_accepted_has_the_scope_of_its_port() {
    let mut w = with_link_local();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, common::PORT));
    let listener = w.app.listen(any, 16);
    w.settle();
    for port in [0, 1] {
        w.peers[port].answers_for.push(LOCAL_PEER.into());
        let to = SocketAddr::new(LOCAL[port], common::PORT);
        let mut client = Client::new(SocketAddr::from((LOCAL_PEER, 40_000)), to);
        w.send(port, &client.syn());
        w.settle();
        client.on_syn_ack(&w.tcp(port));
        w.send(port, &client.ack());
        let accepted = w.app.accept_named(listener).expect("a connection");
        let SocketAddr::V6(remote) = accepted.remote else {
            panic!("not {}", accepted.remote)
        };
        assert_eq!(
            (*remote.ip(), remote.scope_id()),
            (LOCAL_PEER, port as u32 + 1)
        );
        let back = w.app.connect_from(None, remote.into());
        w.settle();
        assert_eq!(
            w.tcp(port).dst,
            IpAddr::from(LOCAL_PEER),
            "by the same port"
        );
        w.silent(1 - port);
        w.app.abort(back);
        w.settle();
        w.peers[port].forget();
    }
}

#[test]
fn scope_of_a_link_local_peer_chooses_the_port() {
    let mut w = with_link_local();
    for port in [1, 0] {
        let remote = SocketAddrV6::new(LOCAL_PEER, common::PORT, 0, port as u32 + 1);
        let socket = w.app.connect_from(None, remote.into());
        w.settle();
        match w.peers[port].next() {
            Some(Seen::Solicitation { src, target }) => {
                assert_eq!((IpAddr::from(src), target), (LOCAL[port], LOCAL_PEER));
            }
            other => panic!("a solicitation was expected, not {other:?}"),
        }
        w.silent(1 - port);
        w.app.abort(socket);
        w.settle();
    }
}

#[test]
fn number_of_ports_must_be_that_of_the_settings() {
    let (near, _far) = loopback::pair(&LoopbackOptions::default()).unwrap();
    let refused = Stack::new(config(), Box::new(near), 0);
    assert!(matches!(refused, Err(ConfigError::Ports(1))));
}

/// Lets a frame too short for Ethernet arrive on `port`.
fn send_runt(w: &mut World, port: usize) {
    w.peers[port].transmit(&[1; 13]);
    w.settle();
}

/// Drop counters of a port that are not zero.
fn drops(w: &World, port: usize) -> Vec<(&'static str, u64)> {
    let view = w.stack.each_port().nth(port).expect("a port");
    view.drops().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn drops_and_frames_are_counted_for_each_port_apart() {
    let mut w = World::new();
    assert_eq!(drops(&w, 0), []);
    let before: Vec<u64> = w
        .stack
        .each_port()
        .map(|one| one.counters().rx_frames)
        .collect();
    send_runt(&mut w, 1);
    send_runt(&mut w, 1);
    send_runt(&mut w, 0);
    assert_eq!(drops(&w, 0), [("rx_drop_ethernet", 1)]);
    assert_eq!(drops(&w, 1), [("rx_drop_ethernet", 2)]);
    assert_eq!(w.stack.counters().rx_drop_ethernet, 3);
    let report = w.stack.report();
    assert_eq!(
        report.ports[1]
            .drops
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>(),
        2
    );
    let grown = report.ports.iter().zip(before);
    let grown: Vec<u64> = grown
        .map(|(one, before)| one.counters.rx_frames - before)
        .collect();
    assert_eq!(grown, [1, 2]);
}

/// Begins a capture of a port.
fn capture(w: &mut World, port: usize) -> FrameLogReader {
    let file = w.stack.capture(port, 2_000, None, w.now_ns + 100 * SECOND);
    FrameLogReader::open(file.expect("a log")).expect("a log")
}

/// Direction and drop reason of each frame in a log.
fn logged(reader: &mut FrameLogReader) -> Vec<(bool, Option<String>)> {
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame() {
        all.push((frame.is_outbound, frame.reason.map(str::to_owned)));
    }
    all
}

#[test]
fn captured_ports_have_a_log_each_and_end_together() {
    let mut w = World::new();
    let mut logs = [capture(&mut w, 0), capture(&mut w, 1)];
    send_runt(&mut w, 1);
    assert_eq!(logged(&mut logs[0]), []);
    let dropped = (false, Some("rx_drop_ethernet".to_owned()));
    assert_eq!(logged(&mut logs[1]), [dropped]);
    let listener = w.listen_everywhere();
    let _ = w.accepted(0, listener);
    assert!(logged(&mut logs[0]).len() >= 3, "the handshake");
    assert_eq!(logged(&mut logs[1]), []);
    assert!(
        w.stack.capture(2, 2_000, None, w.now_ns).is_err(),
        "no such port"
    );
    w.stack.end_old_capture(w.now_ns + 101 * SECOND);
    let _ = w.accepted(1, listener);
    assert_eq!(logged(&mut logs[1]), []);
}

#[test]
fn segments_for_a_neighbour_that_is_silent_are_captured_as_not_sent() {
    let mut w = World::new();
    w.peers[1].answers_for.clear();
    let mut log = capture(&mut w, 1);
    let _socket = w.app.connect(SocketAddr::new(PEERS[1], common::PORT));
    w.advance(20 * SECOND);
    let lost = w.stack.counters().neighbour_drop;
    assert!(lost > 0, "{:?}", w.stack.counters());
    let mut shown = 0;
    while let Some(frame) = log.next_frame() {
        if frame.reason == Some("neighbour_drop") {
            assert!(frame.is_outbound && frame.bytes.len() == frame.wire_bytes);
            let segment = common::frames::parse(frame.bytes);
            assert!(matches!(segment, Seen::Tcp(one) if one.flags == Flags::SYN));
            shown += 1;
        }
    }
    assert_eq!(shown, lost);
}

#[test]
fn rule_for_a_wire_is_asked_about_that_wire_alone() {
    let mut config = config();
    config.rules.rules.push(Rule {
        wire: Some(2),
        action: RuleAction::Deny,
        ..Rule::default()
    });
    let mut w = World::with(config);
    for port in 0..2 {
        let to = SocketAddr::new(OWN[port], common::PORT);
        let mut client = Client::new(SocketAddr::new(PEERS[port], 40_000), to);
        w.send(port, &client.syn());
    }
    assert!(w.tcp(0).flags.contains(Flags::RST), "nobody listens");
    w.silent(1);
    assert_eq!(w.stack.report().rules[0].refused, 1);
}
