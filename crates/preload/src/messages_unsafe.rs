//! The exported calls `sendmmsg` and `recvmmsg`. `posix` decides where they stop.

use libc::{c_int, c_uint, mmsghdr, msghdr, timespec};
use packetio::wait::monotonic_ns;
use posix::{Errno, Reply, Request, number, receive_messages, send_messages};

use crate::errno_unsafe::c;
use crate::limits::PIECES_MAX;
use crate::marks::{self, Mark};
use crate::memory_unsafe::{is_nowhere, message_pieces, optional, value};
use crate::transfer_unsafe::{has_control, receive_message, send_message};
use crate::{engine, real_unsafe, rights_unsafe};

/// The header of a message, and the place of its length; both null if there are no messages.
///
/// # Safety
/// `at` is less than the number of messages.
unsafe fn message(messages: *mut mmsghdr, at: usize) -> (*mut msghdr, *mut c_uint) {
    if is_nowhere(messages.addr()) {
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
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // The kernel reads so many at most, too.
        let looked_at = if marks::has_had_ours() {
            count as usize
        } else {
            0
        };
        for at in 0..looked_at.min(PIECES_MAX) {
            // SAFETY: the caller's promise.
            let header = unsafe { message(messages, at) }.0;
            // SAFETY: the caller's promise.
            if unsafe { has_control(header) } {
                // SAFETY: the caller's promise.
                // Of several messages, none gets sockets of its own.
                let _ = unsafe { rights_unsafe::before_send(header, false) };
            }
        }
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::sendmmsg(fd, messages, count, flags) };
    };
    c(send_messages(count as usize, |at| {
        // SAFETY: the caller's promise.
        let (header, len) = unsafe { message(messages, at) };
        // SAFETY: the caller's promise.
        let given = unsafe { value(header) }.ok_or(Errno::FAULT)?;
        // SAFETY: the caller's promise.
        let all = unsafe { message_pieces(&given) }?;
        let all: usize = all.iter().map(|piece| piece.len()).sum();
        // SAFETY: the caller's promise.
        let sent = unsafe { send_message(key, header, flags) }?;
        // SAFETY: the message is there, so its length is.
        unsafe { len.write_unaligned(sent as c_uint) };
        Ok(sent as usize >= all)
    }))
}

/// The error of the connection, which Linux tells before it looks at any message.
fn waiting_error(key: usize) -> Result<(), Errno> {
    let (_, reply) = engine::with(|engine| {
        let (net, socket) = engine.socket_of(key)?;
        net.call(Request::Getsockopt {
            fd: socket.id,
            level: number::SOL_SOCKET,
            name: number::SO_ERROR,
            len: size_of::<c_int>(),
        })
    })?;
    match reply {
        Reply::Bytes(bytes) => match bytes.try_into().map_or(0, i32::from_ne_bytes) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        },
        _ => Ok(()),
    }
}

/// `recvmmsg`. As in Linux, the timeout is checked after each message and does not end a wait.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: the caller's promise.
        let got = unsafe { real_unsafe::recvmmsg(fd, messages, count, flags, timeout) };
        for at in 0..usize::try_from(got).unwrap_or(0) {
            // SAFETY: the caller's promise; the call has filled the message.
            unsafe { rights_unsafe::after_receive(message(messages, at).0) };
        }
        return got;
    };
    // SAFETY: the caller's promise.
    let time = unsafe { optional(timeout) };
    let limit = time.and_then(|time| {
        let Some(time) = time else {
            return Ok(None);
        };
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
    let limit = limit.and_then(|until_ns| match flags & number::MSG_ERRQUEUE {
        0 => waiting_error(key).map(|()| until_ns),
        _ => Ok(until_ns),
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
