//! Calls that block the calling thread until they are done.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Entry, File, errno};
use crate::number::*;
use crate::request::{EpollEvent, Request};
use crate::sockets::{Sockets, Step};

/// Longest sleep of a wait for something that may come without an event of the stack, in ns.
const SLICE_NS: u64 = 5_000_000;
/// Kernel descriptors that one sleep watches.
const PARKED_FDS_MAX: usize = 64;

impl Sockets {
    /// Makes a call and waits until it is over.
    ///
    /// # Errors
    /// The call's errno.
    pub fn wait_for(&mut self, request: &Request) -> (Result<i64, Errno>, Reply) {
        self.wait_with(Progress::default(), request)
    }

    pub(crate) fn wait_with(
        &mut self,
        progress: Progress,
        request: &Request,
    ) -> (Result<i64, Errno>, Reply) {
        let mut reply = Reply::None;
        let outcome = self.drive_from(progress, None, |sockets, progress| {
            sockets.step(request, progress, &mut reply)
        });
        // `told` counts refusals in a row of these calls only; other calls in between do not count.
        let moves = matches!(request, Request::Accept { .. } | Request::Connect { .. });
        let outcome = match moves {
            true => self.note_outcome(outcome),
            false => outcome,
        };
        (outcome, reply)
    }

    /// Repeats `step`, sleeping in between, until it returns a value. `fd`: the call may wait for
    /// this descriptor's kernel descriptor.
    pub(crate) fn drive(
        &mut self,
        fd: Option<i32>,
        step: impl FnMut(&mut Self, &mut Progress) -> Step,
    ) -> Result<i64, Errno> {
        self.drive_from(Progress::default(), fd, step)
    }

    fn drive_from(
        &mut self,
        mut progress: Progress,
        fd: Option<i32>,
        mut step: impl FnMut(&mut Self, &mut Progress) -> Step,
    ) -> Result<i64, Errno> {
        loop {
            if let Some(value) = step(self, &mut progress)? {
                return Ok(value);
            }
            let (context, entry) = match fd.and_then(|fd| self.with_context(fd)) {
                Some((context, entry)) => (context, Some(entry)),
                None => (self.context(), None),
            };
            let mut until_ns = progress.deadline_ns;
            let kernel = match entry.map(|entry| &entry.file) {
                Some(File::Kernel(kernel)) => Some(kernel.as_fd()),
                _ => None,
            };
            if kernel.is_some() || progress.is_unannounced {
                let slice_ns = context.now_ns() + SLICE_NS;
                until_ns = Some(until_ns.map_or(slice_ns, |until_ns| until_ns.min(slice_ns)));
            }
            let parked = context.park(until_ns, kernel.as_slice());
            // A signal does not end a call that waits without a limit, as with `SA_RESTART` in
            // Linux. A call with a limit always ends.
            let goes_on = progress.deadline_ns.is_none();
            let ended = match parked {
                Ok(by_signal) => (by_signal && !goes_on).then_some(Errno::INTR),
                Err(error) => Some(errno(&error)),
            };
            match ended {
                None => {}
                Some(_) if progress.done > 0 => return Ok(progress.done as i64),
                // Events that came with the signal are still reported.
                Some(Errno::INTR) => {
                    progress.is_interrupted = true;
                    return match step(self, &mut progress)? {
                        Some(value) => Ok(value),
                        None => Err(Errno::INTR),
                    };
                }
                Some(why) => return Err(why),
            }
        }
    }

    /// `epoll_wait`: replaces the contents of `found` by up to `max` events.
    ///
    /// # Errors
    /// The call's errno; `EINTR` by an [`Interrupter`](millstream::Interrupter) and, if the context
    /// has one, by a signal.
    pub fn epoll_wait_into(
        &mut self,
        epfd: i32,
        max: usize,
        timeout_ms: i32,
        found: &mut Vec<EpollEvent>,
    ) -> Result<(), Errno> {
        found.clear();
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let deadline_ns = self.deadline_ns(timeout);
        loop {
            // Notifications come without an event of the stack.
            let slice = match self.has_notifications {
                true => Some(Duration::from_nanos(SLICE_NS)),
                false => None,
            };
            let left = deadline_ns.map(|at_ns| at_ns.saturating_sub(self.context.now_ns()));
            let left = left.map(Duration::from_nanos);
            let wait = [slice, left].into_iter().flatten().min();
            self.epoll_found(epfd, max, wait, found)?;
            let is_over = deadline_ns.is_some_and(|at_ns| self.context.now_ns() >= at_ns);
            if !found.is_empty() || is_over {
                break;
            }
        }
        if timeout_ms != 0 {
            self.end_sleeping_wait();
        }
        Ok(())
    }

    /// Ends a wait that could sleep, for callers that sleep apart from their looks. The program
    /// calls the next wait as soon as it has handled its events, and its answers leave then.
    pub fn end_sleeping_wait(&mut self) {
        self.polled_last = -1;
    }

    /// The end of a wait that begins now, on the context's clock.
    fn deadline_ns(&self, timeout: Option<Duration>) -> Option<u64> {
        let ns = u64::try_from(timeout?.as_nanos()).unwrap_or(u64::MAX);
        Some(self.context.now_ns().saturating_add(ns))
    }

