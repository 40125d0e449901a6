//! The owner of each descriptor, found with one load by every intercepted call.
//!
//! Marks are written with the engine's lock held, and by `socket`. They are read without the lock:
//! a program that closes a descriptor while another thread uses it may get either answer from the
//! kernel, too.

use ring::published::Published32;

use crate::limits::FDS_MAX;

/// The owner of a descriptor. A key is that of the engine's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The kernel's only.
    Kernel,
    /// A TCP socket that is not decided yet. Until then the kernel answers.
    Undecided(usize),
    /// A socket of Millstream's. The kernel's descriptor keeps the number.
    Socket(usize),
    /// The kernel's epoll, with an epoll of `posix` for Millstream's sockets beside it.
    Epoll(usize),
    /// An epoll of the kernel's that has never watched a socket of Millstream's.
    Watcher(usize),
    /// The kernel's part of an inherited listener. The kernel's socket is non-blocking, though the
    /// listener's calls wait.
    Listener(usize),
    /// A descriptor of the library, hidden from the program.
    Own,
}

impl Mark {
    /// The entry of a descriptor that Millstream can tell events of.
    pub fn key(self) -> Option<usize> {
        match self {
            Mark::Socket(key) | Mark::Epoll(key) => Some(key),
            _ => None,
        }
    }
}

static MARKS: [Published32; FDS_MAX] = [const { Published32::new(0) }; FDS_MAX];

/// Not zero for a descriptor whose socket is prepared for other programs, since its mark was
/// written.
static PREPARED: [Published32; FDS_MAX] = [const { Published32::new(0) }; FDS_MAX];

/// Notes that the socket of a descriptor is prepared for programs that get it.
pub fn note_prepared(fd: i32) {
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| PREPARED.get(fd)) {
        place.store(1);
    }
}

/// True if nothing has to be done before another program gets the descriptor.
pub fn is_prepared(fd: i32) -> bool {
    let place = usize::try_from(fd).ok().and_then(|fd| PREPARED.get(fd));
    place.is_some_and(|place| place.load() != 0)
}

/// Not zero once a descriptor was Millstream's.
static HAS_HAD_OURS: Published32 = Published32::new(0);

/// Some descriptor is Millstream's, or was. Until then calls with many descriptors pass through
/// without a look at the caller's memory.
#[inline]
pub fn has_had_ours() -> bool {
    HAS_HAD_OURS.load() != 0
}

/// Reads a mark.
#[inline]
pub fn of(fd: i32) -> Mark {
    match MARKS.get(fd as usize) {
        None => Mark::Kernel,
        Some(mark) => match mark.load() {
            0 => Mark::Kernel,
            other => unpack(other),
        },
    }
}

fn unpack(mark: u32) -> Mark {
    let key = (mark >> 3) as usize;
    match mark & 7 {
        1 => Mark::Undecided(key),
        2 => Mark::Socket(key),
        3 => Mark::Epoll(key),
        4 => Mark::Own,
        5 => Mark::Listener(key),
        6 => Mark::Watcher(key),
        _ => Mark::Kernel,
    }
}

/// Writes a mark, also again if the descriptor's socket has begun to listen. Descriptors beyond the
/// table stay the kernel's.
pub fn set(fd: i32, mark: Mark) {
    let value = match mark {
        Mark::Kernel => 0,
        Mark::Undecided(key) => 1 | (key as u32) << 3,
        Mark::Socket(key) => 2 | (key as u32) << 3,
        Mark::Epoll(key) => 3 | (key as u32) << 3,
        Mark::Own => 4,
        Mark::Listener(key) => 5 | (key as u32) << 3,
        Mark::Watcher(key) => 6 | (key as u32) << 3,
    };
    if matches!(mark, Mark::Socket(_) | Mark::Epoll(_)) {
        HAS_HAD_OURS.store(1);
    }
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| MARKS.get(fd)) {
        place.store(value);
        PREPARED[fd as usize].store(0);
    }
}

/// The descriptors in a range that are not the kernel's only.
pub fn marked(from: u32, to: u32) -> impl Iterator<Item = (i32, Mark)> {
    let end = (to as usize).saturating_add(1).min(FDS_MAX);
    let fds = (from as usize..end).map(|fd| (fd as i32, of(fd as i32)));
    fds.filter(|(_, mark)| *mark != Mark::Kernel)
}

/// Replaces one mark by another in all descriptors.
pub fn replace(old: Mark, new: Mark) {
    for (fd, _) in marked(0, u32::MAX).filter(|(_, mark)| *mark == old) {
        set(fd, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_written_are_read_and_others_are_the_kernels() {
        for mark in [
            Mark::Undecided(7),
            Mark::Socket(60_000),
            Mark::Epoll(0),
            Mark::Listener(9),
            Mark::Watcher(3),
            Mark::Own,
        ] {
            set(40_000, mark);
            assert_eq!(of(40_000), mark);
        }
        assert_eq!(
            marked(39_999, 40_001).collect::<Vec<_>>(),
            [(40_000, Mark::Own)]
        );
        set(40_000, Mark::Kernel);
        set(-1, Mark::Own);
        for fd in [40_000, -1, i32::MAX, FDS_MAX as i32] {
            assert_eq!(of(fd), Mark::Kernel);
        }
    }
}
