//! Two stacks of one process on a wire with a queue each: a frame at the wrong stack goes to the
//! one that has its flow or listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use packetio::limits::MESH_SLOTS;
use packetio::loopback::pair;
use packetio::mesh::Mesh;
use packetio::spread::Spread;
use ring::socket_block::SocketState;
use rustix::io::Errno;
use stack::config::OwnQueue;
use stack::context::{Control, SourcePool};
use stack::{Counters, IpCidr, Stack, StackConfig};
use tcp::SynCookieUse;
use wire::tcp::Flags;
use wire::toeplitz::{MICROSOFT_KEY, Toeplitz};
use wire::{Addr, FlowKey};

use crate::common::{
    App, Client, PEER_V4, PORT, Peer, SECOND, STACK_V4, Seen, Setup, Tcp, World, config, frames,
};

/// A stack, its application, and the peer's end of its queue.
struct Context {
    stack: Stack,
    app: App,
    queue: Peer,
}

/// See the module's documentation.
struct Process {
    mesh: Mesh,
    each: Vec<Context>,
    syn_cookies: SynCookieUse,
    now_ns: u64,
}

fn settings(index: usize, syn_cookies: SynCookieUse) -> StackConfig {
    let mut settings = config();
    settings.local_ports = [(20_000, 29_999), (30_000, 39_999)][index];
    settings.tcp.syn_cookies = syn_cookies;
    settings
}

impl Process {
    fn new() -> Self {
        Self::with(SynCookieUse::default(), 1_000 * SECOND)
    }

    fn with(syn_cookies: SynCookieUse, now_ns: u64) -> Self {
        let mesh = Mesh::new(2, 1600, 1024).unwrap();
        let mut process = Self {
            mesh,
            each: Vec::new(),
            syn_cookies,
            now_ns,
        };
        (0..2).for_each(|index| process.join(index));
        let arp = frames::arp_request(process.each[0].queue.mac, PEER_V4, STACK_V4);
        process.each[0].queue.transmit(&arp);
        process.settle();
        process.each.iter_mut().for_each(|one| one.queue.forget());
        process
    }

    fn join(&mut self, index: usize) {
        let (near, far) = pair(&Setup::default().wire).unwrap();
        let ends = self.mesh.join(index).unwrap();
        let made = Stack::among_others(
            settings(index, self.syn_cookies),
            vec![Box::new(near)],
            Some(ends),
            self.now_ns,
        );
        let (stack, side) = made.unwrap();
        let context = Context {
            stack,
            app: App::new(side),
            queue: Peer::new(far),
        };
        self.each.insert(index, context);
    }

    fn settle(&mut self) {
        loop {
            let mut busy = false;
            for context in &mut self.each {
                busy |= context.stack.turn(self.now_ns).busy;
                context.queue.collect();
            }
            if !busy {
                return;
            }
        }
    }

    fn listen(&mut self, index: usize) -> ring::socket_block::SocketId {
        let at = SocketAddr::new(STACK_V4, PORT);
        let listener = self.each[index].app.listen(at, 16);
        self.settle();
        self.mesh.listens(index, PORT, true);
        listener
    }

    fn close(&mut self, index: usize, listener: ring::socket_block::SocketId) {
        self.mesh.listens(index, PORT, false);
        self.each[index].app.close(listener);
        self.settle();
    }

    /// Lets a segment arrive at a queue.
    fn send(&mut self, queue: usize, segment: &Tcp) {
        let queue = &mut self.each[queue].queue;
        let frame = queue.frame(segment);
        queue.transmit(&frame);
        self.settle();
    }

    /// Takes the only segment that a context sent; the other must have sent none.
    #[track_caller]
    fn said(&mut self, index: usize) -> Tcp {
        let mut said: Vec<_> = self
            .each
            .iter_mut()
            .map(|one| one.queue.take_tcp())
            .collect();
        assert_eq!(said.iter().map(Vec::len).sum::<usize>(), 1, "{said:?}");
        said[index].pop().expect("this one has")
    }

