//! Exported calls that open, connect and name sockets, and their options.

use std::net::SocketAddr;

use libc::{c_int, c_void, sockaddr, socklen_t};
use posix::c_layout::{SOCKADDR_LEN_MAX, from_address, to_address, to_bound_address};
use posix::{Address, EpollEvent, Errno, PollFd, Reply, Request, number};

use crate::engine::{self, Engine, Object, Undecided};
use crate::errno_unsafe::{c, told};
use crate::handover::SetOption;
use crate::kernel_epoll_unsafe::kernel_epoll_ctl;
use crate::limits::{FDS_MAX, OPTION_LEN_MAX};
use crate::marks::{self, Mark};
use crate::memory_unsafe::{self, by_number, put_address, put_name};
use crate::real_unsafe;
use crate::rules::Owner;
use crate::sleep::{self, Attempt, Signals};
use crate::sleepers::News;
use crate::{calls, decide, descriptor_unsafe, kernel_listeners, listeners, log, own_process};

/// `socket`: makes a kernel socket. A TCP socket is undecided.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: it takes numbers alone.
    let fd = unsafe { real_unsafe::socket(domain, kind, protocol) };
    let is_tcp = kind & number::SOCK_TYPE_MASK == number::SOCK_STREAM
        && matches!(protocol, number::IPPROTO_IP | number::IPPROTO_TCP)
        && matches!(domain, number::AF_INET | number::AF_INET6);
    if fd < 0 || !is_tcp || engine::settings().is_none() || engine::is_inside() {
        return fd;
    }
    if own_process::is_vforked() {
        return fd;
    }
    if fd as usize >= FDS_MAX {
        log::once("a socket with a number beyond 65535 stays with the kernel");
        return fd;
    }
    // If this fails, the socket stays the kernel's.
    let _ = engine::locked(|engine| {
        let key = engine.put(Object::Undecided(Undecided {
            is_v6: domain == number::AF_INET6,
            ..Undecided::default()
        }));
        marks::set(fd, Mark::Undecided(key));
        Ok(())
    });
    fd
}

/// Reads C's address.
unsafe fn address(addr: *const sockaddr, len: socklen_t, is_bind: bool) -> Result<Address, Errno> {
    if !(FAMILY_LEN..=SOCKADDR_LEN_MAX).contains(&(len as usize)) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory_unsafe::copied(addr.cast(), len as usize) }?;
    Ok(match is_bind {
        true => to_bound_address(&bytes),
        false => to_address(&bytes),
    })
}

/// Linux looks at nothing in an address that is too short for its family.
const FAMILY_LEN: usize = size_of::<libc::sa_family_t>();

/// `bind`: makes the socket Millstream's if the address is one of the wire.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let mark = marks::of(fd);
    let key = match mark {
        Mark::Undecided(key) | Mark::Socket(key) => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::bind(fd, addr, len) },
    };
    // SAFETY: the caller's promise.
    let address = unsafe { address(addr, len, true) };
    let bound = address.and_then(|address| {
        engine::with(|engine| {
            if let (Mark::Undecided(_), Address::Inet(local)) = (mark, address) {
                let owner = match decide::is_left_for_signals(engine, key, fd) {
                    true => Owner::Kernel,
                    false => decide::listener(engine, local)?,
                };
                match owner {
                    Owner::Wire => {
                        let past = undecided_of(engine, key)?;
                        decide::take(engine, key, fd)?;
                        return listeners::bind(engine, key, local, past);
                    }
                    owner => {
                        // On a `mux` wire the service checks the port when it grants the place.
                        if owner == Owner::Both && !decide::is_granted_by_service() {
                            decide::check_port(engine, key, local)?;
                        }
                        // SAFETY: the caller's promise.
                        told(unsafe { real_unsafe::bind(fd, addr, len) }.into())?;
                        if let Object::Undecided(undecided) = &mut engine.entry(key)?.what {
                            undecided.is_bound = true;
                        }
                        if owner == Owner::Kernel && !local.ip().is_unspecified() {
                            decide::leave_to_kernel(engine, key, fd);
                        }
                        return Ok(0);
                    }
                };
            } else if let Mark::Undecided(_) = mark {
                // SAFETY: the caller's promise.
                return told(unsafe { real_unsafe::bind(fd, addr, len) }.into());
            }
            listeners::socket(engine, key)?;
            if engine.entry(key)?.listener.is_some() {
                return Err(Errno::INVAL);
            }
            let (net, socket) = engine.socket_of(key)?;
            let request = Request::Bind {
                fd: socket.id,
                address,
            };
            Ok(net.call(request)?.0)
        })
    });
    c(bound)
}

