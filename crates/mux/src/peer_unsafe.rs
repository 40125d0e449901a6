//! The process at the other end of a UNIX socket: `SO_PEERCRED`, `SO_PEERGROUPS`, `SO_PEERPIDFD`.
//!
//! Owns nothing. The kernel recorded these values when the peer connected. They stay the same if
//! the process changes its user later, or another process gets its number. Called by the service
//! for each connection.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::{self, Errno};

use crate::policy::Peer;

/// Groups of one process that are read. Linux permits 65,536, but few processes have more than
/// this.
const GROUPS_MAX: usize = 1024;

/// asm-generic/socket.h
const SO_PEERPIDFD: libc::c_int = 77;

/// The peer of a connected socket.
///
/// # Errors
/// Errors of `getsockopt`.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let found = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(Peer {
        pid: found.pid.as_raw_nonzero().get(),
        uid: found.uid.as_raw(),
        gid: found.gid.as_raw(),
        groups: groups(socket).unwrap_or_default(),
    })
}

/// A descriptor that is readable once the peer's process has ended, even if another process holds
/// the other end of the socket.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.5; `SRCH` if the process is gone; other errors of `getsockopt`.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one `int` into `fd`, and its length into `bytes`; both outlive the
    // call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 || fd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel just made the descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS_MAX];
    let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `groups`, which has as many, and the
    // number of bytes it wrote into `bytes`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer(one.as_fd()).unwrap();
        assert_eq!(peer.pid, std::process::id().cast_signed());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn process_of_a_pair_has_not_ended() {
        let (one, _other) = UnixStream::pair().unwrap();
        let process = match process(one.as_fd()) {
            // The kernel is older than 6.5.
            Err(Errno::NOPROTOOPT) => return,
            process => process.unwrap(),
        };
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(0));
    }
}
