//! The process's events: the library is loaded, the process forks, the process ends.

use libc::c_int;
use ring::published::{Published32, Published64};

use crate::config::{Settings, VARIABLE};
use crate::{engine, exec_unsafe, kernel_listeners, log, memory_unsafe, own_process, real_unsafe};

/// The loader calls the functions in this section before `main`.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    real_unsafe::resolve_all();
    let Some(text) = real_unsafe::environment(VARIABLE) else {
        return;
    };
    memory_unsafe::keep_stderr();
    match Settings::parse(&text) {
        Ok(settings) => {
            note_process();
            // SAFETY: functions of these types, which stay as long as the process.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
                libc::atexit(at_exit);
            }
            engine::turn_on(settings);
            exec_unsafe::begin();
        }
        Err(cause) => log::once(&format!("{cause}: the kernel has all sockets")),
    }
}

/// A page that reads as zeros in a child that came by no `fork` of libc's; 0: there is none.
static PAGE: Published64 = Published64::new(0);

/// Notes that this process may use its table of descriptors.
fn note_process() {
    own_process::note();
    if PAGE.load() == 0 {
        // SAFETY: a new page, which stays as long as the process.
        let at = unsafe {
            let (none, kind) = (
                std::ptr::null_mut(),
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(none, PAGE_BYTES, access, kind, -1, 0);
            match at != libc::MAP_FAILED
                && libc::madvise(at, PAGE_BYTES, libc::MADV_WIPEONFORK) == 0
            {
                true => at,
                false => return,
            }
        };
        PAGE.store(at.expose_provenance() as u64);
    }
    let at = std::ptr::with_exposed_provenance_mut::<u8>(PAGE.load() as usize);
    // SAFETY: the page above, which only this function writes.
    unsafe { at.write_volatile(1) };
}

/// Bytes of the page.
const PAGE_BYTES: usize = 4096;

/// True in a child of `_Fork` or of the system call: it has a copy of the parent's stack, which it
/// must not drive.
#[inline]
pub fn is_copy() -> bool {
    let at = PAGE.load() as usize;
    // SAFETY: the page of `note_process`, which stays as long as the process.
    at != 0 && unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() } == 0
}

/// Says that the process is such a child.
pub fn say_copy() {
    static HAS_SAID: Published32 = Published32::new(0);
    if HAS_SAID.load() == 0 {
        HAS_SAID.store(1);
        memory_unsafe::say("millstream: a process that came by no `fork` of libc's: EBADF\n");
    }
}

extern "C" fn before_fork() {
    engine::before_fork(kernel_listeners::note);
}

extern "C" fn in_parent() {
    engine::after_fork_in_parent();
}

extern "C" fn in_child() {
    note_process();
    engine::after_fork_in_child(kernel_listeners::inherit);
}

extern "C" fn at_exit() {
    engine::finish();
}

/// `_exit`: lets connections close in order, as the kernel would.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(status: c_int) -> ! {
    if engine::settings().is_some() && !own_process::is_vforked() {
        engine::finish();
    }
    real_unsafe::exit_now(status)
}

/// `_Exit`, like [`_exit`].
#[cfg_attr(not(test), unsafe(export_name = "_Exit"))]
pub extern "C" fn exit_at_once(status: c_int) -> ! {
    _exit(status)
}
