//! Calls on descriptors that are Millstream's.

use std::io::{IoSlice, IoSliceMut};

use posix::{Errno, PollFd, Reply, Request, number};

use crate::engine::{self, Object};
use crate::marks::{self, Mark};
use crate::sleep::{Attempt, Kept, Signals};
use crate::sleepers::News;
use crate::waits::Place;
use crate::{
    closing, copies_unsafe, kernel_listeners, listeners, log, memory_unsafe, own_process, passes,
    sharing, sleep, stdio_unsafe,
};

/// Flags that change neither which bytes are read nor whether the call waits for all of them.
const PLAIN: i32 = number::MSG_DONTWAIT | number::MSG_NOSIGNAL;

/// The number in `posix` of an entry's socket.
pub fn id(key: usize) -> Result<i32, Errno> {
    engine::locked(|engine| Ok(listeners::socket(engine, key)?.id))
}

/// True if the socket's calls wait.
fn is_blocking(net: &mut engine::Net, fd: i32, flags: i32) -> Result<bool, Errno> {
    Ok(!net.sockets().is_nonblocking(fd)? && flags & number::MSG_DONTWAIT == 0)
}

/// `read`, `recv` and their relatives.
pub fn receive(
    key: usize,
    pieces: &mut [IoSliceMut<'_>],
    flags: i32,
    is_read: bool,
) -> Result<i64, Errno> {
    if is_read && pieces.iter().all(|piece| piece.is_empty()) {
        return id(key).map(|_| 0);
    }
    let local = 0;
    let mut kept = Kept::of(Some(key), &local);
    let now = engine::locked(|engine| {
        let (net, socket) = engine.socket_of(key)?;
        let wants_more = net.sockets().recv_lowat(socket.id) > 1;
        if flags & !PLAIN != 0 || (wants_more && is_blocking(net, socket.id, flags)?) {
            return kept.begin(engine).map(|()| None);
        }
        let got = net
            .sockets()
            .recv_into(socket.id, pieces, flags | number::MSG_DONTWAIT);
        match got {
            Err(Errno::AGAIN) if is_blocking(net, socket.id, flags)? => {
                kept.begin(engine).map(|()| None)
            }
            got => Ok(Some(got?)),
        }
    })?;
    if let Some(got) = now {
        return Ok(got as i64);
    }
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let (got, reply) = sleep::call_keeping(kept, |fd| Request::Recv { fd, len, flags })?;
    if let Reply::Bytes(bytes) = reply {
        posix::scatter(&bytes, pieces);
    }
    Ok(got)
}

/// `read` and `recv` into memory that is not there: an end or an error comes first, as in Linux,
/// and the bytes stay.
pub fn receive_nowhere(key: usize, flags: i32) -> Result<i64, Errno> {
    let request = |fd| Request::Recv {
        fd,
        len: 1,
        flags: flags | number::MSG_PEEK,
    };
    match sleep::call_on(key, request)? {
        (0, _) => Ok(0),
        _ => Err(Errno::FAULT),
    }
}

/// `write` and `send` from memory that is not there: an error of the connection and a wait for room
/// come first, as in Linux.
pub fn send_nowhere(key: usize, flags: i32) -> Result<i64, Errno> {
    send(key, &[], flags)?;
    sleep::until_done(Signals::Restart, Some(key), |engine| {
        let (net, socket) = engine.socket_of(key)?;
        let fd = socket.id;
        if net.sockets().has_room(fd) {
            return Err(Errno::FAULT);
        }
        if !is_blocking(net, fd, flags)? {
            return Err(Errno::AGAIN);
        }
        let mut room = [PollFd {
            fd,
            events: number::POLLOUT,
            revents: 0,
        }];
        let sockets = net.sockets();
        let news = News::begin(sockets, sockets.awaited_by_poll(&room));
        // Asked for, room that comes is news.
        sockets.poll_entries(&mut room, 0)?;
        Ok(Attempt::Wait {
            until_ns: None,
            kernel: Vec::new(),
            news,
        })
    })
}

/// `writev`, which does nothing at all if there are no bytes, as in Linux.
pub fn write_pieces(key: usize, pieces: &[IoSlice<'_>], flags: i32) -> Result<i64, Errno> {
    match pieces.iter().all(|piece| piece.is_empty()) {
        true => id(key).map(|_| 0),
        false => send(key, pieces, flags),
    }
}

/// `recv` with `MSG_TRUNC` and no room: drops bytes and returns their number.
pub fn discard(key: usize, len: usize, flags: i32) -> Result<i64, Errno> {
    Ok(sleep::call_on(key, |fd| Request::Recv { fd, len, flags })?.0)
}

/// `write`, `send` and their relatives. A write that fails with `EPIPE` also raises `SIGPIPE`.
pub fn send(key: usize, pieces: &[IoSlice<'_>], flags: i32) -> Result<i64, Errno> {
    let sent = send_quietly(key, pieces, flags);
    if sent == Err(Errno::PIPE) && flags & number::MSG_NOSIGNAL == 0 {
        memory_unsafe::sigpipe();
    }
    sent
}

fn send_quietly(key: usize, pieces: &[IoSlice<'_>], flags: i32) -> Result<i64, Errno> {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    let local = 0;
    let mut kept = Kept::of(Some(key), &local);
    let (done, waits) = engine::moving(|engine| {
        let (net, socket) = engine.socket_of(key)?;
        let waits = is_blocking(net, socket.id, flags)?;
        // One call has to send all bytes, so that a mark at their end (`MSG_OOB`, `MSG_EOR`) is
        // right.
        if waits && flags & !(PLAIN | number::MSG_MORE) != 0 {
            return kept.begin(engine).map(|()| (0, true));
        }
        let sent = net
            .sockets()
            .send_from(socket.id, pieces, flags | number::MSG_DONTWAIT);
        match sent {
            Err(Errno::AGAIN) if waits => kept.begin(engine).map(|()| (0, true)),
            Ok(sent) if waits && sent < len => kept.begin(engine).map(|()| (sent, true)),
            Ok(sent) => Ok((sent, false)),
            Err(errno) => Err(errno),
        }
    })?;
    if !waits {
        return Ok(done as i64);
    }
    let all: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.iter().copied())
        .collect();
    let request = |fd| Request::Send {
        fd,
        bytes: all.get(done..).unwrap_or_default().to_vec(),
        flags,
        to: None,
        control: Vec::new(),
    };
    match sleep::call_keeping(kept, request) {
        Ok((sent, _)) => Ok(done as i64 + sent),
        // This call reports the bytes taken, the next call the error.
        Err(_) if done > 0 => Ok(done as i64),
        Err(errno) => Err(errno),
    }
}

/// Commands that `posix` answers or refuses: about flags, and about signals of the description.
const OF_THE_DESCRIPTION: [i32; 8] = [
    number::F_GETFL,
    number::F_SETFL,
    number::F_SETOWN,
    number::F_GETOWN,
    number::F_SETSIG,
    number::F_GETSIG,
    F_SETOWN_EX,
    F_GETOWN_EX,
];

/// Linux's numbers: the thread, process or group that gets signals.
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

/// `fcntl`: `posix` has the flags of the description, the kernel those of the descriptor.
pub fn fcntl(fd: i32, key: usize, command: i32, argument: usize) -> Result<i64, Errno> {
    match command {
        number::F_GETFD | number::F_SETFD => memory_unsafe::fcntl(fd, command, argument),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let copy = memory_unsafe::fcntl(fd, command, argument)?;
            share(copy as i32, fd);
            Ok(copy)
        }
        number::F_SETSIG if argument != 0 => Err(refuse_signals()),
        _ if asks_for_signals(command, argument) => Err(refuse_signals()),
        // Commands that do not concern a socket go to the kernel's socket that keeps the number.
        _ if !OF_THE_DESCRIPTION.contains(&command) => memory_unsafe::fcntl(fd, command, argument),
        _ => {
            let request = Request::Fcntl {
                fd: id(key)?,
                command,
                argument: argument as i32,
            };
            engine::locked(|engine| {
                let done = engine.open()?.call(request)?.0;
                if command == number::F_SETFL && engine.socket(key)?.is_both {
                    kernel_listeners::tell_waits(engine, key, fd);
                }
                if command == number::F_SETFL {
                    listeners::describe(engine, key, fd);
                }
                Ok(done)
            })
        }
    }
}

/// Notes that the program asks for signals of a socket that may become Millstream's.
pub fn note_signals(key: usize) {
    // If the entry is gone, another thread has closed the socket.
    let _ = engine::locked(|engine| {
        if let Object::Undecided(undecided) = &mut engine.entry(key)?.what {
            undecided.asked_for_signals = true;
        }
        Ok(())
    });
}

/// True for an `fcntl` that asks for signals.
pub fn asks_for_signals(command: i32, argument: usize) -> bool {
    match command {
        number::F_SETOWN | F_SETOWN_EX => argument != 0,
        number::F_SETFL => argument as i32 & libc::O_ASYNC != 0,
        _ => false,
    }
}

/// The error of a call that asks for signals when a socket is ready, which nobody sends.
pub fn refuse_signals() -> Errno {
    log::once("a socket on the wire sends no signals (O_ASYNC, F_SETOWN, F_SETSIG): EINVAL");
    Errno::INVAL
}

/// Gives a copy of a descriptor the same owner and entry. In a child of `vfork`, whose descriptors
/// are its own, it only prepares the socket for the program that the child is about to start. A
/// child of the system call alone has marks of its own as well, so that calls on the copy are
/// refused.
pub fn share(copy: i32, of: i32) {
    let mark = marks::of(of);
    if own_process::is_vforked() {
        if let Mark::Socket(_) = mark {
            sharing::before_sharing(copy);
        }
        if copies_unsafe::is_copy() && mark != Mark::Own {
            marks::set(copy, mark);
        }
        return;
    }
    let key = match mark {
        Mark::Undecided(key)
        | Mark::Socket(key)
        | Mark::Epoll(key)
        | Mark::Watcher(key)
        | Mark::Listener(key) => key,
        Mark::Kernel | Mark::Own => return,
    };
    let shared = engine::locked(|engine| {
        engine.entry(key)?.refs += 1;
        marks::set(copy, mark);
        Ok(())
    });
    // If the entry is gone, another thread has closed the socket.
    if shared.is_err() {
        marks::set(copy, Mark::Kernel);
    }
    if copy <= 2 {
        stdio_unsafe::follow(copy);
    }
}

/// Drops a descriptor. The last descriptor of a socket closes it, which may wait (`SO_LINGER`). If
/// calls of other threads wait on the socket, the last of them closes it.
///
/// # Errors
/// The error of the close. The descriptor is gone nevertheless.
pub fn release(fd: i32) -> Result<(), Errno> {
    drop_descriptor(fd, false)
}

/// Like [`release`], for a descriptor that `dup2` replaces: calls that wait on its socket end if it
/// is the last one.
///
/// # Errors
/// As [`release`].
pub fn release_replaced(fd: i32) -> Result<(), Errno> {
    drop_descriptor(fd, true)
}

fn drop_descriptor(fd: i32, is_replaced: bool) -> Result<(), Errno> {
    let key = match marks::of(fd) {
        Mark::Undecided(key)
        | Mark::Socket(key)
        | Mark::Epoll(key)
        | Mark::Watcher(key)
        | Mark::Listener(key) => key,
        Mark::Kernel | Mark::Own => return Ok(()),
    };
    let local = 0_u8;
    let last = engine::locked(|engine| {
        marks::set(fd, Mark::Kernel);
        let entry = engine.entry(key)?;
        entry.refs = entry.refs.saturating_sub(1);
        if entry.refs > 0 {
            if let Object::Undecided(undecided) = &mut entry.what {
                undecided.watched.retain(|(_, watched, _)| *watched != fd);
            }
            return Ok(None);
        }
        passes::forget_lost(engine);
        let abandoned = engine
            .waits
            .forget_abandoned(Place::of(std::ptr::from_ref(&local).addr()));
        closing::close_abandoned(engine, abandoned, &[key]);
        if is_replaced && engine.waits.has(key) {
            engine.waits.end_calls(key);
            engine.sleepers.wake_all();
        }
        Ok(closing::take_unused(engine, key))
    })?;
    sleep::close_last(last)
}
