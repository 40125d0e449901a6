//! CPU cycles of each stage of a turn, from the time-stamp counter. Compiled only with the feature
//! `stage-cycles`.
//!
//! Cycles between two laps belong to the stage that the second lap names. A lap costs about as much
//! as a small segment in a stage, so only the shares are meaningful, not the sums.
//! `context::Report` carries them; `cargo xtask bench cycles` reads them.

/// The stages, in the order of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From the end of a turn to the begin of the next: application and sleep.
    Outside,
    /// Receive and release calls of the driver.
    PacketIn,
    Demux,
    TcpIn,
    JobQueue,
    Timers,
    /// Decisions of connections, and the frames built from them.
    TcpOut,
    /// Reserve and send calls of the driver.
    PacketOut,
    EventQueue,
}

const NAMES: [&str; 9] = [
    "outside",
    "packet_in",
    "demux",
    "tcp_in",
    "job_queue",
    "timers",
    "tcp_out",
    "packet_out",
    "event_queue",
];

const _: () = assert!(NAMES.len() == Stage::EventQueue as usize + 1);

/// Cycles of each stage since the stack was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCycles(#[cfg(feature = "stage-cycles")] [u64; NAMES.len()]);

impl StageCycles {
    /// Name and cycles of each stage; none without the feature.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        #[cfg(feature = "stage-cycles")]
        let cycles = &self.0[..];
        #[cfg(not(feature = "stage-cycles"))]
        let cycles: &[u64] = &[];
        NAMES.into_iter().zip(cycles.iter().copied())
    }
}

/// The clock: cycles so far, and the time of the last lap.
#[derive(Debug, Default)]
pub(crate) struct StageClock {
    cycles: StageCycles,
    #[cfg(feature = "stage-cycles")]
    last: u64,
}

impl StageClock {
    /// Charges the cycles since the last lap to `stage`.
    #[inline(always)]
    pub fn lap(&mut self, stage: Stage) {
        #[cfg(feature = "stage-cycles")]
        {
            let now = ring::tsc::now();
            if self.last != 0 {
                self.cycles.0[stage as usize] += now.saturating_sub(self.last);
            }
            self.last = now;
        }
        #[cfg(not(feature = "stage-cycles"))]
        let _ = stage;
    }

    /// The cycles counted so far.
    pub fn cycles(&self) -> StageCycles {
        self.cycles.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_fill_rows_with_the_feature_only() {
        let mut clock = StageClock::default();
        clock.lap(Stage::Outside);
        clock.lap(Stage::Demux);
        let rows: Vec<_> = clock.cycles().rows().collect();
        if cfg!(feature = "stage-cycles") {
            assert_eq!(rows.len(), NAMES.len());
            assert_eq!((rows[0], rows[2].0), (("outside", 0), "demux"));
            assert!(rows[2].1 > 0);
        } else {
            assert!(rows.is_empty());
            assert_eq!(size_of::<StageClock>(), 0);
        }
    }
}
