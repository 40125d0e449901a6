//! Listeners on a `mux` wire as specifications. Each process that has the descriptor opens a
//! listener of its own when it first accepts or waits for connections.
//!
//! `bind` makes the service hold the address and port for the program and its children, so that it
//! can return errors. A SYN that arrives before any process accepts is dropped, and the peer
//! retransmits it.
//!
//! On all addresses the kernel's socket is bound and listens as well. It keeps the port in the
//! kernel, where the service would otherwise bind a socket of its own. In this case `listen` holds
//! the place: a socket that is bound to all addresses may still connect in the kernel.

use std::net::SocketAddr;

use millstream::AcceptCall;
use posix::{Address, Errno, Request, number};

use crate::engine::{Engine, Net, Object, Socket};
use crate::handover::{Listener, SetOption};
use crate::{holds, rights_unsafe};

/// Binds a socket of the wire. On a `mux` wire this holds the place, and nothing listens yet.
///
/// # Errors
/// The error of `bind`.
pub fn bind(
    engine: &mut Engine,
    key: usize,
    local: SocketAddr,
    (is_v6, options): (bool, Vec<SetOption>),
) -> Result<i64, Errno> {
    if engine.entry(key)?.listener.is_some() {
        return Err(Errno::INVAL);
    }
    if local.port() == 0 || engine.open()?.host.is_none() {
        let (net, socket) = engine.socket_of(key)?;
        let (fd, address) = (socket.id, Address::Inet(local));
        return Ok(net.call(Request::Bind { fd, address })?.0);
    }
    let shares = |options: &[SetOption]| {
        let asked = options.iter().rev();
        let mut asked = asked.filter(|(level, name, _)| {
            (*level, *name) == (number::SOL_SOCKET, number::SO_REUSEPORT)
        });
        asked
            .next()
            .is_some_and(|(_, _, value)| value.iter().any(|byte| *byte != 0))
    };
    let mut others = engine.listeners().filter(|other| other.local == local);
    let is_taken = others.any(|other| !shares(&options) || !shares(&other.options));
    drop(others);
    if is_taken {
        return Err(Errno::ADDRINUSE);
    }
    let listener = Listener {
        local,
        is_v6,
        options,
        is_nonblocking: false,
        is_both: false,
        backlog: None,
        is_open: false,
    };
    hold(engine, key, &listener)?;
    engine.entry(key)?.listener = Some(listener);
    Ok(0)
}

/// Binds a socket to all addresses of a `mux` wire. The kernel's socket `fd` is bound already and
/// keeps the port in the kernel.
///
/// # Errors
/// The service's error. The kernel's socket stays bound.
pub fn bind_both(
    engine: &mut Engine,
    key: usize,
    local: SocketAddr,
    (is_v6, options): (bool, Vec<SetOption>),
) -> Result<(), Errno> {
    let listener = Listener {
        local,
        is_v6,
        options,
        is_nonblocking: false,
        is_both: true,
        backlog: None,
        is_open: false,
    };
    hold(engine, key, &listener)?;
    engine.entry(key)?.listener = Some(listener);
    Ok(())
}

fn hold(engine: &mut Engine, key: usize, listener: &Listener) -> Result<(), Errno> {
    if engine.entry(key)?.is_held {
        return Ok(());
    }
    let host = engine.net()?.host.clone().ok_or(Errno::NETDOWN)?;
    holds::hold(&host, key, listener)?;
    engine.entry(key)?.is_held = true;
    Ok(())
}

/// The socket of an entry. For an inherited listener, the socket is made here.
///
/// # Errors
/// `EBADF` for an inherited connection.
pub fn socket(engine: &mut Engine, key: usize) -> Result<Socket, Errno> {
    let entry = engine.entry(key)?;
    match (&entry.what, &entry.listener) {
        (Object::Parents, Some(listener)) => {
            let listener = listener.clone();
            hold(engine, key, &listener)?;
            let socket = make(engine, &listener)?;
            engine.entry(key)?.what = Object::Socket(socket);
            Ok(socket)
        }
        _ => engine.socket(key),
    }
}

