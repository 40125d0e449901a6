//! Reservation of ports in the kernel: a bound socket for each, so that neither side takes what the
//! other has.
//!
//! The socket never listens and has no `SO_REUSEADDR`. So it conflicts with every kernel socket on
//! the port, listening or in TIME_WAIT, and the kernel answers segments for the port with a reset
//! when they reach it. Called by the service for each claim and lease.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// A port that the kernel gives to nobody else, until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    _socket: OwnedFd,
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
        Ok(Self { _socket: socket })
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
            Ok(Self { _socket: socket })
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
