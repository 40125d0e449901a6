//! The frames' threads between a NIC and applications. An in-process wire stands for the NIC; memif
//! clients are the applications, both correct and hostile ones.

#[path = "../../packetio/tests/memif_common/mod.rs"]
mod common;
#[path = "../../packetio/tests/memif_common/hostile.rs"]
mod hostile;

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::until;
use mux::egress::{AddressKind, Owner};
use mux::frames::{Channel, Flow, FlowBook, Frames, Right, Word};
use mux::reason::Reason;
use packetio::limits::CHANNEL_QUEUES_MAX;
use packetio::loopback::{Loopback, LoopbackOptions, pair};
use packetio::memif::{self, Handover, MemifPort, MemifQueues};
use packetio::mux::channel_options;
use packetio::{Capabilities, ChecksumPolicy, MacAddr, Port};
use ring::published::Flag;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const NIC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const GATEWAY: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const LONG: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct NoBook;

impl FlowBook for NoBook {
    fn half_open(&mut self, _: Flow, _: u16) {}
    fn open(&mut self, _: Flow, _: u16) {}
    fn end(&mut self, _: Flow, _: u16) {}
    fn reset(&mut self, _: Flow, _: u16) {}
}

/// A switch, and the far ends of its NIC's queues.
struct World {
    frames: Frames<Loopback>,
    /// The far end of the NIC's first queue.
    wire: Loopback,
    /// The far ends of its other queues.
    others: Vec<Loopback>,
}

impl World {
    /// A world whose NIC has rings of `slots` slots in each direction.
    fn new(slots: usize) -> Self {
        Self::with_queues(slots, 1)
    }

    /// A world whose NIC has `queues` queues, each with a thread.
    fn with_queues(slots: usize, queues: usize) -> Self {
        let recorded = (0..queues).map(|_| Box::new(NoBook) as Box<dyn FlowBook>);
        let mut frames = Frames::start(recorded.collect()).unwrap();
        frames.set(&Right::Host(NIC, 1500));
        frames.set(&Right::NextHop(GATEWAY, true));
        frames.set(&Right::Address(OURS.into(), Some(AddressKind::Local)));
        let (nics, mut wires): (_, Vec<_>) = (0..queues).map(|_| wire(slots)).unzip();
        frames.set_nic(nics);
        let others = wires.split_off(1);
        let wire = wires.remove(0);
        Self {
            frames,
            wire,
            others,
        }
    }

    /// Makes the application with slot and device `number` own port 8000 + `number`.
    fn own(&mut self, number: u16) {
        let endpoint = (OURS, 8000 + number).into();
        let owner = Owner {
            slot: number,
            tracks: false,
        };
        self.frames.set(&Right::Claim(endpoint, Some(owner)));
    }

    fn join(&mut self, device: u16, ports: Vec<MemifPort>) {
        self.join_with(device, ports, (0, 0));
    }

    fn join_with(&mut self, device: u16, ports: Vec<MemifPort>, (rate, burst): (u64, u64)) {
        self.frames.join(Channel {
            device,
            slot: device,
            ports,
            rate,
            burst,
        });
    }

    /// A correct application with a queue for each thread.
    fn application_of_queues(&mut self, number: u16) -> (MemifQueues, Handover) {
        self.own(number);
        let handover = Handover::default();
        let options = channel_options(1500, Some(256), CHANNEL_QUEUES_MAX);
        let mut port = memif::join_queues(&handover, &options, &capabilities()).unwrap();
        self.hand_over(number, &handover, &mut port);
        (port, handover)
    }

    /// Gives an application a new channel.
    fn hand_over(&mut self, number: u16, handover: &Handover, port: &mut MemifQueues) {
        let (ours, theirs) = channel();
        let threads = self.frames.threads();
        let options = channel_options(1500, Some(256), threads);
        let served = memif::serve_queues(ours, &options, 64 << 20).unwrap();
        self.join(number, served);
        handover.put(theirs);
        assert!(until(LONG, || {
            let _ = port.receive().map(<[_]>::len);
            port.queues() == threads && self.word(number, Word::Connected) == threads as u64
        }));
    }

    /// A correct application.
    fn application(&mut self, number: u16) -> MemifPort {
        self.application_at(number, (0, 0))
    }

