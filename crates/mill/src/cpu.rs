//! CPU time of a process, which shows the cost of a transaction even on a machine with other load.
//!
//! Interrupts and softirqs count for the interrupted process. On the kernel's loopback that is the
//! sender of the packet.

use std::fs;

/// CPU time of this process in ns, including threads that have ended.
pub fn own_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of this thread in ns.
pub fn own_thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of all living threads of a process in ns. `None` if the kernel does not say, so that a
/// process that is gone does not seem to cost 0.
pub fn time_ns(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let paths = threads
        .flatten()
        .map(|thread| thread.path().join("schedstat"));
    // A thread may end meanwhile.
    let spent: Vec<u64> = paths
        .filter_map(|path| run_ns(&fs::read_to_string(path).ok()?))
        .collect();
    (!spent.is_empty()).then(|| spent.iter().sum())
}

/// The first field of `schedstat`: time on a CPU.
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
