//! `ppoll` on descriptor numbers, with a signal mask.

use std::time::Duration;

use rustix::io::Errno;

/// The signals that are blocked during a sleep, in place of the thread's own mask (`pselect`,
/// `ppoll`, `epoll_pwait`).
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// A mask from C.
    #[must_use]
    pub const fn new(mask: libc::sigset_t) -> Self {
        Self(mask)
    }
}

/// Waits for one of these; returns the number that are ready. A number that is not open gets
/// `POLLNVAL`.
///
/// # Errors
/// `EINTR`, `ENOMEM`.
pub(crate) fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<&SignalMask>,
) -> Result<usize, Errno> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), |mask| &raw const mask.0);
    // SAFETY: the length is that of the slice. The other two pointers are null or point to values
    // that outlive the call.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, mask) };
    usize::try_from(ready).map_err(|_| {
        let number = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(number.unwrap_or(libc::EINVAL))
    })
}
