//! The only place that handles the effects of a call into a connection. Acknowledged bytes are
//! freed, the application is told, transmit list and timer are set, and an ended connection is
//! removed.
//!
//! Segments, jobs, timers and transmission all end here. No other file puts a connection on a
//! transmit list, sets its timer, or marks its socket for an event.

use ring::byte_ring::TxReader;
use ring::chunk::ChunkPool;
use ring::socket_block::{SocketBlock, SocketState};
use tcp::time_wait::TimeWait;
use tcp::{Connection, ConnectionError, Cx, Effects, IcmpError, SegmentOut, TransmitClass};
use wire::FlowKey;

use crate::counters::Counters;
use crate::engine::{Engine, Parts};
use crate::event_queue::{EVENT_NEWS, EVENT_ROOM, EventQueue};
use crate::flows::Flows;
use crate::flows::errno::errno_of;
use crate::flows::slot::{Role, Slot};
use crate::flows::stories::Moment;
use crate::host_wishes::leave_place;
use crate::network::layer::Network;
use crate::network::neighbours::NeighbourId;
use crate::schedule::Schedule;
use crate::shortcuts;
use crate::tcp_env::TcpEnv;
use crate::unsent_notes::{Unsent, UnsentReason};

/// Effects that require the turn's output to poll the connection.
const OUTPUT: Effects = Effects::TRANSMIT.union(Effects::HELD);

/// Effects that only plan output and timers.
const PLANS: Effects = OUTPUT.union(Effects::TIMER);

/// Effects of nearly every call into a connection, in any combination.
const USUAL: Effects = PLANS.union(Effects::READABLE).union(Effects::WRITABLE);

/// Changes of a socket's state, for readers and writers alike.
const CHANGES: Effects = Effects::EOF
    .union(Effects::CONNECTED)
    .union(Effects::FAILED)
    .union(Effects::FIN_WAIT_2);
/// Effects that concern a reader.
const NEWS: Effects = CHANGES.union(Effects::READABLE).union(Effects::URGENT);

/// Effects that few connections ever have.
const RARE: Effects = Effects::FAST_OPEN_LOST.union(Effects::SYNS_CROSSED);

/// The parts of an engine that a connection's effects touch beside its own socket.
pub(crate) struct EffectTargets<'a> {
    pub env: &'a mut TcpEnv,
    pub network: &'a mut Network,
    pub events: &'a mut EventQueue,
    pub schedule: &'a mut Schedule,
}

/// Makes an [`EffectTargets`] from the parts of an engine.
macro_rules! effect_targets {
    ($parts:expr) => {
        crate::effects::EffectTargets {
            env: &mut *$parts.env,
            network: &mut *$parts.network,
            events: &mut *$parts.events,
            schedule: &mut *$parts.schedule,
        }
    };
}
pub(crate) use effect_targets;

