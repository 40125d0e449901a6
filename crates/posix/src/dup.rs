//! Opening and closing of descriptors, and several descriptors for one description: `dup`, `dup2`,
//! `dup3`, `F_DUPFD`, close-on-exec.

use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Entry, File};
use crate::number::O_CLOEXEC;
use crate::request::Request;
use crate::sockets::{Sockets, Step};

impl Sockets {
    /// Makes a copy of `fd` at a number not below `first`.
    pub(crate) fn dup(&mut self, fd: i32, first: i32, close_on_exec: bool) -> Step {
        let description = self.files.number_of(fd).ok_or(Errno::BADF)?;
        let copy = match self.chosen {
            Some(number) => number,
            None => self.numbers.open_from(first)?,
        };
        self.files.refer(copy, description, close_on_exec);
        Ok(Some(copy.into()))
    }

    pub(crate) fn dup2(&mut self, fd: i32, to: i32) -> Step {
        match fd == to {
            true => self.entry(fd).map(|_| Some(fd.into())),
            false => self.replace(fd, to, false),
        }
    }

    pub(crate) fn dup3(&mut self, fd: i32, to: i32, flags: i32) -> Step {
        if flags & !O_CLOEXEC != 0 || fd == to {
            return Err(Errno::INVAL);
        }
        self.replace(fd, to, flags & O_CLOEXEC != 0)
    }

    /// Makes `to` a copy of `fd`. A descriptor that has the number `to` is closed first, and calls
    /// that wait on it end.
    fn replace(&mut self, fd: i32, to: i32, close_on_exec: bool) -> Step {
        let description = self.files.number_of(fd).ok_or(Errno::BADF)?;
        self.numbers.claim(to)?;
        if self.let_go(to) && self.notes_replaced {
            self.replaced.push(to);
        }
        self.files.refer(to, description, close_on_exec);
        Ok(Some(to.into()))
    }

    /// `FD_CLOEXEC` of a descriptor; false if there is none.
    #[must_use]
    pub fn is_close_on_exec(&self, fd: i32) -> bool {
        let descriptor = self.files.descriptor(fd);
        descriptor.is_some_and(|descriptor| descriptor.close_on_exec)
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: i32, on: bool) {
        if let Some(descriptor) = self.files.descriptor_mut(fd) {
            descriptor.close_on_exec = on;
        }
    }

    /// The numbers of open descriptors in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        self.files.numbers()
    }

    /// Number of descriptors and waiting calls that refer to the description of `fd`; 0: `fd` is
    /// not open.
    #[must_use]
    pub fn references(&self, fd: i32) -> u32 {
        self.files.at(fd).map_or(0, |entry| entry.references)
    }

    /// Like [`wait_for`](Self::wait_for), but the descriptor that the call opens gets `number`,
    /// which the caller has got from the kernel. If the call fails, the number is still the
    /// caller's. A descriptor here that has the number is closed: the kernel would not have
    /// returned the number otherwise.
    pub fn wait_for_at(&mut self, number: i32, request: &Request) -> (Result<i64, Errno>, Reply) {
        let progress = Progress {
            number: Some(number),
            ..Progress::default()
        };
        self.wait_with(progress, request)
    }

    /// Makes a description, and a descriptor for it.
    pub(crate) fn install(&mut self, entry: Entry, close_on_exec: bool) -> Result<i32, Errno> {
        let fd = self.number()?;
        self.put(fd, entry, close_on_exec);
        Ok(fd)
    }

    /// Allocates the number of a descriptor to be opened. [`put`](Self::put) or
    /// [`give_back`](Self::give_back) has to follow.
    pub(crate) fn number(&mut self) -> Result<i32, Errno> {
        match self.chosen {
            Some(number) => Ok(number),
            None => self.numbers.open(),
        }
    }

    /// Frees a number from [`number`](Self::number) that is not needed. A number that the caller
    /// chose stays the caller's.
    pub(crate) fn give_back(&mut self, fd: i32) {
        if self.chosen.is_none() {
            self.numbers.close(fd);
        }
    }

    pub(crate) fn put(&mut self, fd: i32, mut entry: Entry, close_on_exec: bool) {
        self.let_go(fd);
        self.opened += 1;
        entry.cookie = self.opened;
        let is_epoll = matches!(entry.file, File::Epoll(_));
        let description = self.files.describe(entry);
        if is_epoll {
            self.epolls.push(description);
        }
        self.files.refer(fd, description, close_on_exec);
    }

    /// Closes a descriptor and frees its number.
    pub(crate) fn uninstall(&mut self, fd: i32) {
        if self.let_go(fd) {
            self.numbers.close(fd);
        }
    }

    /// Removes a descriptor from the table. Its description goes with its last reference. False:
    /// `fd` was not open.
    fn let_go(&mut self, fd: i32) -> bool {
        let Some(descriptor) = self.files.take(fd) else {
            return false;
        };
        self.drop_reference(fd, descriptor.description);
        true
    }

    /// Drops one reference to a description: that of `fd`, or of a call that waited.
    pub(crate) fn drop_reference(&mut self, fd: i32, description: i32) {
        let entry = self.files.description(description);
        match entry.is_some_and(|entry| entry.references <= 1) {
            true => self.forget_watched(fd, description),
            false => self.orphan_watches(fd),
        }
        if self.files.release(description).is_some() {
            self.epolls.retain(|&epoll| epoll != description);
        }
    }

    /// True if `dup2` has replaced the descriptor that the call waits on.
    pub(crate) fn is_replaced(&self, request: &Request, progress: &mut Progress) -> bool {
        let Some(fd) = request.waiting_fd() else {
            return false;
        };
        let now = self.files.number_of(fd);
        match progress.waits_on {
            None => {
                progress.waits_on = now;
                false
            }
            began => began != now,
        }
    }
}
