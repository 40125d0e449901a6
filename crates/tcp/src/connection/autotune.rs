//! Buffers that grow with the connection: how much may be received and written.

use crate::autotune::{RUN_OVERHEAD, Runs, SendRoom, micros};
use crate::buffers::{Buffers, Memory, space_for};
use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::segment::Segment;

/// Headers and book-keeping that a full segment to be sent has beside its payload.
const SEND_HEADERS: u32 = 320 + 320;
const SEND_DESCRIPTOR: u32 = 256;
/// No window takes more: shifts are bounded (RFC 7323 2.3).
const WINDOW_BYTES_MAX: u32 = 1 << 30;

impl Connection {
    /// Sizes at the moment when data may flow.
    pub(crate) fn begin_buffers(&mut self, cx: &Cx<'_>) {
        self.expand_send_buffer(cx);
        self.tune.refresh_runs(&self.snd, &self.tx);
        self.rx.guess_peer_segment(&self.snd);
        self.tune.space_at_us = micros(cx.now_ns);
        self.tune.space_seq = self.rx.reader_seq(&self.rcv);
        let advmss = u32::from(self.rx.advmss());
        self.rx.begin_clamp();
        self.tune.space = self
            .rx
            .ssthresh()
            .min(self.rx.wnd())
            .min(u32::from(cx.config.initial_window_segments) * advmss);
    }

    // Receiving.

    /// Payload arrived: the round trip as its receiver can see it.
    pub(crate) fn measure_receive_rtt(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if let Some(stamp) = seg.options.timestamp
            && self.marks.has(Marks::TIMESTAMPS)
        {
            if core::mem::take(&mut self.tune.ends_handshake) {
                return;
            }
            if stamp.echo == self.tune.last_echo {
                return;
            }
            self.tune.last_echo = stamp.echo;
            if seg.len < u32::from(self.rx.peer_segment()) {
                return;
            }
            // Less than a tick of the clock says nothing: such paths are measured by windows.
            let is_this_tick = self.ts_value(cx.now_ns) == stamp.echo;
            if !is_this_tick && let Some(rtt_ns) = self.rtt_by_timestamp(cx.now_ns, seg) {
                let sample_us = (rtt_ns / 1000).min(u64::from(u32::MAX >> 4)) as u32;
                self.take_receive_rtt(sample_us);
            }
        }
    }

    /// The shortest at once; a longer one slowly, and not while the reader is what holds the sender
    /// up (Linux 6.16).
    fn take_receive_rtt(&mut self, sample_us: u32) {
        let rtt = self.tune.rtt_us8;
        let sample = sample_us << 3;
        if rtt == 0 || sample < rtt {
            self.tune.rtt_us8 = sample;
        } else if self.rx.unread() == 0 {
            self.tune.rtt_us8 = rtt - (rtt >> 3) + sample_us;
        }
    }

    /// Measures without timestamps: a window's arrival takes no less than a round trip.
    pub(crate) fn measure_receive_window(&mut self, cx: &Cx<'_>) {
        if self.tune.rtt_at_us != 0 && self.rcv.nxt.lt(self.tune.rtt_seq) {
            return;
        }
        let now_us = micros(cx.now_ns);
        if self.tune.rtt_at_us != 0 {
            let took_us = now_us.wrapping_sub(self.tune.rtt_at_us).max(1);
            let sample = took_us.min(u32::MAX >> 4) << 3;
            if self.tune.rtt_us8 == 0 || sample < self.tune.rtt_us8 {
                self.tune.rtt_us8 = sample;
            }
        }
        self.tune.rtt_seq = self.rcv.nxt + self.rx.wnd();
        self.tune.rtt_at_us = now_us;
    }

    /// Grows the receive buffer after the application read. Once per round trip: if the application
    /// read more than ever before, the buffer makes room for the next round trip of slow start.
    pub(crate) fn adjust_receive_space(&mut self, cx: &Cx<'_>) {
        let now_us = micros(cx.now_ns);
        let took_us = now_us.wrapping_sub(self.tune.space_at_us);
        if self.tune.rtt_us8 == 0 || took_us < self.tune.rtt_us8 >> 3 {
            return;
        }
        let copied = self.rx.reader_seq(&self.rcv).since(self.tune.space_seq);
        // Unread data says that the reader, not the window, is the limit (Linux 6.16).
        let copied = copied.saturating_sub(self.rx.unread());
        if copied > self.tune.space {
            self.grow_receive_buffer(cx, copied);
            self.tune.space = copied;
        }
        self.tune.space_seq = self.rx.reader_seq(&self.rcv);
        self.tune.space_at_us = now_us;
    }

