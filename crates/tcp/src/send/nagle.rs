//! Partial segments that wait: Nagle's algorithm in Minshall's variant, the cork, records and
//! urgent data.

use wire::SeqNumber;

use crate::conn_flags::ConnFlags;
use crate::send::Sender;
use crate::variables::Snd;

impl Sender {
    /// Bytes from SND.NXT to the end of its record.
    #[inline]
    pub(crate) fn record_room(&self, conn_flags: ConnFlags, snd: &Snd) -> u32 {
        if !conn_flags.has(ConnFlags::RECORDS) {
            return u32::MAX;
        }
        let end = self.record_ends.next_after(snd.nxt());
        end.map_or(u32::MAX, |end| end.since(snd.nxt()))
    }

    /// True if the application ended a record before `seq` (MSG_EOR), so that no segment crosses
    /// it.
    pub(crate) fn ends_record(&self, seq: SeqNumber, conn_flags: ConnFlags) -> bool {
        conn_flags.has(ConnFlags::RECORDS) && self.record_ends.contains(seq)
    }

    /// True if a partial segment waits: a small one is in flight already (Minshall), or the cork is
    /// set.
    pub(crate) fn held_by_nagle(&self, conn_flags: ConnFlags, snd: &Snd) -> bool {
        self.is_small_held(conn_flags, snd) && !self.is_urgent(conn_flags)
    }

    fn is_small_held(&self, conn_flags: ConnFlags, snd: &Snd) -> bool {
        if conn_flags.any(ConnFlags::CORK | ConnFlags::MORE) {
            return true;
        }
        if conn_flags.has(ConnFlags::NODELAY) {
            return false;
        }
        self.small_end.gt(snd.una()) && self.small_end.le(snd.nxt())
    }

    /// True while urgent data is unacknowledged; nothing then waits to fill a segment (Linux).
    pub(crate) fn is_urgent(&self, conn_flags: ConnFlags) -> bool {
        conn_flags.has(ConnFlags::RECORDS) && self.urgent_out.is_some()
    }
}
