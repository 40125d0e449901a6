//! Frames of several segments: ports that cut what they send, and ports that merge what they
//! receive. Peer and application must see the same as with single segments.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use packetio::buffer_unsafe::{BulkSlots, FrameBuf, RxBatch, TxBatch, carve};
use packetio::offload::Segmenter;
use packetio::{
    Capabilities, ChecksumPolicy, Port, PortCounters, PortError, RxChecksum, RxFrame, TxFrame,
};
use ring::socket_block::{SocketId, SocketState};
use ring::spsc;
use rustix::event::PollFlags;
use stack::context::{Control, InfoQuery};
use stack::{Stack, StackConfig};
use wire::tcp::{Flags, SackBlock, SackBlocks, Timestamp};
use wire::{Ecn, SeqNumber, icmpv4, icmpv6, protocol};

use crate::common::peer::PEER_MAC;
use crate::common::{
    self, App, Client, PEER_V4, PEER_V6, PORT, SECOND, STACK_MAC, STACK_V4, STACK_V6, Tcp, frames,
};

pub(crate) const LARGE: usize = 65_535;
const SLOT_BYTES: usize = LARGE + 18;
/// Bytes of a slot for a frame of the MTU.
const SMALL_SLOT_BYTES: usize = 1_518;
const BATCH: usize = 16;
/// Bytes of an Ethernet header.
const LINK_BYTES: usize = 14;
const STAMP: Timestamp = Timestamp { value: 7, echo: 0 };

/// A card: received frames, each with its segment size or 0, and sent segments as on the wire.
#[derive(Default)]
pub(crate) struct Card {
    arriving: VecDeque<(Vec<u8>, u16)>,
    sent: Vec<Vec<u8>>,
    /// One flag per sent segment: true if it left by the bulk lane.
    lanes: Vec<bool>,
    /// True while the current frame leaves by the bulk lane.
    sends_bulk: bool,
    /// Number of frames that were cut.
    cut: usize,
    /// Bytes of the longest packet that was cut.
    longest: usize,
}

/// A driver that cuts large frames as the kernel does.
struct Driver {
    card: Arc<Mutex<Card>>,
    capabilities: Capabilities,
    free: Vec<FrameBuf>,
    lent: RxBatch,
    slots: Vec<FrameBuf>,
    /// Two batches of slots; one has no large buffers. A scarce driver grants from them in turn,
    /// else from the first.
    granted: [TxBatch; 2],
    is_scarce: bool,
    turn: usize,
}

/// The transmit lanes of a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    One,
    Two,
    /// One lane; large buffers are attached to its slots.
    Behind,
    /// One lane; every other reservation gets no large buffers.
    Scarce,
}

impl Driver {
    fn new(card: Arc<Mutex<Card>>, segment_bytes_max: usize, lanes: Lanes) -> Self {
        Self {
            card,
            capabilities: Capabilities {
                mac: STACK_MAC,
                mtu: 1_500,
                rx_checksum: ChecksumPolicy::Verify,
                tx_checksum_offload: lanes != Lanes::Two,
                segment_bytes_max,
                batch_max: BATCH,
                name: "card".into(),
                queue: 0,
            },
            free: carve(3 * BATCH, SLOT_BYTES),
            lent: RxBatch::new(BATCH),
            slots: match lanes {
                Lanes::One | Lanes::Two => carve(BATCH, SLOT_BYTES),
                Lanes::Behind | Lanes::Scarce => carve(BATCH, SMALL_SLOT_BYTES),
            },
            granted: [
                match lanes {
                    Lanes::One => TxBatch::new(BATCH),
                    _ => TxBatch::with_bulk(BATCH, BulkSlots::new(BATCH, SLOT_BYTES)),
                },
                TxBatch::new(BATCH),
            ],
            is_scarce: lanes == Lanes::Scarce,
            turn: 0,
        }
    }
}

