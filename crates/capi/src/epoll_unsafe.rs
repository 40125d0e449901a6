//! Exported calls that wait for several descriptors: epoll and poll.

// The functions have the names and types of C's headers; `include/mtcp_epoll.h` documents them.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_ulong};

use libc::pollfd;
use posix::number::{EPOLL_CTL_DEL, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
use posix::{Errno, PollFd, Request};

use crate::contexts::{Handle, with};
use crate::door::answer_int;
use crate::limits::POLL_ENTRIES_MAX;
use crate::memory_unsafe;

/// `struct mtcp_epoll_event`: not packed, unlike the kernel's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EpollEvent {
    events: u32,
    data: u64,
}

const _: () = assert!(size_of::<EpollEvent>() == 16);

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_epoll_create(mctx: Handle, size: c_int) -> c_int {
    if size <= 0 {
        return answer_int(|| Err(Errno::INVAL));
    }
    mtcp_epoll_create1(mctx, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_epoll_create1(mctx: Handle, flags: c_int) -> c_int {
    let request = Request::EpollCreate { flags };
    answer_int(|| with(mctx, |context| context.sockets.wait_for(&request).0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_epoll_ctl(
    mctx: Handle,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const EpollEvent,
) -> c_int {
    answer_int(|| {
        let event = match op {
            EPOLL_CTL_DEL => EpollEvent { events: 0, data: 0 },
            // SAFETY: C gives an event.
            _ => unsafe { memory_unsafe::read(event) }?,
        };
        let event = posix::EpollEvent {
            events: event.events,
            data: event.data,
        };
        let request = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        with(mctx, |context| context.sockets.wait_for(&request).0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_epoll_wait(
    mctx: Handle,
    epfd: c_int,
    events: *mut EpollEvent,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if !context.sockets.has(epfd) {
                return Err(Errno::BADF);
            }
            let max = usize::try_from(maxevents).unwrap_or(0);
            if max == 0 {
                return Err(Errno::INVAL);
            }
            if events.is_null() {
                return Err(Errno::FAULT);
            }
            context.begin_wait();
            let found = &mut context.events;
            context.sockets.epoll_wait_into(epfd, max, timeout, found)?;
            for (at, event) in found.iter().take(max).enumerate() {
                let event = EpollEvent {
                    events: event.events,
                    data: event.data,
                };
                // SAFETY: C gives room for `maxevents` of them.
                unsafe { memory_unsafe::write(events.add(at), event) }?;
            }
            Ok(found.len() as i64)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_poll(
    mctx: Handle,
    fds: *mut pollfd,
    nfds: c_ulong,
    timeout_ms: c_int,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            context.begin_wait();
            let count = usize::try_from(nfds).unwrap_or(usize::MAX);
            if count > POLL_ENTRIES_MAX {
                return Err(Errno::INVAL);
            }
            // SAFETY: C gives `nfds` entries.
            let asked = unsafe { memory_unsafe::array(fds.cast_const(), count) }?;
            let entries = &mut context.entries;
            entries.clear();
            entries.extend(asked.iter().map(|entry| PollFd {
                fd: entry.fd,
                events: entry.events,
                revents: 0,
            }));
            let ready = context.sockets.poll_entries(entries, timeout_ms)?;
            for (at, entry) in entries.iter().enumerate() {
                let told = pollfd {
                    fd: entry.fd,
                    events: entry.events,
                    revents: entry.revents,
                };
                // SAFETY: C gives `nfds` entries; `asked` is not used any more.
                unsafe { memory_unsafe::write(fds.add(at), told) }?;
            }
            Ok(ready as i64)
        })
    })
}

/// The name of the first event in a mask.
#[unsafe(no_mangle)]
pub extern "C" fn EventToString(event: u32) -> *mut c_char {
    let names: [(u32, &CStr); 6] = [
        (EPOLLIN, c"IN"),
        (EPOLLPRI, c"PRI"),
        (EPOLLOUT, c"OUT"),
        (EPOLLERR, c"ERR"),
        (EPOLLHUP, c"HUP"),
        (EPOLLRDHUP, c"RDHUP"),
    ];
    let name = names.iter().find(|(bit, _)| event & bit != 0);
    let name = name.map_or(c"NONE", |(_, name)| name);
    name.as_ptr().cast_mut()
}
