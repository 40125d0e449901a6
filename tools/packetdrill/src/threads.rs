//! Waiting until a thread of packetdrill sleeps. Like packetdrill, it reads the state in `/proc`.

use std::time::{Duration, Instant};

use rustix::thread::{Pid, sched_yield};

/// Waits until `thread` sleeps: it has then handled an answer, or waits for another thread. Gives
/// up after a while.
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
    // The name in parentheses may contain anything. The state follows it.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state != Some('R')
}

/// Longest wait for a thread to fall asleep. A thread that is still busy then is not waited for.
const GIVE_UP: Duration = Duration::from_millis(500);
