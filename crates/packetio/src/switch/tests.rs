//! Tests of the switch: which members receive a frame.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use wire::ethernet::EtherType;
use wire::{ipv4, protocol};

use super::flows::Flows;
use super::*;

mod flows;
mod gone;
mod kinds;

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A broadcast Ethernet frame with a packet, at least 60 bytes long.
fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An Ethernet frame with an IPv4 packet.
fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        total_len: (ipv4::HEADER_LEN + body.len()) as u16,
        protocol,
        src,
        dst,
        ..ipv4::Header::default()
    };
    let mut packet = vec![0; ipv4::HEADER_LEN];
    assert_eq!(header.emit(&mut packet), ipv4::HEADER_LEN);
    packet.extend(body);
    frame(EtherType::IPV4, &packet)
}

/// A TCP header with these ports and flags.
fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    header
}

/// A segment that arrives on the wire.
fn segment(from: u16, to: u16, flags: u8) -> Vec<u8> {
    v4(PEER, OURS, protocol::TCP, &tcp(from, to, flags))
}

/// A segment that a member sends.
fn answer(from: u16, to: u16, flags: u8) -> Vec<u8> {
    v4(OURS, PEER, protocol::TCP, &tcp(from, to, flags))
}

fn send(port: &mut dyn Port, frame: &[u8]) {
    let slots = port.reserve(1);
    slots[0].set_len(slots[0].write(0, frame));
    port.send(1).unwrap();
}

