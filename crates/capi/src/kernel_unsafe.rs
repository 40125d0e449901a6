//! Calls on a context's kernel sockets, which the kernel answers itself, including addresses,
//! control messages and options. None of them waits or raises `SIGPIPE`.
//! `posix::Sockets::on_kernel` repeats them for a caller that waits.

use std::ffi::{c_int, c_void};
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{msghdr, sockaddr, socklen_t};
use posix::Errno;

/// The result of a libc call.
fn checked(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| {
        let errno = Error::last_os_error().raw_os_error();
        errno.map_or(Errno::IO, Errno::from_raw_os_error)
    })
}

/// `sendto`.
///
/// # Safety
/// The promises of libc's `sendto`: the kernel reads C's memory during the call.
pub unsafe fn sendto(
    kernel: &OwnedFd,
    (at, len): (*const c_void, usize),
    flags: c_int,
    (addr, addrlen): (*const sockaddr, socklen_t),
) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise; a pointer that leads nowhere is `EFAULT`.
    checked(unsafe { libc::sendto(kernel.as_raw_fd(), at, len, flags, addr, addrlen) })
}

/// `recvfrom`.
///
/// # Safety
/// Like [`sendto`]; the memory is not used elsewhere during the call.
pub unsafe fn recvfrom(
    kernel: &OwnedFd,
    (at, len): (*mut c_void, usize),
    flags: c_int,
    (addr, addrlen): (*mut sockaddr, *mut socklen_t),
) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the caller's promise.
    checked(unsafe { libc::recvfrom(kernel.as_raw_fd(), at, len, flags, addr, addrlen) })
}

/// `sendmsg`.
///
/// # Safety
/// Like [`sendto`].
pub unsafe fn sendmsg(kernel: &OwnedFd, msg: *const msghdr, flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise.
    checked(unsafe { libc::sendmsg(kernel.as_raw_fd(), msg, flags) })
}

/// `recvmsg`.
///
/// # Safety
/// Like [`recvfrom`].
pub unsafe fn recvmsg(kernel: &OwnedFd, msg: *mut msghdr, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    checked(unsafe { libc::recvmsg(kernel.as_raw_fd(), msg, flags | libc::MSG_DONTWAIT) })
}

/// True for a listening socket.
///
/// # Errors
/// `ENOTSOCK`
fn is_listening(kernel: &OwnedFd) -> Result<bool, Errno> {
    let (mut listens, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    let (value, len) = ((&raw mut listens).cast(), &raw mut len);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    // SAFETY: room for an int, and its length.
    unsafe { getsockopt(kernel.as_fd(), (level, name), value, len) }?;
    Ok(listens != 0)
}

/// `accept4`, without waiting for a connection. On a descriptor that does not listen, returns the
/// kernel's error.
///
/// # Safety
/// Like [`recvfrom`].
pub unsafe fn accept(
    kernel: &OwnedFd,
    (addr, addrlen): (*mut sockaddr, *mut socklen_t),
) -> Result<OwnedFd, Errno> {
    let mut entry = libc::pollfd {
        fd: kernel.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which is ours.
    if is_listening(kernel)? && checked(unsafe { libc::poll(&raw mut entry, 1, 0) } as isize)? == 0
    {
        return Err(Errno::AGAIN);
    }
    let flags = libc::SOCK_CLOEXEC;
    // SAFETY: the caller's promise.
    let fd = checked(unsafe { libc::accept4(entry.fd, addr, addrlen, flags) } as isize)?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// `shutdown`.
pub fn shutdown(kernel: BorrowedFd<'_>, how: c_int) -> Result<i64, Errno> {
    // SAFETY: it takes numbers alone.
    checked(unsafe { libc::shutdown(kernel.as_raw_fd(), how) } as isize).map(|_| 0)
}

/// `getsockopt`.
///
/// # Safety
/// Like [`recvfrom`].
pub unsafe fn getsockopt(
    kernel: BorrowedFd<'_>,
    (level, name): (c_int, c_int),
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> Result<i64, Errno> {
    let fd = kernel.as_raw_fd();
    // SAFETY: the caller's promise.
    checked(unsafe { libc::getsockopt(fd, level, name, optval, optlen) } as isize).map(|_| 0)
}

/// `setsockopt`.
///
/// # Safety
/// Like [`sendto`].
pub unsafe fn setsockopt(
    kernel: BorrowedFd<'_>,
    (level, name): (c_int, c_int),
    optval: *const c_void,
    optlen: socklen_t,
) -> Result<i64, Errno> {
    let fd = kernel.as_raw_fd();
    // SAFETY: the caller's promise.
    checked(unsafe { libc::setsockopt(fd, level, name, optval, optlen) } as isize).map(|_| 0)
}

/// `getsockname` or `getpeername`.
///
/// # Safety
/// Like [`recvfrom`].
pub unsafe fn name(
    kernel: BorrowedFd<'_>,
    is_peers: bool,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> Result<i64, Errno> {
    let fd = kernel.as_raw_fd();
    let returned = match is_peers {
        // SAFETY: the caller's promise.
        true => unsafe { libc::getpeername(fd, addr, addrlen) },
        // SAFETY: the caller's promise.
        false => unsafe { libc::getsockname(fd, addr, addrlen) },
    };
    checked(returned as isize).map(|_| 0)
}