    /// Performs a handshake whose segments arrive at these queues; `owner` must own the connection.
    fn handshake(&mut self, queues: [usize; 2], owner: usize, port: u16) -> Client {
        self.each.iter_mut().for_each(|one| one.queue.forget());
        let mut client = client(port);
        self.send(queues[0], &client.syn());
        client.on_syn_ack(&self.said(owner));
        self.send(queues[1], &client.ack());
        client
    }

    fn counters(&self, index: usize) -> &Counters {
        self.each[index].stack.counters()
    }

    fn handed(&self) -> u64 {
        let counts = (0..2).map(|index| self.counters(index).handed_over);
        counts.sum()
    }
}

fn client(port: u16) -> Client {
    Client::new(
        SocketAddr::new(PEER_V4, port),
        SocketAddr::new(STACK_V4, PORT),
    )
}

#[test]
fn listening_both_a_flow_stays_where_its_syn_arrived() {
    let mut p = Process::new();
    let listeners = [p.listen(0), p.listen(1)];
    for (owner, other) in [(0, 1), (1, 0)] {
        let before = p.handed();
        let mut client = p.handshake([owner, owner], owner, 4000 + owner as u16);
        assert_eq!(p.handed(), before, "no help was needed");
        let socket = p.each[owner].app.accept(listeners[owner]).unwrap();
        p.send(other, &client.data(b"stray"));
        assert_eq!(p.each[owner].app.read(socket), b"stray");
        assert_eq!(p.handed(), before + 1);
        let sent = p.counters(other).handed_over + p.counters(other).handed_copies;
        assert_eq!(p.counters(owner).handed_in, sent);
    }
}

#[test]
fn half_open_last_segment_at_the_other_queue_completes() {
    let mut p = Process::new();
    let listeners = [p.listen(0), p.listen(1)];
    p.handshake([0, 1], 0, 4000);
    assert!(p.each[0].app.accept(listeners[0]).is_some());
    assert_eq!((p.handed(), p.counters(0).syn_cookies_refused), (1, 0));
}

/// Cookies that a context sent, accepted and refused.
fn cookies(p: &Process, index: usize) -> (u64, u64, u64) {
    let counters = p.counters(index);
    (
        counters.syn_cookies_sent,
        counters.syn_cookies_accepted,
        counters.syn_cookies_refused,
    )
}

#[test]
fn cookie_sent_its_ack_at_the_other_queue_completes_there() {
    let mut p = Process::with(SynCookieUse::Always, 1_000 * SECOND);
    let listeners = [p.listen(0), p.listen(1)];
    let mut client = p.handshake([0, 1], 0, 4000);
    assert_eq!((cookies(&p, 0), cookies(&p, 1)), ((1, 0, 0), (0, 1, 0)));
    let socket = p.each[1].app.accept(listeners[1]).unwrap();
    p.send(0, &client.data(b"by cookie"));
    assert_eq!(p.each[1].app.read(socket), b"by cookie");
    assert!(p.each[0].app.accept(listeners[0]).is_none());
}

#[test]
fn cookie_sent_listener_closed_another_context_that_listens_takes_it() {
    let mut p = Process::with(SynCookieUse::Always, 1_000 * SECOND);
    let listeners = [p.listen(0), p.listen(1)];
    let mut client = client(4000);
    p.send(0, &client.syn());
    client.on_syn_ack(&p.said(0));
    p.close(0, listeners[0]);
    p.send(0, &client.ack());
    assert!(p.each[1].app.accept(listeners[1]).is_some());
    assert_eq!(p.handed(), 1);
}

#[test]
fn cookie_of_the_last_hour_is_good_at_the_other_context() {
    let hour = 3600 * SECOND;
    let mut p = Process::with(SynCookieUse::Always, 8 * hour - 1);
    let listeners = [p.listen(0), p.listen(1)];
    let mut client = client(4000);
    p.send(0, &client.syn());
    client.on_syn_ack(&p.said(0));
    p.now_ns += SECOND;
    p.send(1, &client.ack());
    assert!(p.each[1].app.accept(listeners[1]).is_some());
}

