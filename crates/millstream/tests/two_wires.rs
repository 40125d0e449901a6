//! A context on two wires at once, with the kernel or another Millstream at their far ends. Needs
//! root.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as KernelListener,
    TcpStream as KernelStream,
};
use std::thread;
use std::time::{Duration, Instant};

use common::lab::{self, Namespace};
use common::{log, unique};
use millstream::{Config, Context, Crank, Runtime, TcpListener, TcpStream};

const LONG: Duration = Duration::from_secs(40);
const TEXT: &[u8] = &[b'x'; 100_000];

/// Two veth pairs between two namespaces, and a kernel with addresses on their far ends.
struct Pairs {
    near: Namespace,
    far: Namespace,
}

impl Pairs {
    fn new() -> Self {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        for link in 0..2 {
            near.ip(&format!(
                "link add name a{link} type veth peer name b{link}"
            ));
            near.ip(&format!("link set b{link} netns {}", far.name()));
            near.ip(&format!("link set a{link} up"));
            far.ip(&format!("link set b{link} up"));
            far.ip(&format!("addr add 10.77.{link}.2/24 dev b{link}"));
        }
        Self { near, far }
    }
}

/// The configuration with both wires in order. Our address on wire n is 10.77.n.1.
fn config(wires: [&str; 2], crank: Crank) -> Config {
    let wires = wires.map(|wire| wire.parse().unwrap());
    let mut config = Config::wires(wires).unwrap();
    config.addresses.push("10.77.0.1/24".parse().unwrap());
    let second = &mut config.further_wires[0].port;
    second.addresses.push("10.77.1.1/24".parse().unwrap());
    config.crank = crank;
    config.linger_ns = 0;
    config
}

/// The address at which we listen on a wire.
fn ours(wire: u8) -> SocketAddr {
    SocketAddr::from(([10, 77, wire, 1], 7000))
}

fn listen(context: &Context) -> TcpListener {
    TcpListener::bind(context, SocketAddr::from(([0; 4], 7000))).unwrap()
}

/// The kernel of `far` sends text to our address on each wire and reads the text back.
fn kernel_clients(far: &Namespace) {
    far.inside(|| {
        for wire in 0..2 {
            let mut stream = KernelStream::connect(ours(wire)).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut writer = stream.try_clone().unwrap();
            thread::scope(|scope| {
                scope.spawn(move || writer.write_all(TEXT).unwrap());
                let mut text = vec![0; TEXT.len()];
                stream.read_exact(&mut text).unwrap();
                assert_eq!(text, TEXT);
            });
        }
    });
}

/// Echoes one connection; returns the peer's address.
fn echo_one(listener: &TcpListener) -> SocketAddr {
    let (mut stream, _) = listener.accept().unwrap();
    let mut text = vec![0; TEXT.len()];
    stream.read_exact(&mut text).unwrap();
    stream.write_all(&text).unwrap();
    stream.local_addr().unwrap()
}

fn two_veths(wires: [&str; 2], crank: Crank) {
    let pairs = Pairs::new();
    pairs.near.inside(|| {
        let runtime = Runtime::new(config(wires, crank)).unwrap();
        let context = runtime.context(0).unwrap();
        let listener = listen(&context);
        thread::scope(|scope| {
            scope.spawn(|| kernel_clients(&pairs.far));
            for wire in 0..2 {
                let local = echo_one(&listener);
                assert_eq!(local, ours(wire));
            }
        });
        for wire in [1, 0] {
            let server = pairs.far.inside(|| {
                let any = SocketAddr::from(([0; 4], 7001 + u16::from(wire)));
                KernelListener::bind(any).unwrap()
            });
            let to = SocketAddr::from(([10, 77, wire, 2], 7001 + u16::from(wire)));
            let mut stream = TcpStream::connect(&context, to).unwrap();
            let (mut accepted, peer) = server.accept().unwrap();
            assert_eq!(peer.ip(), SocketAddr::from(([10, 77, wire, 1], 0)).ip());
            stream.write_all(b"out").unwrap();
            let mut text = [0; 3];
            accepted.read_exact(&mut text).unwrap();
            accepted.write_all(&text).unwrap();
            stream.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"out");
        }
    });
}

#[test]
fn two_veths_carry_connections_both_ways() {
    let Some(_turn) = lab::turn_as_root("two_veths_carry_connections_both_ways") else {
        return;
    };
    two_veths(["packet:a0", "packet:a1"], Crank::Inline);
    two_veths(["xdp:a0", "packet:a1"], Crank::Dedicated);
}

