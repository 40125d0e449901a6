//! Calls that open, connect and close sockets: `socket`, `bind`, `listen`, `accept4`, `connect`,
//! `shutdown`, `close`, `getsockname`, `getpeername`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::time::Duration;

use millstream::{Linger, Readiness, TcpSocket, TcpState};
use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Attempt, Entry, File, Stream, errno};
use crate::error_queue;
use crate::number::*;
use crate::request::Address;
use crate::sockets::{Sockets, Step, is_over};

impl Sockets {
    pub(crate) fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Step {
        let flags = kind & !SOCK_TYPE_MASK;
        if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let is_v6 = match domain {
            AF_INET => false,
            AF_INET6 => true,
            _ => return Err(Errno::AFNOSUPPORT),
        };
        if !(0..IPPROTO_END).contains(&protocol) {
            return Err(Errno::INVAL);
        }
        match (kind & SOCK_TYPE_MASK, protocol) {
            (SOCK_STREAM, IPPROTO_IP | IPPROTO_TCP) => {}
            (SOCK_STREAM, _) => return Err(Errno::PROTONOSUPPORT),
            _ => return Err(Errno::SOCKTNOSUPPORT),
        }
        let socket = match is_v6 {
            true => TcpSocket::new_v6(&self.context),
            false => TcpSocket::new_v4(&self.context),
        };
        let socket = socket.map_err(|error| errno(&error))?;
        let entry = Entry {
            nonblocking: flags & SOCK_NONBLOCK != 0,
            ..Entry::of(File::Idle(socket), is_v6)
        };
        let fd = self.install(entry, flags & SOCK_CLOEXEC != 0)?;
        Ok(Some(fd.into()))
    }