    /// An honest application that may send at a rate, in bytes a second, with a bucket of so many
    /// bytes.
    fn application_at(&mut self, number: u16, limit: (u64, u64)) -> MemifPort {
        self.own(number);
        let (ours, theirs) = channel();
        let options = channel_options(1500, Some(256), 1);
        let served = memif::serve(ours, &options, 64 << 20).unwrap();
        self.join_with(number, vec![served], limit);
        let handover = Handover::default();
        handover.put(theirs);
        let mut port = memif::join(&handover, &options, capabilities()).unwrap();
        common::wait_connected(&mut port);
        port
    }

    /// A hostile application, whose shared memory the test writes itself.
    fn hostile(&mut self, number: u16) -> hostile::Client {
        self.own(number);
        let (ours, theirs) = channel();
        let mut served = memif::serve(ours, &channel_options(1500, None, 1), 64 << 20).unwrap();
        let client = hostile::Client::over(hostile::Peer { socket: theirs }, &mut served);
        self.join(number, vec![served]);
        client
    }

    /// Frames that have arrived at the far end of the wire.
    fn take(&mut self) -> Vec<Vec<u8>> {
        take_of(&mut self.wire)
    }

    /// Sends a frame for the device from the wire, in the form that the NIC's program leaves.
    fn bring(&mut self, device: u16, payload: u8) -> bool {
        let mut frame = segment(PEER, OURS, (4000, 8000_u16.wrapping_add(device)), payload);
        frame[..2].copy_from_slice(&device.to_ne_bytes());
        send(&mut self.wire, &frame)
    }

    fn word(&self, device: u16, word: Word) -> u64 {
        self.frames.word(device, word)
    }
}

/// The two ends of a queue of the NIC.
fn wire(slots: usize) -> (Loopback, Loopback) {
    let options = LoopbackOptions {
        slots,
        ..LoopbackOptions::default()
    };
    pair(&options).unwrap()
}

/// Frames that have arrived at an end of a wire.
fn take_of(wire: &mut impl Port) -> Vec<Vec<u8>> {
    let frames = wire.receive().unwrap();
    let bytes = frames.iter().map(|frame| {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(0, &mut bytes);
        bytes
    });
    let bytes = bytes.collect();
    wire.release();
    bytes
}

/// Waits for frames at an end of a wire.
fn first_of(wire: &mut impl Port) -> Vec<Vec<u8>> {
    let mut came = Vec::new();
    assert!(until(LONG, || {
        came = take_of(wire);
        !came.is_empty()
    }));
    came
}

fn channel() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn capabilities() -> Capabilities {
    Capabilities {
        mac: NIC,
        mtu: 1500,
        rx_checksum: ChecksumPolicy::AcceptPartial,
        tx_checksum_offload: false,
        segment_bytes_max: 0,
        batch_max: 0,
        name: "application".to_owned(),
        queue: 0,
    }
}

fn send(port: &mut impl Port, frame: &[u8]) -> bool {
    let Some(slot) = port.reserve(1).first() else {
        return false;
    };
    slot.set_len(slot.write(0, frame));
    port.send(1).is_ok()
}

