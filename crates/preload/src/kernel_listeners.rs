//! Inherited listeners in a forked child, where only the kernel's part of each remains.
//!
//! A listener on a loopback address, or on all addresses of a process without a wire, has a part in
//! the stack that only its own process can reach. After `fork` two processes accept from it, so the
//! parent's own connections use the kernel from then on: either process may accept them.
//!
//! The kernel's socket is non-blocking, which the parent needs. The child waits by `ppoll`.

use std::net::SocketAddr;

use packetio::Backend;
use packetio::wait::monotonic_ns;
use posix::{Errno, Reply, Request, number};
use rustix::net::sockopt;

use crate::config::Settings;
use crate::engine::{Engine, Object};
use crate::marks::{self, Mark};
use crate::tags::{self, Tag};
use crate::{memory_unsafe, shared_ports, signals_unsafe};

/// Before `fork`: notes the listeners that the child will share.
pub fn note(engine: &mut Engine) {
    let places = 0..engine.entries_count();
    let noted = places.filter_map(|place| {
        let key = engine.key_at(place)?;
        Some((key, shared(engine, key)?))
    });
    let noted: Vec<(usize, (u16, bool))> = noted.collect();
    for (_, (port, _)) in &noted {
        shared_ports::add(*port);
    }
    engine.shared = noted
        .iter()
        .map(|(key, (_, waits))| (*key, *waits))
        .collect();
}

/// True if the listeners at this address share their queue with no service, but with the processes
/// that have the kernel's socket.
fn is_local(local: SocketAddr) -> bool {
    let has_no_wire = crate::engine::settings()
        .is_some_and(|settings| matches!(settings.wire.backend, Backend::Loopback(_)));
    has_no_wire || local.ip().to_canonical().is_loopback()
}

/// Shares the kernel's part of a listener with another program. The part of one on a wire of this
/// process's alone is of no use there: connections over the wire do not come to it. Neither locks
/// nor allocates, since a child of `vfork` calls it.
///
/// # Errors
/// The kernel refuses the tag, so the other program takes the part for a listener.
pub fn share(fd: i32) -> Result<(), Errno> {
    if let Ok(local) = memory_unsafe::kernel_name(fd)
        && is_local(local)
    {
        shared_ports::add(local.port());
    }
    share_strange(fd)
}

/// Tells programs that get the kernel's part of a listener whether its calls wait.
pub fn tell_waits(engine: &mut Engine, key: usize, fd: i32) {
    if let Some((_, waits)) = shared(engine, key) {
        tell(fd, waits);
    }
}

/// Tells programs that get the kernel's part of a new listener what it is. A child that passes it
/// on may have no privilege for that.
pub fn tell_new(engine: &mut Engine, key: usize, fd: i32) {
    tell_waits(engine, key, fd);
    // An error is told when another program gets the listener.
    let _ = share_strange(fd);
}

/// Tags the kernel's part of a listener on a wire of this process's alone.
fn share_strange(fd: i32) -> Result<(), Errno> {
    let has_service = crate::engine::settings().is_some_and(Settings::has_service);
    match memory_unsafe::kernel_name(fd) {
        Ok(local) if !is_local(local) && !has_service => tags::write(fd, Tag::Listener),
        _ => Ok(()),
    }
}

fn tell(fd: i32, waits: bool) {
    match waits {
        // Without the tag, calls of programs that get the listener do not wait.
        true => drop(tags::write(fd, Tag::Waits)),
        false => tags::remove(fd),
    }
}

/// The port of a listener that only this process and the kernel can reach, and whether its calls
/// wait.
fn shared(engine: &mut Engine, key: usize) -> Option<(u16, bool)> {
    let socket = engine
        .entry(key)
        .ok()?
        .what
        .socket()
        .filter(|socket| socket.is_both)?;
    let net = engine.open().ok()?;
    let fd = socket.id;
    let (_, name) = net.call(Request::Getsockname { fd }).ok()?;
    let Reply::Address(local) = name else {
        return None;
    };
    if !is_local(local) {
        return None;
    }
    let (command, argument) = (number::F_GETFL, 0);
    let (flags, _) = net
        .call(Request::Fcntl {
            fd,
            command,
            argument,
        })
        .ok()?;
    Some((local.port(), flags as i32 & number::O_NONBLOCK == 0))
}

