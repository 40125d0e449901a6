//! A batch of frames while somebody captures: taken frame by frame, so that the reason for which
//! one was dropped is known.
//!
//! Frames of a flow that follow each other still share a visit to their connection. Flows that
//! interleave are taken in the order of their arrival, so the log and the answers agree in order.

use packetio::capture_port::CapturePort;
use packetio::{Port, RxFrame};

use crate::arrivals::Arrivals;
use crate::arrivals::packet_in::Looked;
use crate::core::Core;
use crate::drop_reasons;
use crate::engine::{Parts, View};

/// Frames of the last batch that were dropped.
pub(crate) struct DropNotes {
    /// Position in the batch, and number of the reason.
    found: Vec<(usize, usize)>,
}

impl DropNotes {
    pub fn new(batch_max: usize) -> Box<Self> {
        Box::new(Self {
            found: Vec::with_capacity(batch_max),
        })
    }
}

impl Arrivals {
    /// Takes a batch, and notes what is dropped.
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
        let counts = |core: &Core| {
            let View { env, counters, .. } = core.engine().view();
            drop_reasons::counts(counters, &env.tcp_counters)
        };
        let Parts { counters, .. } = core.engine_mut().parts();
        counters.rx_frames += frames.len() as u64;
        counters.rx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        notes.found.clear();
        let mut before = counts(core);
        for (at, frame) in frames.iter().enumerate() {
            self.look_at(core.engine_mut(), &frames[at..=at], looked);
            self.act_on(core, frame, &mut looked[0], at + 1 < frames.len());
            let after = counts(core);
            if let Some(reason) = drop_reasons::changed(&before, &after) {
                notes.found.push((at, reason));
            }
            before = after;
        }
        self.drop_notes = Some(notes);
    }

    /// Tells the port which frames of the last batch were dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_drops(&self, port: &mut dyn Port) {
        if let (Some(cover), Some(notes)) = (CapturePort::of(port), &self.drop_notes) {
            for &(at, reason) in &notes.found {
                cover.note_drop(at, reason);
            }
        }
    }
}
