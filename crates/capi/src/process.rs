//! The state of the process: the settings, and the runtime that the first context makes from them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream::Runtime;
use posix::Errno;

use crate::config::{Conf, Settings};
use crate::limits::{CONCURRENCY_MAX, CONTEXTS_MAX};

struct Process {
    conf: Conf,
    settings: Option<Settings>,
    runtime: Option<Arc<Runtime>>,
}

static PROCESS: Mutex<Process> = Mutex::new(Process {
    conf: Conf::new(),
    settings: None,
    runtime: None,
});

fn process() -> MutexGuard<'static, Process> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    if process.conf.num_cores == 0 {
        process.conf.num_cores = cpus_online().min(CONTEXTS_MAX) as i32;
    }
    process
}

/// CPUs that are online.
pub fn cpus_online() -> usize {
    cpus().len()
}

/// The numbers of the CPUs that are online; at least one.
pub fn cpus() -> Vec<usize> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let listed = listed
        .ok()
        .and_then(|text| millstream::cpu_list(&text).ok());
    listed.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| {
        let count = std::thread::available_parallelism();
        (0..count.map_or(1, usize::from)).collect()
    })
}

/// The present settings.
pub fn conf() -> Conf {
    process().conf
}

/// True if the configuration has `stat_print`.
pub fn prints_statistics() -> bool {
    let process = process();
    let settings = process.settings.as_ref();
    settings.is_some_and(|settings| settings.prints_statistics)
}

/// Changes settings. Fields that are not positive stay unchanged, except the two times, where zero
/// has a meaning.
///
/// # Errors
/// `EINVAL` if a value is out of range; `EBUSY` once a context exists, unless nothing changes.
pub fn set_conf(asked: Conf) -> Result<(), Errno> {
    let mut process = process();
    let or = |asked: i32, is: i32| if asked > 0 { asked } else { is };
    let is = process.conf;
    let conf = Conf {
        num_cores: or(asked.num_cores, is.num_cores),
        max_concurrency: or(asked.max_concurrency, is.max_concurrency),
        max_num_buffers: or(asked.max_num_buffers, is.max_num_buffers),
        rcvbuf_size: or(asked.rcvbuf_size, is.rcvbuf_size),
        sndbuf_size: or(asked.sndbuf_size, is.sndbuf_size),
        tcp_timewait: asked.tcp_timewait.max(0),
        tcp_timeout: asked.tcp_timeout,
    };
    if conf.num_cores as usize > CONTEXTS_MAX || conf.max_concurrency > CONCURRENCY_MAX {
        return Err(Errno::INVAL);
    }
    if process.runtime.is_some() && conf != is {
        return Err(Errno::BUSY);
    }
    process.conf = conf;
    Ok(())
}

/// Reads the configuration: `file`, otherwise the file in `MILLSTREAM_CONFIG`, otherwise none.
///
/// # Errors
/// `EINVAL` after a line on standard error; `EALREADY` once a context was made from an earlier
/// configuration.
pub fn init(file: Option<&Path>) -> Result<(), Errno> {
    let mut process = process();
    if process.runtime.is_some() {
        eprintln!("mtcp: mtcp_init: contexts were made already, and mtcp_destroy comes first");
        return Err(Errno::ALREADY);
    }
    // Repeated calls are harmless: the first function stays.
    millstream::on_notice(|line| eprintln!("mtcp: {line}"));
    let file = match file {
        Some(file) => Some(file.to_owned()),
        None => std::env::var_os("MILLSTREAM_CONFIG").map(PathBuf::from),
    };
    let read = match &file {
        Some(file) => Settings::read(file),
        None => Ok(Settings::default()),
    };
    let checked = read.and_then(|settings| {
        let conf = settings.conf(process.conf);
        settings.with_environment()?.complete().map(|s| (s, conf))
    });
    match checked {
        Ok((settings, conf)) => {
            if let Some(warning) = settings.warning() {
                eprintln!("mtcp: {warning}");
            }
            process.conf = conf;
            process.settings = Some(settings);
            Ok(())
        }
        Err(problem) => {
            eprintln!("mtcp: {problem}");
            Err(Errno::INVAL)
        }
    }
}

/// Forgets the configuration and the settings. Existing contexts continue.
pub fn destroy() {
    let mut process = process();
    process.settings = None;
    process.runtime = None;
    process.conf = Conf::new();
}

/// Lets a child of `fork` make contexts of its own.
pub fn leave_to_parent() {
    // A lock that another thread of the parent held stays locked, since that thread does not exist
    // in the child.
    if let Ok(mut process) = PROCESS.try_lock() {
        process.runtime = None;
    }
}

/// The number of context `index` and its runtime, which the first call makes.
///
/// # Errors
/// `EINVAL` without `mtcp_init` or beyond `num_cores`; the errno of a wire that does not open.
pub fn runtime_of(index: i32) -> Result<(usize, Arc<Runtime>), Errno> {
    let mut process = process();
    let Some(settings) = &process.settings else {
        eprintln!("mtcp: mtcp_create_context: mtcp_init comes first");
        return Err(Errno::INVAL);
    };
    let index = usize::try_from(index).map_err(|_| Errno::INVAL)?;
    if index >= process.conf.num_cores as usize {
        eprintln!(
            "mtcp: context {index}: num_cores is {}",
            process.conf.num_cores
        );
        return Err(Errno::INVAL);
    }
    let runtime = match &process.runtime {
        Some(runtime) => runtime.clone(),
        None => {
            let config = settings.config(&process.conf).map_err(|problem| {
                eprintln!("mtcp: {problem}");
                Errno::INVAL
            })?;
            Arc::new(Runtime::lazy(config).map_err(|error| complain("wire", &error))?)
        }
    };
    process.runtime = Some(runtime.clone());
    Ok((index, runtime))
}

/// Prints an error and its remedy on standard error; returns the errno.
pub fn complain(what: impl std::fmt::Display, error: &millstream::Error) -> Errno {
    eprintln!("mtcp: {what}: {error}");
    if let Some(remedy) = error.remedy() {
        eprintln!("mtcp: {remedy}");
    }
    errno(error)
}

/// The errno for a context that cannot be made.
pub fn errno(error: &millstream::Error) -> Errno {
    match error {
        millstream::Error::Context(..) => Errno::EXIST,
        millstream::Error::System { source, .. } => source
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error),
        millstream::Error::Wire(_) => Errno::NODEV,
        error if error.lacks_memory() => Errno::NOMEM,
        _ => Errno::INVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errno of the first context of a runtime on this wire that requires reserved huge pages.
    fn refusal(wire: &str) -> Option<Errno> {
        let mut config = millstream::Config::new(wire.parse().expect("a wire"));
        config.addresses.push("10.0.0.1/24".parse().expect("ours"));
        config.hugetlb = millstream::HugePages::Require;
        let opened = Runtime::lazy(config).and_then(|runtime| runtime.open(0));
        opened.err().map(|error| errno(&error))
    }

    #[test]
    fn refusal_for_want_of_huge_pages_is_enomem_and_of_an_interface_enodev() {
        let free =
            std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        if free.is_ok_and(|free| free.trim() != "0") {
            eprintln!("skipped: somebody has reserved huge pages");
            return;
        }
        assert_eq!(refusal("loopback:"), Some(Errno::NOMEM));
        assert_eq!(refusal("packet:no-such-nic"), Some(Errno::NODEV));
    }
}
