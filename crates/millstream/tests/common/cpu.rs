//! How much CPU time this process uses while it should use none.

#![allow(dead_code)] // each test file uses its part

use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads of this process.
pub fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets the last timers of a conversation run out.
pub const SETTLE: Duration = Duration::from_millis(400);
/// How long to look.
pub const LOOK: Duration = Duration::from_secs(2);
/// What a process that does nothing may use in that time.
pub const IDLE_MAX: Duration = Duration::from_millis(5);

/// After a while, looks while `idle` does nothing for [`LOOK`].
pub fn expect_idle(label: &str, idle: impl FnOnce()) {
    thread::sleep(SETTLE);
    let before = used();
    idle();
    let spent = used() - before;
    println!("  {label}: {spent:.2?} of CPU in {LOOK:?}");
    assert!(spent <= IDLE_MAX, "{label}: {spent:?} of CPU in {LOOK:?}");
}
