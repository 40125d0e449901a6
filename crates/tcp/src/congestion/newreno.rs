//! NewReno's window (RFC 5681 and 6582; named "reno", as in Linux): slow start, then one segment
//! per window; half of the window on loss.

use super::{AckSample, Moment, Window, WindowControl};

/// The algorithm NewReno, which keeps no state beside the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewReno;

impl WindowControl for NewReno {
    /// Half of the window, as in Linux; RFC 5681 (4) says half of the flight. Window validation
    /// keeps the two close.
    fn ssthresh(&mut self, _at: &Moment<'_>, window: &Window) -> u32 {
        (window.cwnd / 2).max(2)
    }

    fn grow(&mut self, _at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 {
            window.grow_linearly(window.cwnd, acked);
        }
    }
}
