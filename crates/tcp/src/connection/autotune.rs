//! The sizes of the buffers: the application's settings, and its questions about them.

use crate::buffers::Buffers;
use crate::config::Config;
use crate::connection::Connection;
use crate::context::Cx;
use crate::send::buffer::SendRoom;

impl Connection {
    /// Sets the sizes at the moment when data may flow.
    pub(crate) fn begin_buffers(&mut self, cx: &Cx<'_>) {
        self.flight
            .expand_send_buffer(cx, &self.snd, &mut self.tx, &self.path);
        self.tx.refresh_runs(&self.snd);
        self.rx.guess_peer_segment(&self.snd);
        self.rx.begin_tuning(cx, &self.rcv);
    }

    /// Grows the send buffer with the congestion window when a writer waits for room, unless the
    /// window is full. Linux does this after it has sent; its small queues towards the device keep
    /// the window from being full then, so in effect it happens on each ACK.
    pub fn on_writer_waits(&mut self, cx: &Cx<'_>) {
        if self.flight.recovery().segments_in_flight() < self.flight.congestion().cwnd() {
            let before = self.tx.buffer().memory();
            self.flight
                .expand_send_buffer(cx, &self.snd, &mut self.tx, &self.path);
            if self.tx.buffer().memory() != before {
                self.tx.refresh_runs(&self.snd);
            }
        }
    }

    /// Like [`send_room`](Self::send_room), for the simple case that nothing is in flight and the
    /// user set no limit.
    #[inline]
    #[must_use]
    pub fn send_room_at_rest(&self, config: &Config) -> Option<SendRoom> {
        self.flight
            .room_at_rest(config, self.state(), self.conn_flags, &self.snd, &self.tx)
    }

    /// Room in the send buffer for the application now, and the level at which a waiting writer is
    /// woken.
    #[must_use]
    pub fn send_room(&self, cx: &Cx<'_>) -> SendRoom {
        if let Some(room) = self.send_room_at_rest(cx.config) {
            return room;
        }
        let lowat = self.tx.buffer().notsent_lowat(cx.config);
        SendRoom {
            limit: self.flight.limit_in_flight(
                lowat,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.tx,
            ),
            wake: self.flight.wake_limit(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.tx,
                &self.timers,
            ),
            unsent_wake: match lowat {
                u32::MAX => u32::MAX,
                lowat => lowat.div_ceil(2).saturating_sub(1),
            },
        }
    }

    /// SO_SNDBUF: twice the requested size; the buffer no longer grows by itself.
    pub fn set_send_buffer(&mut self, cx: &mut Cx<'_>, asked: u32) {
        let bytes = Buffers::of(cx.config).with_send(asked).send_bytes;
        self.tx.fix_buffer(bytes, &self.snd);
    }

    /// SO_RCVBUF: twice the requested size; the buffer no longer grows by itself. A window that was
    /// promised stays valid.
    pub fn set_recv_buffer(&mut self, cx: &mut Cx<'_>, asked: u32) {
        let bytes = Buffers::of(cx.config).with_recv(asked).recv_bytes;
        self.rx.fix_buffer(bytes);
    }

    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    pub fn set_notsent_lowat(&mut self, bytes: u32) {
        self.tx.set_notsent_lowat(bytes);
    }

    /// The size of the send buffer in bytes of memory, as SO_SNDBUF returns it.
    #[must_use]
    pub fn send_buffer(&self) -> u32 {
        self.tx.buffer().memory()
    }

    /// The size of the receive buffer in bytes of memory, as SO_RCVBUF returns it.
    #[must_use]
    pub fn recv_buffer(&self) -> u32 {
        self.rx.buffer()
    }

    /// True if TCP_NOTSENT_LOWAT limits unsent data, so that writers are told when data has left.
    #[must_use]
    pub fn limits_unsent(&self, config: &Config) -> bool {
        self.tx.buffer().notsent_lowat(config) != u32::MAX
    }

    /// True if the peer has acknowledged everything that was sent, the SYN included.
    #[inline]
    #[must_use]
    pub fn is_all_acked(&self) -> bool {
        self.snd.flight() == 0 && self.state().is_synchronized()
    }

    /// Payload bytes sent and not acknowledged.
    #[must_use]
    pub fn unacked_payload(&self) -> u32 {
        self.snd
            .buffered()
            .saturating_sub(self.snd.unsent(self.state(), self.conn_flags))
    }
}
