//! The private network namespace of the service, and the file system for its pins.
//!
//! Owns the mounts below the service's directory. Both ends of each virtual port lie in the
//! namespace, so the host's `ip link` does not show them. Called by `mod`.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::DataplaneError;

/// A network namespace that a mount keeps alive.
#[derive(Debug)]
pub(super) struct Namespace {
    file: OwnedFd,
    path: PathBuf,
}

impl Namespace {
    /// The namespace mounted at `path`, or a new one. True: it existed.
    pub fn open(path: &Path) -> Result<(Self, bool), DataplaneError> {
        if let Some(file) = mounted(path) {
            let path = path.to_owned();
            return Ok((Self { file, path }, true));
        }
        let failed = |step: &'static str| {
            let path = path.display().to_string();
            move |errno: Errno| DataplaneError::io(format!("{step} {path}"), errno)
        };
        File::create(path).map_err(|error| failed("create")(errno_of(&error)))?;
        let target = path.to_owned();
        let made = on_thread(move || {
            // SAFETY: the thread ends with this closure and shares nothing that depends on its network namespace.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            // Virtual ports carry only applications' frames, so the kernel must not send IPv6
            // router or multicast messages there. A kernel without IPv6 has no such file.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            mount_bind("/proc/thread-self/ns/net", &target)
        });
        made.map_err(failed("namespace at"))?;
        let file = File::open(path).map_err(|error| failed("open")(errno_of(&error)))?;
        let path = path.to_owned();
        let file = file.into();
        Ok((Self { file, path }, false))
    }

    /// Runs `work` on a thread in the namespace.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, DataplaneError> + Send,
    ) -> Result<T, DataplaneError> {
        let file = self.file.as_fd();
        on_thread(move || {
            if let Err(errno) = move_into_link_name_space(file, Some(LinkNameSpaceType::Network)) {
                return Err(DataplaneError::io("setns", errno));
            }
            work()
        })
    }

    /// Removes the mount. The namespace ends with its last descriptor.
    pub fn remove(&self) {
        // After a failure the next service takes over the file.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = fs::remove_file(&self.path);
    }
}

/// Runs `work` on a new thread and waits for it.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
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

/// Removes the BPF file system and everything pinned in it.
pub(super) fn remove_bpf_file_system(path: &Path) {
    let _ = unmount(path, UnmountFlags::DETACH);
    let _ = fs::remove_dir(path);
}

/// The errno of an error of `std`.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