#[test]
fn wire_that_disappears_ends_its_connections_and_no_others() {
    let Some(_turn) = lab::turn_as_root("wire_that_disappears_ends_its_connections") else {
        return;
    };
    log::keep();
    let pairs = Pairs::new();
    pairs.near.inside(|| {
        let config = config(["packet:a0", "packet:a1"], Crank::Inline);
        let runtime = Runtime::new(config).unwrap();
        let context = runtime.context(0).unwrap();
        let listener = listen(&context);
        let clients: Vec<_> = pairs.far.inside(|| {
            let connect = |wire| KernelStream::connect(ours(wire));
            (0..2).map(|wire| connect(wire).unwrap()).collect()
        });
        let mut accepted = [listener.accept().unwrap().0, listener.accept().unwrap().0];
        accepted.sort_by_key(TcpStream::local_addr);
        let [mut kept, mut lost] = accepted;
        pairs.far.ip("link delete b1");
        let mut text = [0; 4];
        assert_eq!(
            lost.read(&mut text).unwrap_err().kind(),
            ErrorKind::NetworkDown
        );
        (&clients[0]).write_all(b"ping").unwrap();
        kept.read_exact(&mut text).unwrap();
        kept.write_all(&text).unwrap();
        clients[0].set_read_timeout(Some(LONG)).unwrap();
        (&clients[0]).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"ping");
        let gone = SocketAddr::from(([10, 77, 1, 2], 9));
        let refused = TcpStream::connect(&context, gone).err();
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NetworkUnreachable));
        // The log names the wire that is gone. Other tests of this process lose the first one.
        let is_told = |wire: &str| log::logged("port_lost").iter().any(|it| it["port"] == wire);
        let end = Instant::now() + LONG;
        while !is_told("packet:a1") {
            assert!(Instant::now() < end, "{:?}", log::logged("port_lost"));
            context.turn().unwrap();
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn link_local_peer_on_the_second_wire_is_found_again_by_its_scope() {
    let Some(_turn) = lab::turn_as_root("link_local_peer_on_the_second_wire") else {
        return;
    };
    let pairs = Pairs::new();
    for link in 0..2 {
        // The same address on both links.
        pairs
            .far
            .ip(&format!("addr add fe80::2/64 dev b{link} nodad"));
    }
    pairs.near.inside(|| {
        let mut config = config(["packet:a0", "packet:a1"], Crank::Inline);
        config.addresses.push("fe80::10/64".parse().unwrap());
        let second = &mut config.further_wires[0].port;
        second.addresses.push("fe80::11/64".parse().unwrap());
        let runtime = Runtime::new(config).unwrap();
        let context = runtime.context(0).unwrap();
        let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = TcpListener::bind(&context, any(7000)).unwrap();
        let (_client, kernels) = pairs.far.inside(|| {
            let client = KernelStream::connect(("fe80::11%b1", 7000)).unwrap();
            (client, KernelListener::bind(any(7001)).unwrap())
        });
        let (stream, mut peer) = listener.accept().unwrap();
        let scope = |address: SocketAddr| match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        assert_eq!(stream.peer_addr(), peer);
        assert_eq!((scope(peer), stream.local_addr().map(scope)), (2, Some(2)));
        peer.set_port(7001);
        let _back = TcpStream::connect(&context, peer).unwrap();
        let (_, from) = kernels.accept().unwrap();
        assert_eq!(from.ip(), "fe80::11".parse::<IpAddr>().unwrap());
    });
}

/// A host behind two gateways. Each gateway is a kernel of its own, at the far end of a wire.
struct Routed {
    near: Namespace,
    gateways: [Namespace; 2],
    host: Namespace,
}

/// The host's address and port.
const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), 7001);

impl Routed {
    fn new() -> Self {
        let (near, host) = (Namespace::new("near"), Namespace::new("host"));
        let gateways = [0, 1].map(|link| {
            let gateway = Namespace::new(&format!("gate{link}"));
            let (own, behind) = (gateway.name(), host.name());
            near.ip(&format!(
                "link add name a{link} type veth peer name b{link} netns {own}"
            ));
            gateway.ip(&format!(
                "link add name c{link} type veth peer name d{link} netns {behind}"
            ));
            near.ip(&format!("link set a{link} up"));
            gateway.ip(&format!("link set b{link} up"));
            gateway.ip(&format!("link set c{link} up"));
            host.ip(&format!("link set d{link} up"));
            gateway.ip(&format!("addr add 10.77.{link}.2/24 dev b{link}"));
            gateway.ip(&format!("addr add 10.78.{link}.1/24 dev c{link}"));
            host.ip(&format!("addr add 10.78.{link}.2/24 dev d{link}"));
            gateway.ip(&format!("route add {} via 10.78.{link}.2", HOST.ip()));
            host.ip(&format!("route add 10.77.{link}.0/24 via 10.78.{link}.1"));
            gateway.sysctl("ipv4/ip_forward", "1");
            gateway
        });
        host.ip(&format!("addr add {}/32 dev lo", HOST.ip()));
        Self {
            near,
            gateways,
            host,
        }
    }

