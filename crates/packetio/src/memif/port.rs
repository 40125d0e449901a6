//! One queue of a memif interface as a [`Port`].
//!
//! A port owns both halves of its queue and follows the control object from one connection to the
//! next. One thread uses it at a time. When a connection ends, frames that its peer sent before (at
//! most a full ring) are still delivered, and only then the memory is released.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::time::{ClockId, clock_gettime};

use super::FRAME_OVERHEAD_BYTES;
use super::control::{Control, Cursors, Shared};
use super::limits::{
    BATCH_FRAMES_MAX, CONTROL_LOOK_NS, CONTROL_LOOK_NS_CONNECTING, POLLS_PER_CLOCK_READ,
};
use super::link::{Counters, Link, ProtocolViolation};
use super::ringer_unsafe::Ringer;
use super::rx::Rx;
use super::tx::Tx;
use crate::port::{Capabilities, ChecksumPolicy, Port, PortCounters, PortError};
use crate::{RxFrame, TxFrame};

/// One queue of a memif interface.
#[derive(Debug)]
pub struct MemifPort {
    rx: Option<Rx>,
    tx: Option<Tx>,
    /// Ringer for the peers' bells, made with the first connection.
    ringer: Option<Ringer>,
    polls: u32,
    /// True while a connection exists, even if its peer lacks this queue.
    connected: bool,
    /// Frames still to be delivered of a connection that has ended; `None` while it lives.
    drain_left: Option<u16>,
    /// True if the caller must still be told that the connection ended.
    loss_unreported: bool,
    generation: u64,
    look_at_ns: u64,
    control_deadline_ns: Option<u64>,
    room_deadline_ns: Option<u64>,
    /// Received frames when the port last went to sleep.
    frames_at_sleep: u64,
    /// True if another queue held the control channel when this one went to sleep.
    is_left_to_another: bool,
    counters: Counters,
    capabilities: Capabilities,
    /// Index of this queue in `shared`.
    queue: usize,
    shared: Arc<Shared>,
}

impl MemifPort {
    /// Makes the port of queue `queue` of `shared`, which the caller has taken.
    pub(super) fn new(shared: Arc<Shared>, queue: usize) -> Self {
        let capabilities = Capabilities {
            mac: shared.mac,
            mtu: shared.options.buffer_bytes - FRAME_OVERHEAD_BYTES,
            rx_checksum: ChecksumPolicy::Verify,
            tx_checksum_offload: false,
            segment_bytes_max: 0,
            batch_max: BATCH_FRAMES_MAX,
            name: format!("memif:{}", shared.options.path),
            queue,
        };
        Self {
            rx: None,
            tx: None,
            ringer: None,
            polls: 0,
            connected: false,
            drain_left: None,
            loss_unreported: false,
            generation: 0,
            look_at_ns: 0,
            control_deadline_ns: None,
            room_deadline_ns: None,
            frames_at_sleep: 0,
            is_left_to_another: false,
            counters: Counters::default(),
            capabilities,
            queue,
            shared,
        }
    }

    /// Sets the port's `capabilities`, as far as its buffers allow.
    pub(super) fn named(mut self, capabilities: Capabilities) -> Self {
        let own = &self.capabilities;
        self.capabilities = Capabilities {
            mtu: capabilities.mtu.min(own.mtu),
            batch_max: own.batch_max,
            tx_checksum_offload: false,
            ..capabilities
        };
        self
    }

    /// The frames of the last [`receive`](Port::receive) until they are released, for a caller that
    /// could not use all at once.
    #[inline]
    pub fn received(&self) -> &[RxFrame] {
        self.rx.as_ref().map_or(&[], Rx::frames)
    }

    /// True if the peer is connected and has this queue.
    pub fn is_connected(&self) -> bool {
        self.connected && self.drain_left.is_none() && self.rx.is_some() && self.tx.is_some()
    }

    /// True if the connection has this queue, or if an ended one still has frames or news for the
    /// caller.
    #[inline]
    pub(super) fn has_queue(&self) -> bool {
        self.rx.is_some() || self.loss_unreported
    }

    /// Generation of the connection that the port joined or left last.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes the port read the control state at its next call, because another queue's port found a
    /// new connection.
    #[cold]
    pub(super) fn follow_others(&mut self) {
        self.look_at_ns = 0;
        self.tick();
    }

    /// Prepares a sleep like [`prepare_wait`](Port::prepare_wait), for arriving frames only.
    /// Another port of the same thread reads the control channel.
    pub(super) fn prepare_queue_wait(&mut self) -> bool {
        self.release();
        if self.drain_left.is_some() || self.loss_unreported {
            return true;
        }
        self.rx.as_mut().is_some_and(Rx::prepare_wait)
    }

