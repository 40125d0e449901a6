//! `exec`: passes the listeners, and the library with its settings, to the next program.
//!
//! A sealed memory file holds the listeners. The next program inherits the file and the socket of
//! the family; an environment variable names both. Connections, and listeners of which the next
//! program gets the kernel's part, have tags ([`tags`]), also for `posix_spawn`, `system`, `popen`
//! and children of `vfork`. The programs that these start find listeners of a `mux` wire by their
//! specifications ([`rights_unsafe`]), and the socket of the family by the variable.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;

use libc::{c_char, c_int};
use posix::Errno;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::family::{self, Family};
use crate::handover::{self, Inherited};
use crate::limits::VFORK_VARIABLES_MAX;
use crate::marks::{self, Mark};
use crate::sharing;
use crate::{config, engine, log, memory_unsafe, own_process, real_unsafe, rights_unsafe};

/// The variable with the numbers of the memory file and the family's socket.
const STATE: &CStr = family::STATE;
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
    let unknown = memory_unsafe::open_fds().into_iter();
    rights_unsafe::take_over(unknown.filter(|fd| marks::of(*fd) == Mark::Kernel));
}

fn take_over_listeners() {
    let Some(state) = real_unsafe::environment(STATE) else {
        return;
    };
    // SAFETY: the constructor runs before the program has threads.
    unsafe { libc::unsetenv(STATE.as_ptr()) };
    let taken = state.split_once(',').and_then(|(file, family)| {
        let file = match file {
            "-" => None,
            file => Some(file.parse().ok()?),
        };
        take_over(file, family.parse().ok()?)
    });
    if taken.is_none() {
        log::once("the listeners of the program before `exec` are lost");
    }
}

fn take_over(file: Option<c_int>, family: c_int) -> Option<()> {
    for fd in file.into_iter().chain([family]) {
        memory_unsafe::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize).ok()?;
    }
    // SAFETY: it is open, and the program before this one left it to the library.
    let family = unsafe { OwnedFd::from_raw_fd(family) };
    marks::set(family.as_raw_fd(), Mark::Own);
    packetio::mux::join_family(family);
    family::note();
    if let Some(file) = file {
        // SAFETY: as above.
        let mut file = File::from(unsafe { OwnedFd::from_raw_fd(file) });
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        engine::inherit(handover::parse(&text)?);
    }
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

/// C's environment in an array.
struct Environment<'a> {
    room: &'a mut [*const c_char],
    len: usize,
}

impl<'a> Environment<'a> {
    fn new(room: &'a mut [*const c_char]) -> Self {
        Self { room, len: 0 }
    }

    fn push(&mut self, variable: *const c_char) -> Option<()> {
        *self.room.get_mut(self.len)? = variable;
        self.len += 1;
        Some(())
    }

    /// Writes a program's environment, with the variables that the library needs. `None`: it is too
    /// long. Neither locks nor allocates.
    ///
    /// # Safety
    /// An array of strings that ends with a null pointer, or a null pointer.
    unsafe fn fill(&mut self, envp: *const *const c_char, state: Option<&CStr>) -> Option<()> {
        let mut at = envp;
        // SAFETY: the caller's promise: a null pointer ends the array.
        while !at.is_null() && !unsafe { *at }.is_null() {
            // SAFETY: the caller's promise: strings that end.
            let variable = unsafe { CStr::from_ptr(*at) };
            if name(variable) != b"MILLSTREAM_STATE=" {
                self.push(variable.as_ptr())?;
            }
            // SAFETY: the end was not reached.
            at = unsafe { at.add(1) };
        }
        for variable in KEPT.get().map_or(&[][..], Vec::as_slice) {
            let has = |other: &*const c_char| {
                // SAFETY: strings of the array above.
                name(unsafe { CStr::from_ptr(*other) }) == name(variable)
            };
            if !self.room[..self.len].iter().any(has) {
                self.push(variable.as_ptr())?;
            }
        }
        if let Some(state) = state {
            self.push(state.as_ptr())?;
        }
        self.push(std::ptr::null())
    }
}

/// C's environment, with the variables that the library needs.
///
/// # Safety
/// As for [`Environment::fill`].
unsafe fn with_kept(envp: *const *const c_char, state: Option<&CStr>) -> Vec<*const c_char> {
    let mut count = 0;
    // SAFETY: the caller's promise: a null pointer ends the array.
    while !envp.is_null() && !unsafe { *envp.add(count) }.is_null() {
        count += 1;
    }
    let kept = KEPT.get().map_or(0, Vec::len);
    let mut all = vec![std::ptr::null(); count + kept + 2];
    // SAFETY: the caller's promise. There is room for all of it.
    let _ = unsafe { Environment::new(&mut all).fill(envp, state) };
    all
}

