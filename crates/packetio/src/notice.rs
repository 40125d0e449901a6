//! Notices that drivers have for people: the other end of a wire is not there, or is there at last.
//!
//! A library prints nothing. The program hands in a function that does, once ([`on_notice`]);
//! without one nothing is told. Called by drivers off the data path.

use std::sync::OnceLock;

static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Has notices told by `tell`, one line each, on whichever thread turns the stack. The first
/// function stays: `false` for any other.
///
/// ```
/// packetio::notice::on_notice(|line| eprintln!("{line}"));
/// ```
pub fn on_notice(tell: fn(&str)) -> bool {
    TELL.set(tell).is_ok()
}

pub(crate) fn tell(line: impl FnOnce() -> String) {
    if let Some(tell) = TELL.get() {
        tell(&line());
    }
}
