//! Listeners that a program passes to another one over a UNIX socket (`SCM_RIGHTS`).
//!
//! The passed descriptor is the kernel's socket that keeps the number, which does not show that
//! Millstream has a listener there. So the sender writes the listener's specification onto that
//! socket, as a packet filter that loads constants and accepts everything. The filter is harmless:
//! only the kernel's socket of a listener on both sides receives packets at all. Every process that
//! has the socket can read the filter. The receiver then has the listener like a child of `fork`.

use std::mem::size_of;

use libc::{c_int, c_void, cmsghdr, msghdr, size_t, socklen_t};
use posix::Errno;

use crate::door_unsafe::told;
use crate::handover::{self, Listener};
use crate::marks::{self, Mark};
use crate::{engine, log, memory_unsafe, real_unsafe, sharing, tags_unsafe};

/// Instructions of a classic BPF filter: load a constant, accept everything.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// The first constant of a filter that holds a specification.
const MAGIC: u32 = 0x4d69_6c6c;
/// `SO_GET_FILTER`, which has the number of `SO_ATTACH_FILTER`.
const SO_GET_FILTER: c_int = libc::SO_ATTACH_FILTER;
/// Linux's limit of instructions (`BPF_MAXINSNS`).
const INSTRUCTIONS_MAX: usize = 4096;

/// The constants that encode a text: a magic number, the length in bytes, the bytes.
fn constants(text: &str) -> Vec<u32> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_ne_bytes(word)
    };
    let words = text.as_bytes().chunks(4).map(word);
    [MAGIC, text.len() as u32]
        .into_iter()
        .chain(words)
        .collect()
}

/// The text in the constants of a filter; `None`: it is another filter.
fn text(constants: &[u32]) -> Option<String> {
    let [MAGIC, len, words @ ..] = constants else {
        return None;
    };
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(*len as usize);
    String::from_utf8(bytes).ok()
}

fn write_on(fd: c_int, listener: &Listener) -> Result<(), Errno> {
    let instruction = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let line = handover::line(&(fd, 0, listener.clone()));
    let mut filter: Vec<_> = constants(&line)
        .into_iter()
        .map(|word| instruction(LOAD, word))
        .collect();
    filter.push(instruction(RETURN, u32::MAX));
    if filter.len() > INSTRUCTIONS_MAX {
        return Err(Errno::NOBUFS);
    }
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let (at, len) = (&raw const program, size_of::<libc::sock_fprog>());
    // SAFETY: a program of ours, which the kernel copies.
    let set = unsafe {
        real_unsafe::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            at.cast(),
            len as socklen_t,
        )
    };
    told(set.into()).map(|_| ())
}

/// The listener that a sender wrote onto a socket; `None`: the descriptor is something else.
fn read_from(fd: c_int) -> Option<Listener> {
    let ask = |at: *mut c_void, room: usize| {
        let mut len = room as socklen_t;
        // SAFETY: room of ours for so many instructions, in which the kernel counts here.
        let got = unsafe {
            real_unsafe::getsockopt(fd, libc::SOL_SOCKET, SO_GET_FILTER, at, &raw mut len)
        };
        told(got.into()).ok().map(|_| len as usize)
    };
    let count = ask(std::ptr::null_mut(), 0)?;
    if !(3..=INSTRUCTIONS_MAX).contains(&count) {
        return None;
    }
    let empty = libc::sock_filter {
        code: 0,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let mut filter = vec![empty; count];
    ask(filter.as_mut_ptr().cast(), count)?;
    let constants: Vec<u32> = filter[..count - 1].iter().map(|one| one.k).collect();
    let mut all = handover::parse(&text(&constants)?)?;
    let (_, _, listener) = all.pop()?;
    // A connection accepted by the kernel's socket inherits the filter, and is no listener.
    let is_listener = !listener.is_both || memory_unsafe::is_listening(fd);
    is_listener.then_some(listener)
}

/// The descriptors in a message.
///
/// # Safety
/// The message is libc's, and its control data is as long as it says.
unsafe fn descriptors(message: &msghdr) -> Vec<c_int> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise, for all of these.
    unsafe {
        let mut at: *const cmsghdr = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if ((*at).cmsg_level, (*at).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let head = libc::CMSG_LEN(0) as usize;
                let bytes = ((*at).cmsg_len as usize).saturating_sub(head);
                let fds: *const c_int = libc::CMSG_DATA(at).cast();
                all.extend((0..bytes / size_of::<c_int>()).map(|n| fds.add(n).read_unaligned()));
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    all
}

/// Before a message is sent over a kernel socket: writes specifications onto the listeners in it.
///
/// # Safety
/// The promise of libc's `sendmsg`.
pub unsafe fn before_send(at: *const msghdr) {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { memory_unsafe::value(at) }) else {
        return;
    };
    if message.msg_control.is_null() || message.msg_controllen < CONTROL_LEAST {
        return;
    }
    if engine::settings().is_none() || engine::is_inside() {
        return;
    }
    // SAFETY: the caller's promise.
    for fd in unsafe { descriptors(&message) } {
        let Mark::Socket(key) = marks::of(fd) else {
            continue;
        };
        let told = match engine::locked(|engine| Ok(engine.specification(key))) {
            Ok(Some(listener)) => write_on(fd, &listener),
            _ => sharing::before_sending(fd),
        };
        if let Err(errno) = told {
            log::once(&format!(
                "a socket on the wire is passed to another program, which finds it unusable: \
                 {errno}"
            ));
        }
    }
}

/// After a message was received over a kernel socket: adds the listeners in it.
///
/// # Safety
/// The promise of libc's `recvmsg`, which has filled the message.
pub unsafe fn after_receive(at: *const msghdr) {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { memory_unsafe::value(at) }) else {
        return;
    };
    if message.msg_control.is_null() || message.msg_controllen < CONTROL_LEAST {
        return;
    }
    if engine::settings().is_none() || engine::is_inside() {
        return;
    }
    // SAFETY: the caller's promise.
    for fd in unsafe { descriptors(&message) } {
        match (read_from(fd), tags_unsafe::read(fd)) {
            (Some(listener), _) => engine::inherit(vec![(fd, 0, listener)]),
            (None, Some(tag)) => engine::add_strange(fd, tag),
            (None, None) => {}
        }
    }
}

/// Least length of control data with a descriptor.
const CONTROL_LEAST: size_t = size_of::<cmsghdr>() + size_of::<c_int>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_as_constants_of_a_filter() {
        for line in ["", "a", "6 0 10.0.0.2:80 4 1 0 511 1/2=01000000\n"] {
            assert_eq!(text(&constants(line)).as_deref(), Some(line));
        }
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[1, 2, 3]), None);
    }

    #[test]
    fn listener_written_on_a_socket_is_read_from_a_copy_of_it() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        assert!(read_from(fd).is_none());
        let listener = Listener {
            local: "10.0.0.2:80".parse().expect("an address"),
            is_v6: false,
            options: vec![(1, 2, vec![1, 0, 0, 0])],
            is_nonblocking: true,
            is_both: false,
            backlog: Some(511),
            is_open: false,
        };
        write_on(fd, &listener).expect("a filter");
        let copy = socket.try_clone().expect("a copy");
        let read = read_from(std::os::fd::AsRawFd::as_raw_fd(&copy)).expect("a listener");
        assert_eq!(format!("{read:?}"), format!("{listener:?}"));
    }
}
