//! Captures of a port's frames, switched on and off between turns.
//!
//! While a capture runs, a logging port covers the real one. Logged frames are processed one by
//! one, so that each drop has a reason. Afterwards the stack is as before and pays nothing for
//! captures.

use packetio::capture_port::CapturePort;
use packetio::frame_filter::FrameFilter;
use ring::frame_log::FrameLog;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::Stack;
use crate::drop_reasons;
use crate::limits::CAPTURE_WORDS;
use crate::unsent_notes::UnsentNotes;

impl Stack {
    /// Logs frames of port number `port` until `until_ns`, and returns the log. `snap` bytes are
    /// kept of each frame that `filter` selects; without a filter, of each frame. A running capture
    /// goes on until then and also keeps what its earlier readers asked for. Call it between turns.
    ///
    /// # Errors
    /// `NODEV`: there is no such port. Otherwise the kernel's error: no memory or descriptor for
    /// the log.
    pub fn capture(
        &mut self,
        port: usize,
        snap: usize,
        filter: Option<FrameFilter>,
        until_ns: u64,
    ) -> Result<OwnedFd, Errno> {
        let now_ns = self.core.engine().now_ns();
        let side = self.ports.side_mut(port).ok_or(Errno::NODEV)?;
        if CapturePort::of(&mut *side.port).is_none() {
            side.cover(FrameLog::create(
                CAPTURE_WORDS,
                snap,
                &drop_reasons::log_names(),
            )?);
        }
        let cover = CapturePort::of(&mut *side.port).ok_or(Errno::NODEV)?;
        cover.want(snap, filter, now_ns, until_ns);
        let file = cover.file();
        self.core
            .engine_mut()
            .parts()
            .unsent
            .get_or_insert_with(UnsentNotes::new);
        self.capture_until_ns = self.capture_until_ns.max(Some(until_ns));
        file
    }

    /// Ends the captures of all ports when their time is over, and uncovers the ports.
    pub fn end_old_capture(&mut self, now_ns: u64) {
        if self
            .capture_until_ns
            .is_some_and(|until_ns| until_ns <= now_ns)
        {
            self.ports.uncover_all();
            *self.core.engine_mut().parts().unsent = None;
            self.capture_until_ns = None;
        }
    }
}