    fn grow_receive_buffer(&mut self, cx: &Cx<'_>, copied: u32) {
        if !cx.config.recv_buffer_moderate || self.tune.recv_locked || cx.memory >= Memory::Low {
            return;
        }
        let (copied, space) = (u64::from(copied), u64::from(self.tune.space.max(1)));
        // The measurement is a round trip late, and the sender may double its rate meanwhile.
        let mut window = 2 * copied;
        window += 2 * (window * (copied - space.min(copied)) / space);
        // Data beyond a gap arrived in addition.
        let beyond = self.rx.held().last(cx.ranges);
        window += beyond.map_or(0, |range| u64::from(range.right.since(self.rcv.nxt)));
        let wanted = space_for(window, self.rx.ratio());
        let wanted = wanted.min(u64::from(cx.config.recv_buffer.bytes_max)) as u32;
        self.rx.grow_buffer(wanted);
    }

    /// Text arrived beyond a gap: it needs room in addition to a round trip's data (Linux 6.18). A
    /// passively opened connection that has read nothing is left alone, because perhaps no
    /// application has accepted it.
    pub(crate) fn make_place_beyond_gap(&mut self, cx: &Cx<'_>) {
        let is_used = self.cold.is_syn_sent || self.rx.reader_seq(&self.rcv) != self.rx.irs() + 1;
        if is_used && !self.is_orphan() {
            self.grow_receive_buffer(cx, self.tune.space);
        }
    }

    // Sending.

    /// A writer waits for room: the send buffer follows the congestion window while that is not
    /// full. Linux asks after it has sent, but its small queues towards the device keep the window
    /// from being full then, so that in truth each ACK counts.
    pub fn on_writer_waits(&mut self, cx: &Cx<'_>) {
        if self.recovery.segments_in_flight() < self.congestion.cwnd() {
            let before = self.tune.send_buffer;
            self.expand_send_buffer(cx);
            if self.tune.send_buffer != before {
                self.tune.refresh_runs(&self.snd, &self.tx);
            }
        }
    }

    /// Grows the send buffer to twice the congestion window, so the next window can be written
    /// while one is in flight.
    fn expand_send_buffer(&mut self, cx: &Cx<'_>) {
        if self.tune.send_locked || cx.memory >= Memory::Low {
            return;
        }
        let mss = u32::from(self.tx.peer_mss.max(self.snd.mss));
        let each = (mss + SEND_HEADERS).next_power_of_two() + SEND_DESCRIPTOR;
        let segments = self
            .send_window_segments()
            .max(u32::from(cx.config.initial_window_segments));
        // A model's window may double while losses are mended.
        let windows = if self.congestion.is_model() { 3 } else { 2 };
        let wanted = u64::from(each) * windows * u64::from(segments);
        let wanted = wanted.min(u64::from(cx.config.send_buffer.bytes_max)) as u32;
        self.tune.send_buffer = self.tune.send_buffer.max(wanted);
    }

    /// The congestion window in segments, at least what reordering may hold up.
    fn send_window_segments(&self) -> u32 {
        self.congestion.cwnd().max(4)
    }

    /// Bytes that the congestion window still takes.
    fn congestion_room(&self) -> u32 {
        let cwnd = self.congestion.cwnd();
        let segments = cwnd.saturating_sub(self.recovery.segments_in_flight());
        segments
            .saturating_mul(u32::from(self.snd.mss))
            .min(WINDOW_BYTES_MAX)
    }

    /// The application's room in the send buffer now, and the level at which a waiting writer is
    /// woken.
    #[inline]
    #[must_use]
    pub fn send_room(&self, cx: &Cx<'_>) -> SendRoom {
        debug_assert_eq!(self.tune.runs, self.tune.runs(&self.snd, &self.tx));
        let lowat = self.tune.notsent_lowat(cx.config);
        SendRoom {
            limit: match self.limit_at_rest(lowat) {
                Some(limit) => limit,
                None => self.limit_in_flight(lowat),
            },
            wake: self.wake_limit(cx),
            unsent_wake: match lowat {
                u32::MAX => u32::MAX,
                lowat => lowat.div_ceil(2).saturating_sub(1),
            },
        }
    }

    /// A waiting writer is woken when so many bytes are in the send buffer at most: a third of it
    /// is free (Linux).
    #[inline]
    fn wake_limit(&self, cx: &Cx<'_>) -> u32 {
        match self.tune.send_locked {
            true => self.wake_limit_locked(cx),
            false => self.tune.runs.wake(),
        }
    }

    /// The wake level of a buffer whose size the user chose. Such a buffer may be small, so the
    /// overhead of bursts in flight counts.
    fn wake_limit_locked(&self, cx: &Cx<'_>) -> u32 {
        let memory = self.tune.send_buffer - self.tune.send_buffer / 3;
        let burst = u32::from(self.snd.mss.max(1)) * self.burst_segments_max(cx).max(1);
        let bursts = self.unacked_payload().div_ceil(burst);
        let runs = bursts + self.unsent().div_ceil(u32::from(self.tune.runs.bytes));
        memory.saturating_sub(runs.saturating_mul(RUN_OVERHEAD))
    }

