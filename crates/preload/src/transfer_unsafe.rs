//! Exported calls that move bytes.

use std::io::{IoSlice, IoSliceMut};

use libc::{c_int, c_void, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use posix::c_layout::{SOCKADDR_LEN_MAX, from_control, to_address, to_control};
use posix::{Errno, Reply, Request, number};

use crate::errno_unsafe::{c, told};
use crate::limits::SENDFILE_BYTES;
use crate::marks::{self, Mark};
use crate::memory_unsafe::{
    bytes, is_beyond, message_pieces, message_rooms, pieces, put_address, room, rooms,
};
use crate::real_unsafe;
use crate::{calls, log, memory_unsafe, rights_unsafe, sleep, socket_unsafe};

/// Makes a function that passes through unless the descriptor is Millstream's, under all its libc
/// names.
macro_rules! transfer {
    ($(#[$doc:meta])* fn $name:ident($fd:ident, $($arg:ident: $kind:ty),*) = $key:ident => $ours:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($fd: c_int, $($arg: $kind),*) -> ssize_t {
            match marks::of($fd) {
                Mark::Socket($key) => c($ours),
                // SAFETY: the caller's promise.
                _ => unsafe { real_unsafe::$name($fd, $($arg),*) },
            }
        }
    };
}

transfer! {
    /// `read`.
    fn read(fd, at: *mut c_void, len: size_t) = key =>
        // SAFETY: the caller's promise.
        match unsafe { room(at, len) } {
            Ok(room) => calls::receive(key, &mut [IoSliceMut::new(room)], 0, true),
            Err(errno) if is_beyond(at.addr()) => Err(errno),
            Err(_) => calls::receive_nowhere(key, 0),
        }
}

transfer! {
    /// `write`.
    fn write(fd, at: *const c_void, len: size_t) = key =>
        // SAFETY: the caller's promise.
        match unsafe { bytes(at, len) } {
            Ok(bytes) => calls::send(key, &[IoSlice::new(bytes)], 0),
            Err(errno) if is_beyond(at.addr()) => Err(errno),
            Err(_) => calls::send_nowhere(key, 0),
        }
}

transfer! {
    /// `readv`.
    fn readv(fd, at: *const iovec, count: c_int) = key =>
        // SAFETY: the caller's promise.
        unsafe { rooms(at, count as usize) }
            .and_then(|mut rooms| calls::receive(key, &mut rooms, 0, true))
}

transfer! {
    /// `writev`.
    fn writev(fd, at: *const iovec, count: c_int) = key =>
        // SAFETY: the caller's promise.
        unsafe { pieces(at, count as usize) }
            .and_then(|pieces| calls::write_pieces(key, &pieces, 0))
}

transfer! {
    /// `preadv2`: without an offset, a `readv`.
    fn preadv64v2(fd, at: *const iovec, count: c_int, offset: off_t, flags: c_int) = key =>
        placeless(offset, flags).and_then(|flags| {
            // SAFETY: the caller's promise.
            unsafe { rooms(at, count as usize) }
                .and_then(|mut rooms| calls::receive(key, &mut rooms, flags, true))
        })
}

transfer! {
    /// `pwritev2`: without an offset, a `writev`.
    fn pwritev64v2(fd, at: *const iovec, count: c_int, offset: off_t, flags: c_int) = key =>
        placeless(offset, flags).and_then(|flags| {
            // SAFETY: the caller's promise.
            unsafe { pieces(at, count as usize) }
                .and_then(|pieces| calls::write_pieces(key, &pieces, flags))
        })
}

/// The flags of a message for those of `preadv2` and `pwritev2`, which must not give an offset.
fn placeless(offset: off_t, flags: c_int) -> Result<c_int, Errno> {
    if offset != -1 {
        return Err(Errno::SPIPE);
    }
    match flags & !(libc::RWF_HIPRI | libc::RWF_NOWAIT) {
        0 if flags & libc::RWF_NOWAIT != 0 => Ok(number::MSG_DONTWAIT),
        0 => Ok(0),
        _ => Err(Errno::OPNOTSUPP),
    }
}

transfer! {
    /// `pread`: fails, since a socket has no offsets.
    fn pread64(fd, _at: *mut c_void, _len: size_t, offset: off_t) = _key => no_position(offset)
}

transfer! {
    /// `pwrite`: fails, since a socket has no offsets.
    fn pwrite64(fd, _at: *const c_void, _len: size_t, offset: off_t) = _key => no_position(offset)
}

/// The number is looked at before the file (Linux).
fn no_position(offset: off_t) -> Result<i64, Errno> {
    match offset {
        0.. => Err(Errno::SPIPE),
        _ => Err(Errno::INVAL),
    }
}

transfer! {
    /// `recvfrom`: does not return an address, since TCP has one peer.
    fn recvfrom(fd, at: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) = key => {
        // SAFETY: the caller's promise.
        let got = match unsafe { room(at, len) } {
            Ok(room) => calls::receive(key, &mut [IoSliceMut::new(room)], flags, false),
            Err(errno) if is_beyond(at.addr()) => Err(errno),
            Err(_) if flags & number::MSG_TRUNC != 0 => calls::discard(key, len, flags),
            Err(_) => calls::receive_nowhere(key, flags),
        };
        match addr.is_null() {
            true => got,
            // SAFETY: the caller's promise. There is no address, and so many bytes of it.
            false => got.and_then(|got| unsafe { put_address(&[], addr, addrlen) }.map(|()| got)),
        }
    }
}

/// `sendto`. `MSG_FASTOPEN` connects, so it decides an undecided socket.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    let key = match marks::of(fd) {
        Mark::Socket(key) => key,
        Mark::Undecided(_) if flags & number::MSG_FASTOPEN != 0 => {
            // SAFETY: the caller's promise.
            let decided = unsafe { socket_unsafe::decide_fast(fd, addr, addrlen) };
            match (decided, marks::of(fd)) {
                (Err(errno), _) => return c(Err(errno)),
                (Ok(()), Mark::Socket(key)) => key,
                // SAFETY: the caller's promise.
                _ => return unsafe { real_unsafe::sendto(fd, at, len, flags, addr, addrlen) },
            }
        }
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::sendto(fd, at, len, flags, addr, addrlen) },
    };
    // SAFETY: the caller's promise.
    let given = match unsafe { bytes(at, len) } {
        Err(_) if !is_beyond(at.addr()) => return c(calls::send_nowhere(key, flags)),
        given => given.and_then(|bytes| check_peer(addr, addrlen).map(|()| bytes)),
    };
    c(match flags & number::MSG_FASTOPEN {
        0 => given.and_then(|bytes| calls::send(key, &[IoSlice::new(bytes)], flags)),
        _ => given.and_then(|data| {
            let room = (addrlen as usize).min(SOCKADDR_LEN_MAX);
            // SAFETY: the caller's promise.
            let to = to_address(unsafe { bytes(addr.cast(), room) }?);
            let bytes = data.to_vec();
            let (to, control) = (Some(to), Vec::new());
            let request = |fd| Request::Send {
                fd,
                bytes,
                flags,
                to,
                control,
            };
            Ok(sleep::call_on(key, request)?.0)
        }),
    })
}

