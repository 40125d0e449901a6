//! Connections on their way over a UNIX socket, which the sender itself may receive.
//!
//! The descriptors of most connections are copies of one kernel socket, so a message carries a
//! socket of its own in place of each, with the process and a number in front of its packet filter
//! ([`filters_unsafe`]). The process keeps the other end of that socket. While the message exists,
//! the connection has one descriptor more. A process that receives its own message gives the
//! descriptor to the program; another process finds a connection that it cannot use (`EBADF`).
//! If nobody has the message any more, the other end of its socket hangs up, and the connection
//! loses the descriptor. Threads that sleep watch these ends ([`under_way`]).
//!
//! [`under_way`]: crate::under_way

use std::os::fd::{AsRawFd as _, OwnedFd};

use posix::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use crate::engine::{Engine, Object};
use crate::filters_unsafe::{self, Kind};
use crate::limits::PASSES_MAX;
use crate::marks::{self, Mark};
use crate::under_way::Pass;
use crate::{closing, memory_unsafe};

/// Puts a connection on its way. Returns the socket for the message. `None`: the entry is no
/// connection, or too many are under way.
pub fn begin(engine: &mut Engine, key: usize) -> Option<OwnedFd> {
    forget_lost(engine);
    let entry = engine.entry(key).ok()?;
    let socket = entry.what.socket()?;
    if socket.is_both || entry.listener.is_some() || engine.passes.under_way.len() >= PASSES_MAX {
        return None;
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let (sent, ours) = socketpair(family, kind, SocketFlags::CLOEXEC, None).ok()?;
    // A program without the library that gets the socket must not write to nobody.
    shutdown(&ours, Shutdown::Read).ok()?;
    let number = engine.passes.last.wrapping_add(1);
    let process = std::process::id();
    filters_unsafe::write(sent.as_raw_fd(), &[Kind::Passed as u32, process, number]).ok()?;
    let end = memory_unsafe::copy_high(ours.as_raw_fd()).ok()?;
    engine.passes.last = number;
    engine.passes.under_way.push(Pass { number, key, end });
    engine.entry(key).ok()?.refs += 1;
    Some(sent)
}

/// Gives a received descriptor to a connection of this process's. `Err`: the connection is another
/// process's.
///
/// # Errors
/// `EBADF`
pub fn end(engine: &mut Engine, fd: i32) -> Result<(), Errno> {
    let constants = filters_unsafe::constants(fd).ok_or(Errno::BADF)?;
    let [_, process, number] = constants[..] else {
        return Err(Errno::BADF);
    };
    let found = engine.passes.under_way.iter();
    let mut found = found.enumerate().filter(|(_, pass)| pass.number == number);
    let (at, _) = found
        .next()
        .filter(|_| process == std::process::id())
        .ok_or(Errno::BADF)?;
    // From here on the number is kept by a TCP socket, like that of an accepted connection.
    let template = engine.open()?.template.as_raw_fd();
    memory_unsafe::copy_onto(template, fd)?;
    let pass = engine.passes.under_way.swap_remove(at);
    close_end(pass.end);
    if let Object::Socket(socket) = &mut engine.entry(pass.key)?.what {
        socket.has_own = false;
    }
    marks::set(fd, Mark::Socket(pass.key));
    Ok(())
}

/// Takes a descriptor from the connections whose messages are gone.
pub fn forget_lost(engine: &mut Engine) {
    let is_lost = |pass: &mut Pass| memory_unsafe::with_borrowed(pass.end, has_hung_up);
    let lost: Vec<Pass> = engine.passes.under_way.extract_if(.., is_lost).collect();
    for pass in lost {
        close_end(pass.end);
        if let Ok(entry) = engine.entry(pass.key) {
            entry.refs = entry.refs.saturating_sub(1);
            closing::close_abandoned(engine, vec![pass.key], &[]);
        }
    }
}

fn has_hung_up(end: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&none)).is_ok_and(|told| told > 0)
}

fn close_end(end: i32) {
    marks::set(end, Mark::Kernel);
    // An error of the close means nothing to a socket without data.
    let _ = memory_unsafe::close(end);
}
