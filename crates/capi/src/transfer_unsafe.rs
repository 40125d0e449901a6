//! Calls that move bytes: straight between the caller's memory and the socket's rings.

// The calls bear the names and the types that C knows; each is documented in `include/mtcp_api.h`.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t, ssize_t};
use posix::c_layout::{from_control, to_control};
use posix::number::{MSG_CTRUNC, MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL};
use posix::{Errno, Reply, Request};

use crate::door::{answer, answer_int};
use crate::limits::{BYTES_PER_CALL_MAX, PIECES_MAX};
use crate::memory_unsafe::{self as memory, bytes, bytes_mut};
use crate::seats::{Handle, Seat, with};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_read(
    mctx: Handle,
    fd: c_int,
    buf: *mut c_char,
    len: usize,
) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { mtcp_recv(mctx, fd, buf, len, 0) }
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
        with(mctx, |seat| {
            // SAFETY: C gives room for so many bytes.
            let into = unsafe { bytes_mut(buf.cast(), len) };
            let read = seat.sockets.recv_into(fd, seat.room(fd, into)?, flags)?;
            Ok(read as i64)
        })
    });
    received as ssize_t
}

impl Seat {
    /// Memory that came with `fd`: a bad descriptor is complained of first.
    fn room<T>(&self, fd: c_int, memory: Result<T, Errno>) -> Result<T, Errno> {
        match self.sockets.has(fd) {
            true => memory,
            false => Err(Errno::BADF),
        }
    }

    /// Reads into pieces one after the other: waits for the first bytes alone.
    ///
    /// # Safety
    /// The pieces are room that nobody else uses.
    unsafe fn receive(
        &mut self,
        fd: c_int,
        pieces: &[iovec],
        flags: c_int,
    ) -> Result<usize, Errno> {
        let (mut done, mut later) = (0, 0);
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            // SAFETY: the caller's promise.
            let into = unsafe { bytes_mut(piece.iov_base, piece.iov_len) };
            let want = piece.iov_len;
            let got = into.and_then(|into| self.sockets.recv_into(fd, into, flags | later));
            match got {
                Ok(got) => done += got,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
            if got.is_ok_and(|got| got < want) {
                break;
            }
            if flags & MSG_WAITALL == 0 {
                later = MSG_DONTWAIT;
            }
        }
        if done == 0 && pieces.iter().all(|piece| piece.iov_len == 0) {
            return self.sockets.recv_into(fd, &mut [], flags);
        }
        Ok(done)
    }

