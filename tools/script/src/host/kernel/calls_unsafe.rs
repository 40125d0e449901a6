//! System calls of the kernel from the values of `posix`: a [`Request`] goes in, the result and the
//! data come out.
//!
//! Addresses and control messages are built and parsed as bytes, so only the calls themselves are
//! unsafe. Called by [`Caller`](super::caller) on its thread, and by [`Kernel`](super::Kernel).

use std::net::{Ipv6Addr, SocketAddr};

use libc::{c_int, c_void, socklen_t};
use posix::{Address, ControlMessage, EpollEvent, Errno, PollFd, Reply, Request, number};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::host::Answer;

/// Bytes of the longest address, `struct sockaddr_in6`.
const ADDRESS_BYTES: usize = 28;
/// Bytes of the header of a control message.
const CONTROL_HEADER_BYTES: usize = 16;

/// Moves the calling thread into a new network namespace.
pub(super) fn leave_network_namespace() -> Result<(), Errno> {
    // SAFETY: only the table of descriptors is dangerous to leave, and it is kept.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Gives the calling thread, and those that it spawns later, real-time priority: scripts say when
/// things happen.
pub(super) fn run_before_others() -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: a pointer to a structure that outlives the call; 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
    result(done.into()).map(|_| ())
}

fn result(value: i64) -> Result<i64, Errno> {
    match value {
        -1 => {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            Err(Errno::from_raw_os_error(errno))
        }
        value => Ok(value),
    }
}

/// Makes the call and waits for it.
pub(super) fn perform(request: &Request) -> Answer {
    match request {
        Request::Accept { fd, flags } => accept(*fd, *flags),
        Request::Read { fd, len } => receive(*len, |buffer| {
            // SAFETY: the kernel writes at most as many bytes as the buffer has.
            unsafe { libc::read(*fd, buffer.as_mut_ptr().cast(), buffer.len()) as i64 }
        }),
        Request::Recv { fd, len, flags } => receive(*len, |buffer| {
            let (place, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: as above.
            unsafe { libc::recv(*fd, place, len, *flags) as i64 }
        }),
        Request::Recvmsg {
            fd,
            len,
            control_len,
            flags,
        } => receive_message(*fd, *len, *control_len, *flags),
        Request::Getsockopt {
            fd,
            level,
            name,
            len,
        } => option_of(*fd, *level, *name, *len),
        Request::Getsockname { fd } => named(*fd, libc::getsockname),
        Request::Getpeername { fd } => named(*fd, libc::getpeername),
        Request::Ioctl {
            fd,
            request,
            argument,
        } => {
            let mut value: c_int = *argument;
            // SAFETY: the requests that scripts make read and write one `int`.
            let done = unsafe { libc::ioctl(*fd, *request, &raw mut value) };
            (result(done.into()), Reply::Int(value))
        }
        Request::Poll { fds, timeout_ms } => poll(fds, *timeout_ms),
        Request::EpollWait {
            epfd,
            max_events,
            timeout_ms,
        } => epoll_wait(*epfd, *max_events, *timeout_ms),
        other => (result(plain(other)), Reply::None),
    }
}

/// Calls whose only answer is a number.
fn plain(request: &Request) -> i64 {
    match request {
        Request::Bind { fd, address } => with_address(address, |place, len| {
            // SAFETY: the kernel reads `len` bytes at `place`, which are there.
            unsafe { libc::bind(*fd, place, len).into() }
        }),
        Request::Connect { fd, address } => with_address(address, |place, len| {
            // SAFETY: as above.
            unsafe { libc::connect(*fd, place, len).into() }
        }),
        Request::Write { fd, bytes } => {
            // SAFETY: the kernel reads as many bytes as there are.
            unsafe { libc::write(*fd, bytes.as_ptr().cast(), bytes.len()) as i64 }
        }
        Request::Send {
            fd,
            bytes,
            flags,
            to,
            ..
        } => send(*fd, bytes, *flags, to.as_ref()),
        Request::Setsockopt {
            fd,
            level,
            name,
            value,
        } => {
            let (place, len) = (value.as_ptr().cast(), value.len() as socklen_t);
            // SAFETY: the kernel reads `len` bytes at `place`, which is what the vector has.
            unsafe { libc::setsockopt(*fd, *level, *name, place, len).into() }
        }
        Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        } => {
            let mut event = libc::epoll_event {
                events: event.events,
                u64: event.data,
            };
            // SAFETY: a pointer to a structure that outlives the call.
            unsafe { libc::epoll_ctl(*epfd, *op, *fd, &raw mut event).into() }
        }
        other => without_memory(other),
    }
}

