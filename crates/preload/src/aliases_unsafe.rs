//! libc's other public names of functions that programs call, with two underscores.

use libc::{c_int, c_void, fd_set, size_t, sockaddr, socklen_t, ssize_t, timeval};

use crate::{descriptor_unsafe, poll_unsafe, signals_unsafe, socket_unsafe, transfer_unsafe};

macro_rules! aliases {
    ($($export:literal $name:ident($($arg:ident: $kind:ty),*) -> $ret:ty = $of:path;)*) => {
        $(#[doc = concat!("`", $export, "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[cfg_attr(not(test), unsafe(export_name = $export))]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $ret {
            // SAFETY: the caller's promise.
            unsafe { $of($($arg),*) }
        })*
    };
}

aliases! {
    "__read" also_read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t = transfer_unsafe::read;
    "__write" also_write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t
        = transfer_unsafe::write;
    "__send" also_send(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t
        = transfer_unsafe::send;
    "__connect" also_connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int
        = socket_unsafe::connect;
    "__close" also_close(fd: c_int) -> c_int = descriptor_unsafe::close;
    "__fcntl" also_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int
        = descriptor_unsafe::fcntl;
    "__dup2" also_dup2(from: c_int, to: c_int) -> c_int = descriptor_unsafe::dup2;
    "__select" also_select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int = poll_unsafe::select;
    "__sigaction" also_sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction
    ) -> c_int = signals_unsafe::sigaction;
}
