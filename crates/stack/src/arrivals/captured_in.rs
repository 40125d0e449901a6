//! Receive path while a capture runs. Frames that the capture logs are processed one by one, so
//! that each drop can be attributed to its frame.
//!
//! Frames that no capture wants are processed as usual. If all frames are logged, consecutive
//! frames of one flow still share a visit to their connection. Interleaved flows are then processed
//! in order of arrival, so that log and answers agree.

use core::ops::Range;

use packetio::capture_port::CapturePort;
use packetio::{Port, PortError, RxFrame};

use crate::arrivals::Arrivals;
use crate::arrivals::packet_in::Looked;
use crate::core::Core;
use crate::drop_reasons::Watch;
use crate::engine::{Parts, View};

/// Which frames of the last batch were logged, and which of those were dropped.
pub(crate) struct DropNotes {
    /// Positions of logged frames in the batch, in rising order.
    logged: Vec<usize>,
    /// Logged frames that were dropped: position in the batch, number of the drop reason.
    found: Vec<(usize, usize)>,
}

impl DropNotes {
    pub fn new(batch_max: usize) -> Box<Self> {
        Box::new(Self {
            logged: Vec::with_capacity(batch_max),
            found: Vec::with_capacity(batch_max),
        })
    }

    /// Receives the next batch of a port, and notes which of its frames are logged.
    #[cold]
    #[inline(never)]
    pub fn receive<'a>(&mut self, port: &'a mut dyn Port) -> Result<&'a [RxFrame], PortError> {
        self.logged.clear();
        self.found.clear();
        match CapturePort::of(port) {
            Some(cover) => cover.receive_noting(&mut self.logged),
            None => Ok(&[]),
        }
    }

    /// Tells the capture which frames of the last batch were dropped.
    #[cold]
    #[inline(never)]
    pub fn tell(&self, port: &mut dyn Port) {
        if let Some(cover) = CapturePort::of(port) {
            for &(at, reason) in &self.found {
                cover.note_drop(at, reason);
            }
        }
    }
}

impl Arrivals {
    /// Processes a batch, and notes which logged frames are dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn take_captured(
        &mut self,
        core: &mut Core,
        frames: &[RxFrame],
        looked: &mut [Looked],
    ) {
        let Some(mut notes) = self.drop_notes.take() else {
            return;
        };
        let mut at = 0;
        for logged in notes.logged.chunk_by(|one, next| one + 1 == *next) {
            let range = logged[0]..logged[0] + logged.len();
            if range.start > at {
                self.take_batch(core, &frames[at..range.start], looked);
            }
            at = range.end;
            self.take_logged(core, frames, range, looked, &mut notes.found);
        }
        if at < frames.len() {
            self.take_batch(core, &frames[at..], looked);
        }
        self.drop_notes = Some(notes);
    }

    /// Processes frames one by one, and adds the dropped ones to `found`.
    fn take_logged(
        &mut self,
        core: &mut Core,
        frames: &[RxFrame],
        range: Range<usize>,
        looked: &mut [Looked],
        found: &mut Vec<(usize, usize)>,
    ) {
        let logged = &frames[range.clone()];
        let Parts { counters, .. } = core.engine_mut().parts();
        counters.rx_frames += logged.len() as u64;
        counters.rx_bytes += logged.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let View { env, counters, .. } = core.engine().view();
        let mut watch = Watch::new(counters, &env.tcp_counters);
        for at in range {
            let parts = core.engine_mut().parts();
            let parts = (&*parts.flows, &*parts.network, parts.counters);
            self.look_at(parts, &frames[at..=at], looked);
            self.act_on(core, &frames[at], &mut looked[0], at + 1 < frames.len());
            let View { env, counters, .. } = core.engine().view();
            if let Some(reason) = watch.risen(counters, &env.tcp_counters) {
                found.push((at, reason));
            }
        }
    }
}
