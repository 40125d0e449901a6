//! The caller's memory, read and written like a kernel does: a bad address gives `EFAULT`, not a
//! crash. Scripts pass such addresses on purpose.

use posix::Errno;

/// The `len` bytes at `address`.
///
/// # Errors
/// `EFAULT` where memory cannot be read; `ENOMEM` for a length that can only be a mistake.
pub fn copy_in(address: usize, len: usize) -> Result<Vec<u8>, Errno> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if len > COPY_BYTES_MAX {
        return Err(Errno::NOMEM);
    }
    let mut bytes = vec![0_u8; len];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: len,
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: len,
    };
    // SAFETY: `local` is `bytes`, which is ours to write. `remote` is only read, by the kernel,
    // which checks it.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if copied == len as isize {
        return Ok(bytes);
    }
    if copied < 0 && is_refused() && address != 0 {
        // SAFETY: the kernel refuses to copy, so the caller's word must do: it passed `len`
        // readable bytes at `address`.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), len) };
        return Ok(bytes);
    }
    Err(Errno::FAULT)
}

/// Writes `bytes` to `address`.
///
/// # Errors
/// `EFAULT` where memory cannot be written.
///
/// # Safety
/// The memory at `address` must be the caller's buffer of at least that length, or not be mapped.
pub unsafe fn copy_out(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: `local` is only read; `remote` is the caller's buffer by this function's contract,
    // and the kernel checks that it is memory.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    if copied == bytes.len() as isize {
        return Ok(());
    }
    if copied < 0 && is_refused() && address != 0 {
        // SAFETY: by this function's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len());
        }
        return Ok(());
    }
    Err(Errno::FAULT)
}

/// Whether the kernel refuses such copies as such (in a sandbox). This says nothing about the
/// address.
fn is_refused() -> bool {
    matches!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EPERM | libc::ENOSYS)
    )
}

/// Most bytes that one call passes. More can only be a caller's mistake.
const COPY_BYTES_MAX: usize = 1 << 30;
