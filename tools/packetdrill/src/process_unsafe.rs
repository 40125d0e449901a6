//! Operations on the whole process: its environment, its end, `errno`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};

/// Directories to be removed when the process ends by `exit`.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

/// Sets an environment variable, which the script's commands will see.
pub fn set_variable(name: &str, value: &OsStr) {
    // SAFETY: packetdrill's main thread calls us while its other thread waits for work, so no
    // thread reads the environment.
    unsafe { std::env::set_var(name, value) };
}

/// Removes `directory` when the process ends by `exit`. packetdrill ends so when a script fails.
pub fn remove_at_exit(directory: PathBuf) {
    AT_EXIT.call_once(|| {
        // SAFETY: `remove_left` is a function without arguments that does not unwind.
        unsafe { libc::atexit(remove_left) };
    });
    LEFT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(directory);
}

extern "C" fn remove_left() {
    if let Ok(mut left) = LEFT.try_lock() {
        for directory in left.drain(..) {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Sets `errno` for the caller.
pub fn set_errno(errno: posix::Errno) {
    // SAFETY: the address of this thread's `errno` is valid as long as the thread lives.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}
