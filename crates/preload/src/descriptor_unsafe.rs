//! Exported calls on descriptors: `fcntl`, `ioctl`, `close`, `dup` and their relatives.

use libc::{c_int, c_uint, c_ulong};
use posix::{Errno, Reply, Request, number};

use crate::errno_unsafe::{c, told};
use crate::marks::{self, Mark};
use crate::real_unsafe;
use crate::stderr_unsafe::{self, STDERR};
use crate::{
    calls, copies_unsafe, engine, family, kernel_listeners, listeners, memory_unsafe, own_process,
};

/// `fcntl`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fcntl64(fd, command, argument) }
}

/// `fcntl64`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    match marks::of(fd) {
        Mark::Socket(key) => c(calls::fcntl(fd, key, command, argument)),
        Mark::Undecided(_) | Mark::Epoll(_) | Mark::Watcher(_) | Mark::Listener(_)
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) =>
        {
            c(memory_unsafe::fcntl(fd, command, argument)
                .inspect(|copy| calls::share(*copy as c_int, fd)))
        }
        Mark::Undecided(key) if calls::asks_for_signals(command, argument) => {
            calls::note_signals(key);
            // SAFETY: the caller's promise.
            unsafe { real_unsafe::fcntl64(fd, command, argument) }
        }
        Mark::Listener(key) => c(kernel_listeners::fcntl(fd, key, command, argument)),
        // The watchdog's thread copies the wire's descriptors, also while the thread that opens the
        // stack has not marked them yet. The copies are hidden from the program, too.
        mark @ (Mark::Own | Mark::Kernel)
            if command == libc::F_DUPFD_CLOEXEC && copies_own(mark) =>
        {
            c(memory_unsafe::copy_high(fd).map(i64::from))
        }
        // The library's own threads check with `F_GETFD` whether a descriptor is open before they
        // close it. To a program that goes through all numbers, it is not open.
        Mark::Own if !is_own_caller() => c(Err(Errno::BADF)),
        // SAFETY: the caller's promise.
        _ => unsafe { real_unsafe::fcntl64(fd, command, argument) },
    }
}

/// `ioctl`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let (at, at_fd) = (argument as *mut c_int, fd);
    let key = match marks::of(fd) {
        Mark::Socket(key) => key,
        Mark::Listener(key) if request == number::FIONBIO => {
            // SAFETY: the caller's promise.
            let given = unsafe { memory_unsafe::value(at) }.ok_or(Errno::FAULT);
            return c(given
                .and_then(|given| kernel_listeners::set_waits(key, fd, given == 0).map(|()| 0)));
        }
        mark => {
            let asks = matches!(request, FIOASYNC | FIOSETOWN | SIOCSPGRP);
            if let (Mark::Undecided(key), true) = (mark, asks) {
                calls::note_signals(key);
            }
            // SAFETY: the caller's promise.
            return unsafe { real_unsafe::ioctl(fd, request as usize, argument) };
        }
    };
    if matches!(request, FIOASYNC | FIOSETOWN | SIOCSPGRP) {
        // SAFETY: the caller's promise.
        return match unsafe { memory_unsafe::value(at) } {
            None => c(Err(Errno::FAULT)),
            // Off, and nobody: that is how it is.
            Some(0) => 0,
            Some(_) => c(Err(calls::refuse_signals())),
        };
    }
    if !is_of_the_connection(request) {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::ioctl(fd, request as usize, argument) };
    }
    let reads = request == number::FIONBIO;
    // SAFETY: the caller's promise.
    let given = match reads.then(|| unsafe { memory_unsafe::value(at) }) {
        Some(None) => return c(Err(Errno::FAULT)),
        Some(Some(given)) => given,
        None => 0,
    };
    let done = calls::id(key).and_then(|fd| {
        let request = Request::Ioctl {
            fd,
            request,
            argument: given,
        };
        let (value, reply) = engine::with(|engine| {
            let done = engine.open()?.call(request)?;
            if reads && engine.socket(key)?.is_both {
                kernel_listeners::tell_waits(engine, key, at_fd);
            }
            if reads {
                listeners::describe(engine, key, at_fd);
            }
            Ok(done)
        })?;
        if let Reply::Int(answer) = reply {
            if memory_unsafe::is_nowhere(at.addr()) {
                return Err(Errno::FAULT);
            }
            // SAFETY: the caller's promise.
            unsafe { at.write_unaligned(answer) };
        }
        Ok(value)
    });
    c(done)
}