    /// Writes pieces one after the other.
    ///
    /// # Safety
    /// The pieces are memory that nobody writes.
    unsafe fn transmit(
        &mut self,
        fd: c_int,
        pieces: &[iovec],
        flags: c_int,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            // SAFETY: the caller's promise.
            let from = unsafe { bytes(piece.iov_base, piece.iov_len) };
            match from.and_then(|from| self.sockets.send_from(fd, from, flags)) {
                Ok(sent) if sent < piece.iov_len => return Ok(done + sent),
                Ok(sent) => done += sent,
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
        if pieces.iter().all(|piece| piece.iov_len == 0) {
            return self.sockets.send_from(fd, &[], flags);
        }
        Ok(done)
    }
}

/// An array of pieces: not too many, and no more bytes than a call may return.
///
/// # Safety
/// `iov` is null or leads to so many pieces.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > PIECES_MAX {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { memory::array(iov, count) }?;
    let sum = pieces
        .iter()
        .try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len));
    match sum {
        Some(sum) if sum <= isize::MAX as usize => Ok(pieces),
        _ => Err(Errno::INVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_readv(
    mctx: Handle,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> c_int {
    answer_int(|| {
        with(mctx, |seat| {
            let count = usize::try_from(count).map_err(|_| Errno::INVAL);
            // SAFETY: C gives so many pieces, and room in each.
            let pieces = seat.room(fd, count.and_then(|count| unsafe { pieces(iov, count) }))?;
            // SAFETY: as above.
            unsafe { seat.receive(fd, pieces, 0) }.map(|got| got as i64)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_write(
    mctx: Handle,
    fd: c_int,
    buf: *const c_char,
    len: usize,
) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { mtcp_send(mctx, fd, buf.cast(), len, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_writev(
    mctx: Handle,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> c_int {
    answer_int(|| {
        with(mctx, |seat| {
            let count = usize::try_from(count).map_err(|_| Errno::INVAL);
            // SAFETY: C gives so many pieces, and bytes in each.
            let pieces = seat.room(fd, count.and_then(|count| unsafe { pieces(iov, count) }))?;
            // SAFETY: as above.
            unsafe { seat.transmit(fd, pieces, 0) }.map(|sent| sent as i64)
        })
    })
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
        with(mctx, |seat| {
            // SAFETY: C gives so many bytes.
            let from = seat.room(fd, unsafe { bytes(buf, len) })?;
            seat.sockets
                .send_from(fd, from, flags)
                .map(|sent| sent as i64)
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
        with(mctx, |seat| {
            // SAFETY: C gives so many bytes, and an address of that length.
            let from = seat.room(fd, unsafe { bytes(buf, len) })?;
            // SAFETY: as above.
            let to = unsafe { memory::address(addr, addrlen) }?;
            let request = Request::Send {
                fd,
                bytes: from.to_vec(),
                flags,
                to: Some(to),
                control: Vec::new(),
            };
            seat.sockets.wait_for(&request).0
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
    // SAFETY: as the caller promises.
    let received = unsafe { mtcp_recv(mctx, fd, buf.cast(), len, flags) };
    if received >= 0 && !addr.is_null() && !addrlen.is_null() {
        // A connection's bytes come with no address, as in Linux.
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
        with(mctx, |seat| {
            // SAFETY: C gives a message, and memory where it says.
            let header = seat.room(fd, unsafe { memory::read(msg) })?;
            // SAFETY: as above.
            let pieces = unsafe { pieces(header.msg_iov, header.msg_iovlen) }?;
            if header.msg_name.is_null() && header.msg_controllen == 0 {
                // SAFETY: as above.
                return unsafe { seat.transmit(fd, pieces, flags) }.map(|sent| sent as i64);
            }
            let to = match header.msg_name.is_null() {
                true => None,
                false => {
                    // SAFETY: as above.
                    Some(unsafe { memory::address(header.msg_name.cast(), header.msg_namelen) }?)
                }
            };
            // SAFETY: as above.
            let control = unsafe { bytes(header.msg_control, header.msg_controllen) }?;
            let mut all = Vec::new();
            for piece in pieces {
                // SAFETY: as above.
                all.extend_from_slice(unsafe { bytes(piece.iov_base, piece.iov_len) }?);
                all.truncate(BYTES_PER_CALL_MAX);
            }
            let request = Request::Send {
                fd,
                bytes: all,
                flags,
                to,
                control: to_control(control)?,
            };
            seat.sockets.wait_for(&request).0
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
        with(mctx, |seat| {
            // SAFETY: C gives a message, and memory where it says; so for what follows.
            let mut header = seat.room(fd, unsafe { memory::read(msg) })?;
            // SAFETY: as above.
            let pieces = unsafe { pieces(header.msg_iov, header.msg_iovlen) }?;
            let room = header.msg_controllen;
            header.msg_namelen = 0;
            header.msg_controllen = 0;
            header.msg_flags = 0;
            if room == 0 && flags & !(MSG_DONTWAIT | MSG_WAITALL) == 0 {
                // SAFETY: as above.
                let got = unsafe { seat.receive(fd, pieces, flags) }?;
                // SAFETY: as above.
                unsafe { memory::write(msg, header) }?;
                return Ok(got as i64);
            }
            let len = pieces.iter().map(|piece| piece.iov_len).sum::<usize>();
            let request = Request::Recvmsg {
                fd,
                len: len.min(BYTES_PER_CALL_MAX),
                control_len: room,
                flags,
            };
            let (outcome, reply) = seat.sockets.wait_for(&request);
            let done = outcome?;
            if let Reply::Message {
                bytes,
                control,
                flags,
            } = reply
            {
                // SAFETY: as above.
                unsafe { scatter(&bytes, pieces) }?;
                let control = from_control(&control, room);
                // SAFETY: as above.
                unsafe { bytes_mut(header.msg_control, control.len()) }?.copy_from_slice(&control);
                header.msg_controllen = control.len() as _;
                header.msg_flags = flags;
            }
            // SAFETY: as above.
            unsafe { memory::write(msg, header) }?;
            Ok(done)
        })
    });
    received as ssize_t
}

/// Puts what was received into the pieces.
///
/// # Safety
/// The pieces are room that nobody else uses.
unsafe fn scatter(mut received: &[u8], pieces: &[iovec]) -> Result<(), Errno> {
    for piece in pieces {
        let count = piece.iov_len.min(received.len());
        // SAFETY: the caller's promise.
        unsafe { bytes_mut(piece.iov_base, count) }?.copy_from_slice(&received[..count]);
        received = &received[count..];
    }
    Ok(())
}

const _: () = assert!(MSG_PEEK == libc::MSG_PEEK && MSG_CTRUNC == libc::MSG_CTRUNC);
