//! Reservation of ports in the kernel: a bound socket for each, so that kernel and applications do
//! not use the same port.
//!
//! The socket never listens and has no `SO_REUSEADDR`. So it conflicts with every kernel socket on
//! the port, listening or in TIME_WAIT. The kernel resets segments for the port that reach it.
//! Called by the service for each claim and lease.
//!
//! An application may also listen on the port in the kernel. Its own socket is then the
//! reservation, and the service keeps a copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use packetio::foreign::Closer;
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// A port that no other kernel socket can have until this value is dropped.
#[derive(Debug)]
pub struct Reservation(Keeper);

/// The socket that reserves the port.
#[derive(Debug)]
enum Keeper {
    /// A socket of the service.
    Own { _socket: OwnedFd },
    /// A socket of an application. Another thread closes it, since its close may linger.
    Applications(Option<OwnedFd>, Closer),
    /// A socket of an application that the previous service had a copy of.
    Awaited,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Self::Applications(socket, closer) = self
            && let Some(socket) = socket.take()
        {
            closer.close(socket);
        }
    }
}

impl Reservation {
    /// Reserves `endpoint`; an unspecified address reserves all addresses of its family.
    ///
    /// # Errors
    /// `ADDRINUSE` if a socket of the kernel has the port; `ADDRNOTAVAIL` if the host has no such
    /// address.
    pub fn new(endpoint: SocketAddr) -> io::Result<Self> {
        let socket = open(endpoint)?;
        if endpoint.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &endpoint)?;
        Ok(Self(Keeper::Own { _socket: socket }))
    }

    /// A reservation by an application's socket that is bound to the endpoint.
    pub fn of_application(socket: OwnedFd, closer: &Closer) -> Self {
        Self(Keeper::Applications(Some(socket), closer.clone()))
    }

    /// A reservation by an application's socket, which the application still has to show.
    pub fn awaited() -> Self {
        Self(Keeper::Awaited)
    }

    /// True if an application's socket reserves the endpoint.
    pub fn is_applications(&self) -> bool {
        !matches!(self.0, Keeper::Own { .. })
    }

    /// True if the application has not shown its socket yet.
    pub fn is_awaited(&self) -> bool {
        matches!(self.0, Keeper::Awaited)
    }

    /// Reserves a port at all addresses of both families.
    ///
    /// # Errors
    /// `ADDRINUSE` if a socket of the kernel has the port at any address.
    pub fn everywhere(port: u16) -> io::Result<Self> {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let bound = open(both).and_then(|socket| {
            sockopt::set_ipv6_v6only(&socket, false)?;
            bind(&socket, &both)?;
            Ok(Self(Keeper::Own { _socket: socket }))
        });
        match bound {
            // IPv6 is disabled.
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
                Self::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
            }
            bound => bound,
        }
    }
}

fn open(endpoint: SocketAddr) -> io::Result<OwnedFd> {
    let family = match endpoint {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