fn make(engine: &mut Engine, listener: &Listener) -> Result<Socket, Errno> {
    let net = engine.net()?;
    let nonblocking = match listener.is_nonblocking {
        true => number::O_NONBLOCK,
        false => 0,
    };
    let kind = number::SOCK_STREAM | nonblocking;
    Ok(Socket {
        id: make_with(net, listener.is_v6, kind, &listener.options)?,
        is_both: listener.is_both,
        has_own: false,
    })
}

/// A socket of `posix` with these options.
///
/// # Errors
/// The error of `socket`.
pub fn make_with(
    net: &mut Net,
    is_v6: bool,
    kind: i32,
    options: &[SetOption],
) -> Result<i32, Errno> {
    let (id, _) = net.call(Request::Socket {
        domain: match is_v6 {
            true => number::AF_INET6,
            false => number::AF_INET,
        },
        kind,
        protocol: 0,
    })?;
    let fd = id as i32;
    for (level, name, value) in options {
        // An option that was refused when it was set is refused again, so errors do not matter.
        let _ = net.call(Request::Setsockopt {
            fd,
            level: *level,
            name: *name,
            value: value.clone(),
        });
    }
    Ok(fd)
}

/// The socket of an entry that is about to accept connections or to wait for them. From now on this
/// process gets its share of the SYNs.
///
/// # Errors
/// The errors of [`socket`], `bind` and `listen`.
pub fn ready(engine: &mut Engine, key: usize) -> Result<Socket, Errno> {
    let socket = socket(engine, key)?;
    let Some((local, backlog)) = pending(engine, key) else {
        return Ok(socket);
    };
    let Some(backlog) = backlog else {
        return Ok(socket);
    };
    let net = engine.open()?;
    let fd = socket.id;
    let address = Address::Inet(local);
    net.call(Request::Bind { fd, address })?;
    net.call(Request::Listen { fd, backlog })?;
    set_open(engine, key)?;
    Ok(socket)
}

/// The address of a socket that is bound but not open in the stack, and its backlog if it listens.
fn pending(engine: &mut Engine, key: usize) -> Option<(SocketAddr, Option<i32>)> {
    let listener = engine.entry(key).ok()?.listener.as_ref()?;
    (!listener.is_open).then_some((listener.local, listener.backlog))
}

fn set_open(engine: &mut Engine, key: usize) -> Result<(), Errno> {
    if let Some(listener) = &mut engine.entry(key)?.listener {
        listener.is_open = true;
    }
    engine.opened.push(key);
    Ok(())
}

/// `listen`. True if the specification is all that has to change.
///
/// # Errors
/// `EBADF`
pub fn listen(engine: &mut Engine, key: usize, backlog: i32) -> Result<bool, Errno> {
    match &mut engine.entry(key)?.listener {
        Some(listener) => {
            listener.backlog = Some(backlog);
            Ok(!listener.is_open)
        }
        None => Ok(false),
    }
}

/// Binds a socket in the stack before it connects, for this process alone.
///
/// # Errors
/// The error of `bind`.
pub fn connect(engine: &mut Engine, key: usize) -> Result<(), Errno> {
    let Some((local, None)) = pending(engine, key) else {
        return Ok(());
    };
    let socket = socket(engine, key)?;
    let (fd, address) = (socket.id, Address::Inet(local));
    engine.open()?.call(Request::Bind { fd, address })?;
    let entry = engine.entry(key)?;
    let listener = entry.listener.take();
    entry.is_held = false;
    for place in listener.iter().flat_map(Listener::places) {
        engine.let_go(place);
    }
    Ok(())
}

/// The address of a socket that is bound but not open in the stack.
pub fn name(engine: &mut Engine, key: usize) -> Option<SocketAddr> {
    pending(engine, key).map(|(local, _)| local)
}

