//! The peer's window as it is learnt, and the application's limit for our window.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::segment::Segment;

impl Connection {
    /// TCP_WINDOW_CLAMP: limits the advertised window. As in Linux the clamp then follows the
    /// growth of the receive buffer.
    pub fn set_window_clamp(&mut self, bytes: u32) {
        if bytes != 0 {
            self.rx.clamp_window(bytes);
        }
    }

    /// Takes the window of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step).
    #[inline]
    pub(crate) fn learn_window(&mut self, seg: &Segment) {
        if let Some(window) = self.snd.learn_window(seg) {
            self.set_send_window(window);
        }
    }

    /// Sets SND.WND; a window that opens ends probing.
    pub(crate) fn set_send_window(&mut self, window: u32) {
        let opened = self.snd.wnd() < window;
        if self.snd.set_window(window) {
            self.path
                .refresh_mss(self.conn_flags, &mut self.snd, &mut self.tx);
        }
        if opened && self.conn_flags.has(ConnFlags::PERSIST) && self.snd.usable() > 0 {
            self.timers.end_persist(&mut self.conn_flags);
        }
    }
}
