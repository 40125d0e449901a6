//! Number of timeouts and duration of the recoveries from them, for `TCP_INFO`, counted as in
//! Linux.

use crate::pack::Packing;

/// Timeouts of a connection. Owned by `Timers`; the timers and loss recovery report to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeoutTally {
    /// Timeouts in all.
    timeouts: u16,
    /// Timeouts that came after progress, each of which began a recovery.
    recoveries: u16,
    /// Milliseconds that completed recoveries took.
    spent_ms: u32,
    /// Start of the current recovery in milliseconds that wrap; 0: there is none.
    began_ms: u32,
}

impl TimeoutTally {
    /// No timeouts yet.
    pub const NONE: TimeoutTally = TimeoutTally {
        timeouts: 0,
        recoveries: 0,
        spent_ms: 0,
        began_ms: 0,
    };

    pub fn pack(&mut self, p: &mut impl Packing) {
        let TimeoutTally {
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

    /// Notes a timeout; `first`: new data was acknowledged since the previous one.
    pub fn note(&mut self, first: bool, now_ms: u32) {
        if first {
            self.recoveries = self.recoveries.saturating_add(1);
            self.began_ms = now_ms.max(1);
        }
        self.timeouts = self.timeouts.saturating_add(1);
    }

    /// Notes that the losses have been repaired.
    pub fn end(&mut self, now_ms: u32) {
        self.spent_ms = self.spent_ms(now_ms);
        self.began_ms = 0;
    }

    /// The tally of a half-open entry's timeouts, over `spent_ms`.
    pub fn of_handshake(timeouts: u8, spent_ms: u32) -> TimeoutTally {
        match timeouts {
            0 => TimeoutTally::NONE,
            _ => TimeoutTally {
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

    /// Timeouts that came after progress, each of which began a recovery.
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