/// Holds the place on a `mux` wire of a socket that the kernel has bound to all addresses and that
/// is about to listen. False: another kind of wire, or a loopback address.
fn bind_shared(engine: &mut Engine, key: usize, fd: c_int) -> Result<bool, Errno> {
    let local = memory_unsafe::kernel_name(fd)?;
    if !local.ip().is_unspecified() || engine.net()?.host.is_none() {
        return Ok(false);
    }
    let past = undecided_of(engine, key)?;
    let watched = match &mut engine.entry(key)?.what {
        Object::Undecided(undecided) => {
            // The kernel keeps the port. This process's stack binds when it listens.
            undecided.is_bound = false;
            undecided.watched.clone()
        }
        _ => Vec::new(),
    };
    decide::take(engine, key, fd)?;
    if let Object::Socket(socket) = &mut engine.entry(key)?.what {
        socket.is_both = true;
    }
    watch_both(&watched)?;
    listeners::bind_both(engine, key, local, past)?;
    Ok(true)
}

/// Listens on both sides of a `mux` wire. False: as for [`bind_shared`].
fn listen_shared(
    engine: &mut Engine,
    key: usize,
    fd: c_int,
    backlog: c_int,
) -> Result<bool, Errno> {
    if !bind_shared(engine, key, fd)? {
        return Ok(false);
    }
    listeners::listen(engine, key, backlog)?;
    listen_in_kernel(fd, backlog).map(|_| true)
}

/// Makes epolls that watch Millstream's socket watch the kernel's, too.
fn watch_both(watched: &[(i32, i32, EpollEvent)]) -> Result<(), Errno> {
    watched
        .iter()
        .try_for_each(|&(epfd, fd, event)| kernel_epoll_ctl(epfd, number::EPOLL_CTL_ADD, fd, event))
}

/// Makes the kernel's socket of a listener on both sides listen, non-blocking: if another process
/// takes a connection first, no call is left waiting in the kernel.
fn listen_in_kernel(fd: c_int, backlog: c_int) -> Result<i64, Errno> {
    // SAFETY: it takes numbers alone.
    told(unsafe { real_unsafe::listen(fd, backlog) }.into())?;
    let flags = memory_unsafe::fcntl(fd, number::F_GETFL, 0)?;
    let flags = flags as usize | number::O_NONBLOCK as usize;
    memory_unsafe::fcntl(fd, number::F_SETFL, flags)
}

/// The family and the options of an undecided socket.
fn undecided_of(engine: &mut Engine, key: usize) -> Result<(bool, Vec<SetOption>), Errno> {
    match &engine.entry(key)?.what {
        Object::Undecided(undecided) => Ok((undecided.is_v6, undecided.options.clone())),
        _ => Err(Errno::BADF),
    }
}

/// `listen`: on all addresses, both the kernel and Millstream listen.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let mark = marks::of(fd);
    let listening = match mark {
        Mark::Undecided(key) => engine::with(|engine| listen_undecided(engine, key, fd, backlog)),
        Mark::Socket(key) => engine::with(|engine| {
            let socket = listeners::socket(engine, key)?;
            if !listeners::listen(engine, key, backlog)? {
                let fd = socket.id;
                engine.open()?.call(Request::Listen { fd, backlog })?;
            }
            if socket.is_both {
                listen_in_kernel(fd, backlog)?;
            }
            Ok(0)
        }),
        // SAFETY: it takes numbers alone.
        _ => return unsafe { real_unsafe::listen(fd, backlog) },
    };
    c(listening.inspect(|_| note_listening(fd)))
}