    pub(crate) fn bind(&mut self, fd: i32, address: Address) -> Step {
        let entry = self.socket_entry(fd)?;
        let local = address_for(entry.is_v6, address)?;
        let File::Idle(socket) = &entry.file else {
            return Err(Errno::INVAL);
        };
        if local.is_ipv4() && entry.is_v6 && !socket.options().dual() {
            return Err(Errno::INVAL);
        }
        let kept = (SOL_IP, IP_BIND_ADDRESS_NO_PORT);
        let is_portless = entry
            .option_values
            .borrow()
            .get(&kept)
            .is_some_and(|set| *set != 0);
        if is_portless && local.port() == 0 && socket.local_addr().is_none() {
            socket.set_source(local.ip());
            return Ok(Some(0));
        }
        socket.bind(local).map_err(|error| errno(&error))?;
        Ok(Some(0))
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: i32) -> Step {
        let entry = self.socket_entry(fd)?;
        // A negative backlog counts as a large one, as in Linux.
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX >> 1);
        match std::mem::replace(&mut entry.file, File::Lost) {
            File::Idle(socket) => match socket.listen(backlog) {
                Ok(listener) => {
                    listener.set_nonblocking(true);
                    entry.file = File::Listener(listener);
                    Ok(Some(0))
                }
                Err(refused) => {
                    entry.file = File::Idle(refused.socket);
                    Err(errno(&refused.error))
                }
            },
            File::Listener(listener) => {
                let changed = listener.set_backlog(backlog);
                entry.file = File::Listener(listener);
                changed.map_err(|error| errno(&error))?;
                Ok(Some(0))
            }
            other => {
                entry.file = other;
                Err(Errno::INVAL)
            }
        }
    }

    pub(crate) fn accept(
        &mut self,
        fd: i32,
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        self.entry(fd)?;
        if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let File::Listener(listener) = &self.socket_entry(fd)?.file else {
            return Err(Errno::INVAL);
        };
        if listener.readiness() == Readiness::NONE {
            // Take no number while there is no connection: a real descriptor costs system calls.
            let timeout = listener.options().recv_timeout();
            let is_nonblocking = self.entry(fd)?.nonblocking;
            let now_ns = self.context.now_ns();
            return blocked(Errno::AGAIN, is_nonblocking, progress, now_ns, timeout);
        }
        // Take the number first: at the limit of descriptors the connection stays in the queue.
        let number = self.number()?;
        let accepted = self.accept_as(fd, number, flags, progress, reply);
        if !matches!(accepted, Ok(Some(_))) {
            self.give_back(number);
        }
        accepted
    }

    fn accept_as(
        &mut self,
        fd: i32,
        number: i32,
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let now_ns = self.context.now_ns();
        let entry = self.socket_entry(fd)?;
        let File::Listener(listener) = &entry.file else {
            return Err(Errno::INVAL);
        };
        let (tcp, remote) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let timeout = listener.options().recv_timeout();
                return blocked(errno(&error), entry.nonblocking, progress, now_ns, timeout);
            }
        };
        tcp.set_nonblocking(true);
        let is_v6 = entry.is_v6;
        let stream = Stream {
            tcp,
            attempt: Attempt::Over,
        };
        let accepted = Entry {
            nonblocking: flags & SOCK_NONBLOCK != 0,
            zero_copy: entry.zero_copy.inherited(),
            timestamping: entry.timestamping.inherited(),
            option_values: entry.option_values.clone(),
            error_queue_is_urgent: entry.error_queue_is_urgent.clone(),
            ..Entry::of(File::Stream(stream), is_v6)
        };
        self.put(number, accepted, flags & SOCK_CLOEXEC != 0);
        *reply = Reply::Address(as_family(is_v6, remote));
        Ok(Some(number.into()))
    }

    pub(crate) fn connect(&mut self, fd: i32, address: Address, progress: &mut Progress) -> Step {
        if address == Address::Unspec {
            return self.disconnect(fd);
        }
        let entry = self.socket_entry(fd)?;
        let already = match &entry.file {
            File::Idle(socket) => {
                let remote = address_for(entry.is_v6, address)?;
                if remote.is_ipv4() && entry.is_v6 && !socket.options().dual() {
                    return Err(Errno::NETUNREACH);
                }
                let fast = socket.options().fast_open_connect();
                if fast && self.defer_connect(fd, remote)? {
                    return Ok(Some(0));
                }
                self.begin_connect(fd, remote, fast.then_some((&[], false)))?;
                if self.entry(fd)?.nonblocking {
                    // Even if the answer is there already: Linux looks for it only after the call.
                    return Err(Errno::INPROGRESS);
                }
                progress.connecting = true;
                Errno::INPROGRESS
            }
            File::Stream(stream) => match (stream.attempt, progress.connecting) {
                (Attempt::UnderWay | Attempt::Shut, true) => Errno::INPROGRESS,
                (Attempt::UnderWay, false) => Errno::ALREADY,
                (Attempt::Shut, false) => return Err(Errno::INVAL),
                (Attempt::Over, _) => return Err(Errno::ISCONN),
            },
            File::Lost => return Err(Errno::NOBUFS),
            _ => return Err(Errno::ISCONN),
        };
        self.await_connect(fd, already, progress)
    }

    /// Defers a connect until the first write, if the peer's Fast Open cookie is known. Otherwise
    /// the SYN leaves at once and asks for a cookie.
    fn defer_connect(&mut self, fd: i32, remote: SocketAddr) -> Result<bool, Errno> {
        let entry = self.socket_entry(fd)?;
        match std::mem::replace(&mut entry.file, File::Lost) {
            File::Idle(socket) => {
                let room = socket.fast_open_room(remote);
                let has_cookie = matches!(room, Ok(Some(_)));
                if has_cookie {
                    socket.defer_connect(true);
                }
                entry.file = match has_cookie {
                    true => File::Deferred(socket, remote),
                    false => File::Idle(socket),
                };
                room.map(|room| room.is_some())
                    .map_err(|error| errno(&error))
            }
            other => {
                entry.file = other;
                Ok(false)
            }
        }
    }

    /// Sends the SYN, with Fast Open if `fast` is set. Returns the number of bytes taken: as many
    /// as the SYN carries or, if the caller waits, as the send buffer has room for.
    pub(crate) fn begin_connect(
        &mut self,
        fd: i32,
        remote: SocketAddr,
        fast: Option<(&[u8], bool)>,
    ) -> Result<usize, Errno> {
        let entry = self.socket_entry(fd)?;
        let socket = match std::mem::replace(&mut entry.file, File::Lost) {
            File::Idle(socket) | File::Deferred(socket, _) => socket,
            other => {
                entry.file = other;
                return Err(Errno::ISCONN);
            }
        };
        entry.error.take();
        let begun = match fast {
            None => socket.start_connect(remote).map(|tcp| (tcp, 0)),
            Some((bytes, waits)) => socket.start_connect_fast(remote, bytes, waits),
        };
        let written = match begun {
            Ok((tcp, written)) => {
                entry.file = File::Stream(Stream {
                    tcp,
                    attempt: Attempt::UnderWay,
                });
                written
            }
            Err(refused) => {
                refused.socket.defer_connect(false);
                entry.file = File::Idle(refused.socket);
                return Err(errno(&refused.error));
            }
        };
        if self.context.is_virtual() {
            self.turn();
        }
        Ok(written)
    }

    /// The outcome of a connect. `already` is the error of a non-blocking call without an outcome
    /// yet.
    pub(crate) fn await_connect(
        &mut self,
        fd: i32,
        already: Errno,
        progress: &mut Progress,
    ) -> Step {
        let now_ns = self.context.now_ns();
        let entry = self.socket_entry(fd)?;
        let nonblocking = entry.nonblocking;
        let File::Stream(stream) = &mut entry.file else {
            return Err(Errno::INVAL);
        };
        match stream.tcp.connect_outcome() {
            None => {
                let timeout = stream.tcp.options().send_timeout();
                match nonblocking || is_over(progress, now_ns, timeout) {
                    true => Err(already),
                    false => Ok(None),
                }
            }
            Some(Ok(())) => {
                stream.attempt = Attempt::Over;
                Ok(Some(0))
            }
            Some(Err(error)) => {
                self.revive(fd);
                Err(errno(&error))
            }
        }
    }

    /// Makes a new socket in place of a failed connection, so that the program may connect again.
    pub(crate) fn revive(&mut self, fd: i32) {
        let Ok(entry) = self.socket_entry(fd) else {
            return;
        };
        let mut is_told = false;
        match std::mem::replace(&mut entry.file, File::Lost) {
            File::Stream(stream) => {
                if let Ok(Some(note)) = stream.tcp.take_icmp_note() {
                    error_queue::add_note(entry, note);
                    is_told = true;
                }
                if let Ok(socket) = stream.tcp.into_socket() {
                    entry.file = File::Idle(socket);
                    self.watch_again(fd);
                }
            }
            other => entry.file = other,
        }
        self.has_notifications |= is_told;
    }

    fn disconnect(&mut self, fd: i32) -> Step {
        let entry = self.socket_entry(fd)?;
        entry.read_shut.set(false);
        match &entry.file {
            File::Stream(stream) => {
                // An earlier error is returned first. Otherwise the connection was reset, which
                // Linux reports.
                let was_on = stream.tcp.is_open() || stream.tcp.is_connecting();
                let failure = match stream.tcp.take_error() {
                    Some(error) => Some(errno(&error)),
                    None => was_on.then_some(Errno::CONNRESET),
                };
                entry.error.set(failure);
                self.revive(fd);
            }
            File::Listener(_) => self.unlisten(fd)?,
            File::Deferred(..) => self.undefer(fd)?,
            _ => {}
        }
        Ok(Some(0))
    }

    fn undefer(&mut self, fd: i32) -> Result<(), Errno> {
        let entry = self.socket_entry(fd)?;
        match std::mem::replace(&mut entry.file, File::Lost) {
            File::Deferred(socket, _) => {
                socket.defer_connect(false);
                entry.file = File::Idle(socket);
            }
            other => entry.file = other,
        }
        Ok(())
    }

    /// Turns a listener into a socket with the same options, bound to the same address.
    fn unlisten(&mut self, fd: i32) -> Result<(), Errno> {
        let entry = self.socket_entry(fd)?;
        match std::mem::replace(&mut entry.file, File::Lost) {
            File::Listener(listener) => {
                let socket = listener.into_socket().map_err(|error| errno(&error))?;
                entry.file = File::Idle(socket);
                self.watch_again(fd);
            }
            other => entry.file = other,
        }
        Ok(())
    }

    pub(crate) fn shutdown(&mut self, fd: i32, how: i32) -> Step {
        let entry = self.socket_entry(fd)?;
        let how = match how {
            SHUT_RD => Shutdown::Read,
            SHUT_WR => Shutdown::Write,
            SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        match &mut entry.file {
            // A shut ends a connect in SYN_SENT, whichever direction it names. In SYN_RECEIVED,
            // after a simultaneous open, the handshake goes on.
            File::Stream(stream) if stream.tcp.is_connecting() && !is_half_open(stream) => {
                return self.disconnect(fd);
            }
            File::Stream(stream) => {
                stream.attempt = match stream.attempt {
                    Attempt::UnderWay if !stream.tcp.is_open() => Attempt::Shut,
                    // A caller that shuts a connection knows the outcome of the connect.
                    Attempt::UnderWay => Attempt::Over,
                    told => told,
                };
                stream.tcp.shutdown(how).map_err(|error| errno(&error))?;
            }
            File::Listener(_) if how == Shutdown::Write => {}
            File::Listener(_) => self.unlisten(fd)?,
            File::Deferred(..) => self.undefer(fd)?,
            _ => {
                // Linux notes the shut although the call fails.
                if how != Shutdown::Write {
                    entry.read_shut.set(true);
                }
                return Err(Errno::NOTCONN);
            }
        }
        Ok(Some(0))
    }

    /// Closes a descriptor. With `SO_LINGER` the call waits until the last byte is acknowledged, or
    /// until the time is over.
    pub(crate) fn close(&mut self, fd: i32, progress: &mut Progress) -> Step {
        let now_ns = self.context.now_ns();
        let entry = self.entry(fd)?;
        if let File::Stream(stream) = &entry.file
            // Another descriptor may still use the connection.
            && entry.references == 1
            && let Linger::Seconds(seconds @ 1..) = stream.tcp.options().linger()
            && stream.tcp.readable() == 0
            // The program reads no more, so data that arrives is answered with a RST.
            && stream.tcp.shutdown(Shutdown::Both).is_ok()
        {
            let timeout = Duration::from_secs(seconds.into());
            // An interrupted close has still closed the socket.
            let is_over = is_over(progress, now_ns, Some(timeout)) || progress.is_interrupted;
            progress.is_unannounced = true;
            if !is_over && is_closing(stream)? {
                return Ok(None);
            }
        }
        self.uninstall(fd);
        Ok(Some(0))
    }

    pub(crate) fn getsockname(&mut self, fd: i32, reply: &mut Reply) -> Step {
        let entry = self.socket_entry(fd)?;
        let local = match &entry.file {
            File::Idle(socket) | File::Deferred(socket, _) => {
                let source = socket.source().map(|ip| SocketAddr::new(ip, 0));
                socket.local_addr().or(source)
            }
            File::Listener(listener) => Some(listener.local_addr()),
            File::Stream(stream) => match stream.tcp.local_addr() {
                Some(local) => Some(local),
                None => stream.info()?.map(|info| info.local),
            },
            _ => None,
        };
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let any = match entry.is_v6 {
            true => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
            false => any,
        };
        *reply = Reply::Address(as_family(entry.is_v6, local.unwrap_or(any)));
        Ok(Some(0))
    }

    pub(crate) fn getpeername(&mut self, fd: i32, reply: &mut Reply) -> Step {
        let entry = self.socket_entry(fd)?;
        match &entry.file {
            File::Stream(stream) if stream.tcp.is_open() || is_half_open(stream) => {
                *reply = Reply::Address(as_family(entry.is_v6, stream.tcp.peer_addr()));
                Ok(Some(0))
            }
            _ => Err(Errno::NOTCONN),
        }
    }
}

