//! The process and its contexts: configuration, CPUs, signals.

// The functions have the names and types of C's headers; `include/mtcp_api.h` documents them.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use posix::Errno;

use crate::config::Conf;
use crate::contexts::{self, Handle, OwnContext};
use crate::door::{answer_int, open};
use crate::process;
use crate::signals_unsafe::{self, Handler};
use crate::{errno_unsafe, fork_unsafe, memory_unsafe};

const SIG_ERR: Handler = libc::SIG_ERR;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_init(config_file: *const c_char) -> c_int {
    answer_int(|| {
        let file = match config_file.is_null() {
            true => None,
            // SAFETY: not null, and C gives a string.
            false => Some(unsafe { CStr::from_ptr(config_file) }),
        };
        let file = file.map(|file| Path::new(OsStr::from_bytes(file.to_bytes())));
        process::init(file).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_destroy() {
    open(|| {
        process::destroy();
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getconf(conf: *mut Conf) -> c_int {
    // SAFETY: C gives room for the structure.
    answer_int(|| unsafe { memory_unsafe::write(conf, process::conf()) }.map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_setconf(conf: *const Conf) -> c_int {
    // SAFETY: C gives the structure.
    answer_int(|| process::set_conf(unsafe { memory_unsafe::read(conf) }?).map(|()| 0))
}

/// `struct mtcp_pool`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    used: c_uint,
    total: c_uint,
}

impl From<millstream::Pool> for Pool {
    fn from(pool: millstream::Pool) -> Self {
        Self {
            used: pool.used,
            total: pool.total,
        }
    }
}

/// `struct mtcp_usage`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    descriptors: Pool,
    sockets: Pool,
    half_open: Pool,
    time_wait: Pool,
    small_chunks: Pool,
    large_chunks: Pool,
    segment_records: Pool,
    range_blocks: Pool,
    packed_blocks: Pool,
}

impl OwnContext {
    fn usage(&self) -> Result<Usage, Errno> {
        let pools = self.sockets.context().pools();
        let pools = pools.map_err(|error| posix::errno(&error))?;
        Ok(Usage {
            descriptors: Pool {
                used: self.sockets.count() as c_uint,
                total: self.descriptors_max,
            },
            sockets: pools.sockets.into(),
            half_open: pools.half_open.into(),
            time_wait: pools.time_wait.into(),
            small_chunks: pools.small_chunks.into(),
            large_chunks: pools.large_chunks.into(),
            segment_records: pools.segment_records.into(),
            range_blocks: pools.range_blocks.into(),
            packed_blocks: pools.packed_blocks.into(),
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getusage(mctx: Handle, usage: *mut Usage) -> c_int {
    answer_int(|| {
        let said = contexts::with(mctx, |context| context.usage())?;
        // SAFETY: C gives room for the structure.
        unsafe { memory_unsafe::write(usage, said) }.map(|()| 0)
    })
}

/// Size of a counter's name in C, including the NUL.
const COUNTER_NAME_BYTES: usize = 40;

/// `struct mtcp_counter`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    name: [u8; COUNTER_NAME_BYTES],
    value: u64,
}

impl Counter {
    /// Cuts a name that is too long; there is none.
    fn new(name: &str, value: u64) -> Self {
        let mut bytes = [0; COUNTER_NAME_BYTES];
        let len = name.len().min(COUNTER_NAME_BYTES - 1);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self { name: bytes, value }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getcounters(
    mctx: Handle,
    counters: *mut Counter,
    max: c_int,
) -> c_int {
    answer_int(|| {
        let max = usize::try_from(max).map_err(|_| Errno::INVAL)?;
        let counted = contexts::with(mctx, |context| {
            let counted = context.sockets.context().counters();
            counted.map_err(|error| posix::errno(&error))
        })?;
        for (at, &(name, value)) in counted.iter().take(max).enumerate() {
            // SAFETY: C gives room for `max` counters, or null with a `max` of 0.
            unsafe { memory_unsafe::write(counters.wrapping_add(at), Counter::new(name, value)) }?;
        }
        Ok(counted.len() as i64)
    })
}

/// Binds the calling thread to an online CPU, `cpu` modulo their number. If a `cpuset` excludes it,
/// takes the next permitted one.
fn affinitize(cpu: c_int) -> Result<i64, Errno> {
    let cpu = usize::try_from(cpu).map_err(|_| Errno::INVAL)?;
    let cpus = process::cpus();
    let mut outcome = Err(Errno::INVAL);
    for at in 0..cpus.len() {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpus[(cpu % cpus.len() + at) % cpus.len()]);
        outcome = rustix::thread::sched_setaffinity(None, &set);
        if outcome != Err(Errno::INVAL) {
            break;
        }
    }
    outcome.map(|()| 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_core_affinitize(cpu: c_int) -> c_int {
    answer_int(|| affinitize(cpu))
}

/// `GetNumCPUs` of mTCP's `cpu.h`, which some programs declare themselves.
#[unsafe(no_mangle)]
pub extern "C" fn GetNumCPUs() -> c_int {
    process::cpus_online() as c_int
}

/// See [`GetNumCPUs`].
#[unsafe(no_mangle)]
pub extern "C" fn CoreAffinitize(cpu: c_int) -> c_int {
    answer_int(|| affinitize(cpu))
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_create_context(cpu: c_int) -> Handle {
    open(|| {
        fork_unsafe::watch();
        contexts::open(cpu)
    })
    .unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_destroy_context(mctx: Handle) {
    open(|| contexts::destroy(mctx));
}

#[unsafe(no_mangle)]
pub extern "C" fn mtcp_register_signal(signum: c_int, handler: Handler) -> Handler {
    match signals_unsafe::register(signum, handler) {
        Ok(before) => before,
        Err(errno) => {
            errno_unsafe::set(errno);
            SIG_ERR
        }
    }
}