impl Port for Driver {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let mut card = self.card.lock().unwrap();
        while self.lent.len() < BATCH
            && let Some((bytes, segment_bytes)) = card.arriving.pop_front()
        {
            let mut buf = self.free.pop().unwrap();
            assert!(buf.copy_bytes(&bytes));
            buf.segment_bytes = segment_bytes;
            buf.checksum = match segment_bytes {
                0 => RxChecksum::Unknown,
                _ => RxChecksum::Verified,
            };
            self.lent.push(buf);
        }
        Ok(self.lent.frames())
    }
    fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }
    fn accept_merged(&mut self) -> bool {
        true
    }
    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.slots.extend(self.granted[self.turn].drain());
        if self.is_scarce {
            self.turn = 1 - self.turn;
        }
        let granted = &mut self.granted[self.turn];
        granted.extend(self.slots.drain(..n.min(BATCH)));
        granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted[self.turn].written()
    }
    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let mut card = self.card.lock().unwrap();
        let mut out = vec![0; 1_514];
        let mut by_bulk = vec![None; BATCH];
        for (at, room) in by_bulk.iter_mut().enumerate().take(n) {
            let granted = &mut self.granted[self.turn];
            *room = granted.bulk_written(at).map(|buf| buf.bytes().to_vec());
            if room.is_some() {
                granted.written()[at].leave_bulk_lane();
            }
        }
        for (at, buf) in self.granted[self.turn].drain().enumerate() {
            let by_bulk = by_bulk.get_mut(at).and_then(Option::take);
            card.sends_bulk = by_bulk.is_some();
            if at < n && (card.sends_bulk || !buf.is_empty()) {
                let bytes = by_bulk.unwrap_or_else(|| buf.bytes().to_vec());
                let mut segmenter = Segmenter::new(SLOT_BYTES);
                // A frame of one segment is also "cut": this completes its checksum.
                let size = match buf.segment_bytes {
                    0 => SLOT_BYTES,
                    size => usize::from(size),
                };
                if buf.segment_bytes > 0 {
                    card.cut += 1;
                    card.longest = card.longest.max(bytes.len() - LINK_BYTES);
                }
                if buf.offload.is_none() || !segmenter.load(&bytes, size) {
                    let mut frame = bytes;
                    packetio::offload::complete_partial(&mut frame);
                    card.sent.push(frame);
                }
                while let Some(len) = segmenter.cut(&mut out) {
                    card.sent.push(out[..len].to_vec());
                }
            }
            let (sent, lane) = (card.sent.len(), card.sends_bulk);
            card.lanes.resize(sent, lane);
            card.sends_bulk = false;
            self.slots.push(buf);
        }
        Ok(())
    }
    fn prepare_wait(&mut self, _want_tx: bool) -> bool {
        false
    }
    fn finish_wait(&mut self) {}
    fn poll_fds<'a>(&'a self, _want_tx: bool, _fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A stack on such a driver, with one connection from a peer.
pub(crate) struct Bench {
    pub stack: Stack,
    pub app: App,
    card: Arc<Mutex<Card>>,
    pub client: Client,
    pub socket: SocketId,
    pub now_ns: u64,
}

impl Bench {
    fn new(segment_bytes_max: usize, is_v6: bool, change: impl FnOnce(&mut StackConfig)) -> Self {
        Self::with_lanes(Lanes::One, segment_bytes_max, is_v6, change)
    }

    pub fn with_lanes(
        lanes: Lanes,
        segment_bytes_max: usize,
        is_v6: bool,
        change: impl FnOnce(&mut StackConfig),
    ) -> Self {
        let quiet = Flags::default();
        Self::with_peer(lanes, segment_bytes_max, is_v6, quiet, change)
    }

    /// A bench whose peer's SYN has these additional flags.
    fn with_peer(
        lanes: Lanes,
        segment_bytes_max: usize,
        is_v6: bool,
        hello_flags: Flags,
        change: impl FnOnce(&mut StackConfig),
    ) -> Self {
        let card = Arc::new(Mutex::new(Card::default()));
        let now_ns = 1_000 * SECOND;
        let driver = Box::new(Driver::new(card.clone(), segment_bytes_max, lanes));
        let mut config = common::config();
        change(&mut config);
        let (mut stack, side) = Stack::new(config, driver, now_ns).unwrap();
        let mut app = App::new(side);
        let (own, peer) = match is_v6 {
            false => (STACK_V4, PEER_V4),
            true => (STACK_V6, PEER_V6),
        };
        let hello = match (own, peer) {
            (IpAddr::V6(_), _) => frames::solicitation(PEER_MAC, peer, own),
            _ => frames::arp_request(PEER_MAC, peer, own),
        };
        let local = SocketAddr::new(own, PORT);
        let listener = app.listen(local, 4);
        card.lock().unwrap().arriving.push_back((hello, 0));
        while stack.turn(now_ns).busy {}
        let client = Client::new(SocketAddr::new(peer, 40_000), local);
        let mut bench = Self {
            stack,
            app,
            card,
            client,
            socket: listener,
            now_ns,
        };
        bench.take();
        let mut syn = bench.client.syn();
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(4);
        syn.options.timestamp = Some(STAMP);
        // Classic ECN, if the peer supports it.
        syn.flags |= hello_flags;
        bench.arrive(&syn);
        let syn_ack = bench.take().pop().expect("a SYN-ACK");
        bench.client.on_syn_ack(&syn_ack);
        let ack = stamped(bench.client.ack());
        bench.arrive(&ack);
        bench.socket = bench.app.accept(listener).unwrap();
        bench
    }