/// In the child: leaves the noted listeners to the kernel.
pub fn inherit(engine: &mut Engine) {
    for (key, waits) in std::mem::take(&mut engine.shared) {
        if let Ok(entry) = engine.entry(key) {
            entry.what = Object::Kernels { waits };
            for (fd, _) in marks::marked(0, u32::MAX).filter(|(_, mark)| *mark == Mark::Socket(key))
            {
                marks::set(fd, Mark::Listener(key));
            }
        }
    }
}

/// Repeats a call on the kernel's socket until it does not block, or until the socket's time limit
/// (`SO_RCVTIMEO`) is over.
///
/// # Errors
/// The error of the call; `EAGAIN` if the limit is over; `EINTR`.
pub fn until_done(
    key: usize,
    fd: i32,
    mut call: impl FnMut() -> Result<i64, Errno>,
) -> Result<i64, Errno> {
    let waits = waits(key)?;
    signals_unsafe::begin();
    let mut outcome = call();
    if !waits || outcome != Err(Errno::AGAIN) {
        return outcome;
    }
    let until_ns = time_limit_ns(fd).map(|limit_ns| monotonic_ns().saturating_add(limit_ns));
    while outcome == Err(Errno::AGAIN) {
        let left_ns = until_ns.map(|at_ns| at_ns.saturating_sub(monotonic_ns()));
        if left_ns == Some(0) {
            break;
        }
        sleep(fd, left_ns)?;
        outcome = call();
    }
    outcome
}

/// Nanoseconds that a call on the kernel's socket waits for input. `None`: no limit.
fn time_limit_ns(fd: i32) -> Option<u64> {
    let limit = memory_unsafe::with_borrowed(fd, |socket| {
        sockopt::socket_timeout(socket, sockopt::Timeout::Recv)
    });
    let ns = limit.ok()??.as_nanos();
    Some(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Sleeps until the kernel's socket has a connection, a handler has run or the time is over.
///
/// # Errors
/// `EINTR`: as in Linux, a call with a time limit is not restarted after a signal.
fn sleep(fd: i32, left_ns: Option<u64>) -> Result<(), Errno> {
    let mut fds = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    let slept = memory_unsafe::sleep(&mut fds, left_ns, None);
    let ran = signals_unsafe::sleep_ended();
    match slept {
        Err(Errno::INTR) if left_ns.is_some() || ran.ends || !ran.any => Err(Errno::INTR),
        Err(errno) if errno != Errno::INTR => Err(errno),
        _ => Ok(()),
    }
}

fn waits(key: usize) -> Result<bool, Errno> {
    crate::engine::locked(|engine| match engine.entry(key)?.what {
        Object::Kernels { waits } => Ok(waits),
        _ => Err(Errno::BADF),
    })
}

/// Sets whether the listener's calls wait.
///
/// # Errors
/// `EBADF`
pub fn set_waits(key: usize, fd: i32, now_waits: bool) -> Result<(), Errno> {
    crate::engine::locked(|engine| match &mut engine.entry(key)?.what {
        Object::Kernels { waits } => {
            *waits = now_waits;
            tell(fd, now_waits);
            Ok(())
        }
        _ => Err(Errno::BADF),
    })
}

/// `fcntl` on the description's flags.
///
/// # Errors
/// The error of `fcntl`.
pub fn fcntl(fd: i32, key: usize, command: i32, argument: usize) -> Result<i64, Errno> {
    let own = number::O_NONBLOCK;
    match command {
        number::F_GETFL => {
            let said = memory_unsafe::fcntl(fd, command, argument)?;
            let flag = if waits(key)? { 0 } else { i64::from(own) };
            Ok(said & !i64::from(own) | flag)
        }
        number::F_SETFL => {
            let waits = argument as i32 & own == 0;
            set_waits(key, fd, waits)?;
            memory_unsafe::fcntl(fd, command, argument | own as usize)
        }
        _ => memory_unsafe::fcntl(fd, command, argument),
    }
}