#[test]
fn cookies_too_old_everywhere_an_ack_is_not_asked_about() {
    let mut p = Process::with(SynCookieUse::Always, 1_000 * SECOND);
    let _listeners = [p.listen(0), p.listen(1)];
    let mut client = client(4000);
    p.send(0, &client.syn());
    client.on_syn_ack(&p.said(0));
    p.now_ns += 122 * SECOND;
    p.send(1, &client.ack());
    assert!(p.said(1).flags.contains(Flags::RST));
    assert_eq!(cookies(&p, 1), (0, 0, 0));
}

#[test]
fn half_open_syn_again_at_the_other_queue_is_answered_by_the_same() {
    let mut p = Process::new();
    let _listeners = [p.listen(0), p.listen(1)];
    let syn = client(4000).syn();
    p.send(0, &syn);
    let first = p.said(0);
    p.send(1, &syn);
    assert_eq!(p.said(0).seq, first.seq);
}

#[test]
fn listening_elsewhere_the_flow_goes_there_whole() {
    let mut p = Process::new();
    let listener = p.listen(1);
    let mut client = p.handshake([0, 0], 1, 4000);
    let socket = p.each[1].app.accept(listener).unwrap();
    p.send(0, &client.data(b"all of it"));
    assert_eq!(p.each[1].app.read(socket), b"all of it");
    assert_eq!(p.handed(), 3);
}

#[test]
fn open_listener_closed_the_flow_stays_and_new_ones_go_to_who_listens() {
    let mut p = Process::new();
    let listeners = [p.listen(0), p.listen(1)];
    let mut client = p.handshake([1, 1], 1, 4000);
    let socket = p.each[1].app.accept(listeners[1]).unwrap();
    p.close(1, listeners[1]);
    p.send(0, &client.data(b"goes on"));
    assert_eq!(p.each[1].app.read(socket), b"goes on");
    p.handshake([1, 1], 0, 4001);
    assert!(p.each[0].app.accept(listeners[0]).is_some());
}

#[test]
fn listening_nowhere_a_syn_is_reset_where_it_arrived() {
    let mut p = Process::new();
    p.send(1, &client(4000).syn());
    assert!(p.said(1).flags.contains(Flags::RST));
    assert_eq!(p.handed(), 0);
}

#[test]
fn unknown_ack_is_reset_where_it_arrived() {
    let mut p = Process::new();
    let _listeners = [p.listen(0), p.listen(1)];
    p.send(1, &client(4000).ack());
    assert!(p.said(1).flags.contains(Flags::RST));
    assert_eq!(p.handed(), 0);
}

#[test]
fn syn_sent_answer_at_the_other_queue_connects_also_where_that_one_listens() {
    let mut p = Process::new();
    let remote = SocketAddr::new(PEER_V4, 443);
    let socket = p.each[1].app.connect(remote);
    p.settle();
    let syn = p.said(1);
    let at = SocketAddr::new(STACK_V4, syn.src_port);
    p.each[0].app.listen(at, 16);
    p.settle();
    p.mesh.listens(0, syn.src_port, true);
    let mut client = Client::answering(&syn);
    p.send(0, &client.syn_ack());
    assert_eq!(p.said(1).flags, Flags::ACK);
    assert!(p.each[1].app.has(socket, SocketState::CONNECTED));
}

#[test]
fn time_wait_without_a_listener_gives_way_to_one_elsewhere() {
    let mut p = Process::new();
    let listeners = [p.listen(0), p.listen(1)];
    let mut client = p.handshake([1, 1], 1, 4000);
    let socket = p.each[1].app.accept(listeners[1]).unwrap();
    p.each[1].app.close(socket);
    p.settle();
    client.take(&p.said(1));
    p.send(1, &client.fin());
    p.said(1);
    assert_eq!(p.each[1].stack.usage().time_wait, 1);
    p.close(1, listeners[1]);
    p.now_ns += SECOND;
    client.nxt += 100_000;
    p.send(0, &client.syn());
    client.on_syn_ack(&p.said(0));
    p.send(0, &client.ack());
    assert!(p.each[0].app.accept(listeners[0]).is_some());
    assert_eq!(p.each[1].stack.usage().time_wait, 0);
    assert_eq!(p.handed(), 2, "to the old owner, and back");
}

