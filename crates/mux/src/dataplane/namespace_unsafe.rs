//! The private network namespace of the service, and the file system for its pins.
//!
//! Owns the mounts below the service's directory, and the thread in the namespace. Both ends of
//! each virtual port lie in the namespace, so the host's `ip link` does not show them. Called by
//! `mod`, and by `mill mux stop` for what a service left.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::{DataplaneError, lock};
use crate::capabilities::drop_those_of_the_start;

/// Pause between two attempts to lock a run directory.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Work for the thread in the namespace.
type Job = Box<dyn FnOnce() + Send>;

/// A network namespace that a mount keeps alive, and a thread that lives in it.
///
/// The thread entered while the process had `CAP_SYS_ADMIN`, so nothing that runs on it needs the
/// capability.
#[derive(Debug)]
pub(super) struct Namespace {
    path: PathBuf,
    /// `None` only while the namespace is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// The namespace mounted at `path`, or a new one. True: it existed.
    pub fn open(path: &Path) -> Result<(Self, bool), DataplaneError> {
        let failed = |step: &'static str| {
            let path = path.display().to_string();
            move |errno: Errno| DataplaneError::io(format!("{step} {path}"), errno)
        };
        let file = mounted(path);
        let is_known = file.is_some();
        if !is_known {
            File::create(path).map_err(|error| failed("create")(errno_of(&error)))?;
        }
        let (jobs, work) = channel::<Job>();
        let (tell_entered, entered) = sync_channel(1);
        let target = path.to_owned();
        let live = move || {
            let outcome = enter(file, &target).and_then(|()| drop_those_of_the_start());
            let is_there = outcome.is_ok();
            // The caller waits for it.
            let _ = tell_entered.send(outcome);
            if is_there {
                work.into_iter().for_each(|job| job());
            }
        };
        let thread = Builder::new().name("mux-namespace".to_owned()).spawn(live);
        let thread = thread.map_err(|error| failed("thread for")(errno_of(&error)))?;
        let outcome = entered.recv().unwrap_or(Err(Errno::SRCH));
        outcome.map_err(failed("namespace at"))?;
        let namespace = Self {
            path: path.to_owned(),
            jobs: Some(jobs),
            thread: Some(thread),
        };
        Ok((namespace, is_known))
    }

    /// Runs `work` on the thread in the namespace.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, DataplaneError> + Send,
    ) -> Result<T, DataplaneError> {
        let (tell, told) = sync_channel(1);
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
            // The caller waits for it.
            let _ = tell.send(catch_unwind(AssertUnwindSafe(work)));
        });
        // SAFETY: `job` borrows from the caller, which waits below until `tell` was used or
        // dropped. `work` is gone by then: the call consumed it, or it was dropped with the job.
        let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        if let Some(jobs) = &self.jobs {
            // If the thread were gone, the error would drop the job.
            let _ = jobs.send(job);
        }
        match told.recv() {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(DataplaneError::io("thread in the namespace", Errno::SRCH)),
        }
    }

    /// Removes the mount, which takes `CAP_SYS_ADMIN`. The namespace ends with this value.
    pub fn remove(&self) {
        // After a failure the next service or `mill mux stop` takes over the file.
        remove_mounted(&self.path);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A job that panics does not end the thread.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into the namespace of `file`, or into a new one that is then mounted at
/// `target`.
fn enter(file: Option<OwnedFd>, target: &Path) -> Result<(), Errno> {
    if let Some(file) = file {
        return move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
    }
    // SAFETY: the calling thread shares nothing that depends on its network namespace.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    // Virtual ports carry only applications' frames, so the kernel must not send IPv6 router or
    // multicast messages there. A kernel without IPv6 has no such file.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    mount_bind("/proc/thread-self/ns/net", target)
}

/// The namespace file at `path`; `None` if no namespace is mounted there.
fn mounted(path: &Path) -> Option<OwnedFd> {
    const NSFS_MAGIC: i64 = 0x6e73_6673;
    let file = File::open(path).ok()?;
    let system = rustix::fs::fstatfs(&file).ok()?;
    (system.f_type as i64 == NSFS_MAGIC).then(|| file.into())
}

/// Mounts a file system of type `bpf` at `path`, unless one is mounted.
pub(super) fn bpf_file_system(path: &Path) -> Result<(), DataplaneError> {
    const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
    let failed = |step: &'static str| {
        let path = path.display().to_string();
        move |errno: Errno| DataplaneError::io(format!("{step} {path}"), errno)
    };
    fs::create_dir_all(path).map_err(|error| failed("create")(errno_of(&error)))?;
    let system = rustix::fs::statfs(path).map_err(failed("statfs"))?;
    if system.f_type as i64 == BPF_FS_MAGIC {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", path, "bpf", flags, Some(c"mode=0700")).map_err(failed("mount of bpf at"))
}

/// Removes everything pinned in the BPF file system, and then the file system, which takes
/// `CAP_SYS_ADMIN`.
pub(super) fn remove_bpf_file_system(path: &Path) {
    for pin in fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = fs::remove_file(pin.path());
    }
    let _ = unmount(path, UnmountFlags::DETACH);
    let _ = fs::remove_dir(path);
}

/// Unmounts the namespace at `path`. The namespace ends with its last thread and descriptor.
fn remove_mounted(path: &Path) {
    let _ = unmount(path, UnmountFlags::DETACH);
    let _ = fs::remove_file(path);
}

/// Removes the mounts that a service without `CAP_SYS_ADMIN` left in its run directory when it
/// ended, and the directory. Waits for the service's end.
///
/// # Errors
/// The service runs on after `patience`, or the caller may not unmount.
pub fn remove_mounts(run_dir: &Path, patience: Duration) -> Result<(), DataplaneError> {
    let end = Instant::now() + patience;
    let lock = loop {
        if !run_dir.exists() {
            return Ok(());
        }
        match lock(run_dir) {
            Ok(lock) => break lock,
            // The service removes the directory by itself where it has the capability.
            Err(_) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error),
        }
    };
    remove_bpf_file_system(&run_dir.join("bpf"));
    remove_mounted(&run_dir.join("netns"));
    let _ = fs::remove_file(run_dir.join("lock"));
    drop(lock);
    match fs::remove_dir(run_dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let step = format!("unmount below {}", run_dir.display());
            Err(DataplaneError::io(step, errno_of(&error)))
        }
        _ => Ok(()),
    }
}

/// The errno of an error of `std`.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
