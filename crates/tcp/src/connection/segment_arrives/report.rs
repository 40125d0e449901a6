//! Reports beyond RCV.NXT: selective acknowledgments (RFC 2018) and duplicates (RFC 2883), in
//! Linux's order. Reported data is given up when memory is short, which RFC 2018 section 8 allows.

use crate::connection::Connection;
use crate::context::Cx;
use crate::recv_buffer::RecvBuffer;

impl Connection {
    /// Bytes in order find no memory, this connection's or another's: everything beyond gaps goes.
    /// The peer sends it again. False if there is nothing.
    pub fn shed_out_of_order(&mut self, cx: &mut Cx<'_>, rx: &mut impl RecvBuffer) -> bool {
        let bytes = self.rx.held().bytes(cx.ranges);
        if bytes == 0 {
            return false;
        }
        cx.counters.bytes_out_of_order_shed += u64::from(bytes);
        self.rx
            .discharge(self.rx.unread().saturating_add(bytes), self.rx.unread());
        self.rx.held_mut().release(cx.ranges);
        self.rx
            .forget_from(cx, self.rcv.nxt(), rx, &mut self.marks, &self.rcv);
        true
    }
}