#[test]
fn owner_behind_what_finds_no_room_is_dropped_and_counted() {
    let mut p = Process::new();
    let listener = p.listen(1);
    let mut client = p.handshake([1, 1], 1, 4000);
    p.each[1].app.accept(listener).unwrap();
    let data: Vec<_> = (0..MESH_SLOTS + 3).map(|_| client.data(b"x")).collect();
    for segment in &data {
        let queue = &mut p.each[0].queue;
        let frame = queue.frame(segment);
        queue.transmit(&frame);
        p.each[0].stack.turn(p.now_ns);
    }
    let counters = p.counters(0);
    assert_eq!(
        (counters.handed_over, counters.hand_over_full),
        (MESH_SLOTS as u64, 3)
    );
}

#[test]
fn context_gone_its_flows_are_answered_by_who_is_left() {
    let mut p = Process::new();
    let listener = p.listen(1);
    let mut client = p.handshake([1, 1], 1, 4000);
    p.each[1].app.accept(listener).unwrap();
    p.each.pop();
    p.send(0, &client.data(b"?"));
    assert!(p.said(0).flags.contains(Flags::RST));
    p.join(1);
    p.send(0, &client.data(b"?"));
    assert!(p.said(0).flags.contains(Flags::RST));
}

#[test]
fn arp_request_is_answered_once_and_both_learn_from_it() {
    let mut p = Process::new();
    let arp = frames::arp_request(p.each[1].queue.mac, PEER_V4, STACK_V4);
    p.each[1].queue.transmit(&arp);
    p.settle();
    assert!(matches!(p.each[1].queue.next(), Some(Seen::Arp(_))));
    assert_eq!((p.each[0].queue.len(), p.each[1].queue.len()), (0, 0));
    assert_eq!(p.counters(1).handed_copies, 1);
    // Neither stack needs to resolve the peer's address.
    p.each[0].app.connect(SocketAddr::new(PEER_V4, 443));
    p.settle();
    assert_eq!(p.said(0).flags, Flags::SYN);
}

/// The spread of a card with two queues.
fn spread() -> Arc<Spread> {
    let table = (0..128).map(|entry| entry % 2).collect();
    Arc::new(Spread::new(Toeplitz::new(MICROSOFT_KEY), table).unwrap())
}

fn key_of(syn: &Tcp) -> FlowKey {
    FlowKey {
        local: Addr::from(syn.src),
        remote: Addr::from(syn.dst),
        local_port: syn.src_port,
        remote_port: syn.dst_port,
    }
}

#[test]
fn connecting_takes_a_port_whose_answers_reach_its_own_queue() {
    for queue in 0..2 {
        let spread = spread();
        let own = OwnQueue {
            spread: spread.clone(),
            queue,
        };
        let mut w = World::with(|setup| setup.config.spread = Some(own));
        for port in 1000..1012 {
            w.app.connect(SocketAddr::new(PEER_V4, port));
        }
        w.settle();
        let syns = w.peer.take_tcp();
        assert_eq!(syns.len(), 12);
        for syn in &syns {
            assert_eq!(spread.queue(&key_of(syn)), queue);
        }
    }
}

#[test]
fn connecting_without_such_a_port_takes_another() {
    let own = OwnQueue {
        spread: spread(),
        queue: 7,
    };
    let mut w = World::with(|setup| setup.config.spread = Some(own));
    w.app.connect(SocketAddr::new(PEER_V4, 443));
    w.settle();
    assert_eq!(w.tcp().flags, Flags::SYN);
}

/// The pool's destination, which is the peer.
const POOLED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 443);
/// The pool's addresses.
const SOURCES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 10), Ipv4Addr::new(10, 0, 0, 11)];

