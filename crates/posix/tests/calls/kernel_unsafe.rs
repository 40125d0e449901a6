//! The calls of the scripts on the kernel that runs the test, over its loopback interface.

use std::net::SocketAddr;

use posix::number::*;
use posix::{Address, Request};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn sockaddr(address: Address) -> (libc::sockaddr_storage, u32) {
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = (&raw mut storage).cast::<libc::sockaddr_in>();
    let mut inet = libc::sockaddr_in {
        sin_family: libc::AF_UNSPEC as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: 0 },
        sin_zero: [0; 8],
    };
    let len = size_of::<libc::sockaddr_in>() as u32;
    match address {
        Address::Inet(SocketAddr::V4(v4)) => {
            inet.sin_family = libc::AF_INET as u16;
            inet.sin_port = v4.port().to_be();
            inet.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
        }
        Address::Family(family) => inet.sin_family = family,
        Address::Short => inet.sin_family = libc::AF_INET as u16,
        _ => {}
    }
    // SAFETY: the storage is larger than, and as aligned as, what is written to it.
    unsafe { place.write(inet) };
    match address {
        Address::Inet(SocketAddr::V6(v6)) => {
            let inet6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the storage is larger than, and as aligned as, what is written to it.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(inet6) };
            (storage, size_of::<libc::sockaddr_in6>() as u32)
        }
        Address::Short => (storage, 4),
        _ => (storage, len),
    }
}

/// Makes a call; returns its value, or minus the errno.
pub fn call(request: &Request) -> i64 {
    let mut room = [0_u8; 4096];
    // SAFETY: every pointer is to a local that outlives the call, with its true length; the kernel
    // checks the numbers.
    let value = unsafe {
        match *request {
            Request::Socket {
                domain,
                kind,
                protocol,
            } => libc::socket(domain, kind, protocol).into(),
            Request::Bind { fd, address } => {
                let (storage, len) = sockaddr(address);
                libc::bind(fd, (&raw const storage).cast(), len).into()
            }
            Request::Connect { fd, address } => {
                let (storage, len) = sockaddr(address);
                libc::connect(fd, (&raw const storage).cast(), len).into()
            }
            Request::Listen { fd, backlog } => libc::listen(fd, backlog).into(),
            Request::Accept { fd, flags } => {
                libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags).into()
            }
            Request::Shutdown { fd, how } => libc::shutdown(fd, how).into(),
            Request::Close { fd } => libc::close(fd).into(),
            Request::Recv { fd, len, flags } => {
                libc::recv(fd, room.as_mut_ptr().cast(), len.min(room.len()), flags) as i64
            }
            Request::Read { fd, len } => {
                libc::read(fd, room.as_mut_ptr().cast(), len.min(room.len())) as i64
            }
            Request::Send {
                fd,
                ref bytes,
                flags,
                to: Some(to),
                ..
            } => {
                let (storage, len) = sockaddr(to);
                let place = (&raw const storage).cast();
                libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, place, len) as i64
            }
            Request::Send {
                fd,
                ref bytes,
                flags,
                ..
            } => libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) as i64,
            Request::Getsockname { fd } => {
                let mut len = room.len() as u32;
                libc::getsockname(fd, room.as_mut_ptr().cast(), &raw mut len).into()
            }
            Request::Getpeername { fd } => {
                let mut len = room.len() as u32;
                libc::getpeername(fd, room.as_mut_ptr().cast(), &raw mut len).into()
            }
            _ => return other_call(request),
        }
    };
    if value == -1 {
        -i64::from(errno())
    } else {
        value
    }
}

fn other_call(request: &Request) -> i64 {
    // SAFETY: each pointer is to the request's bytes or to a local, with its true length.
    let value = unsafe {
        match *request {
            Request::Fcntl {
                fd,
                command,
                argument,
            } => libc::fcntl(fd, command, argument).into(),
            Request::Ioctl {
                fd,
                request,
                mut argument,
            } => match libc::ioctl(fd, request, &raw mut argument) {
                -1 => -1,
                _ => argument.into(),
            },
            Request::Poll {
                ref fds,
                timeout_ms,
            } => {
                let one = fds[0];
                let mut one = libc::pollfd {
                    fd: one.fd,
                    events: one.events,
                    revents: 0,
                };
                match libc::poll(&raw mut one, 1, timeout_ms) {
                    -1 => -1,
                    _ => i64::from(one.revents),
                }
            }
            Request::Write { fd, ref bytes } => {
                libc::write(fd, bytes.as_ptr().cast(), bytes.len()) as i64
            }
            _ => descriptor_call(request),
        }
    };
    if value == -1 {
        -i64::from(errno())
    } else {
        value
    }
}

