//! Per ready connection: what to send now. Frames are filled in the order control, ACK, data, openings, each list with its guaranteed share of a batch.

use packetio::TxFrame;
use ring::byte_ring::TxReader;
use ring::memory::Memory;
use ring::raw::RawSliceMut;
use ring::socket_block::SocketBlock;
use tcp::{BurstRest, Connection, Cx, Effects, IcmpError, SegmentOut, TransmitClass};
use wire::FlowKey;
use wire::plain::Standing;

use crate::core::{Core, tcp_cx};
use crate::counters::Counters;
use crate::departures::ack_trains::{Expansion, Filled};
use crate::departures::packet_out::{build_bare, build_rest, build_segment, build_with};
use crate::flows::sockets::Role;
use crate::flows::stamps::StampedAt;
use crate::header_fields::{HeaderFields, LinkEnds};
use crate::limits::{BLOCKED_TOLD_PER_TURN, HEADER_BYTES_MAX, TX_BATCH_SHARED_MIN, TX_SHARES};
use crate::network::layer::Network;
use crate::network::neighbours::Link;
use crate::schedule::control_queue::ControlSegment;
use crate::schedule::tx_lists::OPENINGS;
use crate::settle::door;

impl Core {
    /// Something is ready to leave.
    pub(crate) fn has_output(&self) -> bool {
        !self.lists.is_empty()
            || !self.control.is_empty()
            || !self.ack_trains.is_empty()
            || self.network.has_frames()
    }

    /// Fills frames of one batch; the number filled.
    pub(crate) fn fill_frames(&mut self, frames: &[TxFrame]) -> usize {
        // ACKs of what came before go before all else of their connections. They are bounded by what arrived, and none are made while the port is short of room.
        let how = Expansion {
            checksum_offload: self.offload,
            by_template: self.config.offload_acks,
        };
        let Filled {
            mut used,
            too_small,
        } = self.ack_trains.fill(frames, how);
        self.counters.tx_frame_too_small += too_small;
        self.counters.acks_in_trains += used as u64;
        used += self.network.fill_frames(&frames[used..]);
        if frames.len() < TX_BATCH_SHARED_MIN {
            return used + self.fill_few(&frames[used..]);
        }
        // A flood of resets may take half a batch, no more, unless nobody else wants the rest.
        used += self.control_out(&frames[used..used + (frames.len() - used) / 2]);
        let room = frames.len() - used;
        // First each list's share, then whatever is left to whoever has more, in order of urgency.
        for (class, share) in TX_SHARES.into_iter().enumerate() {
            let end = frames.len().min(used + (room * share / 8).max(1));
            used += self.list_out(class, &frames[used..end]);
        }
        for class in 0..TX_SHARES.len() {
            used += self.list_out(class, &frames[used..]);
        }
        used + self.control_out(&frames[used..])
    }

    /// A batch too small for shares: a frame for each kind in turn, beginning with another each time, so that none starves.
    fn fill_few(&mut self, frames: &[TxFrame]) -> usize {
        const KINDS: usize = TX_SHARES.len() + 1;
        let (mut used, mut idle) = (0, 0);
        while used < frames.len() && idle < KINDS {
            self.tx_next = (self.tx_next + 1) % KINDS;
            let one = &frames[used..=used];
            let filled = match self.tx_next {
                class if class < TX_SHARES.len() => self.list_out(class, one),
                _ => self.control_out(one),
            };
            used += filled;
            idle = if filled == 0 { idle + 1 } else { 0 };
        }
        used
    }

    /// The port has had no room for a whole turn: connections that wait for it are told, a few each time in turn, so that their timers see to it if this lasts. They
    /// keep their places: whoever moved some of them would shuffle the turns of all, a little with each turn that ends on a full port.
    #[cold]
    pub(crate) fn port_blocked(&mut self) {
        const DATA: usize = 2;
        let mut first = None;
        for _ in 0..BLOCKED_TOLD_PER_TURN {
            let Some(socket) = self
                .lists
                .next_around(DATA)
                .filter(|&one| first != Some(one))
            else {
                return;
            };
            first.get_or_insert(socket);
            if let Some(conn) = self.sockets.slot(socket).conn.as_mut() {
                let effects = conn.on_port_blocked(&mut tcp_cx!(self));
                self.settle(socket, effects);
            }
        }
    }

