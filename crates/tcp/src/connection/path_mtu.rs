//! The path MTU that routers report, and the segment sizes that follow from it.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::{SEND_MSS_MIN, coarse};
use crate::marks::Marks;

mod probing;

impl Connection {
    /// A router's word: `mss` and no more, until it is old.
    pub(crate) fn narrow_path(&mut self, cx: &Cx<'_>, mss: u16) {
        let mss = mss.max(SEND_MSS_MIN);
        // Never up: no message says that more fits than was thought (RFC 1191 3, RFC 8201 4).
        if mss >= self.tx.path_mss {
            return;
        }
        let until_ns = cx.now_ns.saturating_add(cx.config.path_mtu.age_ns_max);
        self.take_word(mss, until_ns);
    }

    /// The connection has just begun, with the MSS that a router named to another one to the same
    /// host: `mss`, until `until_ns`. Our link takes `link_mss`, and that is tried when the word is
    /// old.
    pub fn know_path(&mut self, link_mss: u16, mss: u16, until_ns: u64) {
        self.path.mss_max = self.path.mss_max.max(link_mss);
        self.take_word(mss.max(SEND_MSS_MIN), until_ns);
    }

    /// Our link takes segments of at most `link_mss` from now on. Segments in flight that are too
    /// long are cut anew and sent again. A larger MSS counts for connections to come.
    pub fn on_link_mss(&mut self, cx: &mut Cx<'_>, link_mss: u16) -> Effects {
        let effects = self.on_mtu(cx, link_mss, true);
        self.bound_path(link_mss);
        effects
    }

    fn take_word(&mut self, mss: u16, until_ns: u64) {
        self.path.narrow_mss = mss;
        self.path.narrow_until = coarse(until_ns) + 1;
        self.path.high = self.path.high.min(mss);
        self.path.low = self.path.low.min(mss);
        self.marks.set(Marks::PATH_NARROWED);
        self.refresh_path();
    }

    /// Runs before output while the path is narrowed or probed: entries that have aged are
    /// reviewed.
    #[cold]
    pub(crate) fn review_path(&mut self, cx: &Cx<'_>) {
        let now = coarse(cx.now_ns);
        if self.marks.has(Marks::PATH_NARROWED) && now >= self.path.narrow_until {
            // RFC 1191 6.3: routes change; a router will say so again if this one has not.
            self.marks.clear(Marks::PATH_NARROWED);
            self.path.narrow_mss = self.path.mss_max;
            self.path.high = self.path.size_max(self.marks, self.tx.peer_mss);
            self.refresh_path();
        }
        if self.marks.has(Marks::PATH_PROBING) {
            self.review_search(cx);
        }
    }

    /// The application allows no more than `mss` (TCP_MAXSEG).
    pub(crate) fn bound_path(&mut self, mss: u16) {
        let mss = mss.max(SEND_MSS_MIN);
        self.path.mss_max = self.path.mss_max.min(mss);
        self.path.high = self.path.high.min(mss);
        self.path.low = self.path.low.min(mss);
        self.refresh_path();
    }

    /// Computes the segment size from the known path MTU.
    pub(crate) fn refresh_path(&mut self) {
        let mut mss = self.path.mss_max;
        if self.marks.has(Marks::PATH_NARROWED) {
            mss = mss.min(self.path.narrow_mss);
        }
        if self.marks.has(Marks::PATH_PROBING) {
            mss = mss.min(self.path.low);
        }
        self.tx.path_mss = mss.max(SEND_MSS_MIN);
        self.refresh_mss();
    }
}