/// Calls whose parameters are numbers.
fn without_memory(request: &Request) -> i64 {
    // SAFETY: no memory of ours is named; the kernel checks the numbers. Descriptors are those of
    // scripts, which their runner alone closes.
    let value = unsafe {
        match *request {
            Request::Socket {
                domain,
                kind,
                protocol,
            } => libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol),
            Request::Listen { fd, backlog } => libc::listen(fd, backlog),
            Request::Fcntl {
                fd,
                command,
                argument,
            } => libc::fcntl(fd, command, argument),
            Request::Close { fd } => libc::close(fd),
            Request::Shutdown { fd, how } => libc::shutdown(fd, how),
            Request::EpollCreate { flags } => libc::epoll_create1(flags | libc::EPOLL_CLOEXEC),
            // `plain` handles the other requests itself.
            _ => return -1,
        }
    };
    value.into()
}

/// Runs `call` with `address` in C's layout.
fn with_address(address: &Address, call: impl Fn(*const libc::sockaddr, socklen_t) -> i64) -> i64 {
    // 64-bit words give the array the structure's alignment.
    let mut words = [0_u64; ADDRESS_BYTES.div_ceil(8)];
    let mut bytes = [0_u8; ADDRESS_BYTES];
    let mut len = 16;
    let mut family = number::AF_INET as u16;
    match address {
        Address::Inet(SocketAddr::V4(to)) => {
            bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&to.ip().octets());
        }
        Address::Inet(SocketAddr::V6(to)) => {
            family = number::AF_INET6 as u16;
            bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
            bytes[8..24].copy_from_slice(&to.ip().octets());
            len = ADDRESS_BYTES;
        }
        Address::Unspec => family = number::AF_UNSPEC as u16,
        Address::Family(other) => family = *other,
        Address::Short => len = 4,
    }
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..part.len()].copy_from_slice(part);
        *word = u64::from_ne_bytes(eight);
    }
    call(words.as_ptr().cast(), len as socklen_t)
}

/// An address from C's layout.
fn address(words: &[u64; 4]) -> Option<SocketAddr> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        number::AF_INET => Some(SocketAddr::from((
            [bytes[4], bytes[5], bytes[6], bytes[7]],
            port,
        ))),
        number::AF_INET6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let ip = Ipv6Addr::from(ip);
            Some(SocketAddr::new(ip.to_canonical(), port))
        }
        _ => None,
    }
}

fn accept(fd: i32, flags: i32) -> Answer {
    let mut words = [0_u64; 4];
    let mut len = size_of_val(&words) as socklen_t;
    let place = words.as_mut_ptr().cast();
    let flags = flags | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes at most `len` bytes at `place`, which is what the array has.
    let value = result(unsafe { libc::accept4(fd, place, &raw mut len, flags) }.into());
    let reply = match (&value, address(&words)) {
        (Ok(_), Some(peer)) => Reply::Address(peer),
        _ => Reply::None,
    };
    (value, reply)
}

type NameCall = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn named(fd: i32, call: NameCall) -> Answer {
    let mut words = [0_u64; 4];
    let mut len = size_of_val(&words) as socklen_t;
    // SAFETY: as for `accept4`.
    let value = result(unsafe { call(fd, words.as_mut_ptr().cast(), &raw mut len) }.into());
    (value, address(&words).map_or(Reply::None, Reply::Address))
}

fn receive(len: usize, call: impl Fn(&mut [u8]) -> i64) -> Answer {
    let mut buffer = vec![0; len];
    let value = result(call(&mut buffer));
    buffer.truncate(value.as_ref().map_or(0, |got| *got as usize));
    (value, Reply::Bytes(buffer))
}

