//! A port that the stack listens on is reserved in the kernel too, as far as the kernel lets us.
//! Nobody else takes it, and `/proc/net/tcp`, in which scripts look for listeners, shows it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use posix::Address;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// The kernel's sockets, by the descriptors of ours.
#[derive(Debug, Default)]
pub struct Reservations(BTreeMap<i32, Reservation>);

#[derive(Debug)]
struct Reservation {
    local: SocketAddr,
    socket: Option<OwnedFd>,
}

impl Reservations {
    /// `fd` has an address.
    pub fn bound(&mut self, fd: i32, address: &Address) {
        if let Address::Inet(local) = *address {
            let socket = None;
            self.0.insert(fd, Reservation { local, socket });
        }
    }

    /// `fd` listens at it.
    pub fn listens(&mut self, fd: i32) {
        if let Some(reservation) = self.0.get_mut(&fd)
            && reservation.socket.is_none()
        {
            reservation.socket = reserve(reservation.local).ok();
        }
    }

    /// `fd` is closed.
    pub fn closed(&mut self, fd: i32) {
        self.0.remove(&fd);
    }
}

/// A listening socket of the kernel's. At any address: ours is none of its own.
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
