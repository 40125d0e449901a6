//! The log's descriptor: a copy of the program's stderr, hidden from it.
//!
//! The copy stays what it is while the program uses descriptor 2 for something else, such as a
//! connection. Only a pipe or a socket is let go with the program's own descriptor: somebody may wait
//! for its end, as the reader of what a daemon prints before it goes to the background.

use std::ffi::c_int;

use ring::published::Published32;
use rustix::fs::{FileType, fstat};

use crate::marks::{self, Mark};
use crate::memory_unsafe::{self, with_borrowed};
use crate::{own_process, real_unsafe};

/// The program's stderr.
pub const STDERR: c_int = 2;

/// The copy; 0 without one.
static LOG: Published32 = Published32::new(0);

/// Prints a line to the copy.
pub fn say(line: &str) {
    let fd = match LOG.load() {
        0 => return,
        fd => fd as c_int,
    };
    let at = line.as_ptr().expose_provenance();
    // SAFETY: a string of ours. An error is lost, since there is no other place to report it.
    let _ = unsafe { memory_unsafe::by_number(libc::SYS_write, [fd as usize, at, line.len(), 0]) };
}

/// Takes the copy.
pub fn keep() {
    if let Ok(fd) = memory_unsafe::copy_high(STDERR) {
        LOG.store(fd as u32);
    }
}

/// The copy.
pub fn copy() -> Option<c_int> {
    Some(LOG.load() as c_int).filter(|fd| *fd != 0)
}

/// Closes the copy in an heir: a process may wait for the end of its stderr. Further lines are
/// dropped.
pub fn close() {
    let fd = LOG.load() as c_int;
    LOG.store(0);
    marks::set(fd, Mark::Kernel);
    // An error does not matter: the descriptor is closed either way.
    let _ = memory_unsafe::close(fd);
}

/// Notes that the program has replaced or closed descriptor `fd`. If that is its stderr and the copy
/// is one with an end, the copy becomes one of the new stderr. Without a new one, or if that is a
/// socket, further lines are dropped. A child of `vfork` uses its parent's memory, so that the copy
/// stays.
#[inline]
pub fn follow(fd: c_int) {
    if fd == STDERR && !own_process::is_vforked() {
        follow_stderr();
    }
}

#[cold]
fn follow_stderr() {
    let copy = LOG.load() as c_int;
    if copy != 0 && !has_end(copy) {
        return;
    }
    let is_fit = marks::of(STDERR) == Mark::Kernel
        && kind(STDERR).is_some_and(|kind| kind != FileType::Socket);
    match (is_fit, copy) {
        (true, 0) => keep(),
        (true, _) => {
            // SAFETY: it takes numbers alone. Another thread that prints meanwhile prints to either
            // file. After an error the copy stays.
            let _ = unsafe { real_unsafe::dup3(STDERR, copy, libc::O_CLOEXEC) };
        }
        (false, 0) => {}
        (false, _) => close(),
    }
}

/// Whether a reader may wait for the end of what is written there.
fn has_end(fd: c_int) -> bool {
    matches!(kind(fd), Some(FileType::Fifo | FileType::Socket))
}

/// The kind of file; `None`: the descriptor is not open.
fn kind(fd: c_int) -> Option<FileType> {
    let stat = with_borrowed(fd, |fd| fstat(fd)).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// `daemon`, by which libc replaces the descriptors 0 to 2 itself.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn daemon(keeps_directory: c_int, keeps_files: c_int) -> c_int {
    // SAFETY: it takes numbers alone.
    let result = unsafe { real_unsafe::daemon(keeps_directory, keeps_files) };
    if result == 0 && keeps_files == 0 {
        follow(STDERR);
    }
    result
}