/// An address to send to, at which TCP does not look, must be one nevertheless.
fn check_peer(addr: *const sockaddr, len: socklen_t) -> Result<(), Errno> {
    match len as usize {
        _ if addr.is_null() => Ok(()),
        0 => Ok(()),
        1..=SOCKADDR_LEN_MAX if memory_unsafe::is_nowhere(addr.addr()) => Err(Errno::FAULT),
        1..=SOCKADDR_LEN_MAX => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// `recvmsg`. Over a kernel socket, another program's listeners may arrive.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    if let Mark::Socket(key) = marks::of(fd) {
        // SAFETY: the caller's promise.
        return c(unsafe { receive_message(key, msg, flags) });
    }
    // SAFETY: the caller's promise.
    let got = unsafe { real_unsafe::recvmsg(fd, msg, flags) };
    if got >= 0 {
        // SAFETY: the caller's promise; the call has filled the message.
        unsafe { rights_unsafe::after_receive(msg) };
    }
    got
}

/// `sendmsg`. Over a kernel socket, listeners may go to another program.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    if let Mark::Socket(key) = marks::of(fd) {
        // SAFETY: the caller's promise.
        return c(unsafe { send_message(key, msg, flags) });
    }
    if let (Mark::Undecided(_), true) = (marks::of(fd), flags & number::MSG_FASTOPEN != 0) {
        // SAFETY: the caller's promise.
        let decided = unsafe { memory_unsafe::value(msg) }.map_or(Ok(()), |message| {
            let (addr, len) = (message.msg_name.cast_const().cast(), message.msg_namelen);
            // SAFETY: the caller's promise.
            unsafe { socket_unsafe::decide_fast(fd, addr, len) }
        });
        match (decided, marks::of(fd)) {
            (Err(errno), _) => return c(Err(errno)),
            // SAFETY: the caller's promise.
            (Ok(()), Mark::Socket(key)) => return c(unsafe { send_message(key, msg, flags) }),
            _ => {}
        }
    }
    let mut replaced = None;
    // SAFETY: the caller's promise.
    if marks::has_had_ours() && unsafe { has_control(msg) } {
        // SAFETY: the caller's promise.
        replaced = unsafe { rights_unsafe::before_send(msg, true) };
    }
    let msg = replaced
        .as_ref()
        .map_or(msg, |other| &raw const other.message);
    // SAFETY: the caller's promise, or a copy of the message.
    unsafe { real_unsafe::sendmsg(fd, msg, flags) }
}

