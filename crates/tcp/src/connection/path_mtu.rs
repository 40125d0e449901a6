//! The path MTU that routers report, and the segment sizes that follow from it.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::SEND_MSS_MIN;

mod probing;

impl Connection {
    /// The connection has just begun, with the MSS that a router named to another one to the same
    /// host: `mss`, until `until_ns`. Our link takes `link_mss`, and that is tried when the word is
    /// old.
    pub fn know_path(&mut self, link_mss: u16, mss: u16, until_ns: u64) {
        self.path.widen_link(link_mss);
        self.path.take_word(
            mss.max(SEND_MSS_MIN),
            until_ns,
            &mut self.marks,
            &mut self.snd,
            &mut self.tx,
        );
    }

    /// Our link takes segments of at most `link_mss` from now on. Segments in flight that are too
    /// long are cut anew and sent again. A larger MSS counts for connections to come.
    pub fn on_link_mss(&mut self, cx: &mut Cx<'_>, link_mss: u16) -> Effects {
        let effects = self.on_mtu(cx, link_mss, true);
        self.path
            .bound_path(link_mss, self.marks, &mut self.snd, &mut self.tx);
        effects
    }
}
