//! The tail loss probe (RFC 8985 7): when ACKs stop coming, one segment goes out ahead of the timeout, so
//! that its ACK shows what is missing.

use crate::recovery::Recovery;
use crate::recovery::records::{RecordPool, tag};
use crate::send::Sender;

impl Recovery {
    /// How far the timeout is away, counted from when the first segment was last sent; none = it is past.
    pub(crate) fn timeout_from_head_ns(
        &self,
        tx: &Sender,
        records: &RecordPool,
        now_ns: u64,
    ) -> Option<u64> {
        let head = records.get(self.chain.head)?;
        let at_ns = head.sent_ns + tx.rtt.rto_ns();
        at_ns.checked_sub(now_ns).filter(|&wait_ns| wait_ns > 0)
    }

    pub(crate) fn is_tail_sacked(&self, records: &RecordPool) -> bool {
        let tail = records.get(self.chain.tail);
        tail.is_some_and(|tail| tail.has(tag::SACKED))
    }
}
