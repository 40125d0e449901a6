//! A socket that sends by one interface only (`SO_BINDTOIFINDEX`).
//!
//! Owns nothing. Called for the raw sockets of resets.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::{self, Errno};

/// Binds `socket` to the interface `index`.
///
/// # Errors
/// Those of `setsockopt`: no such interface, no `CAP_NET_RAW`.
pub fn bind_to_device(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let index = libc::c_int::try_from(index).map_err(|_| Errno::NODEV)?;
    // SAFETY: the kernel reads one `int` from `index`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTOIFINDEX,
            (&raw const index).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}
