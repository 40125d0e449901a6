//! The one door for what follows from a call into a connection: acknowledged bytes are freed, the application is told, a transmit list and a
//! timer are set, and a connection that has ended leaves.

use ring::chunk::ChunkPool;
use ring::socket_block::{SocketBlock, SocketState};
use tcp::time_wait::TimeWait;
use tcp::{ConnectionError, Cx, Effects, TransmitClass};
use wire::FlowKey;

use crate::core::{Core, tcp_cx};
use crate::counters::Counters;
use crate::departures::pacing::Departures;
use crate::departures::tx_lists::TxLists;
use crate::event_queue::{EventQueue, MARK_ROOM, MARK_TELL};
use crate::flows::flow_table::FlowEntry;
use crate::flows::saved_syns::Saved;
use crate::flows::sockets::{Role, Slot};
use crate::network::neighbours::{NeighbourId, Neighbours};
use crate::requests::options::publish_room_of;
use crate::timer_stage::note_deadline;
use crate::timers::Wheel;

/// What nearly every call into a connection comes to, in any combination.
pub(crate) const USUAL: Effects = Effects::READABLE
    .union(Effects::WRITABLE)
    .union(OUTPUT)
    .union(Effects::TIMER);

/// The socket's state is another, of which readers and writers are told alike.
const CHANGES: Effects = Effects::EOF
    .union(Effects::CONNECTED)
    .union(Effects::FAILED)
    .union(Effects::FIN_WAIT_2);
/// Something for who reads.
const NEWS: Effects = CHANGES.union(Effects::READABLE).union(Effects::URGENT);

/// What few connections ever come to.
const RARE: Effects = Effects::FAST_OPEN_LOST.union(Effects::SYNS_CROSSED);

/// The turn's output has to ask the connection.
pub(crate) const OUTPUT: Effects = Effects::TRANSMIT.union(Effects::HELD);

/// What a connection's effects touch beside its own socket: see [`beside!`].
pub(crate) struct Beside<'a> {
    pub cx: Cx<'a>,
    pub neighbours: &'a mut Neighbours,
    pub events: &'a mut EventQueue,
    pub lists: &'a mut TxLists,
    pub wheel: &'a mut Wheel,
    pub departures: &'a mut Departures,
    pub fair_share: u32,
}

impl Beside<'_> {
    /// RFC 4861 7.3.1: progress shows that the neighbour is there.
    #[inline(always)]
    fn confirm(&mut self, neighbour: Option<NeighbourId>) {
        if let Some(id) = neighbour {
            self.neighbours.confirm(id, self.cx.now_ns);
        }
    }
}

/// A [`Beside`] from the fields of a [`Core`] that are not its sockets.
macro_rules! beside {
    ($core:expr, $cx:expr) => {
        crate::settle::Beside {
            cx: $cx,
            neighbours: &mut $core.network.neighbours,
            events: &mut $core.events,
            lists: &mut $core.lists,
            wheel: &mut $core.wheel,
            departures: &mut $core.departures,
            fair_share: $core.fair_share,
        }
    };
}
pub(crate) use beside;

/// Acts on effects that are [`USUAL`], in one straight line, for who has the socket at hand: one that no time stamps are asked of.
#[inline(always)]
pub(crate) fn settle_usual(
    socket: u32,
    (slot, pool, block): (&mut Slot, &mut ChunkPool, &SocketBlock),
    effects: Effects,
    mut beside: Beside<'_>,
) {
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let mut mark = 0;
    if effects.intersects(Effects::WRITABLE) {
        slot.tx.acknowledge(pool, block, conn.take_acked());
        mark |= MARK_ROOM;
        beside.confirm(slot.neighbour);
        if !slot.app_gone {
            publish_room_of(conn, &slot.tx, block, &beside.cx, beside.fair_share);
        }
    }
    if effects.intersects(Effects::READABLE) {
        block.add_in_edge();
        mark |= MARK_TELL;
    }
    if mark != 0 && !slot.app_gone {
        beside.events.mark(socket, &mut slot.marks, mark);
    }
    if effects.intersects(OUTPUT) {
        beside.lists.put(socket, conn.list());
    }
    if effects.intersects(Effects::TIMER) {
        note_deadline(beside.wheel, beside.departures, socket, conn);
    }
}