/// Requests about the connection and what it tells of. All others are about the descriptor, which
/// is the kernel's, or about interfaces, routes and neighbours: the kernel's socket that keeps the
/// number answers them.
fn is_of_the_connection(request: c_ulong) -> bool {
    matches!(
        request,
        number::FIONBIO
            | number::SIOCINQ
            | number::SIOCOUTQ
            | number::SIOCOUTQNSD
            | number::SIOCATMARK
            | number::FIOGETOWN
            | number::SIOCGPGRP
            | FIOASYNC
            | FIOSETOWN
            | SIOCSPGRP
    )
}

/// Linux's numbers of requests for signals, which Millstream does not send.
const FIOASYNC: c_ulong = 0x5452;
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;

/// `sockatmark`, which libc implements by an internal `ioctl`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut is_there: c_int = 0;
    // SAFETY: it writes a number of ours.
    match unsafe { ioctl(fd, SIOCATMARK, (&raw mut is_there).expose_provenance()) } {
        -1 => -1,
        _ => is_there,
    }
}

/// Linux's number: true if the next byte to read is the one after the urgent mark.
const SIOCATMARK: c_ulong = 0x8905;

/// `close`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let mark = marks::of(fd);
    if mark == Mark::Kernel && !engine::is_inside() {
        // SAFETY: it takes a number alone.
        let closed = unsafe { real_unsafe::close(fd) };
        if closed == 0 {
            stderr_unsafe::follow(fd);
        }
        return closed;
    }
    c(close_marked(fd, mark))
}

fn close_marked(fd: c_int, mark: Mark) -> Result<i64, Errno> {
    match mark {
        Mark::Own if !is_own_caller() => return Err(Errno::BADF),
        Mark::Own => marks::set(fd, Mark::Kernel),
        // The library closes a descriptor of its own with the lock held. No thread may be cancelled
        // there, as it may be in libc's `close`.
        Mark::Kernel => {}
        // A child of `vfork` shares the parent's memory, but not its descriptors.
        _ if own_process::is_vforked() => forget_in_copy(fd),
        _ => {
            let released = calls::release(fd);
            memory_unsafe::close(fd)?;
            return released.map(|()| 0);
        }
    }
    memory_unsafe::close(fd)
}

/// Removes the mark of a closed descriptor in a child of the system call alone, where a file may get
/// the number. A child of `vfork` uses the parent's marks.
fn forget_in_copy(fd: c_int) {
    if copies_unsafe::is_copy() {
        marks::set(fd, Mark::Kernel);
    }
}

/// True in calls of the library itself and in its threads, whose names begin with `millstream`.
/// They make, check and close descriptors of the wire.
fn is_own_caller() -> bool {
    engine::is_inside() || memory_unsafe::is_own_thread()
}

/// True if the caller copies a descriptor of the library's own.
fn copies_own(mark: Mark) -> bool {
    match mark {
        Mark::Own => is_own_caller(),
        _ => memory_unsafe::is_own_thread(),
    }
}