/// A TCP segment from the NIC to the gateway.
fn segment(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), payload: u8) -> Vec<u8> {
    let mut frame = [GATEWAY.0, NIC.0].concat();
    frame.extend([8, 0, 0x45, 0, 0, 41, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([from.octets(), to.octets()].concat());
    frame.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.push(payload);
    let header = frame[14..34].chunks_exact(2);
    let sum: u32 = header
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn ours(number: u16, payload: u8) -> Vec<u8> {
    segment(OURS, PEER, (8000 + number, 4000), payload)
}

#[test]
fn frames_of_the_nic_reach_their_owners_and_nobody_else() {
    let mut world = World::new(256);
    let mut ports = [world.application(0), world.application(1)];
    for payload in 0..30 {
        assert!(world.bring(u16::from(payload % 2), payload));
    }
    for (number, port) in ports.iter_mut().enumerate() {
        let mut heard = Vec::new();
        assert!(until(LONG, || {
            for frame in port.receive().unwrap() {
                let bytes = frame.head::<55>();
                assert_eq!(bytes[..6], NIC.0, "the address is whole again");
                heard.push(bytes[54]);
            }
            port.release();
            heard.len() == 15
        }));
        assert!(
            heard
                .iter()
                .all(|payload| usize::from(payload % 2) == number)
        );
        assert!(heard.is_sorted());
    }
    // No application has device 7, and the other number is not a device.
    assert!(world.bring(7, 0) && world.bring(u16::MAX, 0));
    assert!(until(LONG, || world.word(7, Word::RxNoRoom) == 1));
}

#[test]
fn frame_of_an_application_leaves_by_the_nic_if_the_check_says_so() {
    let mut world = World::new(256);
    let mut port = world.application(0);
    world.own(1);
    let foreign_address = segment(Ipv4Addr::new(10, 0, 0, 3), PEER, (8000, 1), 0);
    let cases = [
        (ours(1, 0), Reason::ForeignPort),
        (ours(2, 0), Reason::SourcePort),
        (foreign_address, Reason::SourceAddress),
        (segment(OURS, OURS, (8000, 1), 0), Reason::Local),
        (ours(0, 0)[..33].to_vec(), Reason::Runt),
        ([ours(0, 0), vec![0; 1500]].concat(), Reason::Oversize),
    ];
    for (frame, reason) in cases {
        let before = world.frames.drops(0, reason);
        assert!(send(&mut port, &frame));
        let counts = || world.frames.drops(0, reason);
        assert!(until(LONG, || counts() == before + 1), "{reason:?}");
    }
    assert!(world.take().is_empty());
    assert!(send(&mut port, &ours(0, 7)));
    let mut came = Vec::new();
    assert!(until(LONG, || {
        came.extend(world.take());
        !came.is_empty()
    }));
    assert_eq!(came, [ours(0, 7)]);
    assert_eq!(world.word(0, Word::TxFrames), 1);
}

#[test]
fn right_that_is_taken_away_ends_with_the_next_frame() {
    let mut world = World::new(64);
    let mut port = world.application(0);
    let endpoint = (OURS, 8000).into();
    for round in 1..100 {
        assert!(send(&mut port, &ours(0, 0)));
        assert!(until(LONG, || world.word(0, Word::TxFrames) == round));
        while world.take().is_empty() {}
        world.frames.set(&Right::Claim(endpoint, None));
        assert!(send(&mut port, &ours(0, 0)));
        let drops = |world: &World| world.frames.drops(0, Reason::SourcePort);
        assert!(until(LONG, || drops(&world) == round));
        // A right is granted before the application can hear of it.
        world.own(0);
    }
}

/// The NIC is slow and the flooding application's ring is always full: its neighbour gets half of
/// the NIC.
#[test]
fn flood_leaves_its_neighbour_its_share_of_the_nic() {
    const FRAMES: usize = 2000;
    let mut world = World::new(64);
    let mut neighbour = world.application(0);
    let mut flood = world.application(1);
    let (mut sent, mut its, mut floods) = (0, 0, 0);
    assert!(until(LONG, || {
        for frame in world.take() {
            match u16::from_be_bytes([frame[34], frame[35]]) {
                8000 => its += 1,
                _ => floods += 1,
            }
        }
        while sent < FRAMES && send(&mut neighbour, &ours(0, 0)) {
            sent += 1;
        }
        while send(&mut flood, &ours(1, 0)) {}
        its == FRAMES
    }));
    // The NIC's ring is the flood's whenever this thread was away until the neighbour's ran empty.
    assert!(floods <= FRAMES + FRAMES / 4, "{floods} of the flood's");
    assert!(floods >= FRAMES / 4, "{floods}: it was no flood");
}

#[test]
fn application_that_never_reads_loses_its_own_frames_alone() {
    let mut world = World::new(256);
    let mut reader = world.application(0);
    let deaf = world.application(1);
    let (mut brought, mut heard) = (0, 0);
    // No more frames are under way than the reader's ring holds, so it must not lose any.
    assert!(until(LONG, || {
        while brought < 2000 && brought - heard < 64 && world.bring(1, 0) {
            assert!(until(LONG, || world.bring(0, 0)));
            brought += 1;
        }
        heard += reader.receive().unwrap().len();
        reader.release();
        heard == 2000
    }));
    assert!(world.word(1, Word::RxNoRoom) >= 2000 - 256);
    assert_eq!(world.word(0, Word::RxNoRoom), 0);
    assert!(deaf.is_connected());
}

#[test]
fn garbage_in_the_rings_costs_its_writer_the_channel_alone() {
    let mut world = World::new(256);
    let mut neighbour = world.application(0);
    for round in 0..20u16 {
        let liar = world.hostile(1);
        let random = |seed: u16| u32::from(seed.wrapping_mul(40_503) ^ round) * 65_537;
        let mut head = 0;
        for slot in 0..hostile::SLOTS / 2 {
            let (length, offset) = (random(slot) >> 16, random(slot + 100));
            liar.publish(&mut head, slot % 4, slot % 3, length, offset);
        }
        // A cursor that runs beyond the ring ends the channel.
        liar.memory
            .set_head(hostile::RING_C2S, head.wrapping_add(5000));
        assert!(send(&mut neighbour, &ours(0, round as u8)));
        let mut came = Vec::new();
        assert!(until(LONG, || {
            came.extend(world.take());
            !came.is_empty()
        }));
        assert_eq!(came, [ours(0, round as u8)]);
        assert!(until(LONG, || world.word(1, Word::Connected) == 0));
    }
}

/// The application changes the port in its shared memory all the time.
#[test]
fn frame_that_changes_while_it_is_checked_leaves_as_it_was_checked() {
    let mut world = World::new(256);
    let liar = world.hostile(0);
    let at = u64::from(hostile::buffer(0));
    let frame = ours(0, 0);
    liar.memory.put(at, &frame);
    let is_over = Flag::default();
    let memory = hostile::Memory(rustix::io::fcntl_dupfd_cloexec(&liar.memory.0, 0).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.is_raised() {
                memory.put(at + 34, &8001u16.to_be_bytes());
                memory.put(at + 34, &8000u16.to_be_bytes());
            }
        });
        let (mut head, mut came, mut dropped) = (0u16, 0, 0);
        let done = until(LONG, || {
            let tail = liar.memory.tail(hostile::RING_C2S);
            while head.wrapping_sub(tail) < hostile::SLOTS {
                let length = frame.len() as u32;
                liar.publish(&mut head, 0, 0, length, hostile::buffer(0));
            }
            // Ring the bell, since this client never checks whether that is needed.
            let _ = rustix::io::write(&liar.bells[0], &1u64.to_ne_bytes());
            for sent in world.take() {
                assert_eq!(sent, frame);
                came += 1;
            }
            dropped = world.frames.drops(0, Reason::SourcePort);
            came > 5000 && dropped > 100
        });
        is_over.raise();
        assert!(done, "{came} came, {dropped} were dropped");
    });
}

