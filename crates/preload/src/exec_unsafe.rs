//! `exec`: passes the listeners, and the library with its settings, to the next program.
//!
//! A sealed memory file holds the listeners. The next program inherits the file and the socket of
//! the family; an environment variable names both. `execl` and its relatives are not intercepted:
//! they call the kernel inside libc. Connections, and listeners of which the next program gets the
//! kernel's part, have tags ([`tags_unsafe`]), also for `posix_spawn` and children of `vfork`.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::OnceLock;

use libc::{c_char, c_int};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::handover::{self, Inherited};
use crate::marks::{self, Mark};
use crate::{config, engine, log, memory_unsafe, own_process, real_unsafe, sharing, tags_unsafe};

/// The variable with the numbers of the memory file and the family's socket.
const STATE: &CStr = c"MILLSTREAM_STATE";
const PRELOAD: &CStr = c"LD_PRELOAD";

/// Variables that the next program needs, with the values that this program got.
static KEPT: OnceLock<Vec<CString>> = OnceLock::new();

/// Keeps the variables that `mill run` has set, and takes over listeners from the program before
/// `exec`.
pub fn begin() {
    let kept = [PRELOAD, config::VARIABLE].into_iter().filter_map(|name| {
        let value = real_unsafe::environment(name)?;
        CString::new(format!("{}={value}", name.to_str().ok()?)).ok()
    });
    // Set once, by the constructor.
    let _ = KEPT.set(kept.collect());
    take_over_listeners();
    for fd in memory_unsafe::open_fds() {
        if marks::of(fd) == Mark::Kernel
            && let Some(tag) = tags_unsafe::read(fd)
        {
            engine::add_strange(fd, tag);
        }
    }
}

fn take_over_listeners() {
    let Some(state) = real_unsafe::environment(STATE) else {
        return;
    };
    // SAFETY: the constructor runs before the program has threads.
    unsafe { libc::unsetenv(STATE.as_ptr()) };
    let taken = state.split_once(',').and_then(|(file, family)| {
        let (file, family) = (file.parse().ok()?, family.parse().ok()?);
        take_over(file, family)
    });
    if taken.is_none() {
        log::once("the listeners of the program before `exec` are lost");
    }
}

fn take_over(file: c_int, family: c_int) -> Option<()> {
    for fd in [file, family] {
        memory_unsafe::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize).ok()?;
    }
    // SAFETY: both are open, and the program before this one left them to the library.
    let (file, family) = unsafe { (OwnedFd::from_raw_fd(file), OwnedFd::from_raw_fd(family)) };
    marks::set(family.as_raw_fd(), Mark::Own);
    packetio::mux::join_family(family);
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).ok()?;
    let inherited = handover::parse(&text)?;
    engine::inherit(inherited);
    Some(())
}

/// The state for the next program; dropped if `exec` fails.
struct State {
    _file: OwnedFd,
    _family: OwnedFd,
    variable: CString,
}

/// Listeners whose descriptors stay open across `exec`.
fn inheritable() -> Vec<Inherited> {
    let all = engine::locked(|engine| Ok(engine.inheritable()));
    let stays = |(fd, _, _): &Inherited| {
        let flags = memory_unsafe::fcntl(*fd, libc::F_GETFD, 0);
        flags.is_ok_and(|flags| flags & i64::from(libc::FD_CLOEXEC) == 0)
    };
    all.unwrap_or_default().into_iter().filter(stays).collect()
}