    pub fn settle(&mut self) {
        while self.stack.turn(self.now_ns).busy {}
    }

    pub fn arrive(&mut self, segment: &Tcp) {
        self.arrive_merged(segment, 0);
    }

    fn arrive_merged(&mut self, segment: &Tcp, size: u16) {
        let frame = segment.frame(PEER_MAC, STACK_MAC);
        self.card.lock().unwrap().arriving.push_back((frame, size));
        self.settle();
    }

    /// Takes the sent segments; each must have a correct checksum.
    fn take(&mut self) -> Vec<Tcp> {
        let taken = self.take_with_lanes();
        taken.into_iter().map(|(segment, _)| segment).collect()
    }

    /// Takes the sent segments, each with a flag for the bulk lane.
    pub fn take_with_lanes(&mut self) -> Vec<(Tcp, bool)> {
        let seen = self.take_raw().into_iter();
        let both = seen.filter_map(|(frame, lane)| match frames::parse(&frame) {
            frames::Seen::Tcp(segment) => Some((segment, lane)),
            _ => None,
        });
        both.collect()
    }

    /// Takes the sent frames, each with a flag for the bulk lane.
    fn take_raw(&mut self) -> Vec<(Vec<u8>, bool)> {
        let mut card = self.card.lock().unwrap();
        let (sent, lanes) = (
            std::mem::take(&mut card.sent),
            std::mem::take(&mut card.lanes),
        );
        sent.into_iter().zip(lanes).collect()
    }

    /// Takes the sent segments, each with the ECN codepoint of its packet (RFC 3168).
    fn take_marked(&mut self) -> Vec<Marked> {
        let seen = self.take_raw().into_iter();
        let both = seen.filter_map(|(frame, _)| match frames::parse(&frame) {
            frames::Seen::Tcp(segment) if segment.src.is_ipv4() => Some((segment, frame[15] & 3)),
            frames::Seen::Tcp(segment) => Some((segment, frame[15] >> 4 & 3)),
            _ => None,
        });
        both.collect()
    }

    pub fn cut(&self) -> usize {
        self.card.lock().unwrap().cut
    }

    /// `TCP_INFO`, or that there is no connection any more.
    fn info(&mut self) -> String {
        let (answer, mut answers) = spsc::queue(1);
        let socket = self.socket;
        (self.app).control(Control::Info(InfoQuery { socket, answer }));
        self.settle();
        let info = answers.pop().flatten().map(|info| info.tcp);
        format!("{info:?}")
    }

    /// A router tells that a segment is longer than the path's next link takes.
    fn arrive_too_big(&mut self, segment: &Tcp, mtu: u16) {
        let bytes = segment.segment_bytes();
        let frame = match (segment.src, segment.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let message = icmpv4::Message::DestinationUnreachable {
                    code: 4,
                    next_hop_mtu: mtu,
                    quote: &frames::ipv4_packet(src, dst, protocol::TCP, &bytes),
                };
                frames::icmp4_frame(PEER_MAC, STACK_MAC, PEER_V4, STACK_V4, &message)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let message = icmpv6::Message::PacketTooBig {
                    mtu: mtu.into(),
                    quote: &frames::ipv6_packet(src, dst, protocol::TCP, 64, &bytes),
                };
                frames::icmp6_frame(PEER_MAC, STACK_MAC, PEER_V6, STACK_V6, &message)
            }
            ends => panic!("addresses of two families: {ends:?}"),
        };
        self.card.lock().unwrap().arriving.push_back((frame, 0));
        self.settle();
    }
}