/// `close_range`: closes the program's descriptors in the range, and not the library's own.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let is_vforked = own_process::is_vforked();
    if first > last || flags & CLOSE_RANGE_CLOEXEC != 0 || is_vforked {
        if is_vforked && flags & !CLOSE_RANGE_UNSHARE == 0 {
            for (fd, _) in marks::marked(first, last) {
                forget_in_copy(fd);
            }
        }
        // A child of `vfork` has copies of the library's own descriptors. The program that it is
        // about to start needs one of them.
        let kept = family::get()
            .filter(|_| is_vforked)
            .map(|family| family.fd as c_uint);
        if let Some(kept) = kept.filter(|kept| (first..=last).contains(kept)) {
            let before = match first < kept {
                // SAFETY: it takes numbers alone.
                true => unsafe { real_unsafe::close_range(first, kept - 1, flags) },
                false => 0,
            };
            return match before {
                // SAFETY: as above.
                0 if kept < last => unsafe { real_unsafe::close_range(kept + 1, last, flags) },
                closed => closed,
            };
        }
        // SAFETY: it takes numbers alone. `exec` closes the library's own descriptors anyway.
        return unsafe { real_unsafe::close_range(first, last, flags) };
    }
    let marked: Vec<_> = marks::marked(first, last).collect();
    for (fd, mark) in marked.into_iter().filter(|(_, mark)| *mark != Mark::Own) {
        // A close that fails has still closed its descriptor, and the others have to be closed,
        // too.
        let _ = close_marked(fd, mark);
    }
    // Descriptors that are still marked are the library's own, or were just opened by another
    // thread.
    let held = memory_unsafe::hold_numbers();
    let mut from = first;
    for (fd, _) in marks::marked(first, last) {
        if from < fd as c_uint {
            // SAFETY: it takes numbers alone.
            let closed =
                told(unsafe { real_unsafe::close_range(from, fd as c_uint - 1, flags) }.into());
            if let Err(errno) = closed {
                return c(Err(errno));
            }
        }
        from = fd as c_uint + 1;
    }
    if from <= last {
        // SAFETY: it takes numbers alone.
        let closed = told(unsafe { real_unsafe::close_range(from, last, flags) }.into());
        if let Err(errno) = closed {
            return c(Err(errno));
        }
    }
    drop(held);
    if first <= STDERR as c_uint && STDERR as c_uint <= last {
        stderr_unsafe::follow(STDERR);
    }
    0
}

/// Linux's number: `exec` closes the descriptors.
const CLOSE_RANGE_CLOEXEC: c_int = 4;
const CLOSE_RANGE_UNSHARE: c_int = 2;

/// `closefrom`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: it takes numbers alone. `closefrom` cannot report an error.
    let _ = unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// `dup`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: it takes a number alone.
    let copy = unsafe { real_unsafe::dup(fd) };
    if copy >= 0 {
        calls::share(copy, fd);
    }
    copy
}

/// `dup2`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    match from == to {
        // SAFETY: it takes numbers alone.
        true => unsafe { real_unsafe::dup2(from, to) },
        false => c(replace(from, to, 0)),
    }
}

/// `dup3`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    match from == to {
        // SAFETY: it takes numbers alone.
        true => unsafe { real_unsafe::dup3(from, to, flags) },
        false => c(replace(from, to, flags)),
    }
}

fn replace(from: c_int, to: c_int, flags: c_int) -> Result<i64, Errno> {
    if (marks::of(from), marks::of(to)) == (Mark::Kernel, Mark::Kernel) || own_process::is_vforked()
    {
        // SAFETY: it takes numbers alone.
        let copy = told(unsafe { real_unsafe::dup3(from, to, flags) }.into())?;
        calls::share(to, from);
        stderr_unsafe::follow(to);
        return Ok(copy);
    }
    if marks::of(from) == Mark::Own || marks::of(to) == Mark::Own {
        return Err(Errno::BADF);
    }
    // The kernel's checks come first: a call that fails must not close anything.
    if flags & !libc::O_CLOEXEC != 0 {
        return Err(Errno::INVAL);
    }
    memory_unsafe::fcntl(from, libc::F_GETFD, 0)?;
    // An error of the implied close is lost, as in Linux.
    let _ = calls::release_replaced(to);
    // SAFETY: it takes numbers alone.
    let copy = told(unsafe { real_unsafe::dup3(from, to, flags) }.into())?;
    calls::share(to, from);
    stderr_unsafe::follow(to);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::thread::Builder;

    use super::*;

    /// The mark of the copy that a thread of this name makes of a descriptor without a mark.
    fn mark_of_a_copy_by(name: &str) -> Mark {
        let file = std::fs::File::open("/dev/null").expect("a file");
        let fd = file.as_raw_fd();
        let copying = Builder::new().name(name.to_owned()).spawn(move || {
            // SAFETY: it takes numbers alone.
            let copy = unsafe { fcntl64(fd, libc::F_DUPFD_CLOEXEC, 3) };
            let mark = marks::of(copy);
            marks::set(copy, Mark::Kernel);
            memory_unsafe::close(copy).expect("the copy is open");
            mark
        });
        let copied = copying.expect("a thread").join();
        copied.expect("no panic")
    }

    #[test]
    fn descriptor_not_marked_yet_that_a_library_thread_copies_is_hidden() {
        assert_eq!(mark_of_a_copy_by("millstream-tick"), Mark::Own);
        assert_eq!(mark_of_a_copy_by("worker"), Mark::Kernel);
    }
}
