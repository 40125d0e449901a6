//! Checks of an application's socket that is to reserve a port in the kernel in the service's
//! stead.
//!
//! Owns nothing. The application listens on the port with this very socket, so the service cannot
//! bind one of its own. An application may send any descriptor, so only the kernel's answers count:
//! the kind of socket, its address, and its network namespace. Called by the service.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, sockopt};

/// `SO_NETNS_COOKIE` of Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Checks that the socket is bound to `endpoint` in this process's network namespace.
///
/// # Errors
/// The reason why it is not.
pub fn check(socket: BorrowedFd<'_>, endpoint: SocketAddr) -> Result<(), &'static str> {
    let is_tcp = sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
    if !is_tcp {
        return Err("not a TCP socket");
    }
    let bound = getsockname(socket).ok();
    let bound = bound.and_then(|bound| SocketAddr::try_from(bound).ok());
    let keeps = bound.is_some_and(|bound| match bound == endpoint {
        true => true,
        // An IPv6 socket on `::` that also takes IPv4.
        false => {
            let is_dual = sockopt::ipv6_v6only(socket) == Ok(false);
            let is_any = bound.ip().is_unspecified() && endpoint.ip().is_unspecified();
            is_dual && is_any && bound.is_ipv6() && bound.port() == endpoint.port()
        }
    });
    if !keeps {
        return Err("a socket that is bound elsewhere");
    }
    match (netns(socket), own_netns()) {
        (Ok(theirs), Ok(own)) if theirs == own => Ok(()),
        _ => Err("a socket of another network namespace"),
    }
}

/// The network namespace of this process.
fn own_netns() -> io::Result<u64> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    netns(std::os::fd::AsFd::as_fd(&socket))
}

fn netns(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into `cookie`, which has as many, and the
    // number of bytes it wrote into `bytes`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn socket_keeps_the_place_where_it_is_bound_and_no_other() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let endpoint = listener.local_addr().unwrap();
        assert_eq!(check(listener.as_fd(), endpoint), Ok(()));
        let elsewhere = SocketAddr::new("127.0.0.1".parse().unwrap(), endpoint.port());
        let complaint = Err("a socket that is bound elsewhere");
        assert_eq!(check(listener.as_fd(), elsewhere), complaint);
        let other_port = SocketAddr::new(endpoint.ip(), endpoint.port() ^ 1);
        assert_eq!(check(listener.as_fd(), other_port), complaint);
        let v6 = SocketAddr::new("::".parse().unwrap(), endpoint.port());
        assert_eq!(check(listener.as_fd(), v6), complaint);
        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        let endpoint = udp.local_addr().unwrap();
        assert_eq!(check(udp.as_fd(), endpoint), Err("not a TCP socket"));
    }

    #[test]
    fn socket_of_both_families_keeps_the_place_of_either() {
        // Without IPv6 there is nothing to check.
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return;
        };
        let endpoint = listener.local_addr().unwrap();
        let v4 = SocketAddr::new("0.0.0.0".parse().unwrap(), endpoint.port());
        assert_eq!(check(listener.as_fd(), v4), Ok(()));
    }
}
