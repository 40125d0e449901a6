//! Exported calls that open, connect, describe and close sockets.

// The functions have the names and types of C's headers; `include/mtcp_api.h` documents them.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{in_addr_t, sockaddr, socklen_t};
use millstream::SourcePool;
use posix::number::{
    AF_INET, F_SETFL, FIONBIO, O_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM,
};
use posix::{Address, Errno, Reply, Request};
use rustix::event::EventfdFlags;
use rustix::pipe::PipeFlags;

use crate::contexts::{Handle, OwnContext, Sources, with};
use crate::door::answer_int;
use crate::kernel_unsafe;
use crate::limits::OPTION_BYTES_MAX;
use crate::memory_unsafe::{self as memory, bytes, give_address};

/// Makes a call without other results than its value.
fn plain(mctx: Handle, request: &Request) -> c_int {
    answer_int(|| with(mctx, |context| context.sockets.wait_for(request).0))
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_socket(mctx: Handle, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            let request = Request::Socket {
                domain,
                kind,
                protocol,
            };
            let fd = context.sockets.wait_for(&request).0?;
            context.prepare(fd as i32);
            Ok(fd)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_bind(
    mctx: Handle,
    fd: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    answer_int(|| {
        // SAFETY: C gives an address of that length.
        let address = unsafe { memory::bound_address(addr, addrlen) };
        with(mctx, |context| {
            let request = Request::Bind {
                fd,
                address: context.checked(fd, address)?,
            };
            context.sockets.wait_for(&request).0
        })
    })
}

impl OwnContext {
    /// Returns the address that came with `fd`; an invalid descriptor is the first error.
    fn checked(&self, fd: c_int, address: Result<Address, Errno>) -> Result<Address, Errno> {
        match self.sockets.has(fd) {
            true => address,
            false => Err(Errno::BADF),
        }
    }

    /// Accepts a connection from a kernel listener into the context.
    fn accept_of_kernel(
        &mut self,
        fd: c_int,
        flags: c_int,
        mut accept: impl FnMut(&OwnedFd) -> Result<OwnedFd, Errno>,
    ) -> Result<i64, Errno> {
        if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let mut accepted = None;
        self.sockets.on_kernel(fd, 0, |listener| {
            accepted = Some(accept(listener)?);
            Ok(0)
        })?;
        let accepted = accepted.ok_or(Errno::IO)?;
        let own = self.sockets.adopt(accepted, flags & SOCK_NONBLOCK != 0);
        own.map(i64::from)
    }

    /// Sets the next address of `mtcp_init_rss` as the socket's source.
    fn choose_source(&mut self, fd: c_int, to: &Address) {
        let is_v6 = self.sockets.is_v6(fd);
        let is_pooled = |sources: &Sources| {
            let pooled = sources.pooled.map(|to| Address::Inet(to.into()));
            pooled.as_ref() == Some(to)
        };
        let sources = self
            .sources
            .as_mut()
            .filter(|one| !is_v6 && !is_pooled(one));
        if let Some(sources) = sources {
            self.sockets.set_source(fd, sources.take().into());
        }
    }

    /// Replaces the stack's pool of local addresses for one destination.
    fn set_pool(&self, pool: Option<SourcePool>) -> Result<(), Errno> {
        let told = self.sockets.context().set_source_pool(pool);
        told.map_err(|error| posix::errno(&error))
    }

    /// Checks that an address is ours, by binding a socket to it.
    fn check_source(&mut self, source: Ipv4Addr) -> Result<(), Errno> {
        let request = Request::Socket {
            domain: AF_INET,
            kind: SOCK_STREAM,
            protocol: 0,
        };
        let fd = self.sockets.wait_for(&request).0? as i32;
        let address = Address::Inet((source, 0).into());
        let bound = self.sockets.wait_for(&Request::Bind { fd, address }).0;
        let _ = self.sockets.wait_for(&Request::Close { fd });
        bound.map(|_| ())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_listen(mctx: Handle, fd: c_int, backlog: c_int) -> c_int {
    plain(mctx, &Request::Listen { fd, backlog })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_accept(
    mctx: Handle,
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { mtcp_accept4(mctx, fd, addr, addrlen, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_accept4(
    mctx: Handle,
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
    flags: c_int,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if context.sockets.is_kernel(fd) {
                // SAFETY: as the caller promises.
                let accept = |own: &_| unsafe { kernel_unsafe::accept(own, (addr, addrlen)) };
                return context.accept_of_kernel(fd, flags, accept);
            }
            let (accepted, reply) = context.sockets.wait_for(&Request::Accept { fd, flags });
            let accepted = accepted?;
            if !addr.is_null()
                && let Reply::Address(peer) = reply
                // SAFETY: C gives room as long as it says.
                && let Err(errno) = unsafe { give_address(peer, addr, addrlen) }
            {
                let fd = accepted as i32;
                let _ = context.sockets.wait_for(&Request::Close { fd });
                return Err(errno);
            }
            Ok(accepted)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_init_rss(
    mctx: Handle,
    saddr_base: in_addr_t,
    num_addr: c_int,
    daddr: in_addr_t,
    dport: in_addr_t,
) -> c_int {
    answer_int(|| {
        let first = u32::from(Ipv4Addr::from(saddr_base.to_ne_bytes()));
        let to = SocketAddrV4::new(daddr.to_ne_bytes().into(), u16::from_be(dport as u16));
        // An incomplete destination stands for any destination.
        let to = Some(to).filter(|to| !to.ip().is_unspecified() && to.port() != 0);
        let count = u32::try_from(num_addr).ok().filter(|&count| count > 0);
        let count = count.ok_or(Errno::INVAL)?;
        with(mctx, |context| {
            context.sources = None;
            context.set_pool(None)?;
            let sources = Sources {
                first,
                count,
                next: 0,
                pooled: to,
            };
            // 0 means any: the stack chooses.
            if first != 0 {
                sources.all().try_for_each(|ip| context.check_source(ip))?;
                context.sources = Some(sources);
            }
            context.set_pool(to.map(|to| SourcePool::new(to, first.into(), count)))?;
            Ok(0)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_connect(
    mctx: Handle,
    fd: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    answer_int(|| {
        // SAFETY: C gives an address of that length.
        let address = unsafe { memory::address(addr, addrlen) };
        with(mctx, |context| {
            let address = context.checked(fd, address)?;
            context.choose_source(fd, &address);
            context
                .sockets
                .wait_for(&Request::Connect { fd, address })
                .0
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_close(mctx: Handle, fd: c_int) -> c_int {
    plain(mctx, &Request::Close { fd })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_abort(mctx: Handle, fd: c_int) -> c_int {
    answer_int(|| with(mctx, |context| context.sockets.abort(fd).map(|()| 0)))
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_shutdown(mctx: Handle, fd: c_int, how: c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| match context.sockets.kernel_fd(fd) {
            Ok(own) => kernel_unsafe::shutdown(own, how),
            Err(_) => context.sockets.wait_for(&Request::Shutdown { fd, how }).0,
        })
    })
}

/// Returns one of a socket's two names.
///
/// # Safety
/// Like [`give_address`].
unsafe fn name(
    mctx: Handle,
    fd: c_int,
    request: &Request,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if let Ok(own) = context.sockets.kernel_fd(fd) {
                let is_peers = matches!(request, Request::Getpeername { .. });
                // SAFETY: the caller's promise.
                return unsafe { kernel_unsafe::name(own, is_peers, addr, addrlen) };
            }
            let (outcome, reply) = context.sockets.wait_for(request);
            outcome?;
            match reply {
                // SAFETY: the caller's promise.
                Reply::Address(name) => unsafe { give_address(name, addr, addrlen) }.map(|()| 0),
                _ => Ok(0),
            }
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getsockname(
    mctx: Handle,
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    // SAFETY: C gives room as long as it says.
    unsafe { name(mctx, fd, &Request::Getsockname { fd }, addr, addrlen) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getpeername(
    mctx: Handle,
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    // SAFETY: C gives room as long as it says.
    unsafe { name(mctx, fd, &Request::Getpeername { fd }, addr, addrlen) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getsockopt(
    mctx: Handle,
    fd: c_int,
    level: c_int,
    name: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if let Ok(own) = context.sockets.kernel_fd(fd) {
                // SAFETY: C gives a length, and room of that length.
                return unsafe { kernel_unsafe::getsockopt(own, (level, name), optval, optlen) };
            }
            context.sockets.check_options_level(fd, level)?;
            // SAFETY: C gives a length, and below room of that length.
            let len = unsafe { memory::room(optlen) }?;
            let request = Request::Getsockopt {
                fd,
                level,
                name,
                len: len.min(OPTION_BYTES_MAX),
            };
            let (outcome, reply) = context.sockets.wait_for(&request);
            outcome?;
            let Reply::Bytes(value) = reply else {
                return Ok(0);
            };
            // SAFETY: C gives room of the length in `optlen`; the value is no longer.
            unsafe { memory::bytes_mut(optval, value.len()) }?.copy_from_slice(&value);
            // SAFETY: C gives a length at `optlen`.
            unsafe { memory::write(optlen, value.len() as socklen_t) }?;
            Ok(0)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_setsockopt(
    mctx: Handle,
    fd: c_int,
    level: c_int,
    name: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if let Ok(own) = context.sockets.kernel_fd(fd) {
                // SAFETY: C gives a value of that length.
                return unsafe { kernel_unsafe::setsockopt(own, (level, name), optval, optlen) };
            }
            if !context.sockets.has(fd) {
                return Err(Errno::BADF);
            }
            let len = usize::try_from(optlen as i32).map_err(|_| Errno::INVAL)?;
            // SAFETY: C gives a value of that length.
            let value = unsafe { bytes(optval, len.min(OPTION_BYTES_MAX)) }?.to_vec();
            let request = Request::Setsockopt {
                fd,
                level,
                name,
                value,
            };
            context.sockets.wait_for(&request).0
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_setsock_nonblock(mctx: Handle, fd: c_int) -> c_int {
    plain(
        mctx,
        &Request::Fcntl {
            fd,
            command: F_SETFL,
            argument: O_NONBLOCK,
        },
    )
}

/// Variadic in C. On the platforms that we build for, a callee finds one more integer or pointer
/// where a variadic call puts it.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_fcntl(mctx: Handle, fd: c_int, command: c_int, argument: c_long) -> c_int {
    plain(
        mctx,
        &Request::Fcntl {
            fd,
            command,
            argument: argument as i32,
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_socket_ioctl(
    mctx: Handle,
    fd: c_int,
    request: c_int,
    argp: *mut c_void,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if !context.sockets.has(fd) {
                return Err(Errno::BADF);
            }
            let number = u64::from(request as u32);
            let argument = match number == FIONBIO {
                // SAFETY: C gives an int for this request.
                true => unsafe { memory::read(argp.cast::<c_int>()) }?,
                false => 0,
            };
            let call = Request::Ioctl {
                fd,
                request: number,
                argument,
            };
            let (outcome, reply) = context.sockets.wait_for(&call);
            outcome?;
            match reply {
                // SAFETY: C gives room for an int for requests that return one.
                Reply::Int(value) => unsafe { memory::write(argp.cast(), value) }.map(|()| 0),
                _ => Ok(0),
            }
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_pipe(mctx: Handle, pipeid: *mut c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            if pipeid.is_null() {
                return Err(Errno::FAULT);
            }
            let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
            let (from, to) = rustix::pipe::pipe_with(flags)?;
            let read = context.sockets.adopt(from, false)?;
            let write = match context.sockets.adopt(to, false) {
                Ok(write) => write,
                Err(errno) => {
                    let _ = context.sockets.wait_for(&Request::Close { fd: read });
                    return Err(errno);
                }
            };
            // SAFETY: C gives room for two.
            unsafe { memory::write(pipeid.cast(), [read, write]) }.map(|()| 0)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_eventfd(mctx: Handle, initval: c_uint, flags: c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            let asked = EventfdFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
            let known = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
            if !known.contains(asked) {
                return Err(Errno::INVAL);
            }
            let own = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let kernel = rustix::event::eventfd(initval, asked | own)?;
            let is_nonblocking = asked.contains(EventfdFlags::NONBLOCK);
            context.sockets.adopt(kernel, is_nonblocking).map(i64::from)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_attach_fd(mctx: Handle, fd: c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            let kernel = copy(fd)?;
            let flags = rustix::fs::fcntl_getfl(&kernel)?;
            let is_nonblocking = flags.contains(rustix::fs::OFlags::NONBLOCK);
            context.sockets.adopt(kernel, is_nonblocking).map(i64::from)
        })
    })
}

/// A copy of a kernel descriptor, so that the caller may close its own.
fn copy(fd: c_int) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: borrowed for one call, which returns EBADF if the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let kernel = rustix::io::fcntl_dupfd_cloexec(borrowed, 0)?;
    // A descriptor that the kernel's epoll refuses cannot be waited for.
    let probe = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
    let data = rustix::event::epoll::EventData::new_u64(0);
    let flags = rustix::event::epoll::EventFlags::empty();
    rustix::event::epoll::add(&probe, &kernel, data, flags)?;
    Ok(kernel)
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_kernel_fd(mctx: Handle, fd: c_int) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            Ok(context.sockets.kernel_fd(fd)?.as_raw_fd().into())
        })
    })
}

const _: () = assert!(SOCK_NONBLOCK == libc::SOCK_NONBLOCK && SOCK_CLOEXEC == libc::SOCK_CLOEXEC);