#[test]
fn channel_with_too_much_memory_is_refused() {
    let mut world = World::new(64);
    let (ours, theirs) = channel();
    let options = channel_options(1500, Some(1024), 1);
    let served = memif::serve(ours, &options, 1 << 20).unwrap();
    world.join(0, vec![served]);
    let handover = Handover::default();
    handover.put(theirs);
    let mut port = memif::join(&handover, &options, capabilities()).unwrap();
    assert!(until(LONG, || {
        let _ = port.receive().map(<[_]>::len);
        port.last_reason().contains("Too much memory")
    }));
}

/// Frames of any queue of the NIC reach the application in one of its rings. Its own frames leave
/// through one queue, which depends on the device.
#[test]
fn application_has_a_queue_for_each_thread() {
    let mut world = World::with_queues(256, 3);
    for number in 0..3u16 {
        let (mut port, handover) = world.application_of_queues(number);
        for round in 0..2 {
            let mut frame = segment(PEER, OURS, (4000, 8000 + number), 0);
            frame[..2].copy_from_slice(&number.to_ne_bytes());
            let wires = world.others.iter_mut().chain([&mut world.wire]);
            for (payload, wire) in (0u8..).zip(wires) {
                frame[54] = payload;
                assert!(send(wire, &frame));
            }
            let mut heard = Vec::new();
            assert!(until(LONG, || {
                heard.extend(take_of(&mut port).iter().map(|frame| frame[54]));
                heard.len() == 3
            }));
            heard.sort_unstable();
            assert_eq!(heard, [0, 1, 2]);
            assert!(send(&mut port, &ours(number, 9)));
            let own = match number.checked_sub(1) {
                Some(other) => &mut world.others[usize::from(other)],
                None => &mut world.wire,
            };
            assert_eq!(first_of(own), [ours(number, 9)]);
            // All queues follow when a channel ends and when the next one begins.
            world.frames.leave(number);
            assert!(until(LONG, || {
                let _ = port.receive().map(<[_]>::len);
                // This also closes ports that the threads have released.
                world.own(number);
                port.queues() == 0
            }));
            if round == 0 {
                world.hand_over(number, &handover, &mut port);
            }
        }
    }
}

