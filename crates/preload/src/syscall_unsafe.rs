//! The exported call `syscall`. System calls that are intercepted by name are intercepted by
//! number, too.

use libc::{c_int, c_long, size_t};

use crate::real_unsafe;
use crate::{descriptor_unsafe, engine, errno_unsafe, exec_unsafe, memory_unsafe, splice_unsafe};
use crate::{messages_unsafe, poll_unsafe, process_unsafe, socket_unsafe, transfer_unsafe};

/// `syscall`.
///
/// # Safety
/// The promise of the call with that number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if engine::settings().is_none() || engine::is_inside() {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::syscall(number, a, b, c, d, e, f) };
    }
    let fd = a as c_int;
    // SAFETY: the caller's promise.
    let taken = unsafe {
        let moved = transfer(number, fd, [b, c, d, e, f]);
        moved.or_else(|| waits(number, [a, b, c, d, e, f]))
    };
    if let Some(outcome) = taken {
        return outcome;
    }
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            libc::SYS_socket => socket_unsafe::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_bind => socket_unsafe::bind(fd, b as _, c as u32).into(),
            libc::SYS_listen => socket_unsafe::listen(fd, b as c_int).into(),
            libc::SYS_accept => socket_unsafe::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => socket_unsafe::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_connect => socket_unsafe::connect(fd, b as _, c as u32).into(),
            libc::SYS_shutdown => socket_unsafe::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockopt => {
                socket_unsafe::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into()
            }
            libc::SYS_setsockopt => {
                socket_unsafe::setsockopt(fd, b as c_int, c as c_int, d as _, e as u32).into()
            }
            libc::SYS_getsockname => socket_unsafe::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => socket_unsafe::getpeername(fd, b as _, c as _).into(),
            libc::SYS_close => descriptor_unsafe::close(fd).into(),
            libc::SYS_close_range => {
                descriptor_unsafe::close_range(a as u32, b as u32, c as c_int).into()
            }
            libc::SYS_fcntl => descriptor_unsafe::fcntl64(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptor_unsafe::ioctl(fd, b as _, c).into(),
            libc::SYS_dup => descriptor_unsafe::dup(fd).into(),
            libc::SYS_dup3 => descriptor_unsafe::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_epoll_ctl => {
                poll_unsafe::epoll_ctl(fd, b as c_int, c as c_int, d as _).into()
            }
            libc::SYS_epoll_create1 => poll_unsafe::epoll_create1(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => poll_unsafe::epoll_create(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor_unsafe::dup2(fd, b as c_int).into(),
            libc::SYS_execve => exec_unsafe::execve(a as _, b as _, c as _).into(),
            libc::SYS_execveat => {
                exec_unsafe::execveat(fd, b as _, c as _, d as _, e as c_int).into()
            }
            libc::SYS_exit_group => process_unsafe::_exit(fd),
            // io_uring reaches descriptors without calls that could be intercepted.
            libc::SYS_io_uring_setup => {
                errno_unsafe::set_errno(libc::ENOSYS);
                -1
            }
            _ => real_unsafe::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// Calls that move bytes. `None` for another number.
///
/// # Safety
/// The promise of the call with that number.
unsafe fn transfer(number: c_long, fd: c_int, [b, c, d, e, f]: [usize; 5]) -> Option<c_long> {
    // SAFETY: the caller's promise, for each.
    let moved = unsafe {
        match number {
            libc::SYS_read => transfer_unsafe::read(fd, b as _, c as size_t) as c_long,
            libc::SYS_write => transfer_unsafe::write(fd, b as _, c as size_t) as c_long,
            libc::SYS_readv => transfer_unsafe::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => transfer_unsafe::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => {
                transfer_unsafe::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_sendto => {
                transfer_unsafe::sendto(fd, b as _, c, d as c_int, e as _, f as u32) as c_long
            }
            libc::SYS_recvmsg => transfer_unsafe::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmsg => transfer_unsafe::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => {
                messages_unsafe::recvmmsg(fd, b as _, c as u32, d as c_int, e as _).into()
            }
            libc::SYS_sendmmsg => {
                messages_unsafe::sendmmsg(fd, b as _, c as u32, d as c_int).into()
            }
            libc::SYS_sendfile => transfer_unsafe::sendfile64(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => {
                splice_unsafe::splice(fd, b as _, c as c_int, d as _, e, f as u32) as c_long
            }
            libc::SYS_pread64 => transfer_unsafe::pread64(fd, b as _, c, d as i64) as c_long,
            libc::SYS_preadv2 => {
                transfer_unsafe::preadv64v2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                transfer_unsafe::pwritev64v2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long
            }
            libc::SYS_pwrite64 => transfer_unsafe::pwrite64(fd, b as _, c, d as i64) as c_long,
            _ => return None,
        }
    };
    Some(moved)
}

/// Calls that wait for many descriptors, including old ones that newer architectures do not have.
/// `None` for another number.
///
/// # Safety
/// The promise of the call with that number.
unsafe fn waits(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    // SAFETY: the caller's promise, for each.
    let outcome = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => poll_unsafe::poll(a as _, b as _, c as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => poll_unsafe::select(a as c_int, b as _, c as _, d as _, e as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                poll_unsafe::epoll_wait(a as c_int, b as _, c as c_int, d as c_int)
            }
            libc::SYS_ppoll => poll_unsafe::ppoll(a as _, b as _, c as _, d as _),
            libc::SYS_pselect6 => {
                // The last argument points to a mask and its length.
                let mask = memory_unsafe::value(f as *const *const libc::sigset_t);
                let mask = mask.unwrap_or(std::ptr::null());
                poll_unsafe::pselect(a as c_int, b as _, c as _, d as _, e as _, mask)
            }
            libc::SYS_epoll_pwait => {
                poll_unsafe::epoll_pwait(a as c_int, b as _, c as c_int, d as c_int, e as _)
            }
            libc::SYS_epoll_pwait2 => {
                poll_unsafe::epoll_pwait2(a as c_int, b as _, c as c_int, d as _, e as _)
            }
            _ => return None,
        }
    };
    Some(outcome.into())
}
