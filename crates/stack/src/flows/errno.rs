//! Errnos of failed connections, as Linux reports them.

use ring::socket_block::SocketState;
use rustix::io::Errno;
use tcp::ConnectionError;

/// Linux's errno for an error that ended a connection in the state `said`.
pub(crate) fn errno_of(error: Option<ConnectionError>, said: SocketState) -> u16 {
    let in_close_wait = said.contains(SocketState::EOF) && !said.contains(SocketState::TX_SHUT);
    let errno = match error {
        None => return 0,
        // The peer had closed before it reset us, so our write is at fault: EPIPE.
        Some(ConnectionError::Reset) if in_close_wait => Errno::PIPE,
        Some(ConnectionError::Refused) => Errno::CONNREFUSED,
        Some(ConnectionError::Reset) => Errno::CONNRESET,
        Some(ConnectionError::TimedOut) => Errno::TIMEDOUT,
        Some(ConnectionError::HostUnreachable) => Errno::HOSTUNREACH,
        Some(ConnectionError::NetUnreachable) => Errno::NETUNREACH,
        Some(ConnectionError::Aborted) => Errno::CONNABORTED,
        Some(ConnectionError::NoProtocol) => Errno::NOPROTOOPT,
        Some(ConnectionError::AccessDenied) => Errno::ACCESS,
        Some(ConnectionError::HostDown) => Errno::HOSTDOWN,
        Some(ConnectionError::HostIsolated) => Errno::NONET,
        Some(ConnectionError::SourceRouteFailed) => Errno::OPNOTSUPP,
        Some(ConnectionError::Protocol) => Errno::PROTO,
    };
    errno.raw_os_error() as u16
}