impl EffectTargets<'_> {
    /// Acts on the effects of a socket at hand, in one straight line. False: nothing was done,
    /// because the effects, time stamps or a story need [`apply_unusual`].
    #[inline(always)]
    pub fn apply_usual(
        mut self,
        socket: u32,
        (slot, pool, block): (&mut Slot, &mut ChunkPool, &SocketBlock),
        effects: Effects,
    ) -> bool {
        let is_usual = effects.without(USUAL).is_empty() && shortcuts::are_taken();
        if !is_usual || slot.has_observers {
            return false;
        }
        let Some(conn) = slot.conn.as_mut() else {
            return true;
        };
        let mut mark = 0;
        if effects.intersects(Effects::WRITABLE) {
            slot.tx.acknowledge(pool, block, conn.take_acked());
            mark |= EVENT_ROOM;
            self.confirm(slot.neighbour);
            if !slot.app_gone {
                publish_room(conn, &slot.tx, block, self.env);
            }
        }
        if effects.intersects(Effects::READABLE) {
            block.add_in_edge();
            mark |= EVENT_NEWS;
        }
        if mark != 0 && !slot.app_gone {
            self.events.mark(socket, &mut slot.pending_events, mark);
        }
        self.plan(socket, conn, effects);
        true
    }

    /// Acts on the effects of a job. `wrote`: the job changed the number of buffered bytes. False:
    /// only the writer was told, and the caller must use [`apply_effects`].
    #[inline(always)]
    pub fn after_job(
        mut self,
        socket: u32,
        slot: &mut Slot,
        block: &SocketBlock,
        effects: Effects,
        wrote: bool,
    ) -> bool {
        let Some(conn) = slot.conn.as_mut() else {
            return true;
        };
        let is_news = wrote && !slot.app_gone && publish_room(conn, &slot.tx, block, self.env);
        // An application that found no chunk waits although the buffer has room. It set its wish
        // before it posted this job.
        if is_news || (!slot.app_gone && block.wants_writable()) {
            self.events
                .mark(socket, &mut slot.pending_events, EVENT_ROOM);
        }
        if !effects.without(PLANS).is_empty() {
            return false;
        }
        self.plan(socket, conn, effects);
        true
    }

    /// Updates lists and events after a connection has filled the frames it was given. `sent_some`:
    /// at least one segment was built. `next`: the class of its next segment.
    #[inline(always)]
    pub fn after_send(
        &mut self,
        socket: u32,
        slot: &mut Slot,
        block: &SocketBlock,
        next: TransmitClass,
        sent_some: bool,
    ) {
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        if sent_some && conn.limits_unsent(&self.env.config.tcp) {
            slot.tx.publish_sent(block, conn.unacked_payload());
            self.events
                .mark(socket, &mut slot.pending_events, EVENT_ROOM);
        }
        self.schedule.note_deadline(socket, conn);
        self.schedule.lists_mut().put(socket, next);
    }

    /// Sets the timer of a newly accepted connection and publishes its room for writing.
    pub fn after_accept(self, socket: u32, slot: &mut Slot, block: &SocketBlock) {
        if let Some(conn) = slot.conn.as_mut() {
            publish_room(conn, &slot.tx, block, self.env);
            self.schedule.note_deadline(socket, conn);
        }
    }

    /// Puts the connection on the transmit list and sets the timer that `effects` ask for.
    #[inline(always)]
    fn plan(&mut self, socket: u32, conn: &Connection, effects: Effects) {
        if effects.intersects(OUTPUT) {
            self.schedule.lists_mut().put(socket, conn.list());
        }
        if effects.intersects(Effects::TIMER) {
            self.schedule.note_deadline(socket, conn);
        }
    }

    /// Confirms that the neighbour is reachable, because the connection makes progress (RFC 4861
    /// section 7.3.1).
    #[inline(always)]
    fn confirm(&mut self, neighbour: Option<NeighbourId>) {
        if let Some(id) = neighbour {
            self.network.neighbours_mut().confirm(id, self.env.now_ns);
        }
    }

    /// Tells the application what `effects` mean for its socket.
    #[inline(always)]
    fn tell_application(
        &mut self,
        socket: u32,
        (slot, pool, block): (&mut Slot, &mut ChunkPool, &SocketBlock),
        effects: Effects,
        counters: &mut Counters,
    ) {
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut mark = 0;
        if effects.intersects(Effects::WRITABLE) {
            slot.tx.acknowledge(pool, block, conn.take_acked());
            mark |= EVENT_ROOM;
            self.confirm(slot.neighbour);
        }
        if effects.intersects(Effects::URGENT) {
            block.set_urgent_end(slot.rx.tail().wrapping_add_signed(conn.urgent_ahead()));
        }
        if effects.intersects(CHANGES) {
            let mut state = SocketState::default();
            if effects.intersects(Effects::EOF) {
                state = state | SocketState::EOF;
            }
            if effects.intersects(Effects::CONNECTED) {
                counters.connected += 1;
                state = state | SocketState::CONNECTED;
                // The out edge below tells a writer that found no room.
                block.take_want_writable();
            }
            block.add_state(state);
            if effects.intersects(Effects::FAILED) {
                counters.failed += 1;
                block.fail(errno_of(conn.error(), block.state()));
            }
            // Linux reports a change of state to writers too.
            block.add_out_edge();
        }
        if effects.intersects(NEWS) {
            block.add_in_edge();
            mark |= EVENT_NEWS;
        }
        if slot.app_gone {
            return;
        }
        if effects.intersects(Effects::WRITABLE | Effects::CONNECTED) {
            publish_room(conn, &slot.tx, block, self.env);
        }
        if mark != 0 {
            self.events.mark(socket, &mut slot.pending_events, mark);
        }
    }
}