/// Starts another program in this process by `exec`, which gets the environment.
///
/// # Safety
/// An array of strings that ends with a null pointer, or a null pointer.
unsafe fn pass_on(
    envp: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if engine::settings().is_none() || engine::is_inside() {
        return exec(envp);
    }
    sharing::before_exec(false);
    if own_process::is_vforked() {
        // A child of `vfork` must not allocate.
        let mut room = [std::ptr::null(); VFORK_VARIABLES_MAX];
        let family = family::get().filter(|family| keep_open(family.fd).is_ok());
        let variable = family.map(|family| family.variable.as_c_str());
        let mut environment = Environment::new(&mut room);
        // SAFETY: the caller's promise.
        return match unsafe { environment.fill(envp, variable) } {
            Some(()) => exec(room.as_ptr()),
            // The next program gets no listeners of a `mux` wire.
            None => exec(envp),
        };
    }
    let state = memory_unsafe::uncancelled(state);
    // SAFETY: the caller's promise.
    let environment = unsafe { with_kept(envp, state.as_ref().map(|state| &*state.variable)) };
    exec(environment.as_ptr())
}

/// Lets `exec` leave a descriptor open.
fn keep_open(fd: RawFd) -> Result<i64, Errno> {
    memory_unsafe::fcntl(fd, libc::F_SETFD, 0)
}

/// `execve`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, and an environment that lives until the call fails.
    unsafe { pass_on(envp, |envp| real_unsafe::execve(path, argv, envp)) }
}

/// `execv`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execve(path, argv, real_unsafe::environ()) }
}

/// `execvpe`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, and an environment that lives until the call fails.
    unsafe { pass_on(envp, |envp| real_unsafe::execvpe(file, argv, envp)) }
}

/// `execvp`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise, and libc's own environment.
    unsafe { execvpe(file, argv, real_unsafe::environ()) }
}

/// `fexecve`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fexecve(
    fd: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, and an environment that lives until the call fails.
    unsafe { pass_on(envp, |envp| real_unsafe::fexecve(fd, argv, envp)) }
}

/// `execveat`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execveat(
    directory: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    let exec = |envp: *const *const c_char| {
        let (path, argv) = (path.expose_provenance(), argv.expose_provenance());
        let (directory, flags) = (directory as usize, flags as usize);
        let envp = envp.expose_provenance();
        // SAFETY: the caller's promise, and an environment that lives until the call fails.
        let failed = unsafe {
            real_unsafe::syscall(libc::SYS_execveat, directory, path, argv, envp, flags, 0)
        };
        failed as c_int
    };
    // SAFETY: the caller's promise.
    unsafe { pass_on(envp, exec) }
}

/// Before a program is spawned. Actions on files may copy descriptors that `exec` closes.
fn before_spawn(has_actions: bool) {
    if engine::settings().is_some() && !engine::is_inside() {
        sharing::before_exec(has_actions);
    }
}

/// Spawns another program, which gets the environment.
///
/// # Safety
/// As for [`pass_on`].
unsafe fn spawn(
    has_actions: bool,
    envp: *const *const c_char,
    spawn: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    before_spawn(has_actions);
    if family::get().is_none() || engine::is_inside() || own_process::is_vforked() {
        return spawn(envp);
    }
    // The new program gets a copy, since `exec` closes the first one.
    let copy = packetio::mux::family().and_then(|family| {
        let copy = rustix::io::fcntl_dupfd_cloexec(family, crate::limits::OWN_FDS_FROM).ok()?;
        keep_open(copy.as_raw_fd()).ok()?;
        Some(copy)
    });
    let family = copy
        .as_ref()
        .and_then(|copy| Family::named(copy.as_raw_fd()));
    let variable = family.as_ref().map(|family| &*family.variable);
    // SAFETY: the caller's promise.
    let environment = unsafe { with_kept(envp, variable) };
    spawn(environment.as_ptr())
}

/// `posix_spawn`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, and an environment that lives until the call ends.
    let real =
        |envp| unsafe { real_unsafe::posix_spawn(pid, path, actions, attributes, argv, envp) };
    // SAFETY: the caller's promise.
    unsafe { spawn(!actions.is_null(), envp, real) }
}

/// `posix_spawnp`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, and an environment that lives until the call ends.
    let real =
        |envp| unsafe { real_unsafe::posix_spawnp(pid, file, actions, attributes, argv, envp) };
    // SAFETY: the caller's promise.
    unsafe { spawn(!actions.is_null(), envp, real) }
}

/// `system`. Its program gets connections and listeners as one of `posix_spawn` does, but none of a
/// `mux` wire, since libc makes the environment.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn system(line: *const c_char) -> c_int {
    before_spawn(false);
    // SAFETY: the caller's promise.
    unsafe { real_unsafe::system(line) }
}

/// `popen`, as [`system`].
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn popen(line: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    before_spawn(false);
    // SAFETY: the caller's promise.
    let stream = unsafe { real_unsafe::popen(line, mode) };
    // Without the function, the answer is that of an error.
    match stream {
        -1 => std::ptr::null_mut(),
        stream => stream as *mut libc::FILE,
    }
}