/// Lowest number above the protocols that Linux knows (`IPPROTO_MAX`).
const IPPROTO_END: i32 = 263;

/// True in SYN_RECEIVED after a simultaneous open: we connect, and the peer's SYN has arrived.
fn is_half_open(stream: &Stream) -> bool {
    stream.tcp.is_connecting() && stream.tcp.has_crossed()
}

/// True if our FIN is not acknowledged yet.
fn is_closing(stream: &Stream) -> Result<bool, Errno> {
    let state = stream.info()?.map(|info| info.tcp.state);
    Ok(matches!(
        state,
        Some(
            TcpState::Established
                | TcpState::CloseWait
                | TcpState::FinWait1
                | TcpState::Closing
                | TcpState::LastAck
        )
    ))
}

/// The result of a call that found nothing. It fails if the descriptor is non-blocking or the time
/// is over, and blocks otherwise.
pub(crate) fn blocked(
    found: Errno,
    nonblocking: bool,
    progress: &mut Progress,
    now_ns: u64,
    timeout: Option<Duration>,
) -> Step {
    match found {
        Errno::AGAIN if nonblocking => Err(found),
        Errno::AGAIN if is_over(progress, now_ns, timeout) => Err(found),
        Errno::AGAIN => Ok(None),
        _ => Err(found),
    }
}

/// An address for a socket of a family. An IPv4-mapped address counts as IPv4.
pub(crate) fn address_for(is_v6: bool, address: Address) -> Result<SocketAddr, Errno> {
    match address {
        Address::Inet(address) if address.is_ipv6() == is_v6 => {
            Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
        }
        // On an IPv6 socket Linux checks the length first, so IPv4's shorter structure is `EINVAL`.
        // So is an invalid `sockaddr_in6`.
        Address::Inet(_) if is_v6 => Err(Errno::INVAL),
        Address::Family(family) if is_v6 && i32::from(family) == AF_INET6 => Err(Errno::INVAL),
        Address::Inet(_) | Address::Family(_) | Address::Unspec => Err(Errno::AFNOSUPPORT),
        Address::Short => Err(Errno::INVAL),
    }
}

/// An address as a socket of this family reports it.
pub(crate) fn as_family(is_v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if is_v6 => {
            let ip = match ip.is_unspecified() {
                true => Ipv6Addr::UNSPECIFIED,
                false => ip.to_ipv6_mapped(),
            };
            SocketAddr::new(ip.into(), address.port())
        }
        _ => address,
    }
}