/// Waits for one frame.
fn receive(port: &mut dyn Port) -> Option<Vec<u8>> {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        let frames = port.receive().ok()?;
        if let [frame, ..] = frames {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            return Some(bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A switch on a wire of one queue, whose turns the test runs.
struct World {
    fabric: Fabric,
    peer: Loopback,
    members: Vec<Member>,
}

impl World {
    fn new(members: usize) -> Self {
        let (ours, peer) = pair(&LoopbackOptions::default()).unwrap();
        let mut world = Self::of(vec![Box::new(ours)], peer, members);
        (0..members).for_each(|_| world.joins());
        world
    }

    /// A world without members.
    fn of(wire: Vec<Box<dyn Port + Send>>, peer: Loopback, members: usize) -> Self {
        let shared = Arc::new(Shared::new(StackBell::new().unwrap()));
        Self {
            fabric: Fabric::new(shared, wire, members, 1500),
            peer,
            members: Vec::new(),
        }
    }

    /// Lets the next member join.
    fn joins(&mut self) {
        let (near, far) = pair(&LoopbackOptions::default()).unwrap();
        let drops = Arc::<Drops>::default();
        let mac = near.capabilities().mac;
        let end = End::new(far, drops.clone());
        let index = self.members.len();
        self.fabric.shared.joining().push((index, mac, end));
        self.fabric.look_around();
        self.members.push(Member {
            near,
            drops,
            cpu: Arc::default(),
        });
    }

    fn listens(&mut self, index: usize, on: bool) {
        self.fabric.shared.listens(index, 80, on);
        self.fabric.look_around();
    }

    /// Members that receive a frame from the wire, one bit each.
    fn hears(&mut self, frame: &[u8]) -> u64 {
        send(&mut self.peer, frame);
        self.fabric.turn();
        let mut who = 0;
        for (index, member) in self.members.iter_mut().enumerate() {
            who |= u64::from(!member.receive().unwrap().is_empty()) << index;
            member.release();
        }
        who
    }

    /// Lets a member send a frame, which the wire must receive.
    fn says(&mut self, index: usize, frame: &[u8]) {
        send(&mut self.members[index], frame);
        self.fabric.turn();
        assert_eq!(self.peer.receive().unwrap().len(), 1);
        self.peer.release();
    }

    fn counted(&self, index: usize, name: &str) -> u64 {
        let value = self.members[index].counters().value(name);
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }
}

#[test]
fn wire_shared_answers_go_to_the_caller_and_calls_to_who_listens() {
    let (ours, mut peer) = pair(&LoopbackOptions::default()).unwrap();
    let switch = Switch::start(vec![Box::new(ours)], 3).unwrap();
    let mut members: Vec<_> = (0..3).map(|index| switch.member(index).unwrap()).collect();
    send(&mut *members[2], &segment(40_000, 80, SYN));
    assert!(receive(&mut peer).is_some());
    send(&mut peer, &segment(80, 40_000, SYN | ACK));
    assert!(receive(&mut *members[2]).is_some());
    assert!(members[0].receive().unwrap().is_empty());
    switch.listens(1, 80, true);
    // The switch's thread notices the listener a little later; until then SYNs go to other members.
    let mut calls = 1000..20_000;
    let is_heard = calls.any(|from| {
        send(&mut peer, &segment(from, 80, SYN));
        std::thread::sleep(Duration::from_millis(2));
        !members[1].receive().unwrap().is_empty()
    });
    assert!(is_heard);
    for from in 20_000..20_010 {
        send(&mut peer, &segment(from, 80, SYN));
        assert!(receive(&mut *members[1]).is_some(), "{from}");
    }
}

#[test]
fn wire_full_pushes_the_members_back() {
    const FRAMES: u16 = 900;
    let options = LoopbackOptions {
        slots: 128,
        ..LoopbackOptions::default()
    };
    let (ours, mut peer) = pair(&options).unwrap();
    let switch = Switch::start(vec![Box::new(ours)], 2).unwrap();
    let mut member = switch.member(0).unwrap();
    for number in 0..FRAMES {
        send(&mut *member, &segment(number, 80, ACK));
    }
    // The members have received nothing yet.
    std::thread::sleep(Duration::from_millis(20));
    let (until, mut next) = (Instant::now() + Duration::from_secs(30), 0);
    while next < FRAMES && Instant::now() < until {
        for frame in peer.receive().unwrap() {
            let head: [u8; 60] = frame.head();
            assert_eq!(u16::from_be_bytes([head[34], head[35]]), next);
            next += 1;
        }
    }
    assert_eq!(next, FRAMES);
    assert_eq!(member.counters().value("switch_tx_dropped"), Some(0));
}

#[test]
fn member_gone_is_not_held_for_ever_by_a_full_wire() {
    let options = LoopbackOptions {
        slots: 16,
        ..LoopbackOptions::default()
    };
    let (ours, peer) = pair(&options).unwrap();
    let shared = Arc::new(Shared::new(StackBell::new().unwrap()));
    let mut fabric = Fabric::new(shared, vec![Box::new(ours)], 1, 1500);
    let (mut member, far) = pair(&LoopbackOptions::default()).unwrap();
    fabric.ends[0] = Some(End::new(far, Arc::default()));
    for _ in 0..100 {
        send(&mut member, &segment(80, 1, ACK));
    }
    while fabric.turn() > 0 {}
    assert_eq!(fabric.held, 1);
    drop(member);
    fabric.turn();
    assert!(fabric.ends[0].is_some());
    std::thread::sleep(Duration::from_nanos(SWITCH_FAREWELL_NS));
    fabric.turn();
    assert!(fabric.ends[0].is_none() && fabric.held == 0);
    drop(peer);
}

/// Each batch that members send may cause a batch of answers. If the switch took a single batch per
/// turn, the wire's ring would overflow.
#[test]
fn wire_is_taken_from_until_it_has_no_more() {
    let (ours, mut peer) = pair(&LoopbackOptions::default()).unwrap();
    let shared = Arc::new(Shared::new(StackBell::new().unwrap()));
    let mut fabric = Fabric::new(shared, vec![Box::new(ours)], 1, 1500);
    let (mut member, far) = pair(&LoopbackOptions::default()).unwrap();
    let mac = far.capabilities().mac;
    fabric.owners.joined(0, mac, Arc::default());
    fabric.ends[0] = Some(End::new(far, Arc::default()));
    for _ in 0..10 * LOOPBACK_BATCH_MAX {
        send(&mut peer, &segment(1, 80, ACK));
        send(&mut member, &segment(80, 1, ACK));
    }
    assert_eq!(fabric.turn(), 11 * LOOPBACK_BATCH_MAX);
    assert_eq!(peer.receive().unwrap().len(), LOOPBACK_BATCH_MAX);
    assert!(peer.receive().unwrap().is_empty());
    let mut taken = 0;
    while let frames @ 1.. = member.receive().unwrap().len() {
        taken += frames;
    }
    assert_eq!(taken, 10 * LOOPBACK_BATCH_MAX);
}

#[test]
fn member_that_is_behind_loses_by_count() {
    let (ours, mut peer) = pair(&LoopbackOptions::default()).unwrap();
    let switch = Switch::start(vec![Box::new(ours)], 2).unwrap();
    let member = switch.member(0).unwrap();
    let sent = SWITCH_SLOTS as u64 + 500;
    for _ in 0..sent {
        while peer.reserve(1).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        send(&mut peer, &segment(1, 80, ACK));
    }
    let until = Instant::now() + Duration::from_secs(30);
    let dropped = || member.counters().value("switch_rx_dropped_full");
    while dropped() != Some(500) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(dropped(), Some(500));
}

#[test]
fn ethernet_frames_go_to_whom_they_name() {
    let switch = Switch::ethernet(1500, 3).unwrap();
    let mut members: Vec<_> = (0..3).map(|index| switch.member(index).unwrap()).collect();
    let mut frame = segment(1, 2, ACK);
    send(&mut *members[0], &frame);
    assert!(receive(&mut *members[1]).is_some() && receive(&mut *members[2]).is_some());
    let to = members[1].capabilities().mac;
    frame[..6].copy_from_slice(&to.0);
    send(&mut *members[0], &frame);
    assert!(receive(&mut *members[1]).is_some());
    assert!(members[2].receive().unwrap().is_empty());
}

#[test]
fn local_ports_divided_do_not_overlap() {
    let parts: Vec<_> = (0..3)
        .map(|index| ports_of((1000, 1099), index, 3))
        .collect();
    assert_eq!(parts, [(1000, 1032), (1033, 1065), (1066, 1098)]);
    assert_eq!(ports_of((5, 5), 3, 8), (5, 5));
}
