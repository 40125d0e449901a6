//! The decision whether a TCP socket is Millstream's or the kernel's, at `bind`, `listen` or
//! `connect`.
//!
//! Until then the kernel's socket answers every call. A socket of Millstream's inherits the options
//! set so far; the kernel's socket stays open to keep the descriptor's number.

use std::net::SocketAddr;

use packetio::Backend;
use posix::{Address, EpollEvent, Errno, Reply, Request, number};

use crate::config::Settings;
use crate::engine::{Engine, Net, Object, Socket, Undecided};
use crate::kernel_epoll_unsafe::{has_told, kernel_epoll_ctl};
use crate::marks::{self, Mark};
use crate::rules::Owner;
use crate::{listeners, log, memory_unsafe, shared_ports};

/// The owner of a listener at `local`.
pub fn listener(engine: &mut Engine, local: SocketAddr) -> Result<Owner, Errno> {
    let Some(settings) = crate::engine::settings() else {
        return Ok(Owner::Kernel);
    };
    // Listeners on a loopback address, or left to the kernel by a rule, need no wire.
    let without_wire = settings.rules.listener(local, &[local.ip().to_canonical()]);
    let is_loopback = local.ip().to_canonical().is_loopback();
    if without_wire == Owner::Kernel || (is_loopback && !settings.rules.has_loopback()) {
        return Ok(Owner::Kernel);
    }
    match engine.net() {
        Ok(net) => Ok(settings.rules.listener(local, &net.addresses)),
        // The kernel reaches all peers of a `loopback` wire, so it can serve instead.
        Err(_) if matches!(settings.wire.backend, Backend::Loopback(_)) => Ok(Owner::Kernel),
        Err(errno) => Err(errno),
    }
}

