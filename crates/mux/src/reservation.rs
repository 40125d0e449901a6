//! Reservation of ports in the kernel: a bound socket for each, so that neither side takes what the
//! other has.
//!
//! The socket never listens and has no `SO_REUSEADDR`. So it conflicts with every kernel socket on
//! the port, listening or in TIME_WAIT, and the kernel answers segments for the port with a reset
//! when they reach it. Called by the service for each claim and lease.
//!
//! An application may listen at a place in the kernel as well. Then its own socket is the
//! reservation, of which the service keeps a copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use packetio::foreign::Closer;
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// A port that the kernel gives to nobody else, until this is dropped.
#[derive(Debug)]
pub struct Reservation(Keeper);

/// The socket that keeps the port.
#[derive(Debug)]
enum Keeper {
    /// One of the service's.
    Own { _socket: OwnedFd },
    /// One of an application's, which is closed on another thread: it may linger.
    Applications(Option<OwnedFd>, Closer),
    /// One of an application's, of which the service before this one had a copy.
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
    /// Reserves `place`; an unspecified address reserves all addresses of its family.
    ///
    /// # Errors
    /// `ADDRINUSE` if a socket of the kernel has the port; `ADDRNOTAVAIL` if the host has no such
    /// address.
    pub fn new(place: SocketAddr) -> io::Result<Self> {
        let socket = open(place)?;
        if place.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &place)?;
        Ok(Self(Keeper::Own { _socket: socket }))
    }

    /// A reservation by an application's socket, which is bound there.
    pub fn of_application(socket: OwnedFd, closer: &Closer) -> Self {
        Self(Keeper::Applications(Some(socket), closer.clone()))
    }

    /// A place that an application's socket keeps, which the application will show again.
    pub fn awaited() -> Self {
        Self(Keeper::Awaited)
    }

    /// An application's socket keeps the place.
    pub fn is_applications(&self) -> bool {
        !matches!(self.0, Keeper::Own { .. })
    }

    /// The application has not shown its socket yet.
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
            // IPv6 is switched off.
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
                Self::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))
            }
            bound => bound,
        }
    }
}

fn open(place: SocketAddr) -> io::Result<OwnedFd> {
    let family = match place {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
