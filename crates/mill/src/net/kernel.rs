//! [`Net`] over the kernel's TCP and epoll: the baseline, and a way to use `mill` without a wire.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};

use super::{Interest, Net, Ready};
use crate::limits::EVENTS_MAX;

/// The kernel's stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

/// An epoll instance and its buffer of events.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

impl Net for Kernel {
    type Listener = OwnedFd;
    type Stream = OwnedFd;
    type Poll = Poll;

    fn poll(&self) -> io::Result<Poll> {
        Ok(Poll {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<OwnedFd> {
        let socket = socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Each thread has a listener, and the kernel distributes connections among them.
        sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    }

    fn accept(&self, listener: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
        let (stream, address) = net::acceptfrom_with(listener, FLAGS)?;
        sockopt::set_tcp_nodelay(&stream, true)?;
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok((stream, address.unwrap_or(nobody)))
    }

    fn connect(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let socket = socket(address)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    }

    fn take_error(&self, stream: &OwnedFd) -> io::Result<Option<io::Error>> {
        let error = sockopt::socket_error(stream)?;
        Ok(error.err().map(io::Error::from))
    }

    fn read(&self, stream: &mut OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = net::recv(&*stream, buffer, RecvFlags::empty())?;
        Ok(count)
    }

    fn write(&self, stream: &mut OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(&*stream, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_more(&self, stream: &mut OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        Ok(net::send(&*stream, bytes, flags)?)
    }

    fn shutdown_write(&self, stream: &OwnedFd) -> io::Result<()> {
        Ok(net::shutdown(stream, Shutdown::Write)?)
    }

    fn abort(&self, stream: OwnedFd) {
        // A close with a linger time of zero sends a reset. If the option cannot be set, an
        // ordinary close has to do.
        let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }

    fn register_listener(
        &self,
        poll: &mut Poll,
        listener: &OwnedFd,
        token: usize,
    ) -> io::Result<()> {
        add(poll, listener.as_fd(), token, EventFlags::IN)
    }

    fn deregister_listener(&self, poll: &mut Poll, listener: &OwnedFd) -> io::Result<()> {
        Ok(epoll::delete(&poll.epoll, listener)?)
    }

    fn register(
        &self,
        poll: &mut Poll,
        stream: &OwnedFd,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        add(poll, stream.as_fd(), token, flags(interest))
    }

    fn reregister(
        &self,
        poll: &mut Poll,
        stream: &OwnedFd,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token as u64);
        Ok(epoll::modify(&poll.epoll, stream, data, flags(interest))?)
    }

    fn register_fd(&self, poll: &mut Poll, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        add(poll, fd, token, EventFlags::IN)
    }

    fn wait(
        &self,
        poll: &mut Poll,
        ready: &mut Vec<Ready>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        ready.clear();
        poll.events.clear();
        // A timeout that is too large never comes.
        let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
        let buffer: &mut [MaybeUninit<epoll::Event>] = poll.events.spare_capacity_mut();
        match epoll::wait(&poll.epoll, buffer, timeout.as_ref()) {
            Ok((events, _)) => {
                let tokens = events.iter().map(|event| event.data.u64() as usize);
                ready.extend(tokens.map(|token| Ready { token }));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    Ok(net::socket_with(family, SocketType::STREAM, FLAGS, None)?)
}

fn add(poll: &Poll, fd: BorrowedFd<'_>, token: usize, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(
        &poll.epoll,
        fd,
        EventData::new_u64(token as u64),
        flags,
    )?)
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN,
        Interest::Write => EventFlags::OUT,
    }
}
