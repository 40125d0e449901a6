//! Tags on the kernel's sockets behind descriptors of Millstream's, for programs that get the
//! descriptors by `exec`, `posix_spawn` or a UNIX socket.
//!
//! A tag says that the socket is a connection in the stack of another process, or that the kernel's
//! part of a listener is non-blocking although the listener's calls wait. It stands in front of the
//! socket's packet filter ([`filters_unsafe`]).

use crate::filters_unsafe::{self, Kind};
use crate::memory_unsafe;

/// The kind of a tagged socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A connection, or a socket that was about to be one.
    Connection,
    /// A listener whose calls wait.
    Waits,
}

/// Writes a tag. If the kernel refuses it, the other program finds an unconnected socket, or one
/// whose calls do not wait.
pub fn write(fd: i32, tag: Tag) {
    let kind = match tag {
        Tag::Connection => Kind::Connection,
        Tag::Waits => Kind::Waits,
    };
    let _ = filters_unsafe::write(fd, &[kind as u32]);
}

/// Removes a tag, and nothing else.
pub fn remove(fd: i32) {
    if read(fd).is_some() {
        filters_unsafe::remove(fd);
    }
}

/// The tag of a socket; `None`: the descriptor is something else.
pub fn read(fd: i32) -> Option<Tag> {
    match filters_unsafe::kind(fd)? {
        Kind::Passed => Some(Tag::Connection),
        Kind::Connection if !memory_unsafe::is_connected(fd) => Some(Tag::Connection),
        // A connection that the kernel's socket accepts inherits the filter.
        Kind::Waits if memory_unsafe::is_listening(fd) => Some(Tag::Waits),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn tag_written_on_a_socket_is_read_from_a_copy_of_it() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = socket.as_raw_fd();
        assert_eq!(read(fd), None);
        write(fd, Tag::Connection);
        let copy = socket.try_clone().expect("a copy");
        assert_eq!(read(copy.as_raw_fd()), Some(Tag::Connection));
        remove(copy.as_raw_fd());
        assert_eq!(read(fd), None);
        write(fd, Tag::Waits);
        assert_eq!(read(fd), None, "it does not listen");
    }
}