/// Tells programs that get the descriptor what it is now.
fn note_listening(fd: c_int) {
    let mark = marks::of(fd);
    let Mark::Socket(key) = mark else { return };
    // If the entry is gone, another thread has closed the socket.
    let _ = engine::locked(|engine| {
        match engine.entry(key)?.refs {
            1 => marks::set(fd, mark),
            _ => marks::replace(mark, mark),
        }
        listeners::describe(engine, key, fd);
        Ok(())
    });
}

fn listen_undecided(
    engine: &mut Engine,
    key: usize,
    fd: c_int,
    backlog: c_int,
) -> Result<i64, Errno> {
    let local = memory_unsafe::kernel_name(fd)?;
    let is_left = decide::is_left_for_signals(engine, key, fd);
    if is_left || decide::listener(engine, local)? != Owner::Both {
        decide::leave_to_kernel(engine, key, fd);
        // SAFETY: it takes numbers alone.
        return told(unsafe { real_unsafe::listen(fd, backlog) }.into());
    }
    // Hold the place before the kernel listens. Otherwise connections over the wire could begin in
    // the kernel in between, and would be reset.
    let is_bound = match &engine.entry(key)?.what {
        Object::Undecided(undecided) => undecided.is_bound,
        _ => false,
    };
    if is_bound && listen_shared(engine, key, fd, backlog)? {
        return Ok(0);
    }
    // The kernel chooses the port of a socket that is not bound.
    // SAFETY: it takes numbers alone.
    told(unsafe { real_unsafe::listen(fd, backlog) }.into())?;
    if !is_bound && listen_shared(engine, key, fd, backlog)? {
        return Ok(0);
    }
    if let Object::Undecided(undecided) = &mut engine.entry(key)?.what {
        undecided.is_bound = true;
    }
    let watched = match &engine.entry(key)?.what {
        Object::Undecided(undecided) => undecided.watched.clone(),
        _ => Vec::new(),
    };
    let socket = decide::take(engine, key, fd).inspect_err(|errno| {
        log::once(&format!("{local}: the wire refuses the listener: {errno}"));
    })?;
    let request = Request::Listen {
        fd: socket.id,
        backlog,
    };
    engine.open()?.call(request).inspect_err(|errno| {
        log::once(&format!("{local}: the wire refuses the listener: {errno}"));
    })?;
    if let Object::Socket(socket) = &mut engine.entry(key)?.what {
        socket.is_both = true;
    }
    watch_both(&watched)?;
    kernel_listeners::tell_new(engine, key, fd);
    listen_in_kernel(fd, backlog)
}

/// `accept`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { accept4(fd, addr, len, 0) }
}

