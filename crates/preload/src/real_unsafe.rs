//! libc's functions behind those that are exported here. The constructor finds them with
//! `dlsym(RTLD_NEXT)`; if another library's constructor comes first, the first call does.

use std::ffi::CStr;

use libc::{
    c_char, c_int, c_long, c_uint, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t,
    off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use ring::published::Published64;

/// A function of libc's.
struct Real {
    name: &'static CStr,
    at: Published64,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            at: Published64::new(0),
        }
    }

    #[inline]
    fn get(&self) -> Option<usize> {
        match self.at.load() {
            0 => self.resolve(),
            at => Some(at as usize),
        }
    }

    #[cold]
    fn resolve(&self) -> Option<usize> {
        // SAFETY: a string that ends, and libc's own handle.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        self.at.store(at as u64);
        (at != 0).then_some(at)
    }
}

/// Sets `errno` for a function that this libc does not have.
fn missing() {
    // SAFETY: libc's own place for this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

macro_rules! reals {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $ret:ty;)*) => {
        mod at {
            $(#[allow(non_upper_case_globals)]
            pub static $name: super::Real = {
                const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                super::Real::new(NAME)
            };)*
        }

        $(/// libc's.
        ///
        /// # Safety
        /// As libc's.
        #[inline]
        pub unsafe fn $name($($arg: $kind),*) -> $ret {
            let Some(at) = at::$name.get() else {
                missing();
                return -1 as $ret;
            };
            type Function = unsafe extern "C-unwind" fn($($kind),*) -> $ret;
            // SAFETY: libc has a function of this type by this name.
            let real = unsafe { std::mem::transmute::<usize, Function>(at) };
            // SAFETY: the caller's promise.
            unsafe { real($($arg),*) }
        })*

        /// Finds all functions.
        pub fn resolve_all() {
            $(at::$name.get();)*
        }
    };
}

reals! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t;
    write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, at: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> ssize_t;
    sendto(fd: c_int, at: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addrlen: socklen_t) -> ssize_t;
    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    pread64(fd: c_int, at: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    pwrite64(fd: c_int, at: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    sendfile64(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_pwait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl(fd: c_int, request: usize, argument: usize) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    system(line: *const c_char) -> c_int;
    popen(line: *const c_char, mode: *const c_char) -> isize;
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    posix_spawnp(pid: *mut libc::pid_t, file: *const c_char, actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    dup2(from: c_int, to: c_int) -> c_int;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    chroot(path: *const c_char) -> c_int;
    setrlimit64(resource: libc::__rlimit_resource_t, new: *const libc::rlimit64) -> c_int;
    prlimit64(pid: libc::pid_t, resource: libc::__rlimit_resource_t, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> c_int;
    daemon(keeps_directory: c_int, keeps_files: c_int) -> c_int;
    fdopen(fd: c_int, mode: *const c_char) -> isize;
    fileno(stream: *mut libc::FILE) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
}

/// libc's `_exit`, which does not return.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: the system call that ends the process; libc's function of that name is ours here.
    unsafe { syscall(libc::SYS_exit_group, status as usize, 0, 0, 0, 0, 0) };
    loop {
        std::hint::spin_loop();
    }
}

/// True if the program has, or had, more than one thread, or if libc does not tell.
pub fn has_threads() -> bool {
    static SINGLE: Real = Real::new(c"__libc_single_threaded");
    match SINGLE.get() {
        // SAFETY: a character of libc's by this name.
        Some(at) => unsafe { *(at as *const c_char) == 0 },
        None => true,
    }
}

unsafe extern "C" {
    #[link_name = "environ"]
    static ENVIRON: *const *const c_char;
}

/// libc's environment.
pub fn environ() -> *const *const c_char {
    // SAFETY: libc has this variable.
    unsafe { ENVIRON }
}

/// The value of an environment variable, without Rust's lock on the environment.
pub fn environment(name: &CStr) -> Option<String> {
    // SAFETY: a string that ends; the answer is copied at once.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: libc's strings end.
    let value = unsafe { CStr::from_ptr(value) };
    value.to_str().ok().map(str::to_owned)
}
