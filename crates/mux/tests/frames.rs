//! The frames' thread between a NIC and applications: a wire within the process stands for the NIC,
//! and memif clients are the applications, honest ones and hostile ones.

#[path = "../../packetio/tests/memif_common/mod.rs"]
mod common;
#[path = "../../packetio/tests/memif_common/hostile.rs"]
mod hostile;

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::until;
use mux::egress::{AddressKind, Owner};
use mux::frames::{Change, Flow, FlowBook, Frames, Right, Word};
use mux::reason::Reason;
use packetio::loopback::{Loopback, LoopbackOptions, pair};
use packetio::memif::{self, Handover, MemifPort};
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

/// A switch, and the other end of its NIC.
struct World {
    frames: Frames<Loopback>,
    wire: Loopback,
}

impl World {
    /// The NIC's rings have `slots` slots in each direction.
    fn new(slots: usize) -> Self {
        let options = LoopbackOptions {
            slots,
            ..LoopbackOptions::default()
        };
        let (nic, wire) = pair(&options).unwrap();
        let mut frames = Frames::start(Box::new(NoBook)).unwrap();
        frames.set(Right::Host(NIC, 1500));
        frames.set(Right::NextHop(GATEWAY, true));
        frames.set(Right::Address(OURS.into(), Some(AddressKind::Local)));
        frames.tell(Change::Nic(vec![nic]));
        Self { frames, wire }
    }

    /// The application of slot and device `number`, which owns port 8000 + `number`.
    fn own(&mut self, number: u16) {
        let place = (OURS, 8000 + number).into();
        let owner = Owner {
            slot: number,
            tracks: false,
        };
        self.frames.set(Right::Claim(place, Some(owner)));
    }

    fn join(&mut self, device: u16, port: MemifPort) {
        self.frames.tell(Change::Join {
            device,
            slot: device,
            port: Box::new(port),
            rate: 0,
            burst: 0,
        });
    }

    /// An honest application.
    fn application(&mut self, number: u16) -> MemifPort {
        self.own(number);
        let (ours, theirs) = channel();
        let options = channel_options(1500, Some(256));
        let served = memif::serve(ours, &options, 64 << 20).unwrap();
        self.join(number, served);
        let handover = Handover::default();
        handover.put(theirs);
        let mut port = memif::join(&handover, &options, capabilities()).unwrap();
        common::wait_connected(&mut port);
        port
    }

    /// A hostile application, whose memory the test writes by hand.
    fn hostile(&mut self, number: u16) -> hostile::Client {
        self.own(number);
        let (ours, theirs) = channel();
        let mut served = memif::serve(ours, &channel_options(1500, None), 64 << 20).unwrap();
        let client = hostile::Client::over(hostile::Peer { socket: theirs }, &mut served);
        self.join(number, served);
        client
    }

    /// Frames that have come to the other end of the wire.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let frames = self.wire.receive().unwrap();
        let bytes = frames.iter().map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            bytes
        });
        let bytes = bytes.collect();
        self.wire.release();
        bytes
    }

    /// A frame for the device comes from the wire, as the NIC's program leaves it.
    fn bring(&mut self, device: u16, payload: u8) -> bool {
        let mut frame = segment(PEER, OURS, (4000, 8000_u16.wrapping_add(device)), payload);
        frame[..2].copy_from_slice(&device.to_ne_bytes());
        send(&mut self.wire, &frame)
    }

    fn word(&self, device: u16, word: Word) -> u64 {
        self.frames.counts().word(device, word)
    }
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
    // Nobody has these devices; the second is none at all.
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
        let before = world.frames.counts().drops(0, reason);
        assert!(send(&mut port, &frame));
        let counts = || world.frames.counts().drops(0, reason);
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
    let place = (OURS, 8000).into();
    for round in 1..100 {
        assert!(send(&mut port, &ours(0, 0)));
        assert!(until(LONG, || world.word(0, Word::TxFrames) == round));
        while world.take().is_empty() {}
        world.frames.set(Right::Claim(place, None));
        assert!(send(&mut port, &ours(0, 0)));
        let drops = |world: &World| world.frames.counts().drops(0, Reason::SourcePort);
        assert!(until(LONG, || drops(&world) == round));
        // A right is granted before the application can hear of it.
        world.own(0);
    }
}

/// The NIC is slow and the flood's ring is always full: the neighbour gets half.
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
        while send(&mut flood, &ours(1, 0)) {}
        while sent < FRAMES && send(&mut neighbour, &ours(0, 0)) {
            sent += 1;
        }
        its == FRAMES
    }));
    // A batch at the beginning, and one of difference.
    assert!(floods <= FRAMES + 4 * 64, "{floods} of the flood's");
    assert!(floods >= FRAMES / 4, "{floods}: it was no flood");
}

#[test]
fn application_that_never_reads_loses_its_own_frames_alone() {
    let mut world = World::new(256);
    let mut reader = world.application(0);
    let deaf = world.application(1);
    let (mut brought, mut heard) = (0, 0);
    // Only as many are under way as the reader's ring holds, so it has to lose none.
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
        // A cursor that ran past everything ends the channel.
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

/// The application changes its port in the memory that it shares, all the time.
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
            // The bell, since this client never looks whether it is wanted.
            let _ = rustix::io::write(&liar.bells[0], &1u64.to_ne_bytes());
            for sent in world.take() {
                assert_eq!(sent, frame);
                came += 1;
            }
            dropped = world.frames.counts().drops(0, Reason::SourcePort);
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
    let options = channel_options(1500, Some(1024));
    let served = memif::serve(ours, &options, 1 << 20).unwrap();
    world.join(0, served);
    let handover = Handover::default();
    handover.put(theirs);
    let mut port = memif::join(&handover, &options, capabilities()).unwrap();
    assert!(until(LONG, || {
        let _ = port.receive().map(<[_]>::len);
        port.last_reason().contains("Too much memory")
    }));
}
