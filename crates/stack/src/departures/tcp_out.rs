//! Transmission: what each ready connection sends now. Frames are filled in the order control, ACK,
//! data, openings, each list with its guaranteed share of a batch.

use packetio::{Port, TxFrame};
use tcp::isn::IsnGenerator;
use tcp::{Connection, Cx, IcmpError, SegmentOut, TransmitClass};

use crate::core::Core;
use crate::counters::Counters;
use crate::departures::Departures;
use crate::departures::ack_trains::{AckTrains, Expansion, Filled};
use crate::departures::local_out::take_local;
use crate::departures::packet_out::{FrameWriter, build_bare, build_segment};
use crate::effects::{apply_effects, effect_targets, lose_segments, move_to_port};
use crate::engine::{Engine, Parts, note_unsent};
use crate::flows::Flows;
use crate::flows::slot::Role;
use crate::flows::stamps::StampedAt;
use crate::flows::stories::Moment;
use crate::header_fields::LinkEnds;
use crate::limits::{
    BLOCKED_TOLD_PER_TURN, HEADER_BYTES_MAX, TX_BATCH_SHARED_MIN, TX_FRAMES_AHEAD_MIN,
    TX_FRAMES_PER_TURN, TX_SHARES,
};
use crate::network::layer::Network;
use crate::network::neighbours::Link;
use crate::requests::connect::begin_waiting;
use crate::schedule::control_queue::ControlSegment;
use crate::schedule::tx_lists::{OPENINGS, list_of};
use crate::stage_clock::Stage;
use crate::unsent_notes::{UnsentNotes, UnsentReason};

/// Tells a few connections per turn, in rotation, that the port had no room for a whole turn. Their
/// timers act if this lasts. Connections keep their places: moving some of them would change the
/// order of all.
#[cold]
pub(crate) fn port_blocked(engine: &mut Engine, port: u8) {
    const DATA: usize = 2;
    let mut first = None;
    for _ in 0..BLOCKED_TOLD_PER_TURN {
        let parts = engine.parts();
        let Some(socket) = (parts.schedule.lists_mut())
            .next_around(list_of(port, DATA))
            .filter(|&one| first != Some(one))
        else {
            return;
        };
        first.get_or_insert(socket);
        if let Some(conn) = parts.flows.slot(socket).conn.as_mut() {
            let effects = conn.on_port_blocked(&mut parts.env.cx());
            apply_effects(engine, socket, effects);
        }
    }
}

/// The link on which a connection's frames leave, if it is known, fresh and behind `port`.
#[inline]
pub(crate) fn ready_link(
    flows: &mut Flows,
    network: &mut Network,
    (port, now_ns): (u8, u64),
    socket: u32,
) -> Option<LinkEnds> {
    let slot = flows.slot(socket);
    network.link_to(slot.neighbour, port, slot.header, (slot.news_ns(), now_ns))
}

/// The link on which a connection's frames leave by `port`. `None`: the neighbour is unresolved,
/// absent or behind another port. The connection returns to its list when the neighbour answers.
#[cold]
fn link_slowly(engine: &mut Engine, port: u8, socket: u32) -> Option<LinkEnds> {
    let parts = engine.parts();
    let slot = parts.flows.slot(socket);
    let (local, remote) = (slot.key.local, slot.key.remote);
    let Ok(id) = parts.network.hop(local, remote, parts.env.now_ns) else {
        lose_segments(engine, socket, None);
        return None;
    };
    if slot.neighbour != Some(id) {
        slot.neighbour = Some(id);
        slot.awaits_neighbour = false;
    }
    if id.port() != port {
        move_to_port(engine, socket, id.port());
        return None;
    }
    match (parts.network.neighbours_mut()).link_to_peer(id, parts.env.now_ns, slot.news_ns()) {
        Link::Ready(destination) => {
            return Some(LinkEnds {
                source: parts.network.mac(port),
                destination,
                header: slot.header,
            });
        }
        Link::Waiting => {
            if !slot.awaits_neighbour {
                slot.awaits_neighbour = parts.network.neighbours_mut().wait(id, socket);
            }
            if !slot.awaits_neighbour {
                lose_segments(engine, socket, None);
            }
        }
        Link::Unreachable => {
            lose_segments(engine, socket, Some(IcmpError::NeighbourUnreachable));
        }
        Link::Gone => lose_segments(engine, socket, None),
    }
    None
}

