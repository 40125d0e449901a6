//! The kernel's epoll, which watches kernel descriptors beside an epoll of `posix`.

use libc::epoll_event;
use posix::{EpollEvent, Errno, number};

use crate::errno_unsafe::told;
use crate::memory_unsafe::{by_number, uncancelled};
use crate::real_unsafe;

/// The kernel's `epoll_ctl`.
///
/// # Errors
/// The error of the call.
pub fn kernel_epoll_ctl(epfd: i32, op: i32, fd: i32, event: EpollEvent) -> Result<(), Errno> {
    let mut event = epoll_event {
        events: event.events,
        u64: event.data,
    };
    // SAFETY: a value of ours.
    told(unsafe { real_unsafe::epoll_ctl(epfd, op, fd, &raw mut event) }.into()).map(|_| ())
}

/// The events that the kernel's epoll reports now.
///
/// # Errors
/// The error of the call.
pub fn kernel_epoll_events(epfd: i32, max: usize) -> Result<Vec<EpollEvent>, Errno> {
    let max = max.min(EVENTS_AT_ONCE);
    let mut events = [epoll_event { events: 0, u64: 0 }; EVENTS_AT_ONCE];
    let at = events.as_mut_ptr().expose_provenance();
    // SAFETY: room of ours for as many; it does not wait, and there is no mask.
    let found = unsafe { by_number(libc::SYS_epoll_pwait, [epfd as usize, at, max, 0]) }? as usize;
    let event = |event: &epoll_event| EpollEvent {
        events: event.events,
        data: event.u64,
    };
    Ok(events[..found.min(max)].iter().map(event).collect())
}

/// True if a one-shot watch has reported: the kernel then keeps it without events.
pub fn has_told(epfd: i32, fd: i32) -> bool {
    let read = || std::fs::read_to_string(format!("/proc/self/fdinfo/{epfd}"));
    let Ok(text) = uncancelled(read) else {
        return false;
    };
    let told = |line: &str| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("tfd:") && words.next()?.parse() == Ok(fd);
        let events = words.nth(1).filter(|_| is_it)?;
        let events = u32::from_str_radix(events, 16).ok()?;
        Some(events & !(HOW | number::EPOLLERR | number::EPOLLHUP) == 0)
    };
    text.lines().filter_map(told).any(|is_so| is_so)
}

/// Bits of a watch that are modes, not events.
const HOW: u32 =
    number::EPOLLONESHOT | number::EPOLLET | number::EPOLLEXCLUSIVE | number::EPOLLWAKEUP;

/// Kernel events that one wait reports at most.
const EVENTS_AT_ONCE: usize = 64;

/// Checks that a descriptor is an epoll.
///
/// # Errors
/// `EBADF`; `EINVAL`
pub fn check_epoll(epfd: i32) -> Result<(), Errno> {
    let link = std::fs::read_link(format!("/proc/self/fd/{epfd}"));
    match link {
        Ok(link) if link.as_os_str() == "anon_inode:[eventpoll]" => Ok(()),
        Ok(_) => Err(Errno::INVAL),
        Err(_) => Err(Errno::BADF),
    }
}
