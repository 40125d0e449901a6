//! A connection whose algorithm models the path: window, pacing rate and marks follow the model.

use crate::congestion::BbrInfo;
use crate::connection::Connection;

impl Connection {
    /// BBR's view of the path; `None` when BBR is not in use.
    #[must_use]
    pub fn bbr_info(&self) -> Option<BbrInfo> {
        self.flight.congestion().bbr_info(u32::from(self.snd.mss()))
    }
}
