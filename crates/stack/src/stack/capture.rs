//! A capture of what passes the first port, switched on and off between turns.
//!
//! While a capture runs the port is covered by one that logs, and frames are taken one by one so
//! that drops have a reason. Afterwards the stack is as before: it does not know of captures.

use packetio::capture_port::CapturePort;
use ring::frame_log::FrameLog;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::Stack;
use crate::drop_reasons;
use crate::limits::CAPTURE_WORDS;

impl Stack {
    /// Logs what passes the port until `until_ns`, and hands over the log. `snap` bytes are kept of
    /// each frame. A capture that runs goes on until then and keeps what its readers asked for.
    /// Called between turns.
    ///
    /// # Errors
    /// The kernel's error: no memory for the log, or no descriptor.
    pub fn capture(&mut self, snap: usize, until_ns: u64) -> Result<OwnedFd, Errno> {
        if CapturePort::of(self.ports.first_mut()).is_none() {
            let log = FrameLog::create(CAPTURE_WORDS, snap, drop_reasons::NAMES)?;
            self.ports.cover_first(log);
        }
        self.capture_until_ns = self.capture_until_ns.max(Some(until_ns));
        let cover = CapturePort::of(self.ports.first_mut()).ok_or(Errno::NODEV)?;
        cover.raise_snap(snap);
        cover.file()
    }

    /// Ends a capture whose time is over. The port is then as it was.
    pub fn end_old_capture(&mut self, now_ns: u64) {
        if self
            .capture_until_ns
            .is_some_and(|until_ns| until_ns <= now_ns)
        {
            self.ports.uncover_first();
            self.capture_until_ns = None;
        }
    }
}
