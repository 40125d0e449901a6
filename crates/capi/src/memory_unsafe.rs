//! C's memory as slices and values. A null pointer to something that is needed is `EFAULT`. For
//! other pointers the caller of the C function promises that they are valid.

use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use libc::{iovec, sockaddr, socklen_t};
use posix::c_layout::{SOCKADDR_LEN_MAX, from_address, to_address, to_bound_address};
use posix::{Address, Errno};

use crate::limits::{BYTES_PER_CALL_MAX, PIECES_MAX};

/// Pieces of a vectored call that are handled without an allocation.
const FEW_PIECES: usize = 8;

/// True for memory outside any program's address space: `EFAULT`, which the kernel returns before
/// any other check.
fn reaches_beyond(at: *const c_void, len: usize) -> bool {
    at.addr().saturating_add(len) > isize::MAX as usize
}

/// A slice to read from, cut to what one call moves.
///
/// # Safety
/// `at` is null or leads to `len` bytes that are not written during `'a`.
pub unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (at.is_null() || reaches_beyond(at, len), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: not null, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(at.cast(), len.min(BYTES_PER_CALL_MAX)) }),
    }
}

/// A slice to write to, cut to what one call moves.
///
/// # Safety
/// `at` is null or leads to `len` bytes that are not used elsewhere during `'a`.
pub unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match (at.is_null() || reaches_beyond(at, len), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: not null, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len.min(BYTES_PER_CALL_MAX)) }),
    }
}

/// The elements of an array.
///
/// # Safety
/// `at` is null or leads to `count` values that are not written during `'a`.
pub unsafe fn array<'a, T: Copy>(at: *const T, count: usize) -> Result<&'a [T], Errno> {
    match (at.is_null() || !at.is_aligned(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: not null, aligned, and the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

/// The pieces of a vectored call. Checks their number, and that a call may return their total
/// length.
///
/// # Safety
/// `iov` is null or leads to `count` pieces that are not written during `'a`.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count > PIECES_MAX {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { array(iov, count) }?;
    let is_long = |piece: &iovec| piece.iov_len > isize::MAX as usize;
    match pieces.iter().any(is_long) {
        true => Err(Errno::INVAL),
        false => Ok(pieces),
    }
}

/// Makes a call with slices to read from.
///
/// # Safety
/// `iov` is null or leads to `count` pieces, and each of them is memory that is not written during
/// the call.
pub unsafe fn with_pieces<T>(
    iov: *const iovec,
    count: usize,
    call: impl FnOnce(&[IoSlice<'_>]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller promises `count` pieces.
    let pieces = unsafe { pieces(iov, count) }?;
    // SAFETY: the caller promises that nobody writes to the piece during the call.
    let slice = |piece: &iovec| unsafe { bytes(piece.iov_base, piece.iov_len) }.map(IoSlice::new);
    if pieces.len() > FEW_PIECES {
        let many: Vec<_> = pieces.iter().map(slice).collect::<Result<_, _>>()?;
        return call(&many);
    }
    let mut few = [IoSlice::new(&[]); FEW_PIECES];
    for (place, piece) in few.iter_mut().zip(pieces) {
        *place = slice(piece)?;
    }
    call(&few[..pieces.len()])
}

/// Makes a call with slices to write to.
///
/// # Safety
/// `iov` is null or leads to `count` pieces, and each of them is room that is not used elsewhere
/// during the call.
pub unsafe fn with_pieces_mut<T>(
    iov: *const iovec,
    count: usize,
    call: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller promises `count` pieces.
    let pieces = unsafe { pieces(iov, count) }?;
    let slice = |piece: &iovec| {
        // SAFETY: the caller promises that nobody else uses the piece.
        unsafe { bytes_mut(piece.iov_base, piece.iov_len) }.map(IoSliceMut::new)
    };
    if pieces.len() > FEW_PIECES {
        let mut many: Vec<_> = pieces.iter().map(slice).collect::<Result<_, _>>()?;
        return call(&mut many);
    }
    let mut few: [IoSliceMut<'_>; FEW_PIECES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    for (place, piece) in few.iter_mut().zip(pieces) {
        *place = slice(piece)?;
    }
    call(&mut few[..pieces.len()])
}

/// A copy of C's value.
///
/// # Safety
/// `at` is null or leads to a `T`.
pub unsafe fn read<T: Copy>(at: *const T) -> Result<T, Errno> {
    if at.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: not null, and the caller's promise; it need not be aligned.
    Ok(unsafe { at.read_unaligned() })
}

/// Writes a value into C's memory.
///
/// # Safety
/// `at` is null or leads to room for a `T`.
pub unsafe fn write<T>(at: *mut T, value: T) -> Result<(), Errno> {
    if at.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: not null, and the caller's promise; it need not be aligned.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// Reads an address.
///
/// # Safety
/// `at` is null or leads to `len` bytes.
pub unsafe fn address(at: *const sockaddr, len: socklen_t) -> Result<Address, Errno> {
    // SAFETY: the caller's promise.
    unsafe { address_bytes(at, len) }.map(to_address)
}

/// Reads an address for `bind`.
///
/// # Safety
/// Like [`address`].
pub unsafe fn bound_address(at: *const sockaddr, len: socklen_t) -> Result<Address, Errno> {
    // SAFETY: the caller's promise.
    unsafe { address_bytes(at, len) }.map(to_bound_address)
}

/// # Safety
/// Like [`address`].
unsafe fn address_bytes<'a>(at: *const sockaddr, len: socklen_t) -> Result<&'a [u8], Errno> {
    if len as i32 > SOCKADDR_LEN_MAX as i32 || (len as i32) < 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { bytes(at.cast(), len as usize) }
}

/// Writes an address as far as there is room, and its length.
///
/// # Safety
/// `at` is null or leads to as many bytes as `len` says; `len` is null or leads to a length.
pub unsafe fn give_address(
    address: SocketAddr,
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the caller promises that `len` is null or leads to a length.
    let room = unsafe { room(len) }?;
    let bytes = from_address(address);
    let count = room.min(bytes.len());
    // SAFETY: `at` leads to at least `count` bytes, as the caller promises.
    unsafe { bytes_mut(at.cast(), count) }?.copy_from_slice(&bytes[..count]);
    // SAFETY: `len` leads to a length, as the caller promises.
    unsafe { write(len, bytes.len() as socklen_t) }
}

/// The room that a length in C's memory gives; `EINVAL` if negative.
///
/// # Safety
/// `len` is null or leads to a length.
pub unsafe fn room(len: *const socklen_t) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let room = unsafe { read(len) }? as i32;
    usize::try_from(room).map_err(|_| Errno::INVAL)
}