/// Calls that make or watch descriptors. A wait returns the number of events times 1000, plus the
/// sum of their data.
fn descriptor_call(request: &Request) -> i64 {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: each pointer is to the request's bytes or to a local, with its true length.
    unsafe {
        match *request {
            Request::Dup { fd } => libc::dup(fd).into(),
            Request::Dup2 { fd, to } => libc::dup2(fd, to).into(),
            Request::Dup3 { fd, to, flags } => libc::dup3(fd, to, flags).into(),
            Request::EpollCreate { flags } => libc::epoll_create1(flags).into(),
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
                libc::epoll_ctl(epfd, op, fd, &raw mut event).into()
            }
            Request::EpollWait {
                epfd,
                max_events,
                timeout_ms,
            } => match libc::epoll_wait(epfd, events.as_mut_ptr(), max_events, timeout_ms) {
                -1 => -1,
                found => {
                    let told = &events[..found as usize];
                    let sum: i64 = told.iter().map(|event| event.u64 as i64).sum();
                    i64::from(found) * 1000 + sum
                }
            },
            ref other => panic!("{other:?} is not compared"),
        }
    }
}

/// The name of the socket, or of its peer.
pub fn name_of(fd: i32, is_peer: bool) -> SocketAddr {
    let mut bytes = [0_u8; size_of::<libc::sockaddr_in6>()];
    let mut len = bytes.len() as u32;
    let place = bytes.as_mut_ptr().cast();
    // SAFETY: the call reads and writes memory of this function alone.
    let done = unsafe {
        match is_peer {
            true => libc::getpeername(fd, place, &raw mut len),
            false => libc::getsockname(fd, place, &raw mut len),
        }
    };
    assert_eq!(done, 0);
    match posix::c_layout::to_address(&bytes[..len as usize]) {
        Address::Inet(name) => name,
        other => panic!("{other:?}"),
    }
}

/// The socket's port, which the kernel chose.
pub fn port_of(fd: i32) -> u16 {
    // SAFETY: the call reads and writes memory of this function alone.
    unsafe {
        let mut name: libc::sockaddr_in = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_in>() as u32;
        let done = libc::getsockname(fd, (&raw mut name).cast(), &raw mut len);
        assert_eq!(done, 0);
        u16::from_be(name.sin_port)
    }
}

/// `SIOCINQ` and `FIONREAD` are the same request.
const _: () = assert!(SIOCINQ == FIONREAD);

/// `SO_ERROR`, or minus the errno.
pub fn error_of(fd: i32, level: i32, name: i32) -> i64 {
    let mut value = 0_i32;
    let mut len = size_of::<i32>() as u32;
    // SAFETY: the call reads and writes memory of this function alone.
    match unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) } {
        0 => value.into(),
        _ => -i64::from(errno()),
    }
}

pub fn set(fd: i32, level: i32, name: i32, value: &[u8]) {
    // SAFETY: the kernel reads `value`, which outlives the call.
    let done =
        unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) };
    assert_eq!(done, 0);
}

/// Sends these texts by the kernel's `sendmmsg`; returns its value, and the messages' lengths.
pub fn sendmmsg(fd: i32, texts: &[&[u8]], flags: i32) -> (i64, Vec<u32>) {
    let mut pieces: Vec<libc::iovec> = texts
        .iter()
        .map(|text| libc::iovec {
            iov_base: text.as_ptr().cast_mut().cast(),
            iov_len: text.len(),
        })
        .collect();
    many(&mut pieces, |messages, count| {
        // SAFETY: the messages lead to `texts`, which the kernel does not write to.
        unsafe { libc::sendmmsg(fd, messages, count, flags) }
    })
}

/// Receives into rooms of these lengths by the kernel's `recvmmsg`; returns its value, and the
/// messages' lengths.
pub fn recvmmsg(fd: i32, rooms: &[usize], flags: i32) -> (i64, Vec<u32>) {
    let mut memory: Vec<Vec<u8>> = rooms.iter().map(|&len| vec![0; len]).collect();
    let mut pieces: Vec<libc::iovec> = memory
        .iter_mut()
        .map(|room| libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        })
        .collect();
    many(&mut pieces, |messages, count| {
        // SAFETY: the messages lead to `memory`, which outlives the call.
        unsafe { libc::recvmmsg(fd, messages, count, flags, std::ptr::null_mut()) }
    })
}

fn many(
    pieces: &mut [libc::iovec],
    call: impl FnOnce(*mut libc::mmsghdr, u32) -> i32,
) -> (i64, Vec<u32>) {
    // SAFETY: all zeros is a valid value of this plain structure.
    let blank: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let mut messages = vec![blank; pieces.len()];
    for (message, piece) in messages.iter_mut().zip(pieces) {
        message.msg_hdr.msg_iov = piece;
        message.msg_hdr.msg_iovlen = 1;
    }
    let done = call(messages.as_mut_ptr(), messages.len() as u32);
    let lens = messages.iter().take(done.max(0) as usize);
    let lens = lens.map(|message| message.msg_len).collect();
    match done {
        -1 => (-i64::from(errno()), lens),
        done => (done.into(), lens),
    }
}
