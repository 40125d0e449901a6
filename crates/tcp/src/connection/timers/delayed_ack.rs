//! Notes for delayed ACKs: text that is taken in order, and ACKs that leave. `receive::delayed_ack`
//! decides when an ACK leaves.

use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::receive::Receiver;
use crate::receive::delayed_ack::{AckKind, least_delay_us};
use crate::timers::NEVER_NS;

impl Connection {
    /// Learns from payload in order: the peer's segment size and pace, and the ratio of payload to
    /// memory.
    #[inline(always)]
    pub(crate) fn note_received(&mut self, cx: &Cx<'_>, len: u32, flags: Flags) {
        self.rx.request_ack(AckKind::Owed, &mut self.conn_flags);
        self.rx
            .learn_segment_size(len, flags, self.conn_flags, &self.path);
        self.rx.measure_receive_window(cx, &self.rcv);
        self.rx.learn_pace(
            cx.now_ns,
            least_delay_us(cx),
            self.timers.rtt().rto_us(),
            cx.config,
        );
        if Receiver::is_telling(len) {
            self.rx.grow_window(cx, len, self.conn_flags);
        }
    }

    /// Notes that a segment with the ACK flag leaves.
    #[inline]
    pub(crate) fn note_ack_sent(&mut self, cx: &Cx<'_>) {
        self.rcv.note_acked();
        let is_owed = self.conn_flags.has(ConnFlags::ACK_PENDING);
        self.rx.note_ack_sent(is_owed, cx);
        self.conn_flags
            .clear(ConnFlags::ACK_PENDING | ConnFlags::ACK_NOW);
        self.ecn.note_ecn_told(self.snd.ecn());
        if self.timers.delayed_ack_ns() != NEVER_NS {
            self.timers.arm_delayed_ack(NEVER_NS);
        }
    }
}
