//! Tags on the kernel's sockets behind descriptors of Millstream's, for programs that get the
//! descriptors by `exec`, `posix_spawn` or a UNIX socket.
//!
//! A tag is a packet filter that loads a constant and accepts everything. It says that the socket
//! is a connection in the stack of another process, or that the kernel's part of a listener is
//! non-blocking although the listener's calls wait. Tags are written without memory of their own,
//! so a child of `vfork` can write them.

use std::mem::size_of;

use libc::{c_int, c_void, sock_filter, socklen_t};

use crate::door_unsafe::told;
use crate::{memory_unsafe, real_unsafe};

/// The kind of a tagged socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A connection, or a socket that was about to be one.
    Connection,
    /// A listener whose calls wait.
    Waits,
}

/// Instructions of a classic BPF filter: load a constant, accept everything.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// `SO_GET_FILTER`, which has the number of `SO_ATTACH_FILTER`.
const SO_GET_FILTER: c_int = libc::SO_ATTACH_FILTER;

const CONNECTION: u32 = 0x4d69_6c43;
const WAITS: u32 = 0x4d69_6c57;

const fn instruction(code: u16, k: u32) -> sock_filter {
    let (jt, jf) = (0, 0);
    sock_filter { code, jt, jf, k }
}

/// Writes a tag. If the kernel refuses it, the other program finds an unconnected socket, or one
/// whose calls do not wait.
pub fn write(fd: c_int, tag: Tag) {
    let constant = match tag {
        Tag::Connection => CONNECTION,
        Tag::Waits => WAITS,
    };
    let mut filter = [instruction(LOAD, constant), instruction(RETURN, u32::MAX)];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    set(
        fd,
        libc::SO_ATTACH_FILTER,
        (&raw const program).cast(),
        size_of::<libc::sock_fprog>(),
    );
}

/// Removes a tag, and nothing else.
pub fn remove(fd: c_int) {
    let none = 0_i32;
    if read(fd).is_some() {
        set(
            fd,
            libc::SO_DETACH_FILTER,
            (&raw const none).cast(),
            size_of::<c_int>(),
        );
    }
}

fn set(fd: c_int, name: c_int, at: *const c_void, len: usize) {
    // SAFETY: a value of the caller's, which the kernel copies.
    let _ = unsafe { real_unsafe::setsockopt(fd, libc::SOL_SOCKET, name, at, len as socklen_t) };
}

/// The tag of a socket; `None`: the descriptor is something else.
pub fn read(fd: c_int) -> Option<Tag> {
    let mut filter = [instruction(0, 0); 2];
    let ask = |at: *mut c_void, room: usize| {
        let mut len = room as socklen_t;
        // SAFETY: room of ours for so many instructions, in which the kernel counts here.
        let got = unsafe {
            real_unsafe::getsockopt(fd, libc::SOL_SOCKET, SO_GET_FILTER, at, &raw mut len)
        };
        told(got.into()).ok().map(|_| len as usize)
    };
    if ask(std::ptr::null_mut(), 0)? != filter.len() {
        return None;
    }
    ask(filter.as_mut_ptr().cast(), filter.len())?;
    match filter[0].k {
        CONNECTION if !memory_unsafe::is_connected(fd) => Some(Tag::Connection),
        // A connection that the kernel's socket accepts inherits the filter.
        WAITS if memory_unsafe::is_listening(fd) => Some(Tag::Waits),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_written_on_a_socket_is_read_from_a_copy_of_it() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        assert_eq!(read(fd), None);
        write(fd, Tag::Connection);
        let copy = socket.try_clone().expect("a copy");
        let copy = std::os::fd::AsRawFd::as_raw_fd(&copy);
        assert_eq!(read(copy), Some(Tag::Connection));
        remove(copy);
        assert_eq!(read(fd), None);
        write(fd, Tag::Waits);
        assert_eq!(read(fd), None, "it does not listen");
    }
}
