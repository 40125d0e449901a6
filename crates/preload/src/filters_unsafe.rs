//! Constants in front of the packet filter of a kernel socket, which every process that has the
//! socket can read.
//!
//! ```text
//! load CONSTANT   one instruction for each constant
//! load 0          what a filter finds at its start
//! ...             the program's own filter, or `accept everything`
//! ```
//!
//! The constants change nothing about the packets that the socket receives. A kind of constants
//! begins with a word of its own ([`Kind`]), which says how many there are.

use std::mem::size_of;

use libc::{c_int, c_void, sock_filter, socklen_t};
use posix::Errno;

use crate::errno_unsafe::told;
use crate::limits::{FILTER_MAX, INSTRUCTIONS_MAX};
use crate::real_unsafe;

/// Instructions of a classic BPF filter: load a constant, return a constant.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// `SO_GET_FILTER`, which has the number of `SO_ATTACH_FILTER`.
const SO_GET_FILTER: c_int = libc::SO_ATTACH_FILTER;

/// The first constant, which says what the others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A connection of another process; no further constant.
    Connection = 0x4d69_6c43,
    /// A listener of another process, of which the kernel has a part; no further constant.
    Strange = 0x4d69_6c53,
    /// A listener whose calls wait; no further constant.
    Waits = 0x4d69_6c57,
    /// A connection in a message: the process that sent it, and a number.
    Passed = 0x4d69_6c50,
    /// The specification of a listener: its length in bytes, and the bytes.
    Listener = 0x4d69_6c6c,
}

impl Kind {
    fn of(word: u32) -> Option<Self> {
        let short = [Self::Connection, Self::Strange, Self::Waits];
        let mut all = short.into_iter().chain([Self::Passed, Self::Listener]);
        all.find(|kind| *kind as u32 == word)
    }

    /// The number of constants, of which these are the first instructions.
    fn count(self, filter: &[sock_filter]) -> usize {
        match (self, filter) {
            (Self::Listener, [_, len, ..]) => 2 + (len.k as usize).div_ceil(4),
            (Self::Passed, _) => 3,
            _ => 1,
        }
    }
}

const fn instruction(code: u16, k: u32) -> sock_filter {
    let (jt, jf) = (0, 0);
    sock_filter { code, jt, jf, k }
}

const EMPTY: sock_filter = instruction(0, 0);
const ACCEPT: sock_filter = instruction(RETURN, u32::MAX);

fn is_same(one: &sock_filter, other: &sock_filter) -> bool {
    (one.code, one.jt, one.jf, one.k) == (other.code, other.jt, other.jf, other.k)
}

/// The kind of the constants in front of a filter, and the instructions before the program's own.
fn ours(filter: &[sock_filter]) -> Option<(Kind, usize)> {
    let first = filter.first().filter(|first| first.code == LOAD)?;
    let kind = Kind::of(first.k)?;
    let before = kind.count(filter) + 1;
    (before < filter.len()).then_some((kind, before))
}

/// Writes constants in front of a socket's filter, in place of those that are there. Neither locks
/// nor allocates, since a child of `vfork` calls it.
///
/// # Errors
/// `ENOBUFS`: the program's filter is longer than [`FILTER_MAX`]. The error of the kernel, which
/// does not show filters of eBPF.
pub fn write(fd: c_int, constants: &[u32]) -> Result<(), Errno> {
    let mut room = [EMPTY; FILTER_MAX];
    let count = get(fd, &mut room)?;
    let from = ours(&room[..count]).map_or(0, |(_, before)| before);
    let own = match &room[from..count] {
        [] => &[ACCEPT],
        own => own,
    };
    let mut filter = [EMPTY; 2 * FILTER_MAX];
    let len = constants.len() + 1 + own.len();
    let whole = filter.get_mut(..len).ok_or(Errno::NOBUFS)?;
    let words = constants.iter().chain(&[0]);
    for (at, word) in whole.iter_mut().zip(words) {
        *at = instruction(LOAD, *word);
    }
    whole[constants.len() + 1..].copy_from_slice(own);
    attach(fd, whole)
}