/// The kernel's `accept4`, in which no thread ends.
///
/// # Safety
/// As libc's.
unsafe fn accept_of_kernel(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<i64, Errno> {
    let (addr, len) = (addr.expose_provenance(), len.expose_provenance());
    // SAFETY: the caller's promise.
    unsafe { by_number(libc::SYS_accept4, [fd as usize, addr, len, flags as usize]) }
}

/// `accept4`: from either queue of a listener on both sides.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let by_kernel = || unsafe { real_unsafe::accept4(fd, addr, len, flags) };
    let mark = marks::of(fd);
    let key = match mark {
        Mark::Socket(key) => key,
        Mark::Listener(key) => {
            let call = || told(by_kernel().into());
            return c(kernel_listeners::until_done(key, fd, call));
        }
        _ => return by_kernel(),
    };
    let mut call = None;
    let accepted = sleep::until_done(Signals::Restart, Some(key), |engine| {
        let socket = listeners::accepting(engine, key)?;
        let request = Request::Accept {
            fd: socket.id,
            flags,
        };
        let call = call.get_or_insert_with(|| posix::Call::start(request));
        let sockets = engine.open()?.sockets();
        let news = News::begin_exclusive(sockets, sockets.awaited(socket.id));
        // If another thread has closed the listener, the kernel's part is gone.
        let is_both = socket.is_both && marks::of(fd) == mark;
        let is_over = match accept_wire(engine, socket.id, call, flags) {
            Ok(Some((fd, peer))) => return Ok(Attempt::Done((fd, Some(peer)))),
            Ok(None) => false,
            // The time limit is over, or the listener does not wait.
            Err(Errno::AGAIN) if is_both => true,
            Err(errno) => return Err(errno),
        };
        if is_both {
            // SAFETY: the caller's promise.
            match unsafe { accept_of_kernel(fd, addr, len, flags) } {
                Err(Errno::AGAIN) if !is_over => {}
                value => return value.map(|value| Attempt::Done((value as c_int, None))),
            }
        }
        Ok(Attempt::Wait {
            until_ns: call.deadline_ns(),
            kernel: match is_both {
                true => vec![(fd, libc::POLLIN)],
                false => Vec::new(),
            },
            news,
        })
    });
    c(accepted.and_then(|(fd, peer)| {
        if let Some(peer) = peer
            // SAFETY: the caller's promise.
            && let Err(errno) = unsafe { put_address(&from_address(peer), addr, len) }
        {
            // A caller who cannot be told the address does not get the connection (Linux).
            // SAFETY: it takes a number alone, which nobody else knows.
            unsafe { descriptor_unsafe::close(fd) };
            return Err(errno);
        }
        Ok(fd.into())
    }))
}

/// Accepts a connection from the wire. `None`: there is none, and the caller waits. Takes the
/// descriptor number first: at the limit of descriptors the connection stays in the queue.
fn accept_wire(
    engine: &mut Engine,
    id: i32,
    call: &mut posix::Call,
    flags: c_int,
) -> Result<Option<(c_int, SocketAddr)>, Errno> {
    let net = engine.open()?;
    let entry = PollFd {
        fd: id,
        events: number::POLLIN,
        revents: 0,
    };
    let look = Request::Poll {
        fds: vec![entry],
        timeout_ms: 0,
    };
    let placeholder = match net.call(look)?.0 {
        0 => None,
        _ => {
            let command = match flags & number::SOCK_CLOEXEC {
                0 => libc::F_DUPFD,
                _ => libc::F_DUPFD_CLOEXEC,
            };
            let template = std::os::fd::AsRawFd::as_raw_fd(&net.template);
            Some(memory_unsafe::fcntl(template, command, 0)? as c_int)
        }
    };
    let outcome = call.poll(net.sockets());
    let fd = match (outcome, placeholder) {
        (posix::Outcome::Done(Ok(accepted)), Some(fd)) if (fd as usize) < FDS_MAX => {
            let key = engine.put(Object::Socket(engine::Socket {
                id: accepted as i32,
                is_both: false,
                has_own: false,
            }));
            marks::set(fd, Mark::Socket(key));
            fd
        }
        (outcome, placeholder) => {
            if let Some(fd) = placeholder {
                memory_unsafe::close(fd)?;
            }
            return match outcome {
                posix::Outcome::Done(Ok(accepted)) => {
                    let fd = accepted as i32;
                    engine.open()?.call(Request::Close { fd })?;
                    Err(Errno::MFILE)
                }
                posix::Outcome::Done(Err(errno)) => Err(errno),
                posix::Outcome::Pending => Ok(None),
            };
        }
    };
    match call.reply() {
        Reply::Address(peer) => Ok(Some((fd, *peer))),
        _ => Err(Errno::IO),
    }
}