/// What the application is told of, if anything.
#[inline(always)]
fn tell_application(
    socket: u32,
    (slot, pool, block): (&mut Slot, &mut ChunkPool, &SocketBlock),
    effects: Effects,
    beside: &mut Beside<'_>,
    counters: &mut Counters,
) {
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let mut mark = 0;
    if effects.intersects(Effects::WRITABLE) {
        slot.tx.acknowledge(pool, block, conn.take_acked());
        mark |= MARK_ROOM;
        beside.confirm(slot.neighbour);
    }
    if effects.intersects(Effects::URGENT) {
        block.set_urgent_end(slot.rx.tail().wrapping_add_signed(conn.urgent_ahead()));
    }
    if effects.intersects(CHANGES) {
        let mut said = SocketState::default();
        if effects.intersects(Effects::EOF) {
            said = said | SocketState::EOF;
        }
        if effects.intersects(Effects::CONNECTED) {
            counters.connected += 1;
            said = said | SocketState::CONNECTED;
            // Whoever found that it could not write yet is told by this.
            block.take_want_writable();
        }
        block.add_state(said);
        if effects.intersects(Effects::FAILED) {
            counters.failed += 1;
            block.fail(errno_of(conn.error(), block.state()));
        }
        // A change of state, which Linux tells writers too.
        block.add_out_edge();
    }
    if effects.intersects(NEWS) {
        block.add_in_edge();
        mark |= MARK_TELL;
    }
    if slot.app_gone {
        return;
    }
    if effects.intersects(Effects::WRITABLE | Effects::CONNECTED) {
        publish_room_of(conn, &slot.tx, block, &beside.cx, beside.fair_share);
    }
    if mark != 0 {
        beside.events.mark(socket, &mut slot.marks, mark);
    }
}

impl Core {
    /// Acts on the effects of a call into the connection of `socket`.
    pub(crate) fn settle(&mut self, socket: u32, effects: Effects) {
        let (slot, pool, block) = self.sockets.parts(socket);
        if effects.without(USUAL).is_empty() && slot.stamps.is_none() {
            let beside = beside!(self, tcp_cx!(self));
            return settle_usual(socket, (slot, pool, block), effects, beside);
        }
        self.settle_unusual(socket, effects);
    }

    /// Acts on any effects, with one look at the socket as long as it keeps its connection.
    #[inline(never)]
    pub(crate) fn settle_unusual(&mut self, socket: u32, effects: Effects) {
        let (slot, pool, block) = self.sockets.parts(socket);
        let mut beside = beside!(self, tcp_cx!(self));
        let parts = (&mut *slot, pool, block);
        tell_application(socket, parts, effects, &mut beside, &mut self.counters);
        let Some(conn) = slot.conn.as_ref() else {
            return;
        };
        let leaves = effects.intersects(Effects::CLOSED | Effects::TIME_WAIT);
        if !leaves && effects.intersects(OUTPUT) {
            beside.lists.put(socket, conn.list());
        }
        if !leaves && effects.intersects(Effects::TIMER) {
            note_deadline(beside.wheel, beside.departures, socket, conn);
        }
        let is_fast = slot.fast_opened_by.is_some();
        if slot.stamps.is_some() && effects.intersects(Effects::WRITABLE | Effects::READABLE) {
            self.stamp_progress(socket, effects);
        }
        if is_fast && effects.intersects(Effects::CONNECTED | Effects::CLOSED) {
            self.end_pending_fast_open(socket);
        }
        if effects.intersects(RARE) {
            self.settle_rare(socket, effects);
        }
        if leaves {
            self.leave(socket, effects);
        }
    }

    #[cold]
    fn settle_rare(&mut self, socket: u32, effects: Effects) {
        if effects.contains(Effects::FAST_OPEN_LOST) {
            self.end_pending_fast_open(socket);
            self.pause_fast_open();
        }
        if effects.contains(Effects::SYNS_CROSSED) {
            // Nobody is woken: there is nothing to read or to write yet (Linux).
            self.sockets
                .block(socket)
                .add_state(SocketState::SYNS_CROSSED);
        }
    }