/// Acts on the effects of a call into the connection of `socket`.
pub(crate) fn apply_effects(engine: &mut Engine, socket: u32, effects: Effects) {
    let parts = engine.parts();
    let own = parts.flows.socket_parts(socket);
    if !effect_targets!(parts).apply_usual(socket, own, effects) {
        apply_unusual(engine, socket, effects);
    }
}

/// Acts on any effects, with one look at the socket as long as it keeps its connection.
#[inline(never)]
pub(crate) fn apply_unusual(engine: &mut Engine, socket: u32, effects: Effects) {
    let parts = engine.parts();
    let (slot, pool, block) = parts.flows.socket_parts(socket);
    let mut targets = effect_targets!(parts);
    let own = (&mut *slot, pool, block);
    targets.tell_application(socket, own, effects, parts.counters);
    let Some(conn) = slot.conn.as_ref() else {
        return;
    };
    let leaves = effects.intersects(Effects::CLOSED | Effects::TIME_WAIT);
    if !leaves {
        targets.plan(socket, conn, effects);
    }
    let is_fast = slot.fast_opened_by.is_some();
    let has_story = slot.story != 0;
    if slot.stamps.is_some() && effects.intersects(Effects::WRITABLE | Effects::READABLE) {
        parts.counters.stamps_lost += parts.flows.sockets_mut().stamp_progress(socket, effects);
    }
    if has_story {
        (parts.flows).write_story(socket, Moment::Settled, leaves, parts.env.now_ns);
    }
    if is_fast && effects.intersects(Effects::CONNECTED | Effects::CLOSED) {
        end_pending_fast_open(parts.flows, parts.env.now_ns, socket);
    }
    if effects.intersects(RARE) {
        apply_rare(
            parts.flows,
            parts.network,
            parts.counters,
            parts.env,
            socket,
            effects,
        );
    }
    if leaves {
        leave(engine, socket, effects);
    }
}

/// Counts a connection's output as sent and lost if it cannot leave and no event will wake it. The
/// connection's timers then try again, and give up in the end.
#[cold]
pub(crate) fn lose_segments(engine: &mut Engine, socket: u32, failure: Option<IcmpError>) {
    let parts = engine.parts();
    let slot = parts.flows.slot(socket);
    let (key, header, neighbour) = (slot.key, slot.header, slot.neighbour);
    let Some(conn) = slot.live_mut() else {
        return;
    };
    let mut cx = parts.env.cx();
    let mut segment = SegmentOut::default();
    while conn.poll_transmit(&mut cx, &mut segment) {
        parts.counters.neighbour_drop += 1;
        if let Some(notes) = parts.unsent {
            notes.add(Unsent {
                key,
                segment: segment.clone(),
                header,
                port: neighbour.map_or(0, NeighbourId::port),
                reason: UnsentReason::Neighbour,
            });
        }
    }
    let mut effects = Effects::TIMER;
    if let Some(kind) = failure {
        let una = conn.una();
        effects |= conn.on_icmp_error(&mut cx, kind, una);
    }
    // Output that is left waits for a timer. On its list, the connection would try to send without
    // end.
    apply_effects(engine, socket, effects.without(OUTPUT));
}

/// Marks a socket so that the application looks at it.
pub(crate) fn notify(flows: &mut Flows, events: &mut EventQueue, socket: u32) {
    let slot = flows.slot(socket);
    events.mark(socket, &mut slot.pending_events, EVENT_NEWS);
}

/// Puts a socket that is about to connect on the list of openings.
#[inline]
pub(crate) fn queue_opening(schedule: &mut Schedule, socket: u32) {
    schedule.lists_mut().put(socket, TransmitClass::Opening);
}

/// Makes a connection send by another port, behind which its next hop lies.
#[cold]
pub(crate) fn move_to_port(engine: &mut Engine, socket: u32, port: u8) {
    let Parts { schedule, .. } = engine.parts();
    schedule.lists_mut().set_port(socket, port);
    apply_effects(engine, socket, Effects::TRANSMIT);
}