/// Moves the connections that want to send by a port which is gone to another port, or discards
/// their output.
#[cold]
pub(crate) fn evacuate(engine: &mut Engine, isn: &mut IsnGenerator, port: u8) {
    for class in 0..TX_SHARES.len() {
        loop {
            let parts = engine.parts();
            let Some((socket, _)) = parts.schedule.lists_mut().pop(list_of(port, class)) else {
                break;
            };
            let waits = parts.flows.role(socket) == Role::Reserved;
            if !waits || begin_waiting(engine, isn, socket) {
                link_slowly(engine, port, socket);
            }
        }
    }
}

impl Departures {
    /// Fills and sends batches of frames while there is output and room. Returns the number sent,
    /// and whether the port ran out of room.
    pub(crate) fn packet_out(
        &mut self,
        core: &mut Core,
        trains: &mut AckTrains,
        port: &mut dyn Port,
    ) -> (usize, bool) {
        let mut sent = 0;
        while (self.has_output(core.engine()) || !trains.is_empty()) && sent < TX_FRAMES_PER_TURN {
            let wanted = self.frames_ahead.min(port.capabilities().batch_max);
            let frames = port.reserve(wanted);
            core.lap(Stage::PacketOut);
            let parts = core.engine_mut().parts();
            if frames.is_empty() {
                parts.counters.tx_backpressure += 1;
                // A port that took some frames in this turn is asked again in the next one.
                if sent == 0 {
                    // `send` also frees frames of earlier turns. While input is held nothing else
                    // would call it.
                    let _ = port.send(0);
                    if self.refused(parts.network, parts.env.now_ns) {
                        return (self.local_out(core, trains), false);
                    }
                    port_blocked(core.engine_mut(), self.port);
                }
                return (sent, true);
            }
            if self.port_segment_bytes_max > 0 {
                self.fit_segments(&frames[0]);
            }
            let used = self.fill_frames(core, trains, frames);
            core.lap(Stage::TcpOut);
            let bytes: usize = frames[..used].iter().map(|frame| frame.len()).sum();
            let parts = core.engine_mut().parts();
            parts.counters.tx_bytes += bytes as u64;
            parts.counters.tx_frames += used as u64;
            if parts.network.talks_to_itself() {
                take_local(
                    parts.network,
                    parts.counters,
                    &frames[..used],
                    self.frame_bytes,
                );
            }
            let room = frames.len();
            // Reserve half as many slots again as were used last: each slot costs the driver
            // something, memif a descriptor in shared memory.
            self.frames_ahead = (used + used / 2).max(TX_FRAMES_AHEAD_MIN);
            let now_ns = parts.env.now_ns;
            // TCP retransmits lost frames, and the next receive reports a lasting failure.
            let _ = port.send(used);
            core.lap(Stage::PacketOut);
            sent += used;
            if used > 0 {
                (self.acceptance.took_ns, self.acceptance.refusals) = (now_ns, 0);
            }
            if used < room {
                break;
            }
        }
        (sent, false)
    }

    /// Fills the frames of one batch; returns the number filled.
    pub(crate) fn fill_frames(
        &mut self,
        core: &mut Core,
        trains: &mut AckTrains,
        frames: &[TxFrame],
    ) -> usize {
        // ACKs of earlier segments leave before all other segments of their connections. The
        // receive path bounds their number, and makes none while the port is short of room.
        let parts = core.engine_mut().parts();
        let how = Expansion {
            checksum_offload: self.offload,
            by_template: parts.env.config.offload_acks,
        };
        let Filled {
            mut used,
            too_small,
        } = trains.fill(frames, how);
        parts.counters.tx_frame_too_small += too_small;
        parts.counters.acks_in_trains += used as u64;
        used += parts.network.fill_frames(self.port, &frames[used..]);
        if frames.len() < TX_BATCH_SHARED_MIN {
            return used + self.fill_few(core, &frames[used..]);
        }
        // A flood of resets may take half a batch, and more only if nothing else is to leave.
        if self.has_control(core) {
            let half = used + (frames.len() - used) / 2;
            used += self.control_out(core.engine_mut(), &frames[used..half]);
        }
        let room = frames.len() - used;
        // First each list gets its share. The remaining frames then go to the lists in order of
        // urgency.
        for (class, share) in TX_SHARES.into_iter().enumerate() {
            if self.is_listed(core, class) {
                let end = frames.len().min(used + (room * share / 8).max(1));
                used += self.list_out(core, class, &frames[used..end]);
            }
        }
        for class in 0..TX_SHARES.len() {
            if self.is_listed(core, class) {
                used += self.list_out(core, class, &frames[used..]);
            }
        }
        if self.has_control(core) {
            used += self.control_out(core.engine_mut(), &frames[used..]);
        }
        used
    }

