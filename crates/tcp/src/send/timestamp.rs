//! Our timestamp clock: the values that leave and their echoes (RFC 7323 3 and 4).

use wire::tcp::Timestamp;

use crate::conn_flags::ConnFlags;
use crate::segment::Segment;
use crate::send::Sender;
use crate::timestamp::{clock_ms, elapsed_ns};
use crate::variables::Rcv;

impl Sender {
    /// The timestamp, the only option of segments whose ACK reports nothing new. `None` if
    /// timestamps are not in use.
    #[inline]
    pub(crate) fn data_stamp(
        &self,
        now_ns: u64,
        conn_flags: ConnFlags,
        rcv: &Rcv,
    ) -> Option<Timestamp> {
        conn_flags.has(ConnFlags::TIMESTAMPS).then(|| Timestamp {
            value: self.ts_value(now_ns),
            echo: rcv.ts_recent(),
        })
    }

    /// TSval of a segment that leaves now: our clock in milliseconds plus the offset of the address
    /// pair.
    pub(crate) fn ts_value(&self, now_ns: u64) -> u32 {
        clock_ms(now_ns).wrapping_add(self.ts_offset)
    }

    /// The echoed timestamp as a time of our clock, in milliseconds.
    pub(crate) fn echo_ms(&self, seg: &Segment, conn_flags: ConnFlags) -> Option<u32> {
        if !conn_flags.has(ConnFlags::TIMESTAMPS) {
            return None;
        }
        let echo = seg.options.timestamp?.echo;
        (echo != 0).then(|| echo.wrapping_sub(self.ts_offset))
    }

    /// The round trip by the echoed timestamp (RFC 7323 4.1). It is used when the clock cannot tell
    /// which transmission was acknowledged.
    pub(crate) fn rtt_by_timestamp(
        &self,
        now_ns: u64,
        seg: &Segment,
        conn_flags: ConnFlags,
    ) -> Option<u64> {
        if !conn_flags.has(ConnFlags::TIMESTAMPS) {
            return None;
        }
        let echo = seg.options.timestamp?.echo;
        let elapsed = self.ts_value(now_ns).wrapping_sub(echo);
        (echo != 0).then(|| elapsed_ns(elapsed)).flatten()
    }
}