/// A text in which neighbouring bytes differ.
pub(crate) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Adds the timestamp option that the handshake agreed on.
pub(crate) fn stamped(mut segment: Tcp) -> Tcp {
    segment.options.timestamp = Some(STAMP);
    segment
}

/// The special feature of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    V6,
    /// The peer supports ECN and sees a mark in the third flight.
    Ecn,
    Paced,
    /// A router has no way on for the third flight, and says how long a packet may be.
    Narrowed,
    NarrowedV6,
}

/// The path's MTU from the third flight of a narrowed download on.
const NARROW: u16 = 1_300;

/// A segment, with the ECN codepoint of its packet.
type Marked = (Tcp, u8);

/// The story of a download.
struct Download {
    /// Segments that left, flight by flight.
    flights: Vec<Vec<Marked>>,
    /// `TCP_INFO` when each flight has left, and when it is acknowledged.
    infos: Vec<[String; 2]>,
    /// Frames that were cut until each flight had left.
    cut_until: Vec<usize>,
    /// Bytes of the longest packet that was cut.
    longest: usize,
}

impl Download {
    /// Frames that were cut.
    fn cut(&self) -> usize {
        self.cut_until.last().copied().unwrap_or(0)
    }
}

/// A connection for a download of this kind.
fn bench_of(segment_bytes_max: usize, kind: Kind, lanes: Lanes) -> Bench {
    let hello = match kind {
        Kind::Ecn => Flags::ECE | Flags::CWR,
        _ => Flags::default(),
    };
    let is_v6 = matches!(kind, Kind::V6 | Kind::NarrowedV6);
    Bench::with_peer(lanes, segment_bytes_max, is_v6, hello, |config| {
        config.tcp.pacing = kind == Kind::Paced;
    })
}

/// Sends a text and a FIN to a peer that acknowledges every segment. One of the fourth flight is
/// lost. On a path that narrows the third flight is lost, and the peer acknowledges flights.
fn download(segment_bytes_max: usize, kind: Kind, lanes: Lanes) -> Download {
    let is_narrowed = matches!(kind, Kind::Narrowed | Kind::NarrowedV6);
    let mut b = bench_of(segment_bytes_max, kind, lanes);
    let bytes = text(400_123);
    let (mut written, mut got) = (0, Vec::new());
    let (mut flights, mut infos, mut cut_until) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut is_ended) = (b.client.rcv, false);
    while !is_ended {
        written += b.app.write_if_open(b.socket, &bytes[written..]);
        if written == bytes.len() {
            b.app.shutdown_if_open(b.socket);
        }
        b.settle();
        b.now_ns += SECOND / 50;
        b.settle();
        let mut flight = b.take_marked();
        assert!(!flight.is_empty(), "{} of {}", got.len(), bytes.len());
        flights.push(flight.clone());
        let left = b.info();
        cut_until.push(b.cut());
        match (is_narrowed, flights.len()) {
            (true, 3) => {
                b.arrive_too_big(&flight[0].0, NARROW);
                flight.retain(|(segment, _)| fits_narrow(segment));
            }
            (false, 4) => drop(flight.remove(flight.len() / 2)),
            _ => {}
        }
        for (at, (segment, _)) in flight.iter().enumerate() {
            let end = segment.seq.wrapping_add(segment.payload.len() as u32);
            let mut ack = stamped(b.client.segment(Flags::ACK));
            ack.window = 60_000;
            if kind == Kind::Ecn && flights.len() == 3 {
                ack.flags |= Flags::ECE;
            }
            match segment.seq.cmp(&next) {
                std::cmp::Ordering::Equal => {
                    got.extend_from_slice(&segment.payload);
                    next = end;
                    is_ended = segment.flags.intersects(Flags::FIN);
                }
                std::cmp::Ordering::Greater => ack.options.sack = block_of(segment.seq, end),
                std::cmp::Ordering::Less => {}
            }
            // The bytes behind a gap are sent again in this conversation: only what is in order is
            // kept.
            // Each ACK releases a segment or two, which are no large frame.
            if !is_narrowed || at + 1 == flight.len() {
                b.arrive(&ack.acking(next.wrapping_add(u32::from(is_ended))));
            }
        }
        infos.push([left, b.info()]);
        assert!(flights.len() < 2_000, "the text never ends");
    }
    assert!(got == bytes);
    let longest = b.card.lock().unwrap().longest;
    Download {
        flights,
        infos,
        cut_until,
        longest,
    }
}

