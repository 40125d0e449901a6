//! Adding to an eventfd that a hostile peer also holds, without ever blocking.
//!
//! `write` blocks at a full counter unless the open file has `O_NONBLOCK`. The peer shares the open
//! file and may clear that flag, and no flag of a single call replaces it (`RWF_NOWAIT` is
//! refused). The kernel's own additions never block: an asynchronous operation that ends adds to an
//! eventfd (`IOCB_FLAG_RESFD`), and a full counter stays full. A ring is therefore such an
//! operation that ends at once: a read of no bytes from the bell, which an eventfd refuses.
//!
//! A port that is or was connected owns a ringer and uses it through `bell`. A ring costs 0.25 µs
//! more than a `write`; waking a thread takes 4 µs.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, ptr};

use rustix::io::Errno;

/// Operation code `IOCB_CMD_PREAD` (linux/aio_abi.h).
const PREAD: u16 = 0;
/// Flag `IOCB_FLAG_RESFD` (linux/aio_abi.h).
const RESFD: u32 = 1;
/// Number of operations at a time. The kernel stores at least a page of completions until they are
/// fetched.
const ONE: libc::c_long = 1;
/// Most completions that are fetched at a time.
const FETCHED_MAX: usize = 64;

/// An operation: `struct iocb` (linux/aio_abi.h).
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    /// Two 32-bit fields, whose order depends on the byte order. The kernel writes the first; the
    /// second is 0.
    key_and_flags_of_rw: u64,
    command: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    bell: u32,
}

/// A completion: `struct io_event`.
type Ended = [u64; 4];

const _: () = assert!(size_of::<Operation>() == 64);

/// See the module's documentation.
#[derive(Debug)]
pub struct Ringer {
    /// The kernel's AIO context; `None`: the kernel supports no such operations.
    context: Option<libc::c_ulong>,
    /// True if the kernel refused this operation, for this bell (kernels before 5.9) or for this
    /// process. The context stays, because destroying it takes some 25 ms.
    refused: Cell<bool>,
}

impl Ringer {
    /// Makes a ringer; the call is too slow for the data path.
    pub fn new() -> Self {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes a number to `context`, which outlives the call.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, ONE, &raw mut context) };
        Self {
            context: (rc == 0).then_some(context),
            refused: Cell::new(false),
        }
    }

    /// Allows another attempt, for a new bell that the kernel may accept.
    pub fn try_again(&self) {
        self.refused.set(false);
    }

    #[cfg(test)]
    pub fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Adds one to the counter. False: the kernel does not do it in this way.
    #[must_use]
    pub fn ring(&self, bell: BorrowedFd<'_>) -> bool {
        let Some(context) = self.context.filter(|_| !self.refused.get()) else {
            return false;
        };
        let mut rung = submit(context, bell);
        if rung == Err(Errno::AGAIN) {
            // The kernel has no room for further completions.
            fetch(context);
            rung = submit(context, bell);
        }
        if matches!(rung, Err(Errno::INVAL | Errno::NOSYS | Errno::PERM)) {
            self.refused.set(true);
        }
        rung.is_ok()
    }
}

fn submit(context: libc::c_ulong, bell: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut operation = Operation {
        command: PREAD,
        file: bell.as_raw_fd() as u32,
        flags: RESFD,
        bell: bell.as_raw_fd() as u32,
        ..Operation::default()
    };
    let mut operations = [&raw mut operation];
    // SAFETY: the call passes one operation, which the kernel reads, and writes its key to, during
    // the call. Its buffer of no bytes is never written to, and the descriptor is borrowed for as
    // long.
    let rc = unsafe { libc::syscall(libc::SYS_io_submit, context, ONE, operations.as_mut_ptr()) };
    match rc {
        1 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Fetches and discards the kernel's completions.
fn fetch(context: libc::c_ulong) {
    let mut ended: [Ended; FETCHED_MAX] = [[0; 4]; FETCHED_MAX];
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes at most `FETCHED_MAX` events to `ended`, and reads `at_once`; both
    // outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_io_getevents,
            context,
            0 as libc::c_long,
            FETCHED_MAX as libc::c_long,
            ended.as_mut_ptr(),
            ptr::from_ref(&at_once),
        );
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        if let Some(context) = self.context {
            // SAFETY: the number is our own, and no memory of ours is the kernel's.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }
}