/// Notes the listeners for which a call waits that waits for these entries, until the notes are
/// dropped. Connections that another process does not accept come to a process with such a call.
pub fn begin_calls(engine: &mut Engine, keys: &[usize]) -> Vec<AcceptCall> {
    let mut opened = std::mem::take(&mut engine.opened);
    opened.retain(|key| opened_id(engine, *key).is_some());
    let mut calls = Vec::new();
    for key in &opened {
        let is_awaited = engine.entry(*key).is_ok_and(|entry| {
            let mut watches = entry.watches.iter();
            keys.contains(key) || watches.any(|watch| keys.contains(&watch.epoll))
        });
        if is_awaited
            && let Some(id) = opened_id(engine, *key)
            && let Ok(net) = engine.open()
        {
            calls.extend(net.sockets().begin_accept_call(id));
        }
    }
    engine.opened = opened;
    calls
}

/// The socket of a listener that this process has opened.
fn opened_id(engine: &mut Engine, key: usize) -> Option<i32> {
    let entry = engine.entry(key).ok()?;
    let is_open = entry.listener.as_ref().is_some_and(|one| one.is_open);
    entry
        .what
        .socket()
        .filter(|_| is_open)
        .map(|socket| socket.id)
}

/// Like [`ready`], for a call of `accept`.
///
/// # Errors
/// As for [`ready`].
pub fn accepting(engine: &mut Engine, key: usize) -> Result<Socket, Errno> {
    engine.entry(key)?.has_accepted = true;
    ready(engine, key)
}

/// After the end of a watch: closes the listener in this process's stack if the process seems to
/// leave it to others, as a master does that has started a child for the connections that came. The
/// listener has other processes, no watch, and no call of `accept` here. The connections that wait
/// go to the process that opens the listener next, and the service gives this one no more.
///
/// # Errors
/// `EBADF`
pub fn leave(engine: &mut Engine, key: usize) -> Result<(), Errno> {
    let has_calls = engine.waits.has(key);
    let entry = engine.entry(key)?;
    let is_left = entry.is_shared && entry.watches.is_empty() && !has_calls;
    if !is_left || never_used(engine, key).is_none() {
        return Ok(());
    }
    // The next use sets the flags and options that the socket has now.
    engine.specification(key);
    let fd = engine.socket(key)?.id;
    let entry = engine.entry(key)?;
    entry.what = Object::Parents;
    if let Some(listener) = &mut entry.listener {
        listener.is_open = false;
    }
    engine.open()?.call(Request::Close { fd }).map(|_| ())
}

/// Before `fork`: notes that listeners have another process.
pub fn before_fork(engine: &mut Engine) {
    for place in 0..engine.entries_count() {
        let key = engine.key_at(place);
        if let Some(entry) = key.and_then(|key| engine.entry(key).ok()) {
            entry.is_shared = true;
        }
    }
}

/// An open listener of which this process has never called `accept`: socket and address.
fn never_used(engine: &mut Engine, key: usize) -> Option<(i32, SocketAddr)> {
    let entry = engine.entry(key).ok()?;
    let listener = entry.listener.as_ref().filter(|listener| listener.is_open);
    let local = listener.filter(|_| !entry.has_accepted)?.local;
    Some((entry.what.socket()?.id, local))
}

/// Writes the specification of a listener for other programs, whenever it changes.
pub fn describe(engine: &mut Engine, key: usize, fd: i32) {
    let has_one = engine
        .entry(key)
        .is_ok_and(|entry| entry.listener.is_some());
    let listener = has_one.then(|| engine.specification(key)).flatten();
    if let Some(listener) = listener.filter(|listener| listener.backlog.is_some()) {
        rights_unsafe::describe(fd, &listener);
    }
}

/// Records an option, so that children set it, too.
pub fn note_option(engine: &mut Engine, key: usize, option: SetOption) {
    if let Ok(entry) = engine.entry(key)
        && let Some(listener) = &mut entry.listener
    {
        listener.options.push(option);
    }
}
