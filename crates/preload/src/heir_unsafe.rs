//! Forking the heir: the child keeps the stack, and sheds the program's resources before the
//! process may end.
//!
//! The heir keeps the stack and its descriptors. It closes or resets the program's pipes, terminal,
//! listeners, file locks, working directory, session, signal handlers and timers.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libc::c_int;
use packetio::signals_unsafe::BlockedSignals;
use ring::published::Published32;
use rustix::net::{AddressFamily, SocketAddrUnix, getsockname, sockopt};

use crate::limits::{HEIR_LIFE_S, SIGNALS_MAX};
use crate::marks::{self, Mark};
use crate::{memory_unsafe, real_unsafe, stderr_unsafe};

/// The heir's name in `ps` and `pgrep`.
const NAME: &std::ffi::CStr = c"mill-heir";

static IS_HEIR: Published32 = Published32::new(0);

/// True in an heir, where no code of the program runs any more.
pub fn is_heir() -> bool {
    IS_HEIR.load() != 0
}

/// Leaves the stack to a child that has this place. True in the process that can end now. False in
/// the child, and if there is none.
pub fn take_over(place: OwnedFd) -> bool {
    let Ok((ready, says)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
        return false;
    };
    // No signal handler of the program may run in the child.
    let blocked = BlockedSignals::new();
    // SAFETY: the child goes on in this thread alone. The caller holds the stack, which no
    // other thread uses, and libc's `fork` keeps its allocator whole.
    let is_left = match unsafe { libc::fork() } {
        0 => {
            IS_HEIR.store(1);
            drop(ready);
            shed(&place, &says);
            // The heir keeps the name until it ends.
            std::mem::forget(place);
            // An error means that the parent is gone and does not wait.
            let _ = std::fs::File::from(says).write(&[1]);
            false
        }
        child => {
            drop(says);
            child > 0 && is_ready(ready)
        }
    };
    drop(blocked);
    if is_heir() {
        unblock_signals();
    }
    is_left
}

/// Waits until the child has shed the program's resources. False: the child has ended instead.
fn is_ready(ready: OwnedFd) -> bool {
    let mut word = [0];
    // `read_exact` continues after a signal.
    std::fs::File::from(ready).read_exact(&mut word).is_ok()
}

fn shed(place: &OwnedFd, says: &OwnedFd) {
    let kept = [place.as_raw_fd(), says.as_raw_fd()];
    stderr_unsafe::close();
    for fd in memory_unsafe::open_fds() {
        if !kept.contains(&fd) && !is_the_stacks(fd) {
            // An error does not matter: the descriptor is closed either way.
            let _ = memory_unsafe::close(fd);
        }
    }
    hold_standard_numbers(&kept);
    // These calls cannot fail in a child: it leads no process group, and `/` exists.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    // SAFETY: numbers, a string that ends, and a structure of zeros that says default and no flags.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        let action: libc::sigaction = std::mem::zeroed();
        for signal in 1..=SIGNALS_MAX as c_int {
            real_unsafe::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        libc::alarm(HEIR_LIFE_S);
    }
}

/// Unblocks all signals, so that signals can end the heir.
fn unblock_signals() {
    // SAFETY: a set of ours, which the first call fills.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// True if the stack needs this descriptor. A UNIX socket is that of the agent, whose thread is
/// gone. Its name is removed, so that no reader connects.
fn is_the_stacks(fd: RawFd) -> bool {
    if marks::of(fd) != Mark::Own {
        return false;
    }
    memory_unsafe::with_borrowed(fd, |socket| {
        let is_unix = sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
        if is_unix
            && let Ok(name) = getsockname(socket)
            && let Ok(name) = SocketAddrUnix::try_from(name)
            && let Some(path) = name.path()
        {
            // The agent's socket was bound by another name than the one that it has now. A reader
            // may have removed it already.
            let bound = Path::new(OsStr::from_bytes(path.as_ref().to_bytes()));
            let _ = rustix::fs::unlink(bound.with_extension("sock"));
        }
        !is_unix
    })
}

/// Opens `/dev/null` at the numbers 0 to 2, so that no descriptor of the stack gets them.
fn hold_standard_numbers(kept: &[RawFd]) {
    let Ok(null) = std::fs::File::open("/dev/null") else {
        return;
    };
    for number in (0..3).filter(|number| !kept.contains(number)) {
        // SAFETY: it takes numbers alone, and the number is the program's, which is gone.
        let _ = unsafe { real_unsafe::dup2(null.as_fd().as_raw_fd(), number) };
    }
    if null.as_raw_fd() < 3 {
        std::mem::forget(null);
    }
}
