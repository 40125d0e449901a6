//! One interface for Millstream's sockets and the kernel's, so that a scenario can be played with
//! either at either end.

#![allow(dead_code)] // each test file uses its part

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use millstream::Context;
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket, sockopt};

/// Longer than anything takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// One end of a connection.
pub trait Conn: Read + Write {
    fn shutdown_write(&self) -> io::Result<()>;
    fn set_nodelay(&self);
    /// Closes with a reset.
    fn abort(self: Box<Self>);
}

/// A listening socket.
pub trait Listener {
    fn accept(&self) -> io::Result<Box<dyn Conn>>;
}

/// One end of the wire: a stack with an address, and the address of the other end.
pub trait Net {
    fn listen(&self) -> Box<dyn Listener + '_> {
        self.listen_with(1024)
    }
    fn listen_with(&self, backlog: usize) -> Box<dyn Listener + '_>;
    /// Connects to the port at which the other end listens.
    fn connect(&self) -> io::Result<Box<dyn Conn>> {
        self.connect_to(self.place().port)
    }
    fn connect_to(&self, port: u16) -> io::Result<Box<dyn Conn>>;
    fn place(&self) -> &Place;
}

/// The addresses of a meeting.
#[derive(Clone, Debug)]
pub struct Place {
    pub own: IpAddr,
    pub peer: IpAddr,
    /// The server's port.
    pub port: u16,
    /// `SO_RCVBUF` of a kernel's sockets.
    pub kernel_receive_buffer: Option<usize>,
}

impl Place {
    pub fn own(&self) -> SocketAddr {
        (self.own, self.port).into()
    }

    pub fn peer(&self) -> SocketAddr {
        (self.peer, self.port).into()
    }
}

/// Millstream's end.
pub struct Ours<'a> {
    pub context: &'a Context,
    pub place: Place,
}

impl Net for Ours<'_> {
    fn listen_with(&self, backlog: usize) -> Box<dyn Listener + '_> {
        let builder = millstream::TcpListener::builder(self.context).backlog(backlog);
        Box::new(builder.bind(self.place.own()).expect("bind"))
    }

    fn connect_to(&self, port: u16) -> io::Result<Box<dyn Conn>> {
        let remote = (self.place.peer, port).into();
        let stream = millstream::TcpStream::connect_timeout(self.context, remote, PATIENCE)?;
        Ok(ours(stream))
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

fn ours(stream: millstream::TcpStream) -> Box<dyn Conn> {
    stream.set_read_timeout(Some(PATIENCE));
    stream.set_write_timeout(Some(PATIENCE));
    Box::new(stream)
}

impl Listener for millstream::TcpListener {
    fn accept(&self) -> io::Result<Box<dyn Conn>> {
        Ok(ours(millstream::TcpListener::accept(self)?.0))
    }
}

impl Conn for millstream::TcpStream {
    fn shutdown_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_nodelay(&self) {
        millstream::TcpStream::set_nodelay(self, true).expect("TCP_NODELAY");
    }

    fn abort(self: Box<Self>) {
        millstream::TcpStream::abort(*self);
    }
}

/// The kernel's end, in the network namespace of the calling thread.
pub struct Kernel {
    pub place: Place,
}

impl Kernel {
    fn socket(&self) -> OwnedFd {
        let family = match self.place.own {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = socket(family, SocketType::STREAM, None).expect("socket");
        if let Some(bytes) = self.place.kernel_receive_buffer {
            sockopt::set_socket_recv_buffer_size(&fd, bytes).expect("SO_RCVBUF");
        }
        fd
    }
}

impl Net for Kernel {
    fn listen_with(&self, backlog: usize) -> Box<dyn Listener + '_> {
        let fd = self.socket();
        sockopt::set_socket_reuseaddr(&fd, true).expect("SO_REUSEADDR");
        bind(&fd, &self.place.own()).expect("bind");
        listen(&fd, backlog as i32).expect("listen");
        Box::new(std::net::TcpListener::from(fd))
    }

    fn connect_to(&self, port: u16) -> io::Result<Box<dyn Conn>> {
        let fd = self.socket();
        connect(&fd, &SocketAddr::from((self.place.peer, port)))?;
        Ok(kernels(fd.into()))
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

fn kernels(stream: std::net::TcpStream) -> Box<dyn Conn> {
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
    Box::new(stream)
}

impl Listener for std::net::TcpListener {
    fn accept(&self) -> io::Result<Box<dyn Conn>> {
        Ok(kernels(std::net::TcpListener::accept(self)?.0))
    }
}

impl Conn for std::net::TcpStream {
    fn shutdown_write(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_nodelay(&self) {
        std::net::TcpStream::set_nodelay(self, true).expect("TCP_NODELAY");
    }

    fn abort(self: Box<Self>) {
        sockopt::set_socket_linger(&*self, Some(Duration::ZERO)).expect("SO_LINGER");
    }
}

/// Steps by which the two ends of a scenario synchronize outside the wire.
#[derive(Default)]
pub struct Gate {
    step: Mutex<u32>,
    changed: Condvar,
}

impl Gate {
    /// Announces that the scenario has reached `step`.
    pub fn reach(&self, step: u32) {
        let mut now = self.step.lock().expect("gate");
        *now = (*now).max(step);
        self.changed.notify_all();
    }

    /// Waits until the scenario has reached `step`, without turning the stack.
    pub fn wait(&self, step: u32) {
        let now = self.step.lock().expect("gate");
        let (_now, late) = self
            .changed
            .wait_timeout_while(now, PATIENCE, |now| *now < step)
            .expect("gate");
        assert!(!late.timed_out(), "the other end never came to step {step}");
    }
}