/// A card whose queue depends on all bits of the table's index, so that neighbouring ports have
/// different queues.
fn even_spread() -> Arc<Spread> {
    let table = (0..128_u32).map(|entry| entry.count_ones() % 2).collect();
    Arc::new(Spread::new(Toeplitz::new(MICROSOFT_KEY), table).unwrap())
}

/// A stack with its own queue, few local ports, and a pool of two addresses.
fn pooled(queue: usize) -> World {
    let mut w = World::with(|setup| {
        let spread = even_spread();
        setup.config.spread = Some(OwnQueue { spread, queue });
        setup.config.local_ports = (20_000, 20_007);
        let cidr = |ip: &Ipv4Addr| format!("{ip}/24").parse::<IpCidr>().unwrap();
        setup.config.addresses.extend(SOURCES.iter().map(cidr));
    });
    let pool = SourcePool::new(POOLED, SOURCES[0], 2);
    w.app.control(Control::Sources(Some(pool)));
    w
}

/// All address-port pairs of the pool whose answers arrive at the queue.
fn pairs_of(queue: usize) -> Vec<(IpAddr, u16)> {
    let spread = even_spread();
    let ports = |ip: Ipv4Addr| (20_000..=20_007).map(move |port| (ip.into(), port));
    let each = SOURCES.into_iter().flat_map(ports);
    let arrives = |&(ip, local_port): &(IpAddr, u16)| {
        let key = FlowKey {
            local: Addr::from(ip),
            remote: Addr::from(PEER_V4),
            local_port,
            remote_port: POOLED.port(),
        };
        spread.queue(&key) == queue
    };
    each.filter(arrives).collect()
}

#[test]
fn pool_yields_each_pair_whose_answers_reach_its_own_queue_and_no_other() {
    for queue in 0..2 {
        let mut w = pooled(queue);
        let expected = pairs_of(queue);
        assert!((1..16).contains(&expected.len()));
        for _ in &expected {
            w.app.connect(POOLED.into());
        }
        let refused = w.app.connect(POOLED.into());
        w.settle();
        let syns = w.peer.take_tcp();
        assert_ne!(syns[0].src, syns[1].src, "addresses take turns");
        let mut used: Vec<_> = syns.iter().map(|syn| (syn.src, syn.src_port)).collect();
        used.sort_unstable();
        assert_eq!(used, expected);
        assert_eq!(w.app.errno(refused), Some(Errno::ADDRNOTAVAIL));
    }
}

#[test]
fn pool_serves_its_destination_alone_and_no_socket_that_has_a_source() {
    let mut w = pooled(0);
    let other = SocketAddr::new(PEER_V4, 444);
    for _ in 0..8 {
        w.app.connect(other);
    }
    w.settle();
    let syns = w.peer.take_tcp();
    assert_eq!(
        syns.len(),
        8,
        "any port serves, when those of its queue are taken"
    );
    assert!(syns.iter().all(|syn| syn.src == STACK_V4));
    let own = SocketAddr::new(SOURCES[1].into(), 20_001);
    w.app.connect_from(Some(own), POOLED.into());
    w.settle();
    let syn = w.tcp();
    assert_eq!((syn.src, syn.src_port), (own.ip(), own.port()));
    // Removes the pool.
    w.app.control(Control::Sources(None));
    w.app.connect(POOLED.into());
    w.settle();
    assert_eq!(w.tcp().src, STACK_V4);
}

#[test]
fn pool_where_nobody_knows_the_hash_yields_every_port() {
    let mut w = World::with(|setup| setup.config.local_ports = (20_000, 20_007));
    let pool = SourcePool::new(POOLED, Ipv4Addr::UNSPECIFIED, 1);
    w.app.control(Control::Sources(Some(pool)));
    for _ in 0..8 {
        w.app.connect(POOLED.into());
    }
    w.settle();
    assert_eq!(w.peer.take_tcp().len(), 8);
}