/// The message has control data that the kernel would read, too.
///
/// # Safety
/// As libc's `sendmsg`.
pub unsafe fn has_control(msg: *const msghdr) -> bool {
    // SAFETY: the caller's promise.
    let message = unsafe { memory_unsafe::value(msg) };
    message.is_some_and(|message| {
        let has_place = !memory_unsafe::is_nowhere(message.msg_control.addr());
        has_place && message.msg_controllen <= c_int::MAX as usize
    })
}

/// `recvmsg` on a socket of Millstream's.
///
/// # Safety
/// As libc's.
pub unsafe fn receive_message(key: usize, at: *mut msghdr, flags: c_int) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    let mut message = unsafe { memory_unsafe::value(at) }.ok_or(Errno::FAULT)?;
    // SAFETY: the caller's promise.
    let mut rooms = unsafe { message_rooms(&message) }?;
    let request = |fd| Request::Recvmsg {
        fd,
        len: rooms.iter().map(|room| room.len()).sum(),
        control_len: match message.msg_control.is_null() {
            true => 0,
            false => message.msg_controllen,
        },
        flags,
    };
    let (got, reply) = sleep::call_on(key, request)?;
    if !message.msg_name.is_null() {
        message.msg_namelen = 0;
    }
    if let Reply::Message {
        bytes,
        control,
        flags,
    } = reply
    {
        posix::scatter(&bytes, &mut rooms);
        let packed = from_control(&control, message.msg_controllen);
        // SAFETY: the caller's promise.
        unsafe { room(message.msg_control, packed.len()) }?.copy_from_slice(&packed);
        (message.msg_controllen, message.msg_flags) = (packed.len(), flags);
    }
    // SAFETY: the caller's promise.
    unsafe { at.write_unaligned(message) };
    Ok(got)
}

/// `sendmsg` on a socket of Millstream's.
///
/// # Safety
/// As libc's.
pub unsafe fn send_message(key: usize, at: *const msghdr, flags: c_int) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    let message = unsafe { memory_unsafe::value(at) }.ok_or(Errno::FAULT)?;
    // SAFETY: the caller's promise.
    let given = unsafe { message_pieces(&message) }?;
    let has_name = !message.msg_name.is_null() && message.msg_namelen > 0;
    if has_name && memory_unsafe::is_nowhere(message.msg_name.addr()) {
        return Err(Errno::FAULT);
    }
    if message.msg_controllen > c_int::MAX as usize {
        return Err(Errno::NOBUFS);
    }
    let has_control = message.msg_controllen > 0;
    if !has_control && flags & number::MSG_FASTOPEN == 0 {
        return calls::send(key, &given, flags);
    }
    let name_len = (message.msg_namelen as usize).min(SOCKADDR_LEN_MAX);
    let to = match message.msg_name.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(to_address(unsafe { bytes(message.msg_name, name_len) }?)),
    };
    // SAFETY: the caller's promise.
    let control = unsafe { bytes(message.msg_control, message.msg_controllen) }?;
    let control = match to_control(control) {
        Ok(control) => control,
        // An error of the connection comes first (Linux).
        Err(errno) => return calls::send(key, &[], flags).and(Err(errno)),
    };
    let request = |fd| Request::Send {
        fd,
        bytes: given
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect(),
        flags,
        to,
        control,
    };
    Ok(sleep::call_on(key, request)?.0)
}