fn receive_message(fd: i32, len: usize, control_len: usize, flags: i32) -> Answer {
    let mut buffer = vec![0_u8; len];
    let mut control = vec![0_u64; control_len.div_ceil(8)];
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: len,
    };
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_len;
    // SAFETY: the message names buffers that outlive the call, with their true lengths.
    let value = result(unsafe { libc::recvmsg(fd, &raw mut message, flags) } as i64);
    let (used, flags) = (message.msg_controllen, message.msg_flags);
    buffer.truncate(value.as_ref().map_or(0, |got| *got as usize));
    let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let reply = Reply::Message {
        bytes: buffer,
        control: controls(bytes.get(..used).unwrap_or(&[])),
        flags,
    };
    (value, reply)
}

/// Control messages from C's layout: length, level and type, then data, each at a multiple of
/// eight.
fn controls(mut bytes: &[u8]) -> Vec<ControlMessage> {
    let mut found = Vec::new();
    while let Some(header) = bytes.first_chunk::<CONTROL_HEADER_BYTES>() {
        let part = |at: usize| [0, 1, 2, 3].map(|byte| header[at + byte]);
        let len = u32::from_ne_bytes(part(0)) as usize;
        let Some(data) = bytes.get(CONTROL_HEADER_BYTES..len) else {
            break;
        };
        found.push(ControlMessage {
            level: i32::from_ne_bytes(part(8)),
            kind: i32::from_ne_bytes(part(12)),
            data: data.to_vec(),
        });
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    found
}

fn send(fd: i32, bytes: &[u8], flags: i32, to: Option<&Address>) -> i64 {
    let (data, len): (*const c_void, usize) = (bytes.as_ptr().cast(), bytes.len());
    match to {
        // SAFETY: the kernel reads as many bytes as there are.
        None => unsafe { libc::send(fd, data, len, flags) as i64 },
        Some(to) => with_address(to, |place, place_len| {
            // SAFETY: as above, and `place_len` bytes at `place`, which are there.
            unsafe { libc::sendto(fd, data, len, flags, place, place_len) as i64 }
        }),
    }
}

fn option_of(fd: i32, level: i32, name: i32, len: usize) -> Answer {
    let mut value = vec![0_u8; len];
    let mut room = len as socklen_t;
    let place = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `room` bytes at `place`, which is what the vector has, and
    // says in `room` how many.
    let done = unsafe { libc::getsockopt(fd, level, name, place, &raw mut room) };
    value.truncate(room as usize);
    (result(done.into()), Reply::Bytes(value))
}

fn poll(fds: &[PollFd], timeout_ms: i32) -> Answer {
    let mut raw: Vec<libc::pollfd> = fds
        .iter()
        .map(|entry| libc::pollfd {
            fd: entry.fd,
            events: entry.events,
            revents: 0,
        })
        .collect();
    // SAFETY: the kernel reads and writes as many entries as there are.
    let ready = unsafe { libc::poll(raw.as_mut_ptr(), raw.len() as libc::nfds_t, timeout_ms) };
    let seen = fds.iter().zip(&raw).map(|(entry, raw)| PollFd {
        revents: raw.revents,
        ..*entry
    });
    (result(ready.into()), Reply::Poll(seen.collect()))
}

fn epoll_wait(epfd: i32, max_events: i32, timeout_ms: i32) -> Answer {
    let empty = libc::epoll_event { events: 0, u64: 0 };
    let mut raw = vec![empty; usize::try_from(max_events).unwrap_or(0)];
    // SAFETY: the kernel writes at most `max_events` entries, and as many there are; it refuses a
    // number below one.
    let ready = unsafe { libc::epoll_wait(epfd, raw.as_mut_ptr(), max_events, timeout_ms) };
    let value = result(ready.into());
    raw.truncate(value.as_ref().map_or(0, |ready| *ready as usize));
    let seen = raw.iter().map(|event| EpollEvent {
        events: event.events,
        data: event.u64,
    });
    (value, Reply::Epoll(seen.collect()))
}