fn state() -> Option<State> {
    // A program without listeners may still receive some from its family over a UNIX socket.
    let family = packetio::mux::family()?;
    let listeners = inheritable();
    let text: String = listeners.iter().map(handover::line).collect();
    let made = || {
        let file = memfd_create("millstream-exec", MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes())?;
        std::io::Seek::rewind(&mut file)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let from = crate::limits::OWN_FDS_FROM;
        let high = |fd| rustix::io::fcntl_dupfd_cloexec(fd, from);
        let copies = (high(file.as_fd())?, high(family)?);
        for fd in [&copies.0, &copies.1] {
            fcntl_setfd(fd, fcntl_getfd(fd)? - FdFlags::CLOEXEC)?;
        }
        Ok::<_, std::io::Error>(copies)
    };
    let made = made().map_err(|error| {
        log::once(&format!(
            "exec: {error}: the next program does not find its listeners"
        ));
    });
    let (file, family) = made.ok()?;
    let (at, of) = (file.as_raw_fd(), family.as_raw_fd());
    let name = STATE.to_str().ok()?;
    Some(State {
        variable: CString::new(format!("{name}={at},{of}")).ok()?,
        _file: file,
        _family: family,
    })
}

/// The name of a variable, including the `=`.
fn name(variable: &CStr) -> &[u8] {
    let bytes = variable.to_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=');
    &bytes[..end.map_or(bytes.len(), |end| end + 1)]
}

/// C's environment, with the variables that the library needs.
unsafe fn with_kept(envp: *const *const c_char, state: Option<&State>) -> Vec<*const c_char> {
    let kept = KEPT.get().map_or(&[][..], Vec::as_slice);
    let mut all = Vec::new();
    let mut at = envp;
    // SAFETY: the caller's promise: a null pointer ends the array.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: the caller's promise: strings that end.
        let variable = unsafe { CStr::from_ptr(*at) };
        if name(variable) != b"MILLSTREAM_STATE=" {
            all.push(variable.as_ptr());
        }
        // SAFETY: the end was not reached.
        at = unsafe { at.add(1) };
    }
    for variable in kept {
        // SAFETY: strings of the array above.
        let has = |other: &*const c_char| name(unsafe { CStr::from_ptr(*other) }) == name(variable);
        if !all.iter().any(has) {
            all.push(variable.as_ptr());
        }
    }
    all.extend(state.map(|state| state.variable.as_ptr()));
    all.push(std::ptr::null());
    all
}

/// `execve`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    if engine::settings().is_none() || engine::is_inside() {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::execve(path, argv, envp) };
    }
    sharing::before_exec(false);
    if own_process::is_vforked() {
        // A child of `vfork` must not allocate. Its program gets no listeners of a `mux` wire.
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::execve(path, argv, envp) };
    }
    let state = state();
    // SAFETY: the caller's promise.
    let environment = unsafe { with_kept(envp, state.as_ref()) };
    // SAFETY: the caller's promise, and an environment that lives until the call fails.
    unsafe { real_unsafe::execve(path, argv, environment.as_ptr()) }
}

/// `execv`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execve(path, argv, real_unsafe::environ()) }
}

/// `execvpe`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    if engine::settings().is_none() || engine::is_inside() {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::execvpe(file, argv, envp) };
    }
    sharing::before_exec(false);
    if own_process::is_vforked() {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::execvpe(file, argv, envp) };
    }
    let state = state();
    // SAFETY: the caller's promise.
    let environment = unsafe { with_kept(envp, state.as_ref()) };
    // SAFETY: the caller's promise, and an environment that lives until the call fails.
    unsafe { real_unsafe::execvpe(file, argv, environment.as_ptr()) }
}

/// `execvp`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execvpe(file, argv, real_unsafe::environ()) }
}

/// Before a program is spawned. Actions on files may copy descriptors that `exec` closes.
fn before_spawn(has_actions: bool) {
    if engine::settings().is_some() && !engine::is_inside() {
        sharing::before_exec(has_actions);
    }
}

/// `posix_spawn`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    before_spawn(!actions.is_null());
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::posix_spawn(pid, path, actions, attributes, argv, envp) }
}

/// `posix_spawnp`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    before_spawn(!actions.is_null());
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::posix_spawnp(pid, file, actions, attributes, argv, envp) }
}