    /// Descriptor of the bell for arriving frames, while the connection has this queue.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.rx.as_ref().map(Rx::bell)
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The reason why the last connection ended or failed; empty if there was none. The call takes
    /// the interface's lock, so it is not for the data path.
    pub fn last_reason(&self) -> String {
        self.shared.control().reason().to_owned()
    }

    /// The peer's name for itself while connected. The call takes the interface's lock, so it is
    /// not for the data path.
    pub fn peer_name(&self) -> Option<String> {
        self.shared.control().link().map(|link| link.peer.clone())
    }

    /// Reads the control channel when it is time.
    #[cold]
    fn tick(&mut self) {
        let now_ns = now_ns();
        if now_ns >= self.look_at_ns {
            self.service_control(now_ns);
        }
    }

    /// Reads the control channel. False: another queue holds it.
    fn service_control(&mut self, now_ns: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        let Some(mut control) = shared.try_control() else {
            return false;
        };
        control.service(now_ns);
        self.control_deadline_ns = control.deadline_ns();
        let pause_ns = if control.link().is_some() {
            CONTROL_LOOK_NS
        } else {
            CONTROL_LOOK_NS_CONNECTING
        };
        self.look_at_ns = now_ns + pause_ns;
        if control.generation() != self.generation {
            self.shared.heard(self.queue);
            self.follow(&control);
        }
        true
    }

    /// Reads the control channel before a sleep, unless frames came since the last sleep and it was
    /// read a moment ago. All queues share the lock, so a busy port should not take it for every
    /// sleep. News that arrive meanwhile end the sleep at once, and the next sleep without frames
    /// begins with a read.
    ///
    /// If another queue holds the lock, the port leaves reading to that queue for a while. The
    /// other thread may be preempted by this one, so this port must neither wait for the lock nor
    /// poll.
    fn look_before_sleep(&mut self, now_ns: u64) {
        let frames = self.counters.rx_frames;
        let is_busy = std::mem::replace(&mut self.frames_at_sleep, frames) != frames;
        let is_due = now_ns >= self.look_at_ns
            || self
                .control_deadline_ns
                .is_some_and(|at_ns| now_ns >= at_ns);
        if is_busy && self.rx.is_some() && !is_due {
            return;
        }
        self.is_left_to_another = !self.service_control(now_ns);
        if self.is_left_to_another {
            self.control_deadline_ns = Some(now_ns + CONTROL_LOOK_NS_CONNECTING);
        }
    }

    /// Leaves a drained connection that has ended, and joins the present one.
    fn follow(&mut self, control: &Control) {
        if self.connected && self.drain_left.is_none() {
            self.tx = None;
            self.drain_left = Some(1 << super::limits::RING_SLOTS_LOG2_MAX);
        }
        if self.drain_left.is_some() && self.rx.is_some() {
            return;
        }
        self.leave();
        self.generation = control.generation();
        if let Some(link) = control.link() {
            self.join(link, control.cursors(self.queue));
        }
    }

    fn join(&mut self, link: &Link, cursors: Option<Cursors>) {
        self.connected = true;
        self.counters.connects += 1;
        let Some(queue) = link.queues.get(self.queue) else {
            return;
        };
        self.rx = queue
            .rx
            .as_ref()
            .map(|end| Rx::new(end, link.window(), cursors.map(|cursors| cursors.rx)));
        self.ringer.get_or_insert_with(Ringer::new).try_again();
        let frame_bytes = self.shared.options.buffer_bytes;
        let tx_cursor = cursors.map_or(0, |cursors| cursors.tx);
        self.tx = queue
            .tx
            .as_ref()
            .map(|end| Tx::new(end, link, tx_cursor, frame_bytes));
    }

    fn leave(&mut self) {
        self.rx = None;
        self.tx = None;
        self.drain_left = None;
        if std::mem::take(&mut self.connected) {
            self.counters.disconnects += 1;
            self.loss_unreported = true;
        }
    }

    /// Ends the connection because the peer lied.
    #[cold]
    fn on_violation(&mut self, violation: ProtocolViolation) {
        self.counters.peer_lies += 1;
        self.leave();
        self.shared
            .control()
            .fail(self.generation, &violation.to_string(), now_ns());
        self.look_at_ns = 0;
    }

    /// Delivers a batch of the frames that an ended connection left.
    #[cold]
    fn drain(&mut self, left: u16) {
        let count = self.rx.as_ref().map_or(0, |rx| rx.frames().len() as u16);
        match left.checked_sub(count) {
            Some(left) if count > 0 => self.drain_left = Some(left),
            _ => {
                self.leave();
                self.look_at_ns = 0;
            }
        }
    }

