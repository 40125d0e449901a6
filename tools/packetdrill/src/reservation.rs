//! Reservation of the stack's listening ports in the kernel, as far as it permits. No other program
//! takes such a port. Scripts find the listener in `/proc/net/tcp`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use posix::Address;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Sockets of the kernel, by the descriptors of the stack's sockets.
#[derive(Debug, Default)]
pub struct Reservations(BTreeMap<i32, Reservation>);

#[derive(Debug)]
struct Reservation {
    local: SocketAddr,
    socket: Option<OwnedFd>,
}

impl Reservations {
    /// Notes the address to which `fd` is bound.
    pub fn bound(&mut self, fd: i32, address: &Address) {
        if let Address::Inet(local) = *address {
            let socket = None;
            self.0.insert(fd, Reservation { local, socket });
        }
    }

    /// Reserves the port of `fd`, which now listens.
    pub fn listens(&mut self, fd: i32) {
        if let Some(reservation) = self.0.get_mut(&fd)
            && reservation.socket.is_none()
        {
            reservation.socket = reserve(reservation.local).ok();
        }
    }

    /// Frees the port of `fd`, which is closed.
    pub fn closed(&mut self, fd: i32) {
        self.0.remove(&fd);
    }
}

/// A listening socket of the kernel, at the unspecified address: the kernel does not have the
/// stack's.
fn reserve(local: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let (family, any): (_, IpAddr) = match local {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddr::new(any, local.port()))?;
    net::listen(&socket, 1)?;
    Ok(socket)
}
