//! The exported calls `sendmmsg` and `recvmmsg`. `posix` decides where they stop.

use libc::{c_int, c_uint, mmsghdr, msghdr, timespec};
use packetio::wait::monotonic_ns;
use posix::{Errno, receive_messages, send_messages};

use crate::door_unsafe::c;
use crate::marks::{self, Mark};
use crate::memory_unsafe::{pieces, value};
use crate::transfer_unsafe::{receive_message, send_message};
use crate::{engine, real_unsafe};

/// The header of a message, and the place of its length; both null if there are no messages.
///
/// # Safety
/// `at` is less than the number of messages.
unsafe fn message(messages: *mut mmsghdr, at: usize) -> (*mut msghdr, *mut c_uint) {
    if messages.is_null() {
        return (std::ptr::null_mut(), std::ptr::null_mut());
    }
    // SAFETY: the caller's promise.
    unsafe {
        let one = messages.add(at);
        (&raw mut (*one).msg_hdr, &raw mut (*one).msg_len)
    }
}

/// `sendmmsg`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::sendmmsg(fd, messages, count, flags) };
    };
    c(send_messages(count as usize, |at| {
        // SAFETY: the caller's promise.
        let (header, len) = unsafe { message(messages, at) };
        // SAFETY: the caller's promise.
        let given = unsafe { value(header) }.ok_or(Errno::FAULT)?;
        // SAFETY: the caller's promise.
        let all = unsafe { pieces(given.msg_iov, given.msg_iovlen) }?;
        let all: usize = all.iter().map(|piece| piece.len()).sum();
        // SAFETY: the caller's promise.
        let sent = unsafe { send_message(key, header, flags) }?;
        // SAFETY: the message is there, so its length is.
        unsafe { len.write_unaligned(sent as c_uint) };
        Ok(sent as usize >= all)
    }))
}

/// `recvmmsg`. As in Linux, the timeout is checked after each message and does not end a wait.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::recvmmsg(fd, messages, count, flags, timeout) };
    };
    // SAFETY: the caller's promise.
    let time = unsafe { value(timeout) };
    let limit = time.map_or(Ok(None), |time| {
        let nanos = u64::try_from(time.tv_nsec).ok();
        let nanos = nanos.filter(|&nanos| nanos < 1_000_000_000);
        match (u64::try_from(time.tv_sec), nanos) {
            (Ok(seconds), Some(nanos)) => {
                let ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
                Ok(Some(monotonic_ns().saturating_add(ns)))
            }
            _ => Err(Errno::INVAL),
        }
    });
    let received = limit.and_then(|until_ns| {
        let one = |at: usize, flags: c_int| {
            // SAFETY: the caller's promise.
            let (header, len) = unsafe { message(messages, at) };
            // SAFETY: the caller's promise.
            let got = unsafe { receive_message(key, header, flags) }?;
            // SAFETY: the message is there, so its length is.
            unsafe { len.write_unaligned(got as c_uint) };
            Ok(())
        };
        let is_over = || until_ns.is_some_and(|until_ns| monotonic_ns() >= until_ns);
        let postpone = |_| {
            // If another thread has closed the socket, there is no call to report the error to.
            let _ = engine::locked(|engine| {
                let (net, socket) = engine.socket_of(key)?;
                net.sockets().tell_error_again(socket.id);
                Ok(())
            });
        };
        let received = receive_messages(count as usize, flags, one, is_over, postpone);
        if let Some(until_ns) = until_ns {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            let left = timespec {
                tv_sec: (left_ns / 1_000_000_000) as _,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            };
            // SAFETY: it was read, so it is there.
            unsafe { timeout.write_unaligned(left) };
        }
        received
    });
    c(received)
}