    /// Both wires, and a listener of the host's.
    fn begin(&self) -> (Runtime, KernelListener) {
        let mut config = config(["packet:a0", "packet:a1"], Crank::Inline);
        config.gateways.push("10.77.0.2".parse().unwrap());
        let second = &mut config.further_wires[0].port;
        second.gateways.push("10.77.1.2".parse().unwrap());
        let runtime = self.near.inside(|| Runtime::new(config).unwrap());
        let listener = self.host.inside(|| KernelListener::bind(HOST).unwrap());
        (runtime, listener)
    }
}

/// A connection to the host that carries bytes both ways, and the wire by which it leaves.
fn reach(context: &Context, listener: &KernelListener) -> (TcpStream, KernelStream, u8) {
    let mut stream = TcpStream::connect(context, HOST).unwrap();
    let (mut accepted, peer) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"out").unwrap();
    let mut text = [0; 3];
    accepted.read_exact(&mut text).unwrap();
    accepted.write_all(&text).unwrap();
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"out");
    let wire = (0..2).find(|wire| ours(*wire).ip() == peer.ip());
    (stream, accepted, wire.expect("an address of ours"))
}

#[test]
fn gateway_whose_wire_disappears_leaves_new_connections_to_the_other() {
    let Some(_turn) = lab::turn_as_root("gateway_whose_wire_disappears") else {
        return;
    };
    let routed = Routed::new();
    let (runtime, listener) = routed.begin();
    let context = runtime.context(0).unwrap();
    let (mut lost, _peer, wire) = reach(&context, &listener);
    assert_eq!(wire, 0);
    routed.gateways[0].ip("link delete b0");
    let ended = lost.read(&mut [0]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::NetworkDown);
    let (_stream, _peer, wire) = reach(&context, &listener);
    assert_eq!(wire, 1);
}

#[test]
fn gateway_that_is_silent_leaves_new_connections_to_the_other_until_it_is_heard_of() {
    let Some(_turn) = lab::turn_as_root("gateway_that_is_silent") else {
        return;
    };
    let routed = Routed::new();
    routed.gateways[0].ip("link set b0 arp off");
    let (runtime, listener) = routed.begin();
    let context = runtime.context(0).unwrap();
    let refused = TcpStream::connect(&context, HOST).err();
    let kind = refused.map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::HostUnreachable));
    let (_kept, _peer, wire) = reach(&context, &listener);
    assert_eq!(wire, 1);
    // A connection of its own is news of it.
    routed.gateways[0].ip("link set b0 arp on");
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let nobody = SocketAddr::from(([10, 77, 0, 1], 9));
            let connected = routed.gateways[0].inside(|| KernelStream::connect(nobody));
            connected.map_err(|error| error.kind()).err()
        });
        while !asks.is_finished() {
            context.turn().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(asks.join().unwrap(), Some(ErrorKind::ConnectionRefused));
    });
    let (_stream, _peer, wire) = reach(&context, &listener);
    assert_eq!(wire, 0);
}

#[test]
fn memif_and_a_veth_carry_connections_beside_each_other() {
    let Some(_turn) = lab::turn_as_root("memif_and_a_veth_carry_connections") else {
        return;
    };
    let pairs = Pairs::new();
    let socket = std::env::temp_dir().join(format!("{}.sock", unique("mst-two-wires")));
    let (server, client) = ["server", "client"]
        .map(|role| format!("memif:{},role={role}", socket.display()))
        .into();
    pairs.near.inside(|| {
        let runtime = Runtime::new(config([&server, "packet:a1"], Crank::Dedicated)).unwrap();
        let context = runtime.context(0).unwrap();
        let listener = listen(&context);
        let peer = |wire: u8| {
            let end = Instant::now() + LONG;
            pairs.far.inside(|| {
                let mut stream = KernelStream::connect(ours(wire)).unwrap();
                stream.write_all(TEXT).unwrap();
                let mut text = vec![0; TEXT.len()];
                stream.set_read_timeout(Some(LONG)).unwrap();
                stream.read_exact(&mut text).unwrap();
                assert!(Instant::now() < end);
            });
        };
        let other = || {
            let mut config = Config::new(client.parse().unwrap());
            config.addresses.push("10.77.0.2/24".parse().unwrap());
            let runtime = Runtime::new(config).unwrap();
            let context = runtime.context(0).unwrap();
            let to = SocketAddr::from(([10, 77, 0, 1], 7000));
            let mut stream = TcpStream::connect(&context, to).unwrap();
            stream.write_all(TEXT).unwrap();
            let mut text = vec![0; TEXT.len()];
            stream.read_exact(&mut text).unwrap();
            assert_eq!(text, TEXT);
        };
        thread::scope(|scope| {
            scope.spawn(|| peer(1));
            scope.spawn(other);
            let mut seen = [echo_one(&listener), echo_one(&listener)];
            seen.sort();
            assert_eq!(seen, [ours(0), ours(1)]);
        });
    });
    let _ = std::fs::remove_file(socket);
}
