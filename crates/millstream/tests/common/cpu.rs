//! Wake-ups and CPU time of this process while it should be idle.
//!
//! A stack that ticks is found by counting wake-ups, of which it has hundreds on any machine. A
//! stack that never sleeps has no wake-ups and is found by its CPU time.

#![allow(dead_code)] // each test file uses its part

use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads of this process.
pub fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time for the last timers of a conversation to expire.
pub const SETTLE: Duration = Duration::from_millis(400);
/// Length of an observation.
pub const LOOK: Duration = Duration::from_secs(2);
/// CPU time that a sleeping process may use during an observation. A process that never sleeps uses
/// many times as much, even beside others that want the core.
const IDLE_MAX: Duration = Duration::from_millis(200);
/// Wake-ups during an observation. A watchdog that ticks every 5 ms has 400.
const WAKE_UPS_MAX: u64 = 20;

/// Number of voluntary context switches of the living threads of this process.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    // A thread may end meanwhile.
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

/// After [`SETTLE`], observes the process while `idle` does nothing for [`LOOK`].
pub fn expect_idle(label: &str, idle: impl FnOnce()) {
    thread::sleep(SETTLE);
    let before = (used(), sleeps());
    idle();
    let (spent, wake_ups) = (used() - before.0, sleeps().saturating_sub(before.1));
    let seen = format!("{label}: {wake_ups} wake-ups, {spent:.2?} of CPU in {LOOK:?}");
    println!("  {seen}");
    assert!(wake_ups <= WAKE_UPS_MAX && spent <= IDLE_MAX, "{seen}");
}
