//! Notices of drivers for people: the other end of a wire is missing, or has appeared.
//!
//! A library prints nothing itself. The program sets a function once ([`on_notice`]); without one,
//! notices are discarded. Drivers call it off the data path.

use std::sync::OnceLock;

static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that reports notices, one line each, on the thread that turns the stack. The
/// first function stays; false for any further one.
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
