//! CPUs of contexts: the list that the user gave, the check that this process may use them, and
//! work that is done on one of them.
//!
//! Linux places a page on the memory node of the CPU that touches it first. A context that names
//! its CPU is therefore made on that CPU, and its threads stay there. On a machine with one node
//! that changes nothing.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Error;

/// The CPUs in a list such as `0-3,8`, in the list's order. Linux writes CPU lists in the same
/// form.
///
/// # Errors
/// A part that is neither a number nor a range.
///
/// ```
/// assert_eq!(millstream::cpu_list("2,4-5"), Ok(vec![2, 4, 5]));
/// let error = millstream::cpu_list("2,x").unwrap_err();
/// assert_eq!(error, "\"x\": expected CPUs such as 2,3 or 0-3");
/// ```
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < CpuSet::MAX_CPU => {
                cpus.extend(first..=last);
            }
            _ => return Err(format!("\"{part}\": expected CPUs such as 2,3 or 0-3")),
        }
    }
    Ok(cpus)
}

/// Checks that either each context has a CPU or none has, and that this process may use each CPU.
pub(crate) fn check(cores: &[usize], contexts: usize) -> Result<(), Error> {
    if cores.is_empty() {
        return Ok(());
    }
    if cores.len() != contexts {
        return Err(Error::Cores(cores.len(), contexts));
    }
    cores.iter().try_for_each(|&cpu| on_cpu(Some(cpu), || ()))
}

/// Binds this thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Result<(), Error> {
    let refused = |why: String| Error::Cpu { cpu, why };
    let online = online();
    if !online.contains(&cpu) {
        let online = as_list(&online);
        return Err(refused(format!(
            "there is no such CPU: {online} are online"
        )));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| match errno {
        Errno::INVAL => refused("its cpuset keeps this process from it".to_owned()),
        errno => refused(errno.to_string()),
    })
}

/// Runs `work` on a CPU, if one is named, and restores the thread's CPUs. Threads that `work`
/// starts inherit the CPU.
pub(crate) fn on_cpu<R>(cpu: Option<usize>, work: impl FnOnce() -> R) -> Result<R, Error> {
    let Some(cpu) = cpu else {
        return Ok(work());
    };
    let _back = Back(sched_getaffinity(None).ok());
    bind(cpu)?;
    Ok(work())
}

/// The CPUs that a thread was allowed to use before; restored on drop.
struct Back(Option<CpuSet>);

impl Drop for Back {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // An error is ignored: the thread's cpuset has changed, and the kernel has moved the
            // thread.
            let _ = sched_setaffinity(None, set);
        }
    }
}

/// The CPUs that are online; at least one.
pub(crate) fn online() -> Vec<usize> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let listed = listed.ok().and_then(|text| cpu_list(&text).ok());
    listed.unwrap_or_else(|| {
        let count = std::thread::available_parallelism();
        (0..count.map_or(1, usize::from)).collect()
    })
}

/// Ascending numbers as a list with ranges.
fn as_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|before, cpu| before + 1 == *cpu);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run.iter().map(usize::to_string).collect(),
        })
        .collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_reads_and_prints() {
        for (text, cpus) in [
            ("0", vec![0]),
            ("0-3,8\n", vec![0, 1, 2, 3, 8]),
            ("2, 4-5", vec![2, 4, 5]),
            ("3,2", vec![3, 2]),
        ] {
            assert_eq!(cpu_list(text), Ok(cpus), "{text}");
        }
        for text in ["", "all", "3-2", "1,", "-1", "99999999", "0-99999999"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
        assert_eq!(as_list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }

    #[test]
    fn thread_is_where_it_was_after_work_on_a_cpu() {
        let allowed = || sched_getaffinity(None).unwrap();
        let before = allowed();
        let cpu = online()[0];
        let there = on_cpu(Some(cpu), allowed).unwrap();
        assert_eq!((there.count(), there.is_set(cpu)), (1, true));
        assert_eq!(allowed(), before);
    }
}
