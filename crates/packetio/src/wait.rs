//! Sleeping on several ports at once: one `ppoll` over their descriptors and the caller's, with a
//! timeout in ns.
//!
//! The stack calls it after a turn without work; so does the bridge.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::limits::WAIT_FDS_MAX;
use crate::port::Port;

/// The reasons why a [`wait`] ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// Bit *i*: port *i* has work. Its descriptor fired, it reported work before the sleep, or its
    /// deadline passed.
    pub ports: u64,
    /// Bit *i*: `extra[i]` is readable or has an error.
    pub extra: u64,
    /// True if a signal ended the sleep.
    pub interrupted: bool,
}

impl Woken {
    /// True if port `i` has work.
    pub fn port(&self, i: usize) -> bool {
        i < 64 && self.ports >> i & 1 == 1
    }

    /// True if `extra[i]` is readable or has an error.
    pub fn extra(&self, i: usize) -> bool {
        i < 64 && self.extra >> i & 1 == 1
    }

    /// True if the time ran out and nothing else happened.
    pub fn timed_out(&self) -> bool {
        self.ports == 0 && self.extra == 0 && !self.interrupted
    }
}

/// Present time of `CLOCK_MONOTONIC`, ns.
#[inline]
pub fn monotonic_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::Monotonic))
}

/// Present time since 1970 (UTC), ns.
#[inline]
pub fn realtime_ns() -> u64 {
    timespec_ns(clock_gettime(ClockId::Realtime))
}

fn timespec_ns(t: Timespec) -> u64 {
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}

/// Sleeps until a port has work, an extra descriptor is readable, or `timeout` ns have passed
/// (`None`: no limit).
///
/// With `want_tx`, room to send counts as work too. Wake-ups of each port are enabled before the
/// sleep and disabled after it, so none is lost. A port that already has work ends the call without
/// a sleep. A port's own deadline (a delayed frame) shortens the sleep.
///
/// # Errors
/// `InvalidInput` for more than 64 ports or extras, or more than [`WAIT_FDS_MAX`] descriptors
/// altogether; else the error of `ppoll`. `EINTR` is no error.
pub fn wait(
    ports: &mut [&mut dyn Port],
    extra: &[BorrowedFd<'_>],
    want_tx: bool,
    timeout: Option<u64>,
) -> io::Result<Woken> {
    wait_each(ports, extra, if want_tx { u64::MAX } else { 0 }, timeout)
}

/// Sleeps like [`wait`], with bit *i* of `want_tx` for port *i*: room in a port with nothing to
/// send would end the sleep at once.
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_each(
    ports: &mut [&mut dyn Port],
    extra: &[BorrowedFd<'_>],
    want_tx: u64,
    timeout: Option<u64>,
) -> io::Result<Woken> {
    if ports.len() > 64 || extra.len() > 64 {
        return Err(too_many());
    }
    let mut woken = Woken::default();
    for (i, port) in ports.iter_mut().enumerate() {
        woken.ports |= u64::from(port.prepare_wait(want_tx >> i & 1 == 1)) << i;
    }
    let timeout = if woken.ports != 0 { Some(0) } else { timeout };
    let slept = sleep(ports, extra, want_tx, timeout, &mut woken);
    for port in ports.iter_mut() {
        port.finish_wait();
    }
    slept.map(|()| woken)
}

fn sleep(
    ports: &[&mut dyn Port],
    extra: &[BorrowedFd<'_>],
    want_tx: u64,
    timeout: Option<u64>,
    woken: &mut Woken,
) -> io::Result<()> {
    let deadline = ports.iter().filter_map(|p| p.deadline_ns()).min();
    let timeout = match deadline {
        Some(at) => {
            let left = at.saturating_sub(monotonic_ns());
            Some(timeout.map_or(left, |t| t.min(left)))
        }
        None => timeout,
    };
    let Some(mut list) = FdList::gather(ports, extra, want_tx) else {
        return Err(too_many());
    };
    let at = timeout.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    match poll(&mut list.fds[..list.len], at.as_ref()) {
        Ok(_) => list.report(woken),
        Err(rustix::io::Errno::INTR) => woken.interrupted = true,
        Err(e) => return Err(e.into()),
    }
    if deadline.is_some() {
        let now = monotonic_ns();
        for (i, port) in ports.iter().enumerate() {
            let due = port.deadline_ns().is_some_and(|at| at <= now);
            woken.ports |= u64::from(due) << i;
        }
    }
    Ok(())
}

/// The descriptors of one sleep, in memory of the stack frame. `owner[i]` is a port's number, or 64
/// plus the number of an extra.
struct FdList<'a> {
    fds: [PollFd<'a>; WAIT_FDS_MAX],
    owner: [u8; WAIT_FDS_MAX],
    len: usize,
}

impl<'a> FdList<'a> {
    /// Collects the descriptors; `None` if there are too many.
    fn gather(
        ports: &'a [&mut dyn Port],
        extra: &'a [BorrowedFd<'_>],
        want_tx: u64,
    ) -> Option<Self> {
        let filler = rustix::stdio::stdin();
        let mut list = Self {
            fds: std::array::from_fn(|_| PollFd::from_borrowed_fd(filler, PollFlags::empty())),
            owner: [0; WAIT_FDS_MAX],
            len: 0,
        };
        let mut fits = true;
        for (i, port) in ports.iter().enumerate() {
            port.poll_fds(want_tx >> i & 1 == 1, &mut |fd, flags| {
                fits &= list.push(fd, flags, i as u8);
            });
        }
        for (i, fd) in extra.iter().enumerate() {
            fits &= list.push(*fd, PollFlags::IN, 64 + i as u8);
        }
        fits.then_some(list)
    }

    fn push(&mut self, fd: BorrowedFd<'a>, flags: PollFlags, owner: u8) -> bool {
        let Some(slot) = self.fds.get_mut(self.len) else {
            return false;
        };
        *slot = PollFd::from_borrowed_fd(fd, flags);
        self.owner[self.len] = owner;
        self.len += 1;
        true
    }

    fn report(&self, woken: &mut Woken) {
        for (fd, owner) in self.fds[..self.len].iter().zip(self.owner) {
            let fired = u64::from(!fd.revents().is_empty());
            match owner {
                0..64 => woken.ports |= fired << owner,
                _ => woken.extra |= fired << (owner - 64),
            }
        }
    }
}

#[cold]
fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "wait: too many ports or descriptors",
    )
}

#[cfg(test)]
mod tests;
