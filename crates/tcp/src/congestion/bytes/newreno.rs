//! Reno's window (RFC 5681): slow start by bytes, then one segment per window, half on loss.

use super::{CongestionControl, Window};
use crate::limits::CWND_MAX;

/// Bytes acknowledged towards the next segment of growth.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewReno {
    acked: u32,
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, window: Window<'_>, acked: u32) {
        let Window {
            cwnd,
            ssthresh,
            mss,
        } = window;
        let mut left = acked;
        if *cwnd < ssthresh {
            let step = left.min(ssthresh - *cwnd);
            *cwnd = cwnd.saturating_add(step).min(CWND_MAX);
            left -= step;
        }
        if left == 0 {
            return;
        }
        self.acked = self.acked.saturating_add(left);
        if self.acked >= *cwnd {
            self.acked -= *cwnd;
            *cwnd = cwnd.saturating_add(mss).min(CWND_MAX);
        }
    }

    fn ssthresh_after_loss(&mut self, flight: u32, mss: u32) -> u32 {
        (flight / 2).max(2 * mss)
    }

    fn on_reset(&mut self) {
        self.acked = 0;
    }
}