    /// A segment without a connection waits to leave by this port.
    #[inline(always)]
    fn has_control(&self, core: &Core) -> bool {
        core.engine().view().schedule.has_control(self.port)
    }

    /// A connection stands on this port's list for a class.
    #[inline(always)]
    fn is_listed(&self, core: &Core, class: usize) -> bool {
        let lists = core.engine().view().schedule.lists();
        lists.first(list_of(self.port, class)).is_some()
    }

    /// Fills a batch that is too small for shares: one frame for each kind in rotation, so that
    /// none starves.
    fn fill_few(&mut self, core: &mut Core, frames: &[TxFrame]) -> usize {
        const KINDS: usize = TX_SHARES.len() + 1;
        let (mut used, mut idle) = (0, 0);
        while used < frames.len() && idle < KINDS {
            self.tx_next = (self.tx_next + 1) % KINDS;
            let one = &frames[used..=used];
            let filled = match self.tx_next {
                class if class < TX_SHARES.len() => self.list_out(core, class, one),
                _ => self.control_out(core.engine_mut(), one),
            };
            used += filled;
            idle = if filled == 0 { idle + 1 } else { 0 };
        }
        used
    }

    fn list_out(&mut self, core: &mut Core, class: usize, frames: &[TxFrame]) -> usize {
        let (mut used, list) = (0, list_of(self.port, class));
        while used < frames.len() {
            let (engine, admission) = core.split();
            let parts = engine.parts();
            let Some((socket, turn)) = parts.schedule.lists_mut().pop(list) else {
                break;
            };
            // A socket that waits to connect becomes a connection now: `connection_out` sends its
            // SYN.
            let waits = class == OPENINGS && parts.flows.role(socket) == Role::Reserved;
            if waits && !begin_waiting(engine, admission.isn(), socket) {
                continue;
            }
            let parts = engine.parts();
            let mut room = frames.len() - used;
            // A connection that is alone on its list may use all frames.
            if let Some(next) = parts.schedule.lists().first(list) {
                if self.is_crowded {
                    parts.flows.sockets().prefetch(next);
                }
                room = room.min(turn);
            }
            let sent = self.connection_out(engine, socket, &frames[used..used + room]);
            used += sent;
            if used == frames.len() && sent < turn {
                let Parts { schedule, .. } = engine.parts();
                schedule.lists_mut().resume(socket, list, turn - sent);
            }
        }
        used
    }

