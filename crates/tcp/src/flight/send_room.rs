//! The room in the send buffer: the bytes that the application may write, which depend on what can
//! leave at once.

use crate::buffers::Memory;
use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::path::Path;
use crate::send::Sender;
use crate::send::buffer::{RUN_OVERHEAD, SendRoom};
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

/// Bytes of headers and book-keeping of a full segment in the send buffer, beside its payload.
const SEND_HEADERS: u32 = 320 + 320;

const SEND_DESCRIPTOR: u32 = 256;

/// Largest window in bytes, because shifts are bounded (RFC 7323 2.3).
const WINDOW_BYTES_MAX: u32 = 1 << 30;

impl Flight {
    /// Grows the send buffer to twice the congestion window, so the next window can be written
    /// while one is in flight.
    pub(crate) fn expand_send_buffer(&self, cx: &Cx<'_>, snd: &Snd, tx: &mut Sender, path: &Path) {
        if tx.buffer().is_locked() || cx.memory >= Memory::Low {
            return;
        }
        let mss = u32::from(path.peer_mss().max(snd.mss()));
        let each = (mss + SEND_HEADERS).next_power_of_two() + SEND_DESCRIPTOR;
        let segments = self
            .send_window_segments()
            .max(u32::from(cx.config.initial_window_segments));
        // The window of a model may double while losses are repaired.
        let windows = if self.congestion.is_model() { 3 } else { 2 };
        let wanted = u64::from(each) * windows * u64::from(segments);
        let wanted = wanted.min(u64::from(cx.config.send_buffer.bytes_max)) as u32;
        tx.grow_buffer(wanted);
    }

    /// The congestion window in segments, but at least four.
    fn send_window_segments(&self) -> u32 {
        self.congestion.cwnd().max(4)
    }

    /// Bytes for which the congestion window has room.
    fn congestion_room(&self, snd: &Snd) -> u32 {
        let cwnd = self.congestion.cwnd();
        let segments = cwnd.saturating_sub(self.recovery.segments_in_flight());
        segments
            .saturating_mul(u32::from(snd.mss()))
            .min(WINDOW_BYTES_MAX)
    }

    /// Level of bytes in the send buffer at or below which a waiting writer is woken: a third of
    /// the buffer is free (Linux).
    #[inline]
    pub(crate) fn wake_limit(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
        timers: &Timers,
    ) -> u32 {
        match tx.buffer().is_locked() {
            true => self.wake_limit_locked(cx, state, conn_flags, snd, tx, timers),
            false => tx.buffer().runs().wake(),
        }
    }

    /// The wake level of a buffer whose size the user set. Such a buffer may be small, so the
    /// overhead of bursts in flight counts.
    fn wake_limit_locked(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
        timers: &Timers,
    ) -> u32 {
        let memory = tx.buffer().memory() - tx.buffer().memory() / 3;
        let burst = u32::from(snd.mss().max(1)) * self.burst_segments_max(cx, snd, timers).max(1);
        let sent = snd.buffered().saturating_sub(snd.unsent(state, conn_flags));
        let bursts = sent.div_ceil(burst);
        let runs = bursts
            + snd
                .unsent(state, conn_flags)
                .div_ceil(u32::from(tx.buffer().runs().bytes()));
        memory.saturating_sub(runs.saturating_mul(RUN_OVERHEAD))
    }

