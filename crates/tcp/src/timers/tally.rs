//! Number of timeouts and duration of the recoveries from them, for `TCP_INFO`, counted as in
//! Linux.

use crate::pack::Packing;

/// Timeouts of a connection; owned by `Timers`, told by the timers and by loss recovery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tally {
    /// Timeouts in all.
    timeouts: u16,
    /// Times that one happened after progress: recoveries begun.
    recoveries: u16,
    /// Milliseconds that ended recoveries took.
    spent_ms: u32,
    /// Start of the current recovery; 0 = there is none.
    began_ms: u32,
}

impl Tally {
    /// No timeouts yet.
    pub const NONE: Tally = Tally {
        timeouts: 0,
        recoveries: 0,
        spent_ms: 0,
        began_ms: 0,
    };

    pub fn pack(&mut self, p: &mut impl Packing) {
        let Tally {
            timeouts,
            recoveries,
            spent_ms,
            began_ms,
        } = self;
        p.u16(timeouts, 0);
        p.u16(recoveries, 0);
        p.u32(spent_ms, 0);
        p.u32(began_ms, 0);
    }

    /// A timeout; `first` = something was acknowledged since the last one.
    pub fn note(&mut self, first: bool, now_ms: u32) {
        if first {
            self.recoveries = self.recoveries.saturating_add(1);
            self.began_ms = now_ms.max(1);
        }
        self.timeouts = self.timeouts.saturating_add(1);
    }

    /// The losses have been repaired.
    pub fn end(&mut self, now_ms: u32) {
        self.spent_ms = self.spent_ms(now_ms);
        self.began_ms = 0;
    }

    /// Timeouts of a handshake that a half-open entry went through, over `spent_ms`.
    pub fn of_handshake(timeouts: u8, spent_ms: u32) -> Tally {
        match timeouts {
            0 => Tally::NONE,
            _ => Tally {
                timeouts: u16::from(timeouts),
                recoveries: 1,
                spent_ms,
                began_ms: 0,
            },
        }
    }

    /// Timeouts in all.
    pub fn timeouts(&self) -> u16 {
        self.timeouts
    }

    /// Times that one happened after progress: recoveries begun.
    pub fn recoveries(&self) -> u16 {
        self.recoveries
    }

    /// Milliseconds spent in recovery from timeouts.
    pub fn spent_ms(&self, now_ms: u32) -> u32 {
        match self.began_ms {
            0 => self.spent_ms,
            began_ms => {
                let spent_ms = now_ms.wrapping_sub(began_ms);
                let sane = spent_ms <= i32::MAX as u32;
                self.spent_ms.wrapping_add(if sane { spent_ms } else { 0 })
            }
        }
    }
}