/// True if a connection to `remote` is Millstream's.
pub fn connects(engine: &mut Engine, remote: SocketAddr) -> Result<bool, Errno> {
    let Some(settings) = crate::engine::settings() else {
        return Ok(false);
    };
    // A connection to ourselves leads to a listener of this process, which has opened the wire.
    // Without such a listener, another process may listen in the kernel. If a child shares the
    // listener's port, the kernel gets the connection, so that either process can accept it.
    let is_shared = shared_ports::has(remote.port());
    if !is_shared && let Ok(net) = engine.open() {
        let is_own = settings.rules.may_stay_inside(remote, &net.addresses);
        if is_own && net.sockets().context().listens_at(remote) {
            return Ok(true);
        }
    }
    if remote.ip().to_canonical().is_loopback() || remote.ip().is_unspecified() {
        return Ok(false);
    }
    let net = match engine.net() {
        Ok(net) => net,
        // The kernel reaches all peers of a `loopback` wire, so it can connect instead.
        Err(_) if matches!(settings.wire.backend, Backend::Loopback(_)) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    Ok(settings.rules.connects(remote, &net.reach, &net.addresses))
}

/// True if the program has asked for signals when an undecided socket is ready (`O_ASYNC`,
/// `F_SETOWN`), which only the kernel sends.
fn wants_signals(engine: &mut Engine, key: usize, fd: i32) -> bool {
    let has_asked = engine
        .entry(key)
        .is_ok_and(|entry| matches!(&entry.what, Object::Undecided(u) if u.asked_for_signals));
    let flags = || memory_unsafe::fcntl(fd, number::F_GETFL, 0).unwrap_or(0) as i32;
    let has_owner = || memory_unsafe::fcntl(fd, number::F_GETOWN, 0) != Ok(0);
    has_asked && (flags() & libc::O_ASYNC != 0 || has_owner())
}

/// True if an undecided socket is the kernel's because only the kernel sends its signals, and
/// reaches all peers.
pub fn is_left_for_signals(engine: &mut Engine, key: usize, fd: i32) -> bool {
    let reaches_all = crate::engine::settings()
        .is_some_and(|settings| matches!(settings.wire.backend, Backend::Loopback(_)));
    reaches_all && wants_signals(engine, key, fd)
}

/// Makes an undecided socket Millstream's: a new socket with its options, its flags and, if it was
/// bound in the kernel, its port.
pub fn take(engine: &mut Engine, key: usize, fd: i32) -> Result<Socket, Errno> {
    if wants_signals(engine, key, fd) {
        return Err(crate::calls::refuse_signals());
    }
    let undecided = match &mut engine.entry(key)?.what {
        Object::Undecided(undecided) => std::mem::take(undecided),
        Object::Socket(socket) => return Ok(*socket),
        _ => return Err(Errno::BADF),
    };
    let made = make(engine, &undecided, fd);
    let entry = engine.entry(key)?;
    match made {
        Ok(socket) => {
            entry.what = Object::Socket(socket);
            mark_copies(key, fd, entry.refs, Mark::Socket(key));
            for &(epfd, watched_fd, event) in &undecided.watched {
                move_watch(engine, epfd, (watched_fd, key), socket, event);
            }
            Ok(socket)
        }
        Err(errno) => {
            entry.what = Object::Undecided(undecided);
            Err(errno)
        }
    }
}

fn make(engine: &mut Engine, undecided: &Undecided, fd: i32) -> Result<Socket, Errno> {
    let flags = memory_unsafe::fcntl(fd, number::F_GETFL, 0)? as i32;
    let kept = match undecided.is_bound {
        true => Some(memory_unsafe::kernel_name(fd)?),
        false => None,
    };
    let net = engine.net()?;
    let domain = match undecided.is_v6 {
        true => number::AF_INET6,
        false => number::AF_INET,
    };
    let kind = number::SOCK_STREAM | (flags & number::O_NONBLOCK);
    let (id, _) = net.call(Request::Socket {
        domain,
        kind,
        protocol: 0,
    })?;
    let id = id as i32;
    for (level, name, value) in &undecided.options {
        let (level, name) = (*level, *name);
        let value = value.clone();
        let set = net.call(Request::Setsockopt {
            fd: id,
            level,
            name,
            value,
        });
        if let Err(errno) = set {
            log::once(&format!(
                "option {level}/{name} was set before the socket came to the wire, which refuses \
                 it: {errno}"
            ));
        }
    }
    if let Some(local) = kept
        && let Err(errno) = bind_as_in_kernel(net, id, local)
    {
        // The socket is new and holds no data, so an error of the close means nothing.
        let _ = net.call(Request::Close { fd: id });
        return Err(errno);
    }
    Ok(Socket {
        id,
        is_both: false,
        has_own: true,
    })
}

/// Binds a socket to a port that the kernel has given it. Connections of Millstream's may use the
/// port, since the kernel does not know them; so the socket shares it.
fn bind_as_in_kernel(net: &mut Net, fd: i32, local: SocketAddr) -> Result<(), Errno> {
    let (level, name) = (number::SOL_SOCKET, number::SO_REUSEADDR);
    let set = |net: &mut Net, value: Vec<u8>| {
        let request = Request::Setsockopt {
            fd,
            level,
            name,
            value,
        };
        net.call(request).map(|_| ())
    };
    let len = size_of::<i32>();
    let before = net.call(Request::Getsockopt {
        fd,
        level,
        name,
        len,
    })?;
    set(net, 1_i32.to_ne_bytes().to_vec())?;
    let address = Address::Inet(local);
    let bound = net.call(Request::Bind { fd, address });
    if let Reply::Bytes(before) = before.1 {
        set(net, before)?;
    }
    bound.map(|_| ())
}

/// True on a `mux` wire, whose service grants addresses and ports. A `bind` to try a port would
/// claim it there.
pub fn is_granted_by_service() -> bool {
    crate::engine::settings().is_some_and(Settings::has_service)
}

/// Refuses an undecided socket a port that a connection of Millstream's uses, as the kernel would
/// if it knew of the connection.
///
/// # Errors
/// `EADDRINUSE`
pub fn check_port(engine: &mut Engine, key: usize, local: SocketAddr) -> Result<(), Errno> {
    let (is_v6, options) = match &engine.entry(key)?.what {
        Object::Undecided(undecided) => (undecided.is_v6, undecided.options.clone()),
        _ => return Ok(()),
    };
    let Ok(net) = engine.open() else {
        return Ok(());
    };
    if local.port() == 0 {
        return Ok(());
    }
    let fd = listeners::make_with(net, is_v6, number::SOCK_STREAM, &options)?;
    let address = Address::Inet(local);
    let bound = net.call(Request::Bind { fd, address });
    // The socket is new and holds no data, so an error of the close means nothing.
    let _ = net.call(Request::Close { fd });
    match bound {
        Err(Errno::ADDRINUSE) => Err(Errno::ADDRINUSE),
        // Other errors of the address are the kernel's to report.
        _ => Ok(()),
    }
}

/// Makes an epoll that watched the kernel's socket watch Millstream's.
fn move_watch(
    engine: &mut Engine,
    epfd: i32,
    (fd, key): (i32, usize),
    socket: Socket,
    event: EpollEvent,
) {
    let is_spent = event.events & number::EPOLLONESHOT != 0 && has_told(epfd, fd);
    // The program may have closed the epoll, and its number may have been used again.
    if kernel_epoll_ctl(epfd, number::EPOLL_CTL_DEL, fd, event).is_err() {
        return;
    }
    let added = match is_spent {
        true => crate::epoll::add_spent(engine, epfd, (fd, key)),
        false => crate::epoll::add(engine, epfd, (fd, key), socket, event),
    };
    if let Err(errno) = added {
        log::once(&format!(
            "epoll: a socket that came to the wire is lost to it: {errno}"
        ));
    }
}

/// Leaves an undecided socket to the kernel for good.
pub fn leave_to_kernel(engine: &mut Engine, key: usize, fd: i32) {
    if let Ok(entry) = engine.entry(key)
        && matches!(entry.what, Object::Undecided(_))
    {
        let refs = entry.refs;
        engine.remove(key);
        mark_copies(key, fd, refs, Mark::Kernel);
    }
}

/// Gives a socket of Millstream's that has lost its connection back to the kernel if it is about to
/// connect to where the kernel leads. False: it stays Millstream's.
///
/// A socket that an epoll watches stays: the watch is in the stack. So does an accepted one, for
/// which the kernel has no socket.
pub fn give_back(
    engine: &mut Engine,
    key: usize,
    fd: i32,
    remote: SocketAddr,
) -> Result<bool, Errno> {
    let entry = engine.entry(key)?;
    let is_free = entry.watches.is_empty() && entry.listener.is_none();
    let socket = match entry.what.socket() {
        Some(socket) if is_free && socket.has_own && !socket.is_both => socket,
        _ => return Ok(false),
    };
    if !engine.open()?.sockets().is_idle(socket.id) || connects(engine, remote)? {
        return Ok(false);
    }
    let net = engine.open()?;
    let (_, name) = net.call(Request::Getsockname { fd: socket.id })?;
    let kept = memory_unsafe::kernel_name(fd)?;
    if !matches!(name, Reply::Address(name) if name.port() == 0 || name.port() == kept.port()) {
        return Ok(false);
    }
    let (command, argument) = (number::F_GETFL, 0);
    let request = Request::Fcntl {
        fd: socket.id,
        command,
        argument,
    };
    let flags = net.call(request)?.0;
    memory_unsafe::fcntl(fd, number::F_SETFL, flags as usize)?;
    give_options_back(net, socket.id, fd)?;
    // An idle socket closes at once.
    net.call(Request::Close { fd: socket.id })?;
    engine.remove(key);
    marks::replace(Mark::Socket(key), Mark::Kernel);
    Ok(true)
}

/// Sets the kernel's socket as the one in the stack is set.
fn give_options_back(net: &mut Net, id: i32, fd: i32) -> Result<(), Errno> {
    for &(level, name, len) in GIVEN_BACK {
        let request = Request::Getsockopt {
            fd: id,
            level,
            name,
            len,
        };
        // The stack has all of these options, except those of the other family.
        if let Ok((_, Reply::Bytes(value))) = net.call(request) {
            memory_unsafe::set_option(fd, level, name, &value)?;
        }
    }
    Ok(())
}

/// Options that a program may have set before it connects: level, name, length. Sizes of buffers
/// are left out, because the kernel doubles them.
const GIVEN_BACK: &[(i32, i32, usize)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 4),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 4),
    (libc::IPPROTO_TCP, libc::TCP_CORK, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 4),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 4),
    (libc::IPPROTO_IP, libc::IP_TOS, 4),
    (libc::IPPROTO_IP, libc::IP_TTL, 4),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 4),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 4),
];

/// Sets the mark of all descriptors of an undecided socket.
fn mark_copies(key: usize, fd: i32, refs: u32, mark: Mark) {
    match refs {
        1 => marks::set(fd, mark),
        _ => marks::replace(Mark::Undecided(key), mark),
    }
}