/// The SACK option for text behind a gap.
fn block_of(begin: u32, end: u32) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    blocks.push(SackBlock {
        left: SeqNumber(begin),
        right: SeqNumber(end),
    });
    blocks
}

/// The segment's packet is no longer than the narrowed path takes.
fn fits_narrow(segment: &Tcp) -> bool {
    let network = if segment.src.is_ipv4() { 20 } else { 40 };
    network + segment.segment_bytes().len() <= usize::from(NARROW)
}

#[test]
fn established_text_in_large_frames_is_the_same_on_the_wire() {
    for kind in [
        Kind::Plain,
        Kind::V6,
        Kind::Ecn,
        Kind::Paced,
        Kind::Narrowed,
        Kind::NarrowedV6,
    ] {
        let single = download(0, kind, Lanes::One);
        assert_eq!(single.cut(), 0);
        for lanes in [Lanes::One, Lanes::Two, Lanes::Behind, Lanes::Scarce] {
            let large = download(LARGE, kind, lanes);
            let least = if lanes == Lanes::Scarce { 3 } else { 6 };
            assert!(
                large.cut() >= least,
                "{} large frames: {kind:?} {:?}",
                large.cut(),
                large.cut_until
            );
            assert_eq!(single.flights.len(), large.flights.len());
            let both = single.flights.iter().zip(&large.flights);
            for (at, (single, large)) in both.enumerate() {
                assert_eq!(single, large, "flight {at}, {kind:?}");
            }
            let both = single.infos.iter().zip(&large.infos);
            for (at, (single, large)) in both.enumerate() {
                assert_eq!(single, large, "TCP_INFO of flight {at}, {kind:?}");
            }
        }
    }
}

#[test]
fn established_text_in_large_frames_on_a_path_that_narrows_is_sent_again_in_shorter_ones() {
    for kind in [Kind::Narrowed, Kind::NarrowedV6] {
        let large = download(LARGE, kind, Lanes::Two);
        let at = &large.cut_until;
        assert!(at[2] > 0 && large.cut() > at[2], "{at:?} large frames");
        let (before, after) = large.flights.split_at(3);
        assert!(before[2].iter().all(|(segment, _)| !fits_narrow(segment)));
        assert_eq!(after[0][0].0.seq, before[2][0].0.seq, "sent again");
        let mut after = after.iter().flatten();
        assert!(after.all(|(segment, _)| fits_narrow(segment)));
    }
}

#[test]
fn established_text_that_is_marked_says_so_once_and_stays_capable() {
    let flights = download(LARGE, Kind::Ecn, Lanes::One).flights;
    // Flights up to the answer to the mark; later ones repair the loss.
    let early = flights[..4].iter().flatten();
    let reduced = early.filter(|(segment, _)| segment.flags.contains(Flags::CWR));
    let at: Vec<u32> = reduced.map(|(segment, _)| segment.seq).collect();
    assert_eq!(at, [flights[3][0].0.seq]);
    // A retransmitted segment is not ECN-capable (RFC 3168 section 6.1.5).
    let mut highest = 0;
    for (segment, codepoint) in flights.iter().flatten() {
        let is_new = segment.seq > highest;
        highest = highest.max(segment.seq);
        assert_eq!(*codepoint, if is_new { 2 } else { 0 }, "{}", segment.seq);
    }
}

#[test]
fn established_text_for_a_port_short_of_large_buffers_loses_no_segment() {
    let mut b = Bench::with_lanes(Lanes::Scarce, LARGE, false, |_| {});
    let bytes = text(400_123);
    let (mut written, mut got) = (0, 0);
    while got < bytes.len() {
        written += b.app.write_if_open(b.socket, &bytes[written..]);
        b.settle();
        for segment in b.take() {
            got += segment.payload.len();
            let mut ack = stamped(b.client.segment(Flags::ACK));
            ack.window = 60_000;
            b.arrive(&ack.acking(segment.seq.wrapping_add(segment.payload.len() as u32)));
        }
    }
    assert_eq!(b.stack.counters().tx_frame_too_small, 0);
    assert!(b.cut() > 5, "{} large frames", b.cut());
}