    /// Returns an empty batch, or the news that the connection ended if the caller does not know
    /// it.
    #[cold]
    fn nothing(&mut self) -> Result<&[RxFrame], PortError> {
        match std::mem::take(&mut self.loss_unreported) {
            true => Err(PortError::Disconnected),
            false => Ok(&[]),
        }
    }

    fn has_room(&mut self) -> bool {
        let Some(tx) = &mut self.tx else {
            return false;
        };
        match tx.has_room() {
            Ok(room) => room,
            Err(violation) => {
                self.on_violation(violation);
                true
            }
        }
    }
}

impl Port for MemifPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.polls = self.polls.wrapping_add(1);
        if self.rx.is_none() || self.polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            self.tick();
        }
        let Some(rx) = &mut self.rx else {
            return self.nothing();
        };
        if let Err(violation) = rx.receive(&mut self.counters) {
            self.on_violation(violation);
            return self.nothing();
        }
        if let Some(left) = self.drain_left {
            self.drain(left);
        }
        if self.rx.is_none() {
            return self.nothing();
        }
        Ok(self.rx.as_ref().map_or(&[], Rx::frames))
    }

    #[inline]
    fn release(&mut self) {
        if let Some(rx) = &mut self.rx {
            rx.release();
        }
    }

    #[inline]
    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let Some(tx) = &mut self.tx else {
            return &[];
        };
        if let Err(violation) = tx.reserve(n) {
            self.on_violation(violation);
        }
        self.tx.as_ref().map_or(&[], Tx::frames)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.tx.as_ref().map_or(&[], Tx::frames)
    }

    #[inline]
    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let (Some(tx), Some(ringer)) = (&mut self.tx, &self.ringer) else {
            self.counters.tx_dropped_disconnected += n as u64;
            return Ok(());
        };
        let sent = tx.send(n, ringer, &mut self.counters);
        sent.map_err(|violation| {
            self.counters.tx_dropped_disconnected += n as u64;
            self.on_violation(violation);
            PortError::Disconnected
        })
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.release();
        self.room_deadline_ns = None;
        let now_ns = now_ns();
        self.look_before_sleep(now_ns);
        if self.drain_left.is_some() || self.loss_unreported {
            return true;
        }
        if want_tx && self.has_room() {
            return true;
        }
        if let (true, Some(tx)) = (want_tx, &mut self.tx) {
            self.room_deadline_ns = Some(now_ns + tx.room_pause_ns());
        }
        self.rx.as_mut().is_some_and(Rx::prepare_wait)
    }

    fn finish_wait(&mut self) {
        self.room_deadline_ns = None;
        self.is_left_to_another = false;
        if let Some(rx) = &mut self.rx {
            rx.finish_wait();
        }
    }

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        if !self.is_left_to_another {
            fds(self.shared.descriptor(), PollFlags::IN);
            if let Some(news) = self.shared.news(self.queue) {
                fds(news, PollFlags::IN);
            }
        }
        if let Some(rx) = &self.rx {
            fds(rx.bell(), PollFlags::IN);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        [self.control_deadline_ns, self.room_deadline_ns]
            .into_iter()
            .flatten()
            .min()
    }

    fn counters(&self) -> PortCounters {
        let c = &self.counters;
        let mut counters = PortCounters::default();
        counters.rx_frames = c.rx_frames;
        counters.rx_bytes = c.rx_bytes;
        counters.tx_frames = c.tx_frames;
        counters.tx_bytes = c.tx_bytes;
        counters.push("memif_rx_chained", c.rx_chained);
        counters.push("memif_rx_dropped_chain", c.rx_dropped_chain);
        counters.push("memif_rx_dropped_descriptor", c.rx_dropped_descriptor);
        counters.push("memif_tx_dropped_no_buffer", c.tx_dropped_no_buffer);
        counters.push("memif_tx_dropped_disconnected", c.tx_dropped_disconnected);
        counters.push("memif_tx_staged", c.tx_staged);
        counters.push("memif_tx_bells", c.tx_bells);
        counters.push("memif_connects", c.connects);
        counters.push("memif_disconnects", c.disconnects);
        counters.push("memif_peer_lies", c.peer_lies);
        counters
    }
}

impl Drop for MemifPort {
    fn drop(&mut self) {
        self.release();
        let cursors = match (&self.rx, &self.tx) {
            (None, None) => None,
            (rx, tx) => Some(Cursors {
                rx: rx.as_ref().map_or(0, Rx::consumed),
                tx: tx.as_ref().map_or(0, Tx::cursor),
            }),
        };
        self.shared
            .control()
            .give_queue(self.queue, self.generation, cursors);
    }
}

/// Time of `CLOCK_MONOTONIC`, ns.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
