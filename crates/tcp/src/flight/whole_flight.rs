//! Recognition of the ACK of a whole flight that is one run of segments sent once, in the state
//! Open and without a probe. `connection::recovery::whole_flight` takes such an ACK.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::path::Path;
use crate::records::{Record, tag};
use crate::segment::Segment;
use crate::variables::Snd;

impl Flight {
    /// The run in flight, if this ACK covers all of it and nothing is unusual.
    #[inline]
    pub(crate) fn whole_flight(
        &self,
        cx: &Cx<'_>,
        seg: &Segment,
        conn_flags: ConnFlags,
        snd: &Snd,
        path: &Path,
    ) -> Option<Record> {
        let recovery = &self.recovery;
        let is_whole = seg.ack == snd.nxt()
            && !conn_flags.any(ConnFlags::STOPS_WHOLE_FLIGHT)
            && recovery.is_one_plain_run()
            && snd.ecn().is_off()
            && seg.options.sack.is_empty()
            && path.probe() == 0
            && !conn_flags.is_reno()
            && !self.congestion.learns();
        if !is_whole {
            return None;
        }
        let record = recovery.head(cx.records)?;
        // The remainder of a partly acknowledged segment would count as a gap that was filled late.
        let is_plain = record.tags & !(tag::FIN | tag::APP_LIMITED | tag::PUSHED) == 0
            && record.seq == snd.una();
        is_plain.then_some(*record)
    }
}