#[test]
fn frame_for_an_own_address_leaves_by_the_pair_of_the_host() {
    let mut world = World::new(256);
    let mut port = world.application(0);
    let to_host = segment(OURS, OURS, (8000, 1), 3);
    let (end, mut host) = wire(256);
    world.frames.set_local(vec![end]);
    assert!(send(&mut port, &to_host) && send(&mut port, &ours(0, 4)));
    assert_eq!(first_of(&mut host), std::slice::from_ref(&to_host));
    assert_eq!(first_of(&mut world.wire), [ours(0, 4)]);
    let mut frame = segment(OURS, OURS, (4000, 8000), 5);
    frame[..2].copy_from_slice(&0u16.to_ne_bytes());
    assert!(send(&mut host, &frame));
    assert_eq!(first_of(&mut port)[0][54], 5);
    // Without the pair the NIC gets no frame of it.
    world.frames.set_local(Vec::new());
    assert!(send(&mut port, &to_host));
    assert!(until(LONG, || world.frames.drops(0, Reason::Local) == 1));
    assert!(world.take().is_empty());
}

#[test]
fn frames_sent_by_another_queue_than_the_first_are_dropped() {
    let mut world = World::with_queues(256, 2);
    world.own(0);
    let (ours_end, theirs) = channel();
    let options = channel_options(1500, None, 2);
    let mut served = memif::serve_queues(ours_end, &options, 64 << 20).unwrap();
    let liar = hostile::Client::over(hostile::Peer { socket: theirs }, &mut served[0]);
    // The only queue of this client is not the first one of its channel.
    served.swap(0, 1);
    world.join(0, served);
    assert!(until(LONG, || world.word(0, Word::Connected) == 1));
    let frame = ours(0, 0);
    liar.memory.put(u64::from(hostile::buffer(0)), &frame);
    let mut head = 0;
    for _ in 0..10 {
        liar.publish(&mut head, 0, 0, frame.len() as u32, hostile::buffer(0));
    }
    let _ = rustix::io::write(&liar.bells[0], &1u64.to_ne_bytes());
    assert!(until(LONG, || world.word(0, Word::TxOtherQueue) == 10));
    assert_eq!(world.word(0, Word::TxFrames), 0);
    assert!(world.take().is_empty() && take_of(&mut world.others[0]).is_empty());
}

#[test]
fn application_above_its_rate_is_held_back_and_its_neighbour_is_not() {
    let mut world = World::new(256);
    // A bucket of ten frames, that fills by one byte a second.
    let mut slow = world.application_at(0, (1, 10 * 55));
    let mut quick = world.application(1);
    for payload in 0..30 {
        assert!(send(&mut slow, &ours(0, payload)) && send(&mut quick, &ours(1, payload)));
    }
    assert!(until(LONG, || world.word(1, Word::TxFrames) == 30));
    let dropped = |world: &World| world.frames.drops(0, Reason::Rate);
    assert!(until(LONG, || dropped(&world) == 20));
    assert_eq!(world.word(0, Word::TxFrames), 10);
    assert!(until(LONG, || {
        world.take();
        world.frames.drops(1, Reason::Rate) == 0
    }));
}

#[test]
fn frames_for_a_nic_that_is_gone_are_dropped_and_counted_until_it_is_back() {
    let mut world = World::new(256);
    let mut port = world.application(0);
    assert!(send(&mut port, &ours(0, 1)));
    assert_eq!(first_of(&mut world.wire).len(), 1);
    world.frames.set_nic(Vec::new());
    for payload in 0..5 {
        assert!(send(&mut port, &ours(0, payload)));
    }
    let dropped = |world: &World| world.frames.drops(0, Reason::NoNic);
    assert!(until(LONG, || dropped(&world) == 5));
    assert_eq!(world.word(0, Word::TxFrames), 1);
    let (nic, wire) = wire(256);
    world.wire = wire;
    world.frames.set_nic(vec![nic]);
    assert!(send(&mut port, &ours(0, 9)));
    assert_eq!(first_of(&mut world.wire), [ours(0, 9)]);
    assert_eq!(dropped(&world), 5);
}