/// `connect`: makes the socket Millstream's if the wire leads to the address.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let mark = marks::of(fd);
    let key = match mark {
        Mark::Undecided(key) | Mark::Socket(key) => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::connect(fd, addr, len) },
    };
    // SAFETY: the caller's promise.
    let remote = match unsafe { address(addr, len, false) } {
        Ok(remote) => remote,
        Err(errno) => return c(Err(errno)),
    };
    match is_taken(fd, mark, key, remote) {
        Ok(true) => {}
        // SAFETY: the caller's promise.
        Ok(false) => return unsafe { real_unsafe::connect(fd, addr, len) },
        Err(errno) => return c(Err(errno)),
    }
    let bound = engine::with(|engine| {
        let is_both = |socket: engine::Socket| socket.is_both;
        if engine.entry(key)?.what.socket().is_some_and(is_both) {
            match remote {
                // SAFETY: the caller's promise.
                Address::Unspec => told(unsafe { real_unsafe::connect(fd, addr, len) }.into())?,
                _ => i64::from(is_alone(engine, key, fd)?),
            };
        }
        listeners::connect(engine, key)
    });
    let connected = bound.and_then(|()| {
        sleep::call_on(key, |fd| Request::Connect {
            fd,
            address: remote,
        })
    });
    c(connected.map(|(value, _)| value))
}

/// Decides a socket that is about to connect. True: it is Millstream's.
fn is_taken(fd: c_int, mark: Mark, key: usize, remote: Address) -> Result<bool, Errno> {
    engine::with(|engine| match (mark, remote) {
        (Mark::Undecided(_), Address::Inet(to))
            if !decide::is_left_for_signals(engine, key, fd) && decide::connects(engine, to)? =>
        {
            decide::take(engine, key, fd).map(|_| true)
        }
        (Mark::Undecided(_), Address::Inet(_)) => {
            decide::leave_to_kernel(engine, key, fd);
            Ok(false)
        }
        (Mark::Undecided(_), _) => Ok(false),
        (_, Address::Inet(to)) => Ok(!decide::give_back(engine, key, fd, to)?),
        _ => Ok(true),
    })
}

/// Decides an undecided socket that connects by its first write (`MSG_FASTOPEN`).
///
/// # Safety
/// The promise of libc's `sendto`.
pub unsafe fn decide_fast(fd: c_int, addr: *const sockaddr, len: socklen_t) -> Result<(), Errno> {
    let mark = marks::of(fd);
    if let Mark::Undecided(key) = mark
        && !addr.is_null()
    {
        // SAFETY: the caller's promise.
        let remote = unsafe { address(addr, len, false) }?;
        is_taken(fd, mark, key, remote)?;
    }
    Ok(())
}

/// Makes a socket of both sides Millstream's alone before it connects, if the kernel's no longer
/// listens.
fn is_alone(engine: &mut Engine, key: usize, fd: c_int) -> Result<bool, Errno> {
    let is_alone = !memory_unsafe::is_listening(fd);
    if let Object::Socket(socket) = &mut engine.entry(key)?.what {
        socket.is_both = !is_alone;
    }
    Ok(is_alone)
}

/// `shutdown`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: it takes numbers alone.
        return unsafe { real_unsafe::shutdown(fd, how) };
    };
    c(engine::with(|engine| {
        let (net, socket) = engine.socket_of(key)?;
        let done = net.call(Request::Shutdown { fd: socket.id, how })?.0;
        if socket.is_both {
            // SAFETY: it takes numbers alone.
            told(unsafe { real_unsafe::shutdown(fd, how) }.into())?;
        }
        Ok(done)
    }))
}

/// `getsockopt`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let key = match marks::of(fd) {
        // The cookie is the namespace's, and the kernel's socket has the same.
        Mark::Socket(key) if (level, name) != (number::SOL_SOCKET, number::SO_NETNS_COOKIE) => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::getsockopt(fd, level, name, value, len) },
    };
    let checked = calls::id(key).and_then(|id| {
        engine::with(|engine| engine.open()?.sockets().check_options_level(id, level))?;
        // SAFETY: the caller's promise.
        let offered = unsafe { memory_unsafe::value(len) };
        Ok((id, offered.ok_or(Errno::FAULT)?))
    });
    let got = checked.and_then(|(id, offered)| {
        if offered as i32 <= -1 {
            return Err(Errno::INVAL);
        }
        let request = Request::Getsockopt {
            fd: id,
            level,
            name,
            len: (offered as usize).min(OPTION_LEN_MAX),
        };
        let (done, reply) = engine::with(|engine| engine.open()?.call(request))?;
        if let Reply::Bytes(bytes) = reply {
            let count = bytes.len().min(offered as usize);
            // SAFETY: the caller's promise.
            unsafe { memory_unsafe::room(value, count) }?.copy_from_slice(&bytes[..count]);
            // SAFETY: the caller's promise.
            unsafe { len.write_unaligned(count as socklen_t) };
        }
        Ok(done)
    });
    c(got)
}