/// Sets the timer of a connection whose deadline moved after its timer entry had been consumed.
#[inline]
pub(crate) fn arm(flows: &mut Flows, schedule: &mut Schedule, socket: u32) {
    if let Some(conn) = flows.slot(socket).conn.as_ref() {
        schedule.note_deadline(socket, conn);
    }
}

/// Publishes in the socket's block how much the application may write. A writer that already waits
/// may be woken now (`sk_write_space` in Linux).
pub(crate) fn notify_room(engine: &mut Engine, socket: u32) {
    let parts = engine.parts();
    let (slot, _, block) = parts.flows.socket_parts(socket);
    if let Some(conn) = slot.conn.as_mut()
        && publish_room(conn, &slot.tx, block, parts.env)
        && !slot.app_gone
    {
        (parts.events).mark(socket, &mut slot.pending_events, EVENT_ROOM);
    }
}

#[cold]
fn apply_rare(
    flows: &mut Flows,
    network: &mut Network,
    counters: &mut Counters,
    env: &TcpEnv,
    socket: u32,
    effects: Effects,
) {
    if effects.contains(Effects::FAST_OPEN_LOST) {
        end_pending_fast_open(flows, env.now_ns, socket);
        // The connection suspects a black hole for Fast Open.
        counters.fast_open_paused += 1;
        let settings = &env.config.tcp.fast_open;
        (network.destinations_mut()).pause_fast_open(settings, env.now_ns);
    }
    if effects.contains(Effects::SYNS_CROSSED) {
        // No thread is woken, because there is nothing to read or write yet (Linux).
        flows.block(socket).add_state(SocketState::SYNS_CROSSED);
    }
}

/// Stops counting a connection as a pending Fast Open: its handshake is complete, or it has ended.
#[cold]
fn end_pending_fast_open(flows: &mut Flows, now_ns: u64, socket: u32) {
    let slot = flows.slot(socket);
    let Some(listener) = slot.fast_opened_by.take() else {
        return;
    };
    let error = slot.conn.as_ref().and_then(Connection::error);
    let was_reset = error == Some(ConnectionError::Reset);
    let was_accepted = !flows.listeners_mut().has_waiting(listener, socket);
    if let Some(listening) = flows.listeners_mut().at_mut(listener) {
        listening.fast_open.leave(was_reset && was_accepted, now_ns);
    }
}

/// Removes a connection that has ended, is in TIME_WAIT, or only waits for the peer's FIN. Its last
/// segment is sent first, if one is due.
#[inline(never)]
fn leave(engine: &mut Engine, socket: u32, effects: Effects) {
    let parts = engine.parts();
    let slot = parts.flows.slot(socket);
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let (key, hash, header) = (slot.key, slot.hash, slot.header);
    if conn.due() != TransmitClass::None {
        send_last(conn, &mut parts.env.cx(), |segment| {
            parts.schedule.reply(&key, segment, header);
        });
    }
    let app_gone = slot.app_gone;
    let entry = conn
        .time_wait()
        .filter(|_| !effects.contains(Effects::CLOSED));
    let waits = entry.is_some_and(|entry| {
        enter_time_wait(
            parts.flows,
            parts.counters,
            socket,
            (&key, hash),
            &entry,
            header.dscp,
        )
    });
    if !waits {
        parts.flows.remove_connection(hash, socket);
    }
    match app_gone {
        true => release_socket(engine, socket),
        false => end_socket(parts.flows, parts.schedule, parts.events, socket),
    }
}

/// Passes the segments that a connection still sends to `reply`, without payload.
fn send_last(conn: &mut Connection, cx: &mut Cx<'_>, mut reply: impl FnMut(&SegmentOut)) {
    let mut segment = SegmentOut::default();
    while conn.due() != TransmitClass::None && conn.poll_transmit(cx, &mut segment) {
        if segment.payload_len == 0 {
            reply(&segment);
        }
    }
}