    /// The room in a simple case: the user chose no limit, nothing is in flight, and the congestion
    /// window is the limit, takes all waiting data, and is smaller than the buffer.
    #[inline]
    pub(crate) fn room_at_rest(
        &self,
        config: &Config,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) -> Option<SendRoom> {
        let (buffer, runs) = (tx.buffer(), tx.buffer().runs());
        debug_assert_eq!(runs, buffer.compute_runs(snd));
        let lowat = buffer.notsent_lowat(config);
        let path = self.congestion.cwnd().saturating_mul(u32::from(snd.mss()));
        let is_roomy = !buffer.is_locked()
            && snd.una() == snd.nxt()
            && self.recovery.packets_out() == 0
            && snd.buffered() <= path
            && path < runs.size()
            && path <= snd.wnd()
            && path < WINDOW_BYTES_MAX
            && lowat == u32::MAX
            && state.sends_data();
        if !is_roomy {
            return None;
        }
        let limit = path + runs.free_behind(path);
        debug_assert_eq!(limit, self.send_limit(lowat, state, conn_flags, snd, tx));
        Some(SendRoom {
            limit,
            wake: runs.wake(),
            unsent_wake: u32::MAX,
        })
    }

    #[inline(never)]
    pub(crate) fn limit_in_flight(
        &self,
        lowat: u32,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) -> u32 {
        match self.roomy_limit(lowat, state, conn_flags, snd, tx) {
            Some(limit) => limit,
            None => self.send_limit(lowat, state, conn_flags, snd, tx),
        }
    }

    /// Like [`send_limit`](Self::send_limit), for a simple case: all waiting data leaves now, and
    /// the congestion window is the limit and smaller than the buffer.
    #[inline]
    fn roomy_limit(
        &self,
        lowat: u32,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) -> Option<u32> {
        let runs = tx.buffer().runs();
        let path = self.congestion_room(snd);
        let sent = snd.buffered() + path.checked_sub(snd.unsent(state, conn_flags))?;
        let is_roomy = sent < runs.size()
            && path <= snd.usable()
            && path < WINDOW_BYTES_MAX
            && lowat == u32::MAX;
        if !is_roomy {
            return None;
        }
        let limit = sent + runs.free_behind(sent);
        debug_assert_eq!(limit, self.send_limit(lowat, state, conn_flags, snd, tx));
        Some(limit)
    }

    /// Bytes that the send buffer may hold. A run that may be begun is filled up. A run may be
    /// begun as long as the buffer's size and TCP_NOTSENT_LOWAT allow it.
    #[inline]
    fn send_limit(
        &self,
        lowat: u32,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) -> u32 {
        let (bytes, size) = (tx.buffer().runs().bytes(), tx.buffer().runs().size());
        let bytes = u32::from(bytes);
        let buffered = snd.buffered();
        let (mut unsent, mut sendable) = (snd.unsent(state, conn_flags), self.sendable(snd));
        let mut flight = buffered.saturating_sub(unsent);
        if sendable >= unsent {
            // All data leaves now, and perhaps some of the next write.
            (flight, sendable, unsent) = (flight + unsent, sendable - unsent, 0);
        }
        let free = size.saturating_sub(flight);
        let at_hand = match unsent {
            // More free space than can leave now, so it need not be whole runs.
            0 if sendable < free => free,
            0 => free.next_multiple_of(bytes),
            unsent => unsent,
        };
        // Data that leaves at once is cut off from its run, and the remaining run is filled up
        // again.
        let leaves = sendable.min(at_hand);
        let sent = flight.saturating_add(leaves);
        let unsent = unsent.saturating_sub(leaves);
        // A run that may be begun is filled up.
        let may_begin = (sent < size || leaves < at_hand) && unsent < lowat;
        let room = size.saturating_sub(sent).min(lowat).max(unsent);
        let runs = room.div_ceil(bytes).max(u32::from(may_begin));
        sent.saturating_add(runs.saturating_mul(bytes))
            .max(buffered)
    }

    /// Bytes that the congestion window and the peer's window take now, in whole segments.
    #[inline]
    fn sendable(&self, snd: &Snd) -> u32 {
        let mss = u32::from(snd.mss().max(1));
        let (path, peer) = (self.congestion_room(snd), snd.usable());
        match path {
            // The congestion window's room is in whole segments already.
            0..WINDOW_BYTES_MAX if path <= peer => path,
            _ => path.min(peer) - path.min(peer) % mss,
        }
    }
}