    /// The connection has ended, or is in TIME_WAIT, or has only the peer's FIN to wait for. Its last segment, if one is due, is taken along.
    fn leave(&mut self, socket: u32, effects: Effects) {
        let slot = self.sockets.slot(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let (key, hash, header) = (slot.key, slot.hash, slot.header);
        while conn.due() != TransmitClass::None
            && conn.poll_transmit(&mut tcp_cx!(self), &mut self.segment_out)
        {
            if self.segment_out.payload_len == 0 {
                self.control
                    .push(&key, &self.segment_out, header, &mut self.counters);
            }
        }
        let app_gone = slot.app_gone;
        let entry = conn
            .time_wait()
            .filter(|_| !effects.contains(Effects::CLOSED));
        let waits = entry
            .is_some_and(|entry| self.enter_time_wait(socket, (&key, hash), &entry, header.dscp));
        if !waits {
            let found = self.flows.remove(hash, FlowEntry::Connection(socket));
            debug_assert!(found, "a connection is in the flow table");
        }
        match app_gone {
            true => self.release_socket(socket),
            false => self.end_socket(socket),
        }
    }

    /// A compact entry takes the flow over. False: there is no room for one.
    fn enter_time_wait(
        &mut self,
        socket: u32,
        (key, hash): (&FlowKey, u64),
        entry: &tcp::TimeWaitEntry,
        dscp: u8,
    ) -> bool {
        if self.time_waits.is_full() {
            self.evict_time_wait(entry.fin_wait_2);
        }
        let Some(index) = self
            .time_waits
            .insert(*key, hash, TimeWait::new(entry), dscp)
        else {
            self.counters.time_wait_evicted += 1;
            return false;
        };
        self.counters.time_wait_entered += 1;
        self.counters.fin_wait_2_entered += u64::from(entry.fin_wait_2);
        let placed = self.flows.replace(
            hash,
            FlowEntry::Connection(socket),
            FlowEntry::TimeWait(index),
        );
        debug_assert!(placed, "a connection is in the flow table");
        true
    }

    /// Room for one more, in FIN_WAIT_2 or not.
    #[inline]
    fn evict_time_wait(&mut self, for_fin_wait_2: bool) {
        let Some(index) = self.time_waits.gives_way(for_fin_wait_2) else {
            return;
        };
        if self.remove_time_wait(index) {
            self.counters.fin_wait_2_evicted += 1;
            return;
        }
        self.counters.time_wait_evicted += 1;
        if let Some(hash) = self.time_waits.look_ahead() {
            self.flows.prefetch(hash);
        }
    }

    /// The socket has lost its connection. It stays for as long as the application holds it: there may be bytes to read.
    fn end_socket(&mut self, socket: u32) {
        self.lists.take_out(socket);
        self.disarm(socket);
        let (slot, pool, block) = self.sockets.parts(socket);
        // What is known of it (`TCP_INFO`) outlives it, as in Linux, until the application closes.
        slot.role = Role::Ended;
        slot.awaits_neighbour = false;
        // The application may be writing at this moment: it keeps the chunk that it holds until it closes.
        block.set_tx_limit(0);
        let waiting = slot.tx.buffered(block);
        slot.tx.acknowledge(pool, block, waiting);
        // What lies beyond a gap reaches nobody any more.
        slot.rx.truncate(pool, 0);
        slot.rx.reclaim(pool, block);
        block.add_state(SocketState::CLOSED);
        block.add_in_edge();
        block.add_out_edge();
        self.events.mark(socket, &mut slot.marks, MARK_TELL);
    }

    /// The socket's index is free for another.
    pub(crate) fn release_socket(&mut self, socket: u32) {
        self.lists.take_out(socket);
        self.disarm(socket);
        self.icmp_notes.forget(socket);
        self.saved_syns.forget(Saved::Connection(socket));
        if self.sockets.release(socket) {
            self.binds.remove(socket);
        }
    }

    pub(crate) fn remove_half_open(&mut self, index: u32) {
        if let Some(slot) = self.half_opens.remove(index) {
            self.saved_syns.forget(Saved::HalfOpen(index));
            if let Some(listening) = self.listeners.at_mut(slot.listener) {
                listening.half_open = listening.half_open.saturating_sub(1);
            }
            let _ = self.flows.remove(slot.hash, FlowEntry::HalfOpen(index));
            self.wheel.stop(self.half_open_timer(index));
        }
    }

    /// Forgets an entry; whether it was in FIN_WAIT_2.
    pub(crate) fn remove_time_wait(&mut self, index: u32) -> bool {
        let Some((hash, in_fin_wait_2)) = self.time_waits.remove(index) else {
            return false;
        };
        let _ = self.flows.remove(hash, FlowEntry::TimeWait(index));
        in_fin_wait_2
    }
}

/// Linux's errno for what happened to a connection in this state.
pub(crate) fn errno_of(error: Option<ConnectionError>, said: SocketState) -> u16 {
    use rustix::io::Errno;
    let in_close_wait = said.contains(SocketState::EOF) && !said.contains(SocketState::TX_SHUT);
    let errno = match error {
        None => return 0,
        // The peer had closed: that we went on writing is what went wrong.
        Some(ConnectionError::Reset) if in_close_wait => Errno::PIPE,
        Some(ConnectionError::Refused) => Errno::CONNREFUSED,
        Some(ConnectionError::Reset) => Errno::CONNRESET,
        Some(ConnectionError::TimedOut) => Errno::TIMEDOUT,
        Some(ConnectionError::HostUnreachable) => Errno::HOSTUNREACH,
        Some(ConnectionError::NetUnreachable) => Errno::NETUNREACH,
        Some(ConnectionError::Aborted) => Errno::CONNABORTED,
        Some(ConnectionError::NoProtocol) => Errno::NOPROTOOPT,
        Some(ConnectionError::AccessDenied) => Errno::ACCESS,
        Some(ConnectionError::HostDown) => Errno::HOSTDOWN,
        Some(ConnectionError::HostIsolated) => Errno::NONET,
        Some(ConnectionError::SourceRouteFailed) => Errno::OPNOTSUPP,
        Some(ConnectionError::Protocol) => Errno::PROTO,
    };
    errno.raw_os_error() as u16
}
