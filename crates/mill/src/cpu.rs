//! CPU time of a process, which tells what a transaction costs also on a machine that others use at
//! the same time.
//!
//! Interrupts and softirqs count for whoever they interrupt: for the kernel's loopback, that is the
//! sender of the packet.

use std::fs;

/// Nanoseconds that this process has run so far, with the threads that have ended.
pub fn own_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds that this thread has run so far.
pub fn own_thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds that all living threads of a process have run so far; none if the kernel does not
/// say: a process that is gone costs something, and not 0.
pub fn time_ns(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let paths = threads
        .flatten()
        .map(|thread| thread.path().join("schedstat"));
    // A thread may end while we look.
    let spent: Vec<u64> = paths
        .filter_map(|path| run_ns(&fs::read_to_string(path).ok()?))
        .collect();
    (!spent.is_empty()).then(|| spent.iter().sum())
}

/// The first field: time on a CPU.
fn run_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_this_process_moves_on() {
        let threads_ns = || time_ns(std::process::id()).unwrap();
        let (before, own_before) = (threads_ns(), own_time_ns());
        let mut sum = 0u64;
        while threads_ns() < before + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_time_ns() > own_before);
        assert_eq!(time_ns(u32::MAX), None);
    }
}