    fn list_out(&mut self, class: usize, frames: &[TxFrame]) -> usize {
        let mut used = 0;
        while used < frames.len() {
            let Some((socket, turn)) = self.lists.pop(class) else {
                break;
            };
            // Whoever waited to begin does it now: `connection_out` has its SYN.
            let waits = class == OPENINGS && self.sockets.role(socket) == Role::Reserved;
            if waits && !self.begin_waiting(socket) {
                continue;
            }
            let mut room = frames.len() - used;
            // Alone on its list it sends as much as it likes.
            if let Some(next) = self.lists.first(class) {
                if self.is_crowded {
                    self.sockets.prefetch(next);
                }
                room = room.min(turn);
            }
            let sent = self.connection_out(socket, &frames[used..used + room]);
            used += sent;
            if used == frames.len() && sent < turn {
                self.lists.resume(socket, class, turn - sent);
            }
        }
        used
    }

    /// Segments of one connection, as many as it has and frames hold. It goes to the end of its list if it has more.
    fn connection_out(&mut self, socket: u32, frames: &[TxFrame]) -> usize {
        let (mut slot, mut pool, mut block) = self.sockets.parts(socket);
        let mut link = self.network.link_of(slot, self.now_ns);
        if link.is_none() {
            link = self.link_slowly(socket);
            (slot, pool, block) = self.sockets.parts(socket);
        }
        let (Some(ends), Some((conn, standing))) = (&mut link, slot.conn.with_headers()) else {
            return 0;
        };
        let mut way = Way {
            ends,
            key: &slot.key,
            header: &mut slot.header,
            standing,
            tx: &mut slot.tx,
            memory: pool.memory(),
            block,
            offload: self.offload,
            now_ns: self.now_ns,
        };
        let mut cx = tcp_cx!(self);
        let segment = &mut self.segment_out;
        let (mut used, mut has_more) = (0, true);
        while has_more && used < frames.len() {
            has_more = conn.poll_transmit(&mut cx, segment);
            if !has_more {
                break;
            }
            let built = way.segment_out(&frames[used], segment);
            // A frame too small for an MSS that the port's own MTU gave: counted, and retransmission tries again.
            self.counters.tx_frame_too_small += u64::from(!built);
            used += usize::from(built);
            // What is stamped, or numbered for want of DF, passes one by one.
            if way.ends.header.discovers_mtu && slot.stamps.is_none() {
                let rest = conn.poll_rest(&mut cx, segment, (frames.len() - used) as u32);
                if rest.segments > 0 {
                    let built = way.rest_out(&frames[used..], segment, rest);
                    self.counters.tx_frame_too_small += rest.segments as u64 - built as u64;
                    used += built;
                }
            }
            if let Some(stamps) = slot.stamps.as_mut()
                && segment.payload_len > 0
            {
                let at = StampedAt {
                    conn,
                    tx: way.tx,
                    buffered: way.tx.buffered(block),
                    now_ns: cx.now_ns,
                };
                self.counters.stamps_lost += stamps.on_segment(&at, segment);
            }
            // With the last one it says so.
            has_more = conn.due() != TransmitClass::None;
        }
        // The frames ended before the segments did, or with them.
        let class = match has_more {
            true => rest_of(conn, &mut cx, segment),
            false => TransmitClass::None,
        };
        door!(self, cx).settle_sent(socket, slot, block, class, used > 0);
        used
    }

    /// Where a connection's frames go, if that is known and fresh.
    #[inline]
    pub(crate) fn ready_link(&mut self, socket: u32) -> Option<LinkEnds> {
        let slot = self.sockets.slot(socket);
        self.network.link_of(slot, self.now_ns)
    }

    /// Where a connection's frames go. `None`: not known yet, or nobody there; whoever resolves it puts the connection back on its list.
    #[cold]
    fn link_slowly(&mut self, socket: u32) -> Option<LinkEnds> {
        let slot = self.sockets.slot(socket);
        let Ok(id) = self.network.hop(slot.key.remote, self.now_ns) else {
            self.lose_segments(socket, None);
            return None;
        };
        if slot.neighbour != Some(id) {
            slot.neighbour = Some(id);
            slot.awaits_neighbour = false;
        }
        let news_ns = slot.conn.as_ref().map_or(0, Connection::last_news_ns);
        match (self.network.neighbours).link_to_peer(id, self.now_ns, news_ns) {
            Link::Ready(destination) => {
                return Some(LinkEnds {
                    source: self.network.mac,
                    destination,
                    header: slot.header,
                });
            }
            Link::Waiting => {
                if !slot.awaits_neighbour {
                    slot.awaits_neighbour = self.network.neighbours.wait(id, socket);
                }
                if !slot.awaits_neighbour {
                    self.lose_segments(socket, None);
                }
            }
            Link::Unreachable => {
                self.lose_segments(socket, Some(IcmpError::NeighbourUnreachable));
            }
            Link::Gone => self.lose_segments(socket, None),
        }
        None
    }

