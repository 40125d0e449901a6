//! Descriptors that come and go, and several of them for one description: `dup`, `dup2`, `dup3`,
//! `F_DUPFD`, close-on-exec.

use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Entry, File};
use crate::number::O_CLOEXEC;
use crate::request::Request;
use crate::sockets::{Sockets, Step};

impl Sockets {
    /// A copy of `fd` at a number not below `first`.
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

    /// Makes `to` a copy of `fd`; another descriptor of that number is closed first, and a call
    /// that waits on it ends.
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

    /// The numbers of the descriptors, in order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        self.files.numbers()
    }

    /// How many descriptors, and calls that wait, refer to what `fd` stands for; 0: nothing is open
    /// there.
    #[must_use]
    pub fn references(&self, fd: i32) -> u32 {
        self.files.at(fd).map_or(0, |entry| entry.references)
    }

    /// As [`wait_for`](Self::wait_for); the descriptor that the call opens gets this number, which
    /// the caller has taken from the kernel. It is the caller's again if the call fails. A
    /// descriptor of ours that has the number already is closed: the kernel would not have given
    /// the number otherwise.
    pub fn wait_for_at(&mut self, number: i32, request: &Request) -> (Result<i64, Errno>, Reply) {
        let progress = Progress {
            number: Some(number),
            ..Progress::default()
        };
        self.wait_with(progress, request)
    }

    /// A new description, and a descriptor for it.
    pub(crate) fn install(&mut self, entry: Entry, close_on_exec: bool) -> Result<i32, Errno> {
        let fd = self.number()?;
        self.put(fd, entry, close_on_exec);
        Ok(fd)
    }

    /// A number for a descriptor that is about to be opened; [`put`](Self::put) or
    /// [`give_back`](Self::give_back) follows.
    pub(crate) fn number(&mut self) -> Result<i32, Errno> {
        match self.chosen {
            Some(number) => Ok(number),
            None => self.numbers.open(),
        }
    }

    /// A number that [`number`](Self::number) gave is not needed. One that the caller has chosen is
    /// for the caller to give back.
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

    /// A descriptor is no more.
    pub(crate) fn uninstall(&mut self, fd: i32) {
        if self.let_go(fd) {
            self.numbers.close(fd);
        }
    }

    /// A number stands for nothing any more; the description goes with its last reference. False:
    /// it stood for nothing before.
    fn let_go(&mut self, fd: i32) -> bool {
        let Some(descriptor) = self.files.take(fd) else {
            return false;
        };
        self.drop_reference(fd, descriptor.description);
        true
    }

    /// One reference to a description is gone: `fd`, or that of a call which waited.
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

    /// Another call has put something else in the place of the descriptor that this one waits on.
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