/// Removes constants, and leaves the program's own filter.
pub fn remove(fd: c_int) {
    let mut room = [EMPTY; FILTER_MAX];
    let Ok(count) = get(fd, &mut room) else {
        return;
    };
    let Some((_, before)) = ours(&room[..count]) else {
        return;
    };
    // The kernel refuses both if the program has locked the filter, whose constants then stay.
    let _ = match &mut room[before..count] {
        [only] if is_same(only, &ACCEPT) => set(fd, libc::SO_DETACH_FILTER, &0_i32),
        own => attach(fd, own),
    };
}

/// The kind of the constants in front of a socket's filter. `None`: the descriptor is something
/// else. Neither locks nor allocates.
pub fn kind(fd: c_int) -> Option<Kind> {
    let mut room = [EMPTY; FILTER_MAX];
    let count = get(fd, &mut room).ok()?;
    ours(&room[..count]).map(|(kind, _)| kind)
}

/// The constants in front of a socket's filter.
pub fn constants(fd: c_int) -> Option<Vec<u32>> {
    let mut room = vec![EMPTY; INSTRUCTIONS_MAX];
    let count = get(fd, &mut room).ok()?;
    let (_, before) = ours(&room[..count])?;
    Some(room[..before - 1].iter().map(|one| one.k).collect())
}

/// Reads a filter; returns the number of its instructions, 0 without one.
fn get(fd: c_int, room: &mut [sock_filter]) -> Result<usize, Errno> {
    let ask = |at: *mut c_void, room: usize| {
        let mut len = room as socklen_t;
        // SAFETY: room of ours for so many instructions, in which the kernel counts here.
        let got = unsafe {
            real_unsafe::getsockopt(fd, libc::SOL_SOCKET, SO_GET_FILTER, at, &raw mut len)
        };
        told(got.into()).map(|_| len as usize)
    };
    let count = ask(std::ptr::null_mut(), 0)?;
    match count {
        0 => Ok(0),
        _ if count > room.len() => Err(Errno::NOBUFS),
        _ => ask(room.as_mut_ptr().cast(), count),
    }
}

fn attach(fd: c_int, filter: &mut [sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    set(fd, libc::SO_ATTACH_FILTER, &program)
}

fn set<T>(fd: c_int, name: c_int, value: &T) -> Result<(), Errno> {
    let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>());
    // SAFETY: a value of ours, which the kernel copies.
    let set = unsafe { real_unsafe::setsockopt(fd, libc::SOL_SOCKET, name, at, len as socklen_t) };
    told(set.into()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::memory_unsafe;

    /// A filter that no tag has.
    fn filter() -> [sock_filter; 2] {
        [instruction(LOAD, 7), instruction(RETURN, 1_000)]
    }

    fn all(fd: c_int) -> Vec<(u16, u32)> {
        let mut room = [EMPTY; FILTER_MAX];
        let count = get(fd, &mut room).expect("a filter");
        room[..count].iter().map(|one| (one.code, one.k)).collect()
    }

    #[test]
    fn filter_of_the_program_stays_behind_constants_and_after_them() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = socket.as_raw_fd();
        attach(fd, &mut filter()).expect("a filter");
        let own = all(fd);
        for constants in [&[Kind::Waits as u32][..], &[Kind::Listener as u32, 5, 1, 2]] {
            write(fd, constants).expect("constants");
            let words: Vec<(u16, u32)> = constants.iter().map(|word| (LOAD, *word)).collect();
            assert_eq!(all(fd), [&words[..], &[(LOAD, 0)], &own].concat());
        }
        remove(fd);
        assert_eq!(all(fd), own);
    }

    #[test]
    fn socket_without_a_filter_has_none_after_its_constants() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = socket.as_raw_fd();
        assert_eq!((kind(fd), constants(fd)), (None, None));
        write(fd, &[Kind::Connection as u32]).expect("constants");
        assert_eq!(kind(fd), Some(Kind::Connection));
        assert_eq!(constants(fd), Some(vec![Kind::Connection as u32]));
        remove(fd);
        assert_eq!(all(fd), []);
    }
}