    /// What a connection has to send cannot leave and nobody will tell it when it can. It counts as sent and lost, so that the connection's own
    /// timers see to it: they try again, and give up in the end.
    #[cold]
    pub(crate) fn lose_segments(&mut self, socket: u32, failure: Option<IcmpError>) {
        let Some(conn) = self.sockets.slot(socket).live_mut() else {
            return;
        };
        let mut cx = tcp_cx!(self);
        let mut segment = SegmentOut::default();
        while conn.poll_transmit(&mut cx, &mut segment) {
            self.counters.neighbour_drop += 1;
        }
        let mut effects = Effects::TIMER;
        if let Some(kind) = failure {
            let una = conn.una();
            effects |= conn.on_icmp_error(&mut cx, kind, una);
        }
        // What is kept back waits for a timer: back on its list this output would ask for it again, without end.
        self.settle(socket, effects.without(Effects::TRANSMIT | Effects::HELD));
    }

    fn control_out(&mut self, frames: &[TxFrame]) -> usize {
        let mut used = 0;
        while used < frames.len() {
            let Some(one) = self.control.first() else {
                break;
            };
            let link = link_of_control(one, &mut self.network, &mut self.counters, self.now_ns);
            if let Some(ends) = &link {
                let (key, segment) = (&one.key, &one.segment);
                let built = build_segment(&frames[used], ends, key, segment, self.offload, |_| 0);
                used += usize::from(built);
                self.counters.tx_frame_too_small += u64::from(!built);
            }
            self.control.drop_first();
        }
        used
    }
}

/// Where a segment without a connection goes. One that must wait for its neighbour waits as a finished frame.
fn link_of_control(
    one: &ControlSegment,
    network: &mut Network,
    counters: &mut Counters,
    now_ns: u64,
) -> Option<LinkEnds> {
    let source = network.mac;
    let Ok(id) = network.hop(one.key.remote, now_ns) else {
        counters.control_unroutable += 1;
        return None;
    };
    match network.neighbours.link(id, now_ns) {
        Link::Ready(destination) => Some(LinkEnds {
            source,
            destination,
            header: one.header,
        }),
        Link::Waiting => {
            let mut frame = [0; HEADER_BYTES_MAX];
            let ends = LinkEnds {
                source,
                destination: wire::MacAddr::UNSPECIFIED,
                header: one.header,
            };
            let len = build_bare(&mut frame, &ends, &one.key, &one.segment);
            let held = network.neighbours.hold_frame(id, &frame[..len]);
            counters.neighbour_drop += u64::from(!held);
            None
        }
        Link::Unreachable | Link::Gone => {
            counters.control_unroutable += 1;
            None
        }
    }
}

/// From a connection's send buffer into frames.
struct Way<'a> {
    ends: &'a mut LinkEnds,
    key: &'a FlowKey,
    header: &'a mut HeaderFields,
    standing: &'a mut Standing,
    tx: &'a mut TxReader,
    memory: &'a Memory,
    block: &'a SocketBlock,
    offload: bool,
    now_ns: u64,
}

impl Way<'_> {
    /// Builds one segment. False: the frame is too small for it.
    #[inline(always)]
    fn segment_out(&mut self, frame: &TxFrame, segment: &SegmentOut) -> bool {
        if !self.ends.header.discovers_mtu {
            self.header.before_fragmentable(self.now_ns);
            self.ends.header = *self.header;
        }
        let copy = |place: RawSliceMut<'_>| {
            self.tx
                .copy_out(self.memory, self.block, segment.payload_offset, place)
        };
        let (key, ends, offload) = (self.key, &*self.ends, self.offload);
        build_with(self.standing, frame, ends, key, segment, offload, copy)
    }

    /// Builds the segments that follow `first`; how many.
    fn rest_out(&mut self, frames: &[TxFrame], first: &SegmentOut, rest: BurstRest) -> usize {
        let copy = |offset, place: RawSliceMut<'_>| {
            self.tx.copy_out(self.memory, self.block, offset, place)
        };
        let (key, ends, offload) = (self.key, &*self.ends, self.offload);
        build_rest(frames, ends, key, (first, rest), offload, copy)
    }
}

/// What is left of a connection that filled all the frames it was given.
fn rest_of(conn: &mut Connection, cx: &mut Cx<'_>, segment: &mut SegmentOut) -> TransmitClass {
    let class = conn.refresh_due(cx);
    if class == TransmitClass::None {
        // The engine is told that it was asked in vain: it may have to arm its persist timer.
        let more = conn.poll_transmit(cx, segment);
        debug_assert!(!more, "nothing was to be sent");
    }
    class
}
