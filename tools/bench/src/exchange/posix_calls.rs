//! Socket calls of the crate `posix`.

use std::io::{self, IoSlice, IoSliceMut};

use millstream::{Config, Runtime};
use posix::{Address, EpollEvent, Request, Sockets, number};

use super::{Calls, Waits};

/// A context's sockets.
pub struct PosixCalls {
    sockets: Sockets,
    found: Vec<EpollEvent>,
}

/// The port of the listener.
const PORT: u16 = 80;

impl PosixCalls {
    /// On a wire like that of `mill run --lo`.
    pub fn new() -> io::Result<Self> {
        let wire = "loopback".parse();
        let mut config = Config::new(wire.map_err(|error| io::Error::other(format!("{error}")))?);
        config.loopback = true;
        let runtime = Runtime::new(config).map_err(io::Error::other)?;
        let context = runtime.context(0).map_err(io::Error::other)?;
        Ok(Self {
            sockets: Sockets::new(context),
            found: Vec::new(),
        })
    }

    fn call(&mut self, request: &Request) -> io::Result<i32> {
        let (done, _) = self.sockets.wait_for(request);
        Ok(done? as i32)
    }

    fn socket(&mut self) -> io::Result<i32> {
        self.call(&Request::Socket {
            domain: number::AF_INET,
            kind: number::SOCK_STREAM,
            protocol: 0,
        })
    }
}

impl Calls for PosixCalls {
    fn pair(&mut self, waits: Waits) -> io::Result<[i32; 2]> {
        let address = || Address::Inet(([127, 0, 0, 1], PORT).into());
        let listener = self.socket()?;
        self.call(&Request::Bind {
            fd: listener,
            address: address(),
        })?;
        self.call(&Request::Listen {
            fd: listener,
            backlog: 1,
        })?;
        let client = self.socket()?;
        self.call(&Request::Connect {
            fd: client,
            address: address(),
        })?;
        let server = self.call(&Request::Accept {
            fd: listener,
            flags: 0,
        })?;
        for fd in [client, server] {
            let argument = match waits {
                Waits::Epoll => number::O_NONBLOCK,
                Waits::Recv => 0,
            };
            self.call(&Request::Fcntl {
                fd,
                command: number::F_SETFL,
                argument,
            })?;
        }
        Ok([client, server])
    }

    fn epoll(&mut self, fds: [i32; 2]) -> io::Result<i32> {
        let epfd = self.call(&Request::EpollCreate { flags: 0 })?;
        for fd in fds {
            let event = EpollEvent {
                events: number::EPOLLIN,
                data: fd as u64,
            };
            self.call(&Request::EpollCtl {
                epfd,
                op: number::EPOLL_CTL_ADD,
                fd,
                event,
            })?;
        }
        Ok(epfd)
    }

    fn epoll_wait(&mut self, epoll: i32) -> io::Result<i32> {
        self.sockets
            .epoll_wait_into(epoll, 1, -1, &mut self.found)?;
        let event = self.found.first().ok_or(io::ErrorKind::TimedOut)?;
        Ok(event.data as i32)
    }

    fn send(&mut self, fd: i32, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.sockets.send_from(fd, &[IoSlice::new(bytes)], 0)?)
    }

    fn recv(&mut self, fd: i32, room: &mut [u8]) -> io::Result<usize> {
        Ok(self
            .sockets
            .recv_into(fd, &mut [IoSliceMut::new(room)], 0)?)
    }
}
