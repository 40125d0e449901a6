//! Sockets that another program is about to get: by `exec`, `posix_spawn` or a UNIX socket.

use posix::Errno;

use crate::marks::{self, Mark};
use crate::tags_unsafe::{self, Tag};
use crate::{kernel_listeners, memory_unsafe};

/// Prepares descriptors for a program that is about to get them, in the parent or in a child of
/// `vfork`. `all`: also those that `exec` closes, since they may be copied before.
pub fn before_exec(all: bool) {
    for (fd, mark) in marks::marked(0, u32::MAX) {
        let stays = || {
            let flags = memory_unsafe::fcntl(fd, libc::F_GETFD, 0);
            flags.is_ok_and(|flags| flags & i64::from(libc::FD_CLOEXEC) == 0)
        };
        if matches!(mark, Mark::Socket(_)) && (all || stays()) {
            before_sharing(fd);
        }
    }
}

/// Prepares a descriptor of Millstream's for another program. Neither locks nor allocates.
pub fn before_sharing(fd: i32) {
    match memory_unsafe::is_listening(fd) {
        true => kernel_listeners::share(fd),
        false => tags_unsafe::write(fd, Tag::Connection),
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