    /// `poll`: sets `revents` of each entry and returns the number of entries that have some.
    ///
    /// # Errors
    /// `EINTR`; `ENETDOWN` if the wire is gone.
    pub fn poll_entries(
        &mut self,
        fds: &mut [crate::PollFd],
        timeout_ms: i32,
    ) -> Result<usize, Errno> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let deadline_ns = self.deadline_ns(timeout);
        let mut by_signal = false;
        loop {
            // A call that does not wait still sees everything that has happened so far.
            self.context.turn().map_err(|error| errno(&error))?;
            for entry in fds.iter_mut() {
                entry.revents = self.poll_one(entry.fd, entry.events);
            }
            let count = fds.iter().filter(|entry| entry.revents != 0).count();
            let now_ns = self.context.now_ns();
            if count > 0 || deadline_ns.is_some_and(|at_ns| now_ns >= at_ns) {
                return Ok(count);
            }
            if by_signal {
                return Err(Errno::INTR);
            }
            let kernels = self.kernels(fds);
            let mut until_ns = deadline_ns;
            if !kernels.is_empty() || self.has_notifications {
                let slice_ns = now_ns + SLICE_NS;
                until_ns = Some(until_ns.map_or(slice_ns, |at_ns| at_ns.min(slice_ns)));
            }
            let parked = self.context.park(until_ns, &kernels);
            by_signal = match parked.map_err(|error| errno(&error)) {
                // Events that came with the interruption are still reported.
                Err(Errno::INTR) => true,
                parked => parked?,
            };
        }
    }

    fn kernels(&self, fds: &[crate::PollFd]) -> Vec<BorrowedFd<'_>> {
        let kernel = |entry: &crate::PollFd| match &self.with_context(entry.fd)?.1.file {
            File::Kernel(kernel) if entry.events & POLLIN != 0 => Some(kernel.as_fd()),
            File::Epoll(epoll) if entry.events & POLLIN != 0 => epoll.kernel_fd(),
            _ => None,
        };
        fds.iter().filter_map(kernel).take(PARKED_FDS_MAX).collect()
    }

    /// Opens a descriptor for a kernel descriptor.
    ///
    /// # Errors
    /// `EMFILE`
    pub fn adopt(&mut self, kernel: OwnedFd, nonblocking: bool) -> Result<i32, Errno> {
        let entry = Entry {
            nonblocking,
            ..Entry::of(File::Kernel(kernel), false)
        };
        self.install(entry, false)
    }

    /// True if a kernel descriptor is behind `fd`.
    #[must_use]
    pub fn is_kernel(&self, fd: i32) -> bool {
        self.kernel_fd(fd).is_ok()
    }

    /// The kernel descriptor behind `fd`.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` if `fd` is a socket or an epoll.
    pub fn kernel_fd(&self, fd: i32) -> Result<BorrowedFd<'_>, Errno> {
        match &self.with_context(fd).ok_or(Errno::BADF)?.1.file {
            File::Kernel(kernel) => Ok(kernel.as_fd()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Closes a socket and resets its connection, whatever `SO_LINGER` says.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `ENOTCONN` if there is no connection, in which case the socket stays
    /// open.
    pub fn abort(&mut self, fd: i32) -> Result<(), Errno> {
        let File::Stream(stream) = &self.socket_entry(fd)?.file else {
            return Err(Errno::NOTCONN);
        };
        stream.tcp.set_abort_on_close(true);
        self.uninstall(fd);
        Ok(())
    }

    /// Sets the local address from which a socket will connect; the port is chosen then. No effect
    /// on a socket that is bound or has begun to connect.
    pub fn set_source(&mut self, fd: i32, source: IpAddr) {
        if let Some((_, entry)) = self.with_context(fd)
            && let File::Idle(socket) = &entry.file
        {
            socket.set_source(source);
        }
    }

    /// `SO_RCVLOWAT` of a connection: the number of bytes that a blocking `recv` waits for, at
    /// least 1.
    #[must_use]
    pub fn recv_lowat(&mut self, fd: i32) -> u32 {
        match self.entry(fd).map(|entry| &entry.file) {
            Ok(File::Stream(stream)) => stream.tcp.options().recv_lowat(),
            _ => 1,
        }
    }

    /// True if calls on the descriptor do not wait (`O_NONBLOCK`).
    ///
    /// # Errors
    /// `EBADF`
    #[inline]
    pub fn is_nonblocking(&mut self, fd: i32) -> Result<bool, Errno> {
        Ok(self.entry(fd)?.nonblocking)
    }

    /// True if the send buffer of a connection has room for at least one byte.
    #[must_use]
    pub fn has_room(&mut self, fd: i32) -> bool {
        match self.entry(fd).map(|entry| &entry.file) {
            Ok(File::Stream(stream)) => stream.tcp.has_room(),
            _ => true,
        }
    }

    /// True for an IPv6 socket.
    #[must_use]
    pub fn is_v6(&self, fd: i32) -> bool {
        self.with_context(fd).is_some_and(|(_, entry)| entry.is_v6)
    }
}
