//! Exported calls that move bytes, directly between the caller's memory and the socket's rings.

// The functions have the names and types of C's headers; `include/mtcp_api.h` documents them.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, msghdr, sockaddr, socklen_t, ssize_t};
use posix::c_layout::{from_control, to_control};
use posix::number::{MSG_CTRUNC, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use posix::{Errno, Reply, Request};

use crate::contexts::{Handle, OwnContext, with};
use crate::door::{answer, answer_int, open};
use crate::kernel_unsafe;
use crate::limits::{BYTES_PER_CALL_MAX, PIECES_MAX};
use crate::memory_unsafe::{self as memory, bytes, bytes_mut};

impl OwnContext {
    /// Returns the memory that came with `fd`; an invalid descriptor is the first error.
    fn room<T>(&self, fd: c_int, memory: Result<T, Errno>) -> Result<T, Errno> {
        match self.sockets.has(fd) {
            true => memory,
            false => Err(Errno::BADF),
        }
    }

    /// The header of a message, and its number of pieces.
    fn header(&self, fd: c_int, header: Result<msghdr, Errno>) -> Result<(msghdr, usize), Errno> {
        let header = self.room(fd, header)?;
        match header.msg_iovlen {
            count @ 0..=PIECES_MAX => Ok((header, count)),
            _ => Err(Errno::MSGSIZE),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_read(
    mctx: Handle,
    fd: c_int,
    buf: *mut c_char,
    len: usize,
) -> ssize_t {
    let read = answer(|| {
        with(mctx, |context| {
            // SAFETY: C gives room for `len` bytes.
            let into = context.room(fd, unsafe { bytes_mut(buf.cast(), len) })?;
            let read = context
                .sockets
                .read_into(fd, &mut [IoSliceMut::new(into)])?;
            Ok(read as i64)
        })
    });
    read as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_lend(mctx: Handle, fd: c_int, bytes: *mut *const c_void) -> ssize_t {
    let lent = answer(|| {
        with(mctx, |context| {
            let lent = context.sockets.lend(fd)?;
            // SAFETY: C gives room for a pointer. It will point into the receive buffer, which
            // stays mapped while the context exists; the bytes stay until they are consumed.
            unsafe { memory::write(bytes, lent.as_ptr().cast()) }?;
            Ok(lent.len() as i64)
        })
    });
    lent as ssize_t
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_consume(mctx: Handle, fd: c_int, len: usize) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            context.sockets.consume(fd, len)?;
            Ok(0)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_recv(
    mctx: Handle,
    fd: c_int,
    buf: *mut c_char,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let received = answer(|| {
        with(mctx, |context| {
            if flags & MSG_TRUNC != 0 && !context.sockets.is_kernel(fd) {
                // The received bytes are dropped, and the memory is not touched.
                return context
                    .sockets
                    .wait_for(&Request::Recv { fd, len, flags })
                    .0;
            }
            // SAFETY: C gives room for `len` bytes.
            let into = context.room(fd, unsafe { bytes_mut(buf.cast(), len) })?;
            let into = &mut [IoSliceMut::new(into)];
            let received = context.sockets.recv_into(fd, into, flags)?;
            Ok(received as i64)
        })
    });
    received as ssize_t
}

/// Makes a vectored call. Without bytes it only checks the descriptor.
fn vectored(
    mctx: Handle,
    fd: c_int,
    count: c_int,
    call: impl FnOnce(&mut OwnContext, usize) -> Result<usize, Errno>,
) -> c_int {
    answer_int(|| {
        with(mctx, |context| {
            let count = usize::try_from(count).map_err(|_| Errno::INVAL);
            let count = context.room(fd, count)?;
            call(context, count).map(|moved| moved as i64)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_readv(
    mctx: Handle,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> c_int {
    vectored(mctx, fd, count, |context, count| {
        let read = |pieces: &mut [IoSliceMut<'_>]| context.sockets.read_into(fd, pieces);
        // SAFETY: C gives `count` pieces, and room in each.
        unsafe { memory::with_pieces_mut(iov, count, read) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_writev(
    mctx: Handle,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> c_int {
    vectored(mctx, fd, count, |context, count| {
        let write = |pieces: &[IoSlice<'_>]| match pieces.iter().all(|piece| piece.is_empty()) {
            true => Ok(0),
            false => context.sockets.write_from(fd, pieces),
        };
        // SAFETY: C gives `count` pieces, and bytes in each.
        unsafe { memory::with_pieces(iov, count, write) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_write(
    mctx: Handle,
    fd: c_int,
    buf: *const c_char,
    len: usize,
) -> ssize_t {
    let written = answer(|| {
        with(mctx, |context| {
            // SAFETY: C gives `len` bytes.
            let from = context.room(fd, unsafe { bytes(buf.cast(), len) })?;
            let written = context.sockets.write_from(fd, &[IoSlice::new(from)])?;
            Ok(written as i64)
        })
    });
    written as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_send(
    mctx: Handle,
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let sent = answer(|| {
        with(mctx, |context| {
            // SAFETY: C gives `len` bytes.
            let from = context.room(fd, unsafe { bytes(buf, len) })?;
            let sent = context
                .sockets
                .send_from(fd, &[IoSlice::new(from)], flags)?;
            Ok(sent as i64)
        })
    });
    sent as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_sendto(
    mctx: Handle,
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    if addr.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { mtcp_send(mctx, fd, buf, len, flags) };
    }
    let sent = answer(|| {
        with(mctx, |context| {
            if context.sockets.is_kernel(fd) {
                // SAFETY: as the caller promises.
                let send = |own: &_| unsafe {
                    kernel_unsafe::sendto(own, (buf, len), flags, (addr, addrlen))
                };
                return context.sockets.on_kernel(fd, flags, send).map(|n| n as i64);
            }
            // SAFETY: C gives `len` bytes.
            let from = context.room(fd, unsafe { bytes(buf, len) })?;
            // SAFETY: C gives an address of the length `addrlen`.
            let to = unsafe { memory::address(addr, addrlen) }?;
            let request = Request::Send {
                fd,
                bytes: from.to_vec(),
                flags,
                to: Some(to),
                control: Vec::new(),
            };
            context.sockets.wait_for(&request).0
        })
    });
    sent as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_recvfrom(
    mctx: Handle,
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    if !addr.is_null() {
        let received = open(|| {
            with(mctx, |context| {
                if !context.sockets.is_kernel(fd) {
                    return Ok(None);
                }
                // SAFETY: as the caller promises.
                let receive = |own: &_| unsafe {
                    kernel_unsafe::recvfrom(own, (buf, len), flags, (addr, addrlen))
                };
                context.sockets.on_kernel(fd, flags, receive).map(Some)
            })
        });
        match received {
            Some(Some(received)) => return received as ssize_t,
            Some(None) => {}
            None => return -1,
        }
    }
    // SAFETY: as the caller promises.
    let received = unsafe { mtcp_recv(mctx, fd, buf.cast(), len, flags) };
    if received >= 0 && !addr.is_null() && !addrlen.is_null() {
        // TCP returns no address with bytes, as in Linux.
        // SAFETY: C gives room for a length.
        unsafe { addrlen.write_unaligned(0) };
    }
    received
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_sendmsg(
    mctx: Handle,
    fd: c_int,
    msg: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let sent = answer(|| {
        with(mctx, |context| {
            if context.sockets.is_kernel(fd) {
                // SAFETY: as the caller promises.
                let send = |own: &_| unsafe { kernel_unsafe::sendmsg(own, msg, flags) };
                return context.sockets.on_kernel(fd, flags, send).map(|n| n as i64);
            }
            // SAFETY: C gives a message that describes valid memory.
            let (header, count) = context.header(fd, unsafe { memory::read(msg) })?;
            let iov = header.msg_iov;
            if header.msg_name.is_null() && header.msg_controllen == 0 {
                let send = |pieces: &[IoSlice<'_>]| context.sockets.send_from(fd, pieces, flags);
                // SAFETY: the message from C leads to valid pieces.
                return unsafe { memory::with_pieces(iov, count, send) }.map(|sent| sent as i64);
            }
            let to = match header.msg_name.is_null() {
                true => None,
                false => {
                    // SAFETY: the message from C leads to an address of its length.
                    Some(unsafe { memory::address(header.msg_name.cast(), header.msg_namelen) }?)
                }
            };
            // SAFETY: the message from C leads to control bytes of its length.
            let control = unsafe { bytes(header.msg_control, header.msg_controllen) }?;
            let gather = |pieces: &[IoSlice<'_>]| {
                let slices: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                Ok(slices.concat())
            };
            // SAFETY: the message from C leads to valid pieces.
            let mut all = unsafe { memory::with_pieces(iov, count, gather) }?;
            all.truncate(BYTES_PER_CALL_MAX);
            let request = Request::Send {
                fd,
                bytes: all,
                flags,
                to,
                control: to_control(control)?,
            };
            context.sockets.wait_for(&request).0
        })
    });
    sent as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_recvmsg(
    mctx: Handle,
    fd: c_int,
    msg: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let received = answer(|| {
        with(mctx, |context| {
            if context.sockets.is_kernel(fd) {
                // SAFETY: as the caller promises.
                let receive = |own: &_| unsafe { kernel_unsafe::recvmsg(own, msg, flags) };
                let sockets = &mut context.sockets;
                return sockets.on_kernel(fd, flags, receive).map(|n| n as i64);
            }
            // SAFETY: C gives a message that describes valid memory.
            let (mut header, count) = context.header(fd, unsafe { memory::read(msg) })?;
            let (iov, room) = (header.msg_iov, header.msg_controllen);
            header.msg_namelen = 0;
            header.msg_controllen = 0;
            header.msg_flags = 0;
            if room == 0 && flags & !(MSG_DONTWAIT | MSG_WAITALL | MSG_PEEK) == 0 {
                let receive =
                    |pieces: &mut [IoSliceMut<'_>]| context.sockets.recv_into(fd, pieces, flags);
                // SAFETY: the message from C leads to valid pieces.
                let got = unsafe { memory::with_pieces_mut(iov, count, receive) }?;
                // SAFETY: C gives room for a message.
                unsafe { memory::write(msg, header) }?;
                return Ok(got as i64);
            }
            let measure = |pieces: &mut [IoSliceMut<'_>]| {
                Ok(pieces.iter().map(|piece| piece.len()).sum::<usize>())
            };
            // SAFETY: the message from C leads to valid pieces.
            let len = unsafe { memory::with_pieces_mut(iov, count, measure) }?;
            let request = Request::Recvmsg {
                fd,
                len: len.min(BYTES_PER_CALL_MAX),
                control_len: room,
                flags,
            };
            let (outcome, reply) = context.sockets.wait_for(&request);
            let done = outcome?;
            let drops = flags & (MSG_TRUNC | MSG_ERRQUEUE) == MSG_TRUNC;
            if let Reply::Message {
                bytes,
                control,
                flags,
            } = reply
            {
                let scatter = |pieces: &mut [IoSliceMut<'_>]| {
                    if !drops {
                        posix::scatter(&bytes, pieces);
                    }
                    Ok(())
                };
                // SAFETY: the message from C leads to valid pieces.
                unsafe { memory::with_pieces_mut(iov, count, scatter) }?;
                let control = from_control(&control, room);
                // SAFETY: the message from C leads to room for `room` control bytes.
                unsafe { bytes_mut(header.msg_control, control.len()) }?.copy_from_slice(&control);
                header.msg_controllen = control.len() as _;
                header.msg_flags = flags;
            }
            // SAFETY: C gives room for a message.
            unsafe { memory::write(msg, header) }?;
            Ok(done)
        })
    });
    received as ssize_t
}

const _: () = assert!(MSG_PEEK == libc::MSG_PEEK && MSG_CTRUNC == libc::MSG_CTRUNC);
