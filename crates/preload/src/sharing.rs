//! Sockets that another program is about to get: by `exec`, `posix_spawn` or a UNIX socket.

use posix::Errno;
use ring::published::Published32;

use crate::filters_unsafe::{self, Kind};
use crate::marks::{self, Mark};
use crate::tags::{self, Tag};
use crate::{kernel_listeners, memory_unsafe, stderr_unsafe};

/// Prepares descriptors for a program that is about to get them, in the parent or in a child of
/// `vfork`. `all`: also those that `exec` closes, since they may be copied before.
pub fn before_exec(all: bool) {
    for (fd, mark) in marks::marked(0, u32::MAX) {
        if matches!(mark, Mark::Socket(_)) {
            prepare(fd, all);
        }
    }
}

/// Prepares a descriptor once. False: it was prepared before, or `exec` closes it.
fn prepare(fd: i32, all: bool) -> bool {
    let stays = || {
        let flags = memory_unsafe::fcntl(fd, libc::F_GETFD, 0);
        flags.is_ok_and(|flags| flags & i64::from(libc::FD_CLOEXEC) == 0)
    };
    if marks::is_prepared(fd) || !(all || stays()) {
        return false;
    }
    before_sharing(fd);
    marks::note_prepared(fd);
    true
}

/// Prepares a descriptor of Millstream's for another program. Neither locks nor allocates.
pub fn before_sharing(fd: i32) {
    let told = match memory_unsafe::is_listening(fd) {
        true => kernel_listeners::share(fd),
        // A listener of the stack's alone has told what it is, when it began to listen.
        false if filters_unsafe::kind(fd) == Some(Kind::Listener) => Ok(()),
        false => tags::write(fd, Tag::Connection),
    };
    if told.is_err() {
        say_untold();
    }
}

/// Says that another program takes a socket of Millstream's for one of the kernel's.
fn say_untold() {
    static HAS_SAID: Published32 = Published32::new(0);
    if HAS_SAID.load() == 0 {
        HAS_SAID.store(1);
        stderr_unsafe::say(
            "millstream: the kernel refuses a packet filter on a socket: another program that gets \
             the socket takes it for the kernel's\n",
        );
    }
}

/// The result of [`before_sharing`] for a message: an error if the receiver cannot use the socket.
pub fn before_sending(fd: i32) -> Result<(), Errno> {
    before_sharing(fd);
    match memory_unsafe::is_listening(fd) {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn sockets_prepared_for_a_program_are_not_prepared_again() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = socket.as_raw_fd();
        marks::set(fd, Mark::Socket(0));
        assert!(!prepare(fd, false), "`exec` closes it");
        assert!(prepare(fd, true));
        assert!(!prepare(fd, true));
        assert_eq!(tags::read(fd), Some(Tag::Connection));
        // The socket listens now, or the number is another socket's.
        marks::set(fd, Mark::Socket(1));
        assert!(prepare(fd, true));
        marks::set(fd, Mark::Kernel);
    }
}