    /// [`send_limit`](Self::send_limit) for a simple case: nothing is in flight, and the congestion
    /// window is the limit, takes all waiting data, and is smaller than the buffer.
    #[inline]
    fn limit_at_rest(&self, lowat: u32) -> Option<u32> {
        let (snd, runs) = (&self.snd, self.tune.runs);
        let path = self.congestion.cwnd().saturating_mul(u32::from(snd.mss));
        let is_roomy = snd.una == snd.nxt
            && self.recovery.packets_out() == 0
            && snd.buffered <= path
            && path < runs.size
            && path <= snd.wnd
            && path < WINDOW_BYTES_MAX
            && lowat == u32::MAX
            && self.state().sends_data();
        if !is_roomy {
            return None;
        }
        let limit = path + runs.free_behind(path);
        debug_assert_eq!(limit, self.send_limit(lowat));
        Some(limit)
    }

    #[inline(never)]
    fn limit_in_flight(&self, lowat: u32) -> u32 {
        match self.roomy_limit(lowat) {
            Some(limit) => limit,
            None => self.send_limit(lowat),
        }
    }

    /// [`send_limit`](Self::send_limit) for a simple case: all waiting data leaves now, and the
    /// congestion window is the limit and smaller than the buffer.
    #[inline]
    fn roomy_limit(&self, lowat: u32) -> Option<u32> {
        let runs = self.tune.runs;
        let path = self.congestion_room();
        let sent = self.snd.buffered + path.checked_sub(self.unsent())?;
        let is_roomy = sent < runs.size
            && path <= self.snd.usable()
            && path < WINDOW_BYTES_MAX
            && lowat == u32::MAX;
        if !is_roomy {
            return None;
        }
        let limit = sent + runs.free_behind(sent);
        debug_assert_eq!(limit, self.send_limit(lowat));
        Some(limit)
    }

    /// Runs are filled up as long as the buffer's size and TCP_NOTSENT_LOWAT allow another one to
    /// be begun.
    #[inline]
    fn send_limit(&self, lowat: u32) -> u32 {
        let Runs { bytes, size, .. } = self.tune.runs;
        let bytes = u32::from(bytes);
        let buffered = self.snd.buffered;
        let (mut unsent, mut sendable) = (self.unsent(), self.sendable());
        let mut flight = buffered.saturating_sub(unsent);
        if sendable >= unsent {
            // All of the data leaves now, and perhaps some of the next write.
            (flight, sendable, unsent) = (flight + unsent, sendable - unsent, 0);
        }
        let free = size.saturating_sub(flight);
        let at_hand = match unsent {
            // More than can leave, in whole runs or not.
            0 if sendable < free => free,
            0 => free.next_multiple_of(bytes),
            unsent => unsent,
        };
        // Data that leaves at once is cut off from its run; the remainder of the run is filled up
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

    /// No further run may be begun.
    #[inline]
    pub(crate) fn is_send_buffer_full(&self) -> bool {
        self.snd.buffered >= self.tune.runs.size
    }

    /// SO_SNDBUF: twice the requested size; the buffer no longer grows by itself.
    pub fn set_send_buffer(&mut self, cx: &mut Cx<'_>, asked: u32) {
        self.tune.send_buffer = Buffers::of(cx.config).with_send(asked).send_bytes;
        self.tune.send_locked = true;
        self.tune.refresh_runs(&self.snd, &self.tx);
    }

    /// SO_RCVBUF: twice the requested size; the buffer no longer grows by itself. A promised window
    /// stays valid.
    pub fn set_recv_buffer(&mut self, cx: &mut Cx<'_>, asked: u32) {
        self.rx
            .set_buffer(Buffers::of(cx.config).with_recv(asked).recv_bytes);
        self.tune.recv_locked = true;
    }

    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    pub fn set_notsent_lowat(&mut self, bytes: u32) {
        self.tune.notsent_lowat = bytes;
    }

    /// The send buffer in bytes of memory (SO_SNDBUF as it is read).
    #[must_use]
    pub fn send_buffer(&self) -> u32 {
        self.tune.send_buffer
    }

    /// The receive buffer in bytes of memory (SO_RCVBUF as it is read).
    #[must_use]
    pub fn recv_buffer(&self) -> u32 {
        self.rx.buffer()
    }

    /// True if TCP_NOTSENT_LOWAT limits unsent data. Writers then learn when data has left.
    #[must_use]
    pub fn limits_unsent(&self, cx: &Cx<'_>) -> bool {
        self.tune.notsent_lowat(cx.config) != u32::MAX
    }

    /// Payload bytes sent and not acknowledged.
    #[must_use]
    pub fn unacked_payload(&self) -> u32 {
        self.snd.buffered.saturating_sub(self.unsent())
    }

    /// Bytes that the congestion window and the peer's window take now, in whole segments.
    #[inline]
    fn sendable(&self) -> u32 {
        let mss = u32::from(self.snd.mss.max(1));
        let (path, peer) = (self.congestion_room(), self.snd.usable());
        match path {
            // Whole segments already.
            0..WINDOW_BYTES_MAX if path <= peer => path,
            _ => path.min(peer) - path.min(peer) % mss,
        }
    }
}