/// Gives the flow to a compact entry. False: the table has no room for one.
fn enter_time_wait(
    flows: &mut Flows,
    counters: &mut Counters,
    socket: u32,
    (key, hash): (&FlowKey, u64),
    entry: &tcp::TimeWaitEntry,
    dscp: u8,
) -> bool {
    if flows.time_waits().is_full() {
        evict_time_wait(flows, counters, entry.fin_wait_2);
    }
    if !flows.become_time_wait(socket, (key, hash), TimeWait::new(entry), dscp) {
        counters.time_wait_evicted += 1;
        return false;
    }
    counters.time_wait_entered += 1;
    counters.fin_wait_2_entered += u64::from(entry.fin_wait_2);
    true
}

/// Makes room for one more compact entry, in FIN_WAIT_2 or TIME_WAIT.
#[inline]
fn evict_time_wait(flows: &mut Flows, counters: &mut Counters, for_fin_wait_2: bool) {
    let Some(index) = flows.time_waits().gives_way(for_fin_wait_2) else {
        return;
    };
    if flows.remove_time_wait(index) {
        counters.fin_wait_2_evicted += 1;
        return;
    }
    counters.time_wait_evicted += 1;
    if let Some(hash) = flows.time_waits().look_ahead() {
        flows.prefetch_flow(hash);
    }
}

/// Ends a socket that has lost its connection. The socket stays while the application holds it,
/// because received bytes may be unread.
fn end_socket(flows: &mut Flows, schedule: &mut Schedule, events: &mut EventQueue, socket: u32) {
    schedule.forget(socket);
    let (slot, pool, block) = flows.socket_parts(socket);
    // The connection's state (`TCP_INFO`) stays readable until the application closes, as in Linux.
    slot.role = Role::Ended;
    slot.awaits_neighbour = false;
    // The application may be writing at this moment, so it keeps its current chunk until it closes.
    block.set_tx_limit(0);
    let waiting = slot.tx.buffered(block);
    slot.tx.acknowledge(pool, block, waiting);
    // Bytes beyond a gap can never be read now.
    slot.rx.truncate(pool, 0);
    slot.rx.reclaim(pool, block);
    block.add_state(SocketState::CLOSED);
    block.add_in_edge();
    block.add_out_edge();
    events.mark(socket, &mut slot.pending_events, EVENT_NEWS);
}

/// Releases a socket and frees its index.
pub(crate) fn release_socket(engine: &mut Engine, socket: u32) {
    let parts = engine.parts();
    parts.schedule.forget(socket);
    parts.flows.forget_notes(socket);
    if parts.flows.sockets_mut().release(socket) {
        if parts.network.has_host() {
            leave_place(parts.flows, parts.host_wishes, parts.env.now_ns, socket);
        }
        parts.flows.forget_bind(socket);
    }
}

/// Publishes in the socket's block how much the application may write, a fair share at most, and
/// from which level on a waiting writer is woken. False: a waiting writer gains nothing.
fn publish_room(
    conn: &mut Connection,
    tx: &TxReader,
    block: &SocketBlock,
    env: &mut TcpEnv,
) -> bool {
    let fair_share = env.fair_share;
    match conn.send_room_at_rest(&env.config.tcp) {
        Some(room)
            if shortcuts::are_taken() && room.limit <= fair_share && !block.wants_writable() =>
        {
            block.set_room(room.limit, room.wake, room.unsent_wake)
        }
        _ => publish_any_room(conn, tx, block, &env.cx(), fair_share),
    }
}

/// General form of [`publish_room`], for a connection in any state.
#[inline(never)]
fn publish_any_room(
    conn: &mut Connection,
    tx: &TxReader,
    block: &SocketBlock,
    cx: &Cx<'_>,
    fair_share: u32,
) -> bool {
    if block.wants_writable() {
        conn.on_writer_waits(cx);
    }
    let mut room = conn.send_room(cx);
    if room.limit > fair_share {
        // Bytes already buffered stay. The limit is a whole number of segments, so that writing as
        // ACKs arrive makes no small ones.
        let mss = u32::from(conn.send_mss().max(1));
        room.limit = (fair_share - fair_share % mss).max(mss);
        room.wake = room.wake.min(room.limit - room.limit / 3);
    }
    if room.unsent_wake != u32::MAX {
        tx.publish_sent(block, conn.unacked_payload());
    }
    block.set_room(room.limit, room.wake, room.unsent_wake)
}