/// `preadv2`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { preadv64v2(fd, at, count, offset, flags) }
}

/// `pwritev2`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    at: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pwritev64v2(fd, at, count, offset, flags) }
}

/// `recv`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, at, len, flags, none, none.cast()) }
}

/// `send`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendto(fd, at, len, flags, std::ptr::null(), 0) }
}

/// `pread`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pread64(fd, at, len, offset) }
}

/// `pwrite`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite(
    fd: c_int,
    at: *const c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pwrite64(fd, at, len, offset) }
}

/// Aborts the program if a length exceeds the buffer (`_FORTIFY_SOURCE`): the program has a bug
/// that would overwrite memory.
fn check(len: size_t, has: size_t) {
    if len > has {
        log::once("buffer overflow detected in a receiving call");
        std::process::abort();
    }
}

/// `read`, as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    has: size_t,
) -> ssize_t {
    check(len, has);
    // SAFETY: the caller's promise.
    unsafe { read(fd, at, len) }
}

/// `recv`, as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    has: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, has);
    // SAFETY: the caller's promise.
    unsafe { recv(fd, at, len, flags) }
}

/// `recvfrom`, as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    has: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    check(len, has);
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, at, len, flags, addr, addrlen) }
}

/// `sendfile`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { sendfile64(out, from, offset, count) }
}

/// `sendfile64`: to a socket of Millstream's, by reading and sending.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let key = match (marks::of(out), marks::of(from)) {
        (_, Mark::Socket(_)) => {
            let is_open = memory_unsafe::fcntl(out, number::F_GETFD, 0);
            return c(match offset.is_null() {
                true => is_open.and(Err(Errno::INVAL)),
                false => Err(Errno::SPIPE),
            });
        }
        (Mark::Socket(key), _) => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::sendfile64(out, from, offset, count) },
    };
    // SAFETY: the caller's promise.
    let given = match unsafe { memory_unsafe::optional(offset) } {
        Ok(given) => given,
        Err(errno) => return c(Err(errno)),
    };
    let start = match given {
        Some(start) => Ok(start),
        None => memory_unsafe::position(from),
    };
    let sent = start.and_then(|start| {
        if count > isize::MAX as usize {
            return Err(Errno::INVAL);
        }
        let sent = send_file(key, from, start, count)?;
        match given {
            // SAFETY: the caller's promise.
            Some(_) => unsafe { offset.write_unaligned(start + sent) },
            None => memory_unsafe::move_to(from, start + sent)?,
        }
        Ok(sent)
    });
    c(sent)
}

fn send_file(key: usize, from: c_int, start: off_t, count: size_t) -> Result<i64, Errno> {
    let mut buffer = vec![0_u8; count.min(SENDFILE_BYTES)];
    let mut done = 0;
    if count == 0 {
        // Linux looks at the descriptor nevertheless.
        let flags = memory_unsafe::fcntl(from, number::F_GETFL, 0)? as c_int;
        return match flags & libc::O_ACCMODE {
            libc::O_WRONLY => Err(Errno::BADF),
            _ => Ok(0),
        };
    }
    while done < count {
        let want = (count - done).min(buffer.len());
        let at = start + done as off_t;
        // SAFETY: room of ours.
        let read = unsafe { real_unsafe::pread64(from, buffer.as_mut_ptr().cast(), want, at) };
        let moved = told(read as i64).and_then(|got| match got {
            0 => Ok((0, 0)),
            got => {
                let piece = IoSlice::new(&buffer[..got as usize]);
                Ok((got, calls::send(key, &[piece], 0)?))
            }
        });
        let moved = moved.map_err(|errno| match errno {
            Errno::ISDIR => Errno::INVAL,
            errno => errno,
        });
        match moved {
            Ok((got, sent)) => {
                done += sent as usize;
                if got == 0 || sent < got {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done as i64)
}
