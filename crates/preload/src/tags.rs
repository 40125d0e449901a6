//! Tags on the kernel's sockets behind descriptors of Millstream's, for programs that get the
//! descriptors by `exec`, `posix_spawn` or a UNIX socket.
//!
//! A tag says that the socket is a connection in the stack of another process, that the kernel has
//! only a part of a listener there, or that the kernel's part of a listener is non-blocking although
//! the listener's calls wait. It stands in front of the socket's packet filter ([`filters_unsafe`]).
//!
//! Linux may refuse filters to a process without privilege, as to a server's child that has changed
//! its user. The tag of a connection is then the socket's send timeout: a value of its own, on a
//! socket that sends nothing.

use std::time::Duration;

use posix::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};

use crate::filters_unsafe::{self, Kind};
use crate::memory_unsafe::{self, with_borrowed};

/// The kind of a tagged socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A connection, or a socket that was about to be one, or a listener of a stack alone.
    Connection,
    /// A listener of another process's stack and of the kernel.
    Listener,
    /// A listener whose calls wait.
    Waits,
}

/// The send timeout of a tagged socket, about 41 years.
const TIMEOUT: Duration = Duration::from_secs(Kind::Connection as u64);

fn write_timeout(fd: i32, timeout: Option<Duration>) -> Result<(), Errno> {
    with_borrowed(fd, |socket| {
        set_socket_timeout(socket, Timeout::Send, timeout)
    })
}

fn has_timeout(fd: i32) -> bool {
    with_borrowed(fd, |socket| socket_timeout(socket, Timeout::Send)) == Ok(Some(TIMEOUT))
}

/// Writes a tag. Neither locks nor allocates, since a child of `vfork` calls it.
///
/// # Errors
/// The kernel refuses it. The other program finds an unconnected socket, the kernel's part of a
/// listener, or a listener whose calls do not wait.
pub fn write(fd: i32, tag: Tag) -> Result<(), Errno> {
    let kind = match tag {
        Tag::Connection => Kind::Connection,
        Tag::Listener => Kind::Strange,
        Tag::Waits => Kind::Waits,
    };
    // A process that may not write filters may have it from one that could.
    if filters_unsafe::kind(fd) == Some(kind) {
        return Ok(());
    }
    match filters_unsafe::write(fd, &[kind as u32]) {
        Err(_) if tag == Tag::Connection => write_timeout(fd, Some(TIMEOUT)),
        written => written,
    }
}

/// Removes a tag, and nothing else.
pub fn remove(fd: i32) {
    if read(fd).is_some() {
        filters_unsafe::remove(fd);
    }
    if has_timeout(fd) {
        // The descriptor is a socket, which takes any timeout.
        let _ = write_timeout(fd, None);
    }
}

/// The tag of a socket; `None`: the descriptor is something else.
pub fn read(fd: i32) -> Option<Tag> {
    let is_unused = || !memory_unsafe::is_connected(fd);
    match filters_unsafe::kind(fd) {
        Some(Kind::Passed) => Some(Tag::Connection),
        Some(Kind::Connection) if is_unused() => Some(Tag::Connection),
        // A connection that the kernel's socket accepts inherits the filter.
        Some(Kind::Strange) if memory_unsafe::is_listening(fd) => Some(Tag::Listener),
        Some(Kind::Waits) if memory_unsafe::is_listening(fd) => Some(Tag::Waits),
        None if has_timeout(fd) && is_unused() => Some(Tag::Connection),
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
        write(fd, Tag::Connection).expect("a tag");
        let copy = socket.try_clone().expect("a copy");
        assert_eq!(read(copy.as_raw_fd()), Some(Tag::Connection));
        remove(copy.as_raw_fd());
        assert_eq!(read(fd), None);
        write(fd, Tag::Waits).expect("a tag");
        assert_eq!(read(fd), None, "it does not listen");
    }
    #[test]
    fn connection_whose_socket_takes_no_filter_is_tagged_all_the_same() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = socket.as_raw_fd();
        let locked = 1_i32.to_ne_bytes();
        memory_unsafe::set_option(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &locked)
            .expect("a locked filter");
        write(fd, Tag::Connection).expect("a tag");
        assert_eq!(read(fd), Some(Tag::Connection));
        write(fd, Tag::Waits).expect_err("no tag");
    }

    #[test]
    fn listener_of_another_process_tagged_is_one_as_long_as_it_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let fd = listener.as_raw_fd();
        write(fd, Tag::Listener).expect("a tag");
        assert_eq!(read(fd), Some(Tag::Listener));
        let address = listener.local_addr().expect("an address");
        let _near = std::net::TcpStream::connect(address).expect("a connection");
        let (far, _) = listener.accept().expect("a connection");
        assert_eq!(read(far.as_raw_fd()), None);
    }
}
