//! libc's streams on sockets of Millstream's.
//!
//! A libc stream makes its system calls inside libc, where they cannot be intercepted. So `fdopen`
//! of a socket makes a stream with functions of its own (`fopencookie`). For libc such a stream has
//! no descriptor, so `fileno` looks it up here.

use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};

use crate::door_unsafe::set_errno;
use crate::marks::{self, Mark};
use crate::{descriptor_unsafe, engine, real_unsafe, transfer_unsafe};

/// The functions of a stream, as `fopencookie` takes them.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The cookie of a stream is its descriptor.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, at: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc's room.
    unsafe { transfer_unsafe::read(descriptor(cookie), at.cast(), len) }
}

/// Writes all bytes; libc takes a shorter write as an error.
unsafe extern "C" fn write(cookie: *mut c_void, at: *const c_char, len: size_t) -> ssize_t {
    let mut done = 0;
    while done < len {
        // SAFETY: libc's bytes, of which `done` are written.
        let more =
            unsafe { transfer_unsafe::write(descriptor(cookie), at.add(done).cast(), len - done) };
        match usize::try_from(more) {
            Ok(more) if more > 0 => done += more,
            _ => break,
        }
    }
    done as ssize_t
}

/// libc ignores this error where it only tries whether a stream has positions.
unsafe extern "C" fn seek(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    set_errno(libc::ESPIPE);
    -1
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    // In a process that ends, `fileno` is not called any more.
    let _ = engine::locked(|engine| {
        engine.streams.retain(|(_, of)| *of != fd);
        Ok(())
    });
    // SAFETY: it takes a number alone.
    unsafe { descriptor_unsafe::close(fd) }
}

/// `fdopen`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !matches!(marks::of(fd), Mark::Socket(_) | Mark::Undecided(_)) {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::fdopen(fd, mode) as *mut FILE };
    }
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
pub unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
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
pub unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fileno(stream) }
}