#[test]
fn established_text_for_a_port_of_a_few_segments_fills_its_frames() {
    for (kind, headers) in [(Kind::Plain, 20 + 32), (Kind::V6, 40 + 32)] {
        let single = download(0, kind, Lanes::One).flights;
        let segment = single.iter().flatten().map(|one| one.0.payload.len()).max();
        let three = headers + 3 * segment.unwrap();
        // With one byte less a frame holds two segments.
        let longest = [three, three - 1].map(|segment_bytes_max| {
            let large = download(segment_bytes_max, kind, Lanes::One);
            assert!(large.cut() > 20, "{} large frames", large.cut());
            assert_eq!(single, large.flights);
            large.longest
        });
        assert_eq!(longest, [three, three - segment.unwrap()]);
    }
}

/// Receives a text of `count` segments, merged by the wire or single. Returns the answers, the
/// bytes read, and the counters.
fn upload(is_merged: bool, count: usize, ecn: Ecn) -> (Vec<Tcp>, Vec<u8>, stack::Counters) {
    let mut b = Bench::new(0, false, |_| {});
    let bytes = text(count * FULL - 300);
    let mut answers = Vec::new();
    let step = if is_merged { count * FULL } else { FULL };
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        let mut segment = stamped(b.client.data(piece));
        if frames.len() * step + piece.len() < bytes.len() {
            segment.flags = Flags::ACK;
        }
        let mut frame = segment.frame(PEER_MAC, STACK_MAC);
        frame[15] = ecn.within(frame[15]);
        frames::mend_ipv4(&mut frame);
        let size = if is_merged { FULL as u16 } else { 0 };
        frames.push((frame, size));
    }
    b.card.lock().unwrap().arriving.extend(frames);
    b.settle();
    answers.extend(b.take());
    let read = b.app.read(b.socket);
    assert!(read == bytes, "{} of {} bytes", read.len(), bytes.len());
    b.settle();
    b.now_ns += SECOND;
    b.settle();
    answers.extend(b.take());
    (answers, read, b.stack.counters().clone())
}

/// Payload of a full segment with timestamps.
pub(crate) const FULL: usize = 1_448;

#[test]
fn established_merged_frame_is_acknowledged_like_its_segments() {
    for ecn in [Ecn::NotEct, Ecn::Ce] {
        let (single, _, of_single) = upload(false, 9, ecn);
        let (merged, _, of_merged) = upload(true, 9, ecn);
        assert_eq!(single, merged);
        assert!(single.len() > 4, "an ACK for every second segment");
        assert_eq!(of_single.rx_segments, of_merged.rx_segments);
        assert_eq!(of_merged.rx_segments_in_large, 9);
        assert_eq!(of_merged.rx_frames + 8, of_single.rx_frames);
    }
}

#[test]
fn established_merged_frame_with_fin_ends_the_text_once() {
    let mut b = Bench::new(0, false, |_| {});
    let bytes = text(3 * FULL);
    let segment = stamped(b.client.data(&bytes));
    let flags = Flags::ACK | Flags::PSH | Flags::FIN;
    b.arrive_merged(&segment.with(flags), FULL as u16);
    assert!(b.app.read(b.socket) == bytes);
    assert!(b.app.has(b.socket, SocketState::EOF));
    let last = b.take().pop().expect("an ACK");
    assert_eq!(last.ack, b.client.nxt.wrapping_add(1));
}

#[test]
fn established_merged_frame_of_which_a_part_is_known_adds_the_rest() {
    let mut b = Bench::new(0, false, |_| {});
    let bytes = text(4 * FULL);
    let first = stamped(b.client.segment(Flags::ACK).data(&bytes[..2 * FULL]));
    b.arrive(&first);
    b.arrive_merged(&first.clone().data(&bytes), FULL as u16);
    assert!(b.app.read(b.socket) == bytes);
}

#[test]
fn merged_frame_for_nobody_is_refused() {
    let mut b = Bench::new(0, false, |_| {});
    let mut stranger = b.client.clone();
    stranger.peer.set_port(41_000);
    b.arrive_merged(&stranger.data(&text(3 * FULL)), FULL as u16);
    let answers = b.take();
    assert!(
        answers
            .iter()
            .all(|answer| answer.flags.intersects(Flags::RST))
    );
    assert_eq!(answers.len(), 3);
}
