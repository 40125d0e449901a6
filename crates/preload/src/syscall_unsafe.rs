//! `syscall`, as programs know it: the calls that are intercepted by name are intercepted by
//! number, too.

use libc::{c_int, c_long, size_t};

use crate::real_unsafe as real;
use crate::{descriptor_unsafe as descriptor, door_unsafe, engine};
use crate::{poll_unsafe as polling, socket_unsafe as socket, transfer_unsafe as transfer};

/// `syscall`.
///
/// # Safety
/// As the call of that number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(
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
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    }
    let fd = a as c_int;
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            libc::SYS_read => transfer::read(fd, b as _, c as size_t) as c_long,
            libc::SYS_write => transfer::write(fd, b as _, c as size_t) as c_long,
            libc::SYS_readv => transfer::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => transfer::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvfrom => {
                transfer::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long
            }
            libc::SYS_sendto => {
                transfer::sendto(fd, b as _, c, d as c_int, e as _, f as u32) as c_long
            }
            libc::SYS_recvmsg => transfer::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmsg => transfer::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_socket => socket::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_bind => socket::bind(fd, b as _, c as u32).into(),
            libc::SYS_listen => socket::listen(fd, b as c_int).into(),
            libc::SYS_accept => socket::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => socket::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_connect => socket::connect(fd, b as _, c as u32).into(),
            libc::SYS_shutdown => socket::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockopt => {
                socket::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into()
            }
            libc::SYS_setsockopt => {
                socket::setsockopt(fd, b as c_int, c as c_int, d as _, e as u32).into()
            }
            libc::SYS_getsockname => socket::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => socket::getpeername(fd, b as _, c as _).into(),
            libc::SYS_close => descriptor::close(fd).into(),
            libc::SYS_close_range => descriptor::close_range(a as u32, b as u32, c as c_int).into(),
            libc::SYS_fcntl => descriptor::fcntl64(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptor::ioctl(fd, b as _, c).into(),
            libc::SYS_dup => descriptor::dup(fd).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_epoll_ctl => polling::epoll_ctl(fd, b as c_int, c as c_int, d as _).into(),
            libc::SYS_epoll_pwait => {
                polling::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _).into()
            }
            libc::SYS_ppoll => polling::ppoll(a as _, b as _, c as _, d as _).into(),
            libc::SYS_sendfile => transfer::sendfile64(fd, b as c_int, c as _, d) as c_long,
            // Its rings reach descriptors without a call.
            libc::SYS_io_uring_setup => {
                door_unsafe::set_errno(libc::ENOSYS);
                -1
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}
