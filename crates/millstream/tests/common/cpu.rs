//! How often this process wakes, and how much CPU time it uses, while it should do neither.
//!
//! Wake-ups are counted: a stack that ticks wakes hundreds of times, however busy the machine is.
//! CPU time tells of a stack that never sleeps, which has no wake-ups.

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
/// CPU time that a process that sleeps may use in that time. One that never sleeps uses many times
/// as much, also beside others that want the core.
const IDLE_MAX: Duration = Duration::from_millis(200);
/// Wake-ups in that time. A watchdog that ticks every 5 ms has 400.
const WAKE_UPS_MAX: u64 = 20;

/// How often the living threads of this process have gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    // A thread may end while we look.
    let paths = tasks.flatten().map(|task| task.path().join("status"));
    let counts = paths.filter_map(|path| {
        let status = std::fs::read_to_string(path).ok()?;
        status.lines().find_map(|line| {
            let count = line.strip_prefix("voluntary_ctxt_switches:")?;
            count.trim().parse::<u64>().ok()
        })
    });
    counts.sum()
}

/// After a while, looks while `idle` does nothing for [`LOOK`].
pub fn expect_idle(label: &str, idle: impl FnOnce()) {
    thread::sleep(SETTLE);
    let before = (used(), sleeps());
    idle();
    let (spent, wake_ups) = (used() - before.0, sleeps().saturating_sub(before.1));
    let seen = format!("{label}: {wake_ups} wake-ups, {spent:.2?} of CPU in {LOOK:?}");
    println!("  {seen}");
    assert!(wake_ups <= WAKE_UPS_MAX && spent <= IDLE_MAX, "{seen}");
}
