//! Exported calls by which a process gives up what a stack needs to open: `chroot`, and limits on
//! the number of threads.
//!
//! A server's child changes its root and forbids itself further processes before it accepts. The
//! service of a `mux` wire is out of its reach then, and the stack can start no thread. So these
//! calls open the stack first if the process has inherited a listener that it has not used yet.

use libc::{c_char, c_int, pid_t, rlimit64};

use crate::{copies_unsafe, decide, engine, own_process, real_unsafe};

/// Opens the stack for inherited listeners.
fn open_stack() {
    let is_off = engine::is_inside() || own_process::is_vforked() || copies_unsafe::is_copy();
    if !is_off && decide::is_granted_by_service() {
        // The first use of a listener tells the error again.
        let _ = engine::with(|engine| match engine.has_unused_listeners() {
            true => engine.net().map(|_| ()),
            false => Ok(()),
        });
    }
}

/// Opens the stack before a limit on the number of threads.
fn before_limit(resource: libc::__rlimit_resource_t, sets: bool) {
    if resource == libc::RLIMIT_NPROC && sets {
        open_stack();
    }
}

/// `chroot`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    open_stack();
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::chroot(path) }
}

/// `setrlimit`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setrlimit(
    resource: libc::__rlimit_resource_t,
    new: *const rlimit64,
) -> c_int {
    before_limit(resource, true);
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::setrlimit64(resource, new) }
}

/// `setrlimit64`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setrlimit64(
    resource: libc::__rlimit_resource_t,
    new: *const rlimit64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { setrlimit(resource, new) }
}

/// `prlimit`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn prlimit(
    pid: pid_t,
    resource: libc::__rlimit_resource_t,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    before_limit(resource, pid == 0 && !new.is_null());
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::prlimit64(pid, resource, new, old) }
}

/// `prlimit64`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn prlimit64(
    pid: pid_t,
    resource: libc::__rlimit_resource_t,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(pid, resource, new, old) }
}
