//! Socket calls of libc, which a preloaded library may answer.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd as _;

use super::{Calls, Waits};

/// libc's functions.
pub struct LibcCalls;

/// The result of a call of libc's.
fn outcome(value: isize) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

impl Calls for LibcCalls {
    fn pair(&mut self, waits: Waits) -> io::Result<[i32; 2]> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        let mut fds = [0; 2];
        for (stream, fd) in [client, server].into_iter().zip(&mut fds) {
            stream.set_nonblocking(waits == Waits::Epoll)?;
            *fd = stream.into_raw_fd();
        }
        Ok(fds)
    }

    fn epoll(&mut self, fds: [i32; 2]) -> io::Result<i32> {
        // SAFETY: it takes a number alone.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        outcome(epoll as isize)?;
        for fd in fds {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: fd as u64,
            };
            // SAFETY: a value of ours.
            let added = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
            outcome(added as isize)?;
        }
        Ok(epoll)
    }

    fn epoll_wait(&mut self, epoll: i32) -> io::Result<i32> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        outcome(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, -1) } as isize)?;
        Ok(event.u64 as i32)
    }

    fn send(&mut self, fd: i32, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: a slice of ours.
        outcome(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), 0) })
    }

    fn recv(&mut self, fd: i32, room: &mut [u8]) -> io::Result<usize> {
        // SAFETY: a slice of ours.
        outcome(unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0) })
    }
}