    /// Sends segments of one connection until it has no more or frames run out. A connection with
    /// more to send goes to the end of its list.
    fn connection_out(&mut self, engine: &mut Engine, socket: u32, frames: &[TxFrame]) -> usize {
        let mut parts = engine.parts();
        let (mut slot, mut pool, mut block) = parts.flows.socket_parts(socket);
        let times_ns = (slot.news_ns(), parts.env.now_ns);
        let mut link = (parts.network).link_to(slot.neighbour, self.port, slot.header, times_ns);
        if link.is_none() {
            link = link_slowly(engine, self.port, socket);
            parts = engine.parts();
            (slot, pool, block) = parts.flows.socket_parts(socket);
        }
        let (Some(ends), Some((conn, shared_headers))) = (&mut link, slot.conn.with_headers())
        else {
            return 0;
        };
        let mut writer = FrameWriter {
            ends,
            key: &slot.key,
            header: &mut slot.header,
            shared_headers,
            tx: &mut slot.tx,
            memory: pool.memory(),
            block,
            offload: self.offload,
            segment_bytes_max: self.segment_bytes_max,
            bulk_bytes_max: self.bulk_bytes_max,
            is_bulk: false,
            open: None,
            now_ns: parts.env.now_ns,
        };
        let mut cx = parts.env.cx();
        let segment = parts.segment_out;
        let (mut used, mut has_more) = (0, true);
        while has_more && used < frames.len() {
            let is_all_acked = self.bulk_bytes_max > 0 && conn.is_all_acked();
            has_more = conn.poll_transmit(&mut cx, segment);
            if !has_more {
                break;
            }
            writer.choose_lane(parts.network, &mut slot.lane, segment, is_all_acked);
            let is_stamped = slot.stamps.is_some();
            let sent = writer.text_out(conn, &mut cx, frames.split_at(used), segment, is_stamped);
            sent.count(parts.counters);
            used += sent.frames;
            if let Some(stamps) = slot.stamps.as_mut()
                && segment.payload_len > 0
            {
                let at = StampedAt::new(conn, writer.tx, block, cx.now_ns);
                parts.counters.stamps_lost += stamps.on_segment(&at, segment);
            }
            has_more = conn.due() != TransmitClass::None;
        }
        let class = class_left(conn, &mut cx, segment, has_more);
        let has_story = slot.story != 0;
        effect_targets!(parts).after_send(socket, slot, block, class, used > 0);
        if has_story {
            (parts.flows).write_story(socket, Moment::Sent, false, parts.env.now_ns);
        }
        used
    }

    fn control_out(&mut self, engine: &mut Engine, frames: &[TxFrame]) -> usize {
        let parts = engine.parts();
        let mut used = 0;
        let waiting = parts.schedule.control(self.port);
        while used < frames.len() {
            let Some(one) = waiting.first() else {
                break;
            };
            let told = (&mut *parts.counters, &mut *parts.unsent);
            let link = link_of_control(one, parts.network, told, parts.env.now_ns);
            if let Some(ends) = &link {
                let (key, segment) = (&one.key, &one.segment);
                let built = build_segment(&frames[used], ends, key, segment, self.offload, |_| 0);
                used += usize::from(built);
                parts.counters.tx_frame_too_small += u64::from(!built);
            }
            waiting.drop_first();
        }
        used
    }
}

/// The link on which a segment without a connection leaves. If the neighbour is unresolved, the
/// segment waits as a finished frame.
#[inline(always)]
fn link_of_control(
    one: &ControlSegment,
    network: &mut Network,
    (counters, unsent): (&mut Counters, &mut Option<Box<UnsentNotes>>),
    now_ns: u64,
) -> Option<LinkEnds> {
    let Ok(id) = network.hop(one.key.local, one.key.remote, now_ns) else {
        counters.control_unroutable += 1;
        note_unsent(unsent, one, 0, UnsentReason::Unroutable);
        return None;
    };
    let source = network.mac(id.port());
    match network.neighbours_mut().link(id, now_ns) {
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
            let held = network.neighbours_mut().hold_frame(id, &frame[..len]);
            if !held {
                counters.neighbour_drop += 1;
                note_unsent(unsent, one, id.port(), UnsentReason::Neighbour);
            }
            None
        }
        Link::Unreachable | Link::Gone => {
            counters.control_unroutable += 1;
            note_unsent(unsent, one, id.port(), UnsentReason::Unroutable);
            None
        }
    }
}

/// The class of the next segment of a connection that has used up its frames. `has_more`: the
/// connection may have further segments.
fn class_left(
    conn: &mut Connection,
    cx: &mut Cx<'_>,
    segment: &mut SegmentOut,
    has_more: bool,
) -> TransmitClass {
    if !has_more {
        return TransmitClass::None;
    }
    let class = conn.refresh_due(cx);
    if class == TransmitClass::None {
        // Poll although nothing is due: the poll may arm the connection's persist timer.
        let more = conn.poll_transmit(cx, segment);
        debug_assert!(!more, "nothing was to be sent");
    }
    class
}