/// `setsockopt`: on an undecided socket, sets the kernel's option and records it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let at = value;
    let copied = || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory_unsafe::bytes(value, (len as usize).min(OPTION_LEN_MAX)) };
        bytes.map(<[u8]>::to_vec)
    };
    match marks::of(fd) {
        Mark::Undecided(key) => {
            // SAFETY: the caller's promise.
            let set = unsafe { real_unsafe::setsockopt(fd, level, name, value, len) };
            if set == 0
                && let Ok(value) = copied()
            {
                // If the entry is gone, another thread has closed the socket.
                let _ = engine::locked(|engine| {
                    if let Object::Undecided(undecided) = &mut engine.entry(key)?.what {
                        let options = &mut undecided.options;
                        options.retain(|(of, number, _)| (*of, *number) != (level, name));
                        options.push((level, name, value));
                    }
                    Ok(())
                });
            }
            set
        }
        Mark::Socket(_) if len as i32 <= -1 => c(Err(Errno::INVAL)),
        Mark::Socket(key) => c(copied()
            .map_err(|errno| unreadable(key, level, errno))
            .and_then(|value| {
                let request = Request::Setsockopt {
                    fd: calls::id(key)?,
                    level,
                    name,
                    value: value.clone(),
                };
                engine::with(|engine| {
                    let done = engine.open()?.call(request)?.0;
                    listeners::note_option(engine, key, (level, name, value));
                    listeners::describe(engine, key, fd);
                    if engine.socket(key)?.is_both {
                        // Connections that the kernel accepts inherit its own socket's options. An
                        // option that the kernel lacks has no effect on them.
                        // SAFETY: the caller's promise.
                        let _ = unsafe { real_unsafe::setsockopt(fd, level, name, at, len) };
                    }
                    Ok(done)
                })
            })),
        // SAFETY: the caller's promise.
        _ => unsafe { real_unsafe::setsockopt(fd, level, name, value, len) },
    }
}

/// The errno of an option whose value is not there: Linux looks at the level first.
fn unreadable(key: usize, level: c_int, errno: Errno) -> Errno {
    let checked = calls::id(key).and_then(|id| {
        engine::with(|engine| engine.open()?.sockets().check_options_level(id, level))
    });
    match checked {
        Ok(()) => errno,
        Err(Errno::OPNOTSUPP) => Errno::NOPROTOOPT,
        Err(errno) => errno,
    }
}

unsafe fn name(request: Request, addr: *mut sockaddr, len: *mut socklen_t) -> Result<i64, Errno> {
    let (done, reply) = engine::with(|engine| engine.open()?.call(request))?;
    if let Reply::Address(name) = reply {
        // SAFETY: the caller's promise.
        unsafe { put_name(&from_address(name), addr, len) }?;
    }
    Ok(done)
}

/// `getsockname`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::getsockname(fd, addr, len) };
    };
    let done = calls::id(key).and_then(|fd| {
        let held = engine::locked(|engine| Ok(listeners::name(engine, key)))?;
        match held {
            // SAFETY: the caller's promise.
            Some(held) => unsafe { put_name(&from_address(held), addr, len) }.map(|()| 0),
            // SAFETY: the caller's promise.
            None => unsafe { name(Request::Getsockname { fd }, addr, len) },
        }
    });
    c(done)
}

/// `getpeername`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Mark::Socket(key) = marks::of(fd) else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::getpeername(fd, addr, len) };
    };
    // SAFETY: the caller's promise.
    c(calls::id(key).and_then(|fd| unsafe { name(Request::Getpeername { fd }, addr, len) }))
}
