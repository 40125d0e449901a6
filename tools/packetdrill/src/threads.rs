//! Whether a thread of packetdrill's sleeps, as packetdrill itself finds out: by the state in
//! `/proc`.

use std::time::{Duration, Instant};

use rustix::thread::{Pid, sched_yield};

/// Waits until `thread` sleeps, which it does when it has dealt with an answer, or until it waits
/// for somebody else; not for ever.
pub fn wait_until_asleep(thread: Pid) {
    let give_up = Instant::now() + GIVE_UP;
    while !is_asleep(thread) && Instant::now() < give_up {
        sched_yield();
    }
}

fn is_asleep(thread: Pid) -> bool {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let Ok(stat) = std::fs::read_to_string(path) else {
        return true;
    };
    // The name in parentheses may hold anything; the state follows it.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state != Some('R')
}

/// A thread that is still busy after this time is left to itself.
const GIVE_UP: Duration = Duration::from_millis(500);
