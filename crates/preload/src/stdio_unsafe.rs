//! libc's streams on sockets of Millstream's.
//!
//! A libc stream makes its system calls inside libc, where they cannot be intercepted. So `fdopen`
//! of a socket makes a stream with functions of its own (`fopencookie`). For libc such a stream has
//! no descriptor, so `fileno` looks it up here.

use std::ffi::CStr;

use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};

use crate::errno_unsafe::set_errno;
use crate::marks::{self, Mark};
use crate::{engine, own_process, real_unsafe};

unsafe extern "C" {
    #[link_name = "stdin"]
    static mut STDIN: *mut FILE;
    #[link_name = "stdout"]
    static mut STDOUT: *mut FILE;
    #[link_name = "stderr"]
    static mut STDERR: *mut FILE;

    /// Bytes that a stream holds and has not written.
    fn __fpending(stream: *mut FILE) -> size_t;
    /// Drops what a stream holds.
    fn __fpurge(stream: *mut FILE);
    /// Bytes of a stream's buffer.
    fn __fbufsize(stream: *mut FILE) -> size_t;
    /// Not zero if a stream is flushed at the end of each line.
    fn __flbf(stream: *mut FILE) -> c_int;
}

/// The beginning of glibc's `FILE`, which programs are compiled with.
#[repr(C)]
struct Beginning {
    flags: c_int,
    read: [*mut c_char; 3],
    write_base: *const c_char,
}

/// Makes libc's stream of descriptor 0, 1 or 2 one of ours, now that the descriptor is a socket.
/// Its functions serve descriptors of the kernel's as well, so it stays.
pub fn follow(fd: c_int) {
    let is_ours = matches!(marks::of(fd), Mark::Socket(_) | Mark::Undecided(_));
    if !is_ours || own_process::is_vforked() {
        return;
    }
    // SAFETY: libc's variables. A program that moves these descriptors does not use the streams in
    // other threads meanwhile.
    unsafe {
        match fd {
            0 => exchange(fd, &raw mut STDIN, c"r"),
            1 => exchange(fd, &raw mut STDOUT, c"w"),
            2 => exchange(fd, &raw mut STDERR, c"w"),
            _ => {}
        }
    }
}

/// Puts a stream of ours into libc's variable, with what the old one has not written.
///
/// # Safety
/// The variable is libc's, and no other thread uses its stream.
unsafe fn exchange(fd: c_int, variable: *mut *mut FILE, mode: &CStr) {
    // SAFETY: the caller's promise. glibc has `FILE` begin so, and the bytes stay until the purge.
    unsafe {
        let old = *variable;
        let known =
            engine::locked(|engine| Ok(engine.streams.iter().any(|(at, _)| *at == old.addr())));
        if old.is_null() || known != Ok(false) {
            return;
        }
        let stream = make(fd, mode.as_ptr());
        if stream.is_null() {
            return;
        }
        let buffer = match (__flbf(old), __fbufsize(old)) {
            (0, 1) => Some(libc::_IONBF),
            (0, _) if fd == 2 => Some(libc::_IONBF),
            (0, _) => None,
            _ => Some(libc::_IOLBF),
        };
        if let Some(buffer) = buffer {
            // Without it the stream is flushed less often.
            let _ = libc::setvbuf(stream, std::ptr::null_mut(), buffer, 0);
        }
        let pending = __fpending(old);
        if pending > 0 {
            let bytes = (*old.cast::<Beginning>()).write_base;
            libc::fwrite(bytes.cast(), 1, pending, stream);
            __fpurge(old);
        }
        *variable = stream;
    }
}

/// The functions of a stream, as `fopencookie` takes them.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The cookie of a stream is its descriptor. Its functions call the library by the names that
/// programs use.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, at: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc's room.
    unsafe { libc::read(descriptor(cookie), at.cast(), len) }
}

/// Writes all bytes; libc takes a shorter write as an error.
unsafe extern "C-unwind" fn write(cookie: *mut c_void, at: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: libc's bytes, of which `done` are written.
        let more = unsafe { libc::write(descriptor(cookie), at.add(done).cast(), len - done) };
        match usize::try_from(more) {
            Ok(more) if more > 0 => done += more,
            _ => break,
        }
    }
    done as ssize_t
}

/// libc ignores this error where it only tries whether a stream has positions.
unsafe extern "C-unwind" fn seek(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    set_errno(libc::ESPIPE);
    -1
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    // In a process that ends, `fileno` is not called any more.
    let _ = engine::locked(|engine| {
        engine.streams.retain(|(_, of)| *of != fd);
        Ok(())
    });
    // SAFETY: it takes a number alone.
    unsafe { libc::close(fd) }
}

/// `fdopen`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !matches!(marks::of(fd), Mark::Socket(_) | Mark::Undecided(_)) {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::fdopen(fd, mode) as *mut FILE };
    }
    // SAFETY: the caller's promise.
    unsafe { make(fd, mode) }
}

/// A stream of ours.
///
/// # Safety
/// The mode is a string.
unsafe fn make(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = Functions {
        read,
        write,
        seek,
        close,
    };
    let cookie = std::ptr::without_provenance_mut(fd as usize);
    // SAFETY: the caller's promise; the functions stay as long as the process.
    let stream = unsafe { fopencookie(cookie, mode, functions) };
    if !stream.is_null() {
        // In a process that ends, `fileno` is not called any more.
        let _ = engine::locked(|engine| {
            engine.streams.push((stream.addr(), fd));
            Ok(())
        });
    }
    stream
}

/// `fileno`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    let said = unsafe { real_unsafe::fileno(stream) };
    if said >= 0 || engine::settings().is_none() {
        return said;
    }
    let ours = engine::locked(|engine| {
        let stream = engine.streams.iter().find(|(at, _)| *at == stream.addr());
        Ok(stream.map_or(said, |(_, fd)| *fd))
    });
    ours.unwrap_or(said)
}

/// `fileno_unlocked`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fileno(stream) }
}
