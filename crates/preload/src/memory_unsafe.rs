//! C's memory as slices, and the kernel calls that the library makes for itself.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, iovec, pollfd, sigset_t, socklen_t, timespec};
use posix::c_layout::{SOCKADDR_LEN_MAX, to_address};
use posix::{Address, Errno};

use crate::errno_unsafe::told;
use crate::limits::{FDS_MAX, OWN_FDS_FROM, OWN_FDS_MAX, PIECES_MAX};
use crate::marks::{self, Mark};
use crate::{inside, postponed_unsafe, real_unsafe};

/// True if no program has memory there: the first page, and what is beyond a program's addresses.
/// The highest byte of an address may be a tag.
#[inline]
pub fn is_nowhere(at: usize) -> bool {
    ((at << TAG_BITS) as isize) < FIRST_PAGE_BYTES << TAG_BITS
}

/// True beyond a program's addresses, where Linux does not even try.
#[inline]
pub fn is_beyond(at: usize) -> bool {
    ((at << TAG_BITS) as isize) < 0
}

const TAG_BITS: u32 = 8;
const FIRST_PAGE_BYTES: isize = 4096;

/// A slice of C's bytes.
///
/// # Safety
/// The bytes stay readable during the call.
pub unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (is_nowhere(at.addr()), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(at.cast(), len.min(LEN_MAX)) }),
    }
}

/// A mutable slice of C's memory.
///
/// # Safety
/// The memory stays writable, and used by nothing else, during the call.
pub unsafe fn room<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match (is_nowhere(at.addr()), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::FAULT),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(at.cast(), len.min(LEN_MAX)) }),
    }
}

/// Largest number of bytes that one call moves (`MAX_RW_COUNT`).
const LEN_MAX: usize = 0x7fff_f000;

/// Slices of C's `iovec`s.
///
/// # Safety
/// As [`bytes`], for the array and for each piece.
pub unsafe fn pieces<'a>(at: *const iovec, count: usize) -> Result<Vec<IoSlice<'a>>, Errno> {
    // SAFETY: the caller's promise.
    let array = unsafe { array(at, count) }?;
    // SAFETY: the caller's promise.
    let piece = |one: &iovec| Ok(IoSlice::new(unsafe { bytes(one.iov_base, one.iov_len) }?));
    array.iter().map(piece).collect()
}

/// Mutable slices of C's `iovec`s.
///
/// # Safety
/// As [`room`], for each piece.
pub unsafe fn rooms<'a>(at: *const iovec, count: usize) -> Result<Vec<IoSliceMut<'a>>, Errno> {
    // SAFETY: the caller's promise.
    let array = unsafe { array(at, count) }?;
    // SAFETY: the caller's promise.
    let piece = |one: &iovec| Ok(IoSliceMut::new(unsafe { room(one.iov_base, one.iov_len) }?));
    array.iter().map(piece).collect()
}

/// C's pieces of bytes in a message, which may not be more than Linux takes.
///
/// # Safety
/// As [`pieces`].
pub unsafe fn message_pieces<'a>(message: &libc::msghdr) -> Result<Vec<IoSlice<'a>>, Errno> {
    check_message(message)?;
    // SAFETY: the caller's promise.
    unsafe { pieces(message.msg_iov, message.msg_iovlen) }
}

/// C's pieces of room in a message, as [`message_pieces`].
///
/// # Safety
/// As [`rooms`].
pub unsafe fn message_rooms<'a>(message: &libc::msghdr) -> Result<Vec<IoSliceMut<'a>>, Errno> {
    check_message(message)?;
    // SAFETY: the caller's promise.
    unsafe { rooms(message.msg_iov, message.msg_iovlen) }
}

/// The checks of a message's numbers, in Linux's order.
fn check_message(message: &libc::msghdr) -> Result<(), Errno> {
    let has_name = !message.msg_name.is_null();
    match message.msg_iovlen {
        _ if has_name && message.msg_namelen as i32 <= -1 => Err(Errno::INVAL),
        0..=PIECES_MAX => Ok(()),
        _ => Err(Errno::MSGSIZE),
    }
}

unsafe fn array<'a>(at: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    match (count, is_nowhere(at.addr())) {
        (0, _) => Ok(&[]),
        (1..=PIECES_MAX, true) => Err(Errno::FAULT),
        (1..=PIECES_MAX, false) => {
            // SAFETY: the caller's promise.
            let array = unsafe { std::slice::from_raw_parts(at, count) };
            match array.iter().any(|one| one.iov_len > isize::MAX as usize) {
                true => Err(Errno::INVAL),
                false => Ok(array),
            }
        }
        _ => Err(Errno::INVAL),
    }
}

/// A copy of C's value; `None` if the pointer is null.
///
/// # Safety
/// The pointer is null, or points to a value that does not change during the call.
pub unsafe fn value<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: the caller's promise; C need not align it.
    (!is_nowhere(at.addr())).then(|| unsafe { at.read_unaligned() })
}

/// C's value, where null says that there is none.
///
/// # Errors
/// `EFAULT`: nothing is there.
///
/// # Safety
/// As [`value`].
pub unsafe fn optional<T: Copy>(at: *const T) -> Result<Option<T>, Errno> {
    match at.is_null() {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { value(at) }.map(Some).ok_or(Errno::FAULT),
    }
}

/// A copy of C's bytes that the kernel makes, so that a bad address is an error here as well.
///
/// # Errors
/// `EFAULT`: not all of them are there.
///
/// # Safety
/// As [`bytes`], where the kernel forbids such copies.
pub unsafe fn copied(at: *const c_void, len: usize) -> Result<Vec<u8>, Errno> {
    let mut copy = vec![0; len];
    if len == 0 {
        return Ok(copy);
    }
    let to = iovec {
        iov_base: copy.as_mut_ptr().cast(),
        iov_len: len,
    };
    let from = iovec {
        iov_base: at.cast_mut(),
        iov_len: len,
    };
    let pid = std::process::id() as libc::pid_t;
    // SAFETY: room of ours; the kernel checks the other place.
    let read = unsafe { libc::process_vm_readv(pid, &raw const to, 1, &raw const from, 1, 0) };
    match told(read as i64) {
        Ok(count) if count as usize == len => Ok(copy),
        Ok(_) | Err(Errno::FAULT) => Err(Errno::FAULT),
        // SAFETY: the caller's promise.
        Err(_) => unsafe { bytes(at, len) }.map(<[u8]>::to_vec),
    }
}

/// Writes an address and its length, as far as there is room; null: it is not wanted.
///
/// # Safety
/// As for libc's `accept`.
pub unsafe fn put_address(
    address: &[u8],
    at: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<(), Errno> {
    match at.is_null() {
        true => Ok(()),
        // SAFETY: the caller's promise.
        false => unsafe { put_name(address, at, len) },
    }
}

/// Writes an address and its length, as far as there is room.
///
/// # Safety
/// As for libc's `getsockname`.
pub unsafe fn put_name(
    address: &[u8],
    at: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let Some(offered) = (unsafe { value(len) }) else {
        return Err(Errno::FAULT);
    };
    if offered as i32 <= -1 {
        return Err(Errno::INVAL);
    }
    let count = address.len().min(offered as usize);
    if count > 0 && is_nowhere(at.addr()) {
        return Err(Errno::FAULT);
    }
    if count > 0 {
        // SAFETY: the caller's promise: so many bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), at.cast(), count) };
    }
    // SAFETY: the caller's promise.
    unsafe { len.write_unaligned(address.len() as libc::socklen_t) };
    Ok(())
}

/// `ppoll` for the library's own sleeps, in which `pthread_cancel` may end the thread. `mask`:
/// signals that are blocked during the sleep.
pub fn sleep(
    fds: &mut [pollfd],
    left_ns: Option<u64>,
    mask: Option<sigset_t>,
) -> Result<i64, Errno> {
    let time = left_ns.map(|ns| timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a slice of ours, and values that live until it returns.
    told(unsafe { real_unsafe::ppoll(fds.as_mut_ptr(), fds.len() as _, time, mask) }.into())
}

/// `poll` that does not wait, and in which no thread ends.
pub fn look(fds: &mut [pollfd]) -> Result<i64, Errno> {
    let none = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (at, count) = (fds.as_mut_ptr().expose_provenance(), fds.len());
    let time = std::ptr::from_ref(&none).expose_provenance();
    // SAFETY: a slice of ours, and a value that lives until it returns.
    unsafe { by_number(libc::SYS_ppoll, [at, count, time, 0]) }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// glibc's and musl's number: the thread is not cancelled.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Calls `call`, which may not be cut short by the end of a thread that was cancelled.
pub fn uncancelled<T>(call: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: a number of ours.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let value = call();
    // SAFETY: the state from before, and no place for another answer.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    value
}

/// A system call with no function of libc's around it. Those functions end a thread that was
/// cancelled, which must not happen while the lock is held.
///
/// # Safety
/// The promise of the call.
pub unsafe fn by_number(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    told(unsafe { real_unsafe::syscall(number, a, b, c, d, 0, 0) })
}

/// Copies a descriptor to a high number, hidden from the program.
pub fn copy_high(fd: c_int) -> Result<c_int, Errno> {
    with_numbers_beyond_the_limit(|| dup_high(fd))
}

/// Held while a number is taken and marked, and while a range of unmarked numbers is closed. The
/// stack's watchdog may copy descriptors at any time.
static NUMBERS: Mutex<()> = Mutex::new(());

/// Keeps other threads from taking high numbers. The thread is inside the library meanwhile, so
/// that no handler of a signal waits for the numbers.
pub struct NumbersHeld {
    guard: Option<MutexGuard<'static, ()>>,
    was_inside: bool,
}

impl Drop for NumbersHeld {
    fn drop(&mut self) {
        drop(self.guard.take());
        inside::set(self.was_inside);
        if !self.was_inside {
            postponed_unsafe::lock_is_free();
        }
    }
}

/// Holds the numbers while the guard lives.
pub fn hold_numbers() -> NumbersHeld {
    let was_inside = inside::is_inside();
    inside::set(true);
    NumbersHeld {
        guard: Some(NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)),
        was_inside,
    }
}

fn dup_high(fd: c_int) -> Result<c_int, Errno> {
    let _held = hold_numbers();
    for from in [OWN_FDS_FROM as usize, 64] {
        // SAFETY: it takes numbers alone.
        let copy = told(unsafe { real_unsafe::fcntl64(fd, libc::F_DUPFD_CLOEXEC, from) }.into());
        if let Ok(copy) = copy {
            marks::set(copy as c_int, Mark::Own);
            return Ok(copy as c_int);
        }
    }
    Err(Errno::MFILE)
}

/// Opens descriptors although the program may have lowered its limit: raises the limit, and
/// restores it afterwards. Open descriptors stay open. The program's own calls obey the limit as
/// before.
fn with_numbers_beyond_the_limit<T>(open: impl FnOnce() -> T) -> T {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(OWN_FDS_MAX, |hard| hard.min(OWN_FDS_MAX));
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return open();
    }
    let raised = rustix::process::Rlimit {
        current: Some(wanted),
        ..limit
    };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    let opened = open();
    if is_raised {
        // A limit may always be lowered, so this does not fail.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    opened
}

/// Closes the library's descriptors in a child of `fork`, which are copies of the parent's, except
/// those `kept`.
pub fn close_own(kept: [Option<RawFd>; 2]) {
    for (fd, mark) in marks::marked(0, u32::MAX) {
        if mark == Mark::Own && !kept.contains(&Some(fd)) {
            marks::set(fd, Mark::Kernel);
            // If the parent has closed the number meanwhile, this close fails, which does not
            // matter.
            let _ = close(fd);
        }
    }
    // The bell is closed by now, and its number may soon be used again.
    let _ = BELL.try_with(|bell| std::mem::forget(bell.take()));
}

/// Opens descriptors with high numbers, hidden from the program: all free numbers below
/// [`OWN_FDS_FROM`] are occupied meanwhile.
pub fn with_high_numbers<T>(open: impl FnOnce() -> T) -> T {
    with_numbers_beyond_the_limit(|| with_low_numbers_taken(open))
}

fn with_low_numbers_taken<T>(open: impl FnOnce() -> T) -> T {
    let mut fillers = Vec::new();
    if let Ok(filler) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
        // SAFETY: it takes numbers alone.
        while let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(&filler, 0) {
            let is_high = std::os::fd::AsRawFd::as_raw_fd(&fd) >= OWN_FDS_FROM;
            fillers.push(fd);
            if is_high {
                break;
            }
        }
        fillers.push(filler);
    }
    // The last filler occupies a high number itself.
    let before = open_fds();
    let opened = open();
    let after = open_fds();
    drop(fillers);
    // Other threads of the program may open files at any time. A low number that is new is theirs,
    // and so is a file: hidden, it could not be closed.
    let is_own = |fd: &RawFd| *fd >= OWN_FDS_FROM && !before.contains(fd) && !is_programs_file(*fd);
    for fd in after.into_iter().filter(is_own) {
        // The watchdog may have closed a copy of its own meanwhile. Marking before checking leaves
        // no mark on a number that is free.
        marks::set(fd, Mark::Own);
        if !is_open(fd) {
            marks::set(fd, Mark::Kernel);
        }
    }
    opened
}

/// True for a file that another thread has opened meanwhile. The library itself opens no files with
/// names but those of devices, of the kernel's settings, and in its own directory.
fn is_programs_file(fd: RawFd) -> bool {
    const OWN: [&str; 5] = ["/dev/", "/proc/", "/sys/", "/run/millstream", "/memfd:"];
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    name.is_absolute()
        && !OWN
            .iter()
            .any(|own| name.to_string_lossy().starts_with(own))
}

/// Descriptors that the process's table has room for: those beyond are not open.
pub fn table_size() -> usize {
    let read = || std::fs::read_to_string("/proc/self/status");
    let status = uncancelled(read).unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.and_then(|size| size.trim().parse().ok())
        .unwrap_or(FDS_MAX)
}

/// All open descriptors.
pub fn open_fds() -> Vec<RawFd> {
    uncancelled(listed_fds)
}

fn listed_fds() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        // A process that has changed its user may not read `/proc/self/fd`.
        return (0..FDS_MAX as RawFd).filter(|&fd| is_open(fd)).collect();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let fds: Vec<RawFd> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    // The descriptor of the directory itself is closed by now.
    fds.into_iter().filter(|&fd| is_open(fd)).collect()
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: it takes numbers alone.
    unsafe { real_unsafe::fcntl64(fd, libc::F_GETFD, 0) != -1 }
}

/// A TCP socket of the kernel's that is never used: its copies keep descriptor numbers.
pub fn tcp_socket() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: it takes numbers alone.
    let fd = told(unsafe { real_unsafe::socket(libc::AF_INET, kind, 0) }.into())?;
    // SAFETY: a descriptor that was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Closes a kernel descriptor.
pub fn close(fd: c_int) -> Result<i64, Errno> {
    // SAFETY: it takes a number alone. The caller owns the descriptor.
    unsafe { by_number(libc::SYS_close, [fd as usize, 0, 0, 0]) }
}

/// `fcntl` with a numeric argument.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<i64, Errno> {
    // SAFETY: the callers name commands that take numbers alone.
    told(unsafe { real_unsafe::fcntl64(fd, command, argument) }.into())
}

/// Rings a thread's bell, which ends its sleep.
pub fn ring(bell: c_int) {
    let one = 1_u64;
    let at = std::ptr::from_ref(&one).expose_provenance();
    // SAFETY: eight bytes of ours. If the counter is full, the bell was rung before.
    let _ = unsafe { by_number(libc::SYS_write, [bell as usize, at, 8, 0]) };
}

/// Resets a thread's bell.
pub fn silence(bell: c_int) {
    let mut count = 0_u64;
    let at = std::ptr::from_mut(&mut count).expose_provenance();
    // SAFETY: eight bytes of ours. `EAGAIN` means that the bell was not rung.
    let _ = unsafe { by_number(libc::SYS_read, [bell as usize, at, 8, 0]) };
}

/// A thread's bell: an eventfd that wakes its sleep. Threads that are about to ring a bell share
/// it, so its number stays the bell's until they have.
pub struct Bell(c_int);

impl Bell {
    /// The bell's descriptor.
    pub fn fd(&self) -> c_int {
        self.0
    }

    /// A bell that nobody hears.
    #[cfg(test)]
    pub fn silent(number: c_int) -> Arc<Self> {
        Arc::new(Self(number))
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        marks::set(self.0, Mark::Kernel);
        // An error of the close cannot be handled.
        let _ = close(self.0);
    }
}

thread_local! {
    static BELL: RefCell<Option<(u32, Arc<Bell>)>> = const { RefCell::new(None) };
    /// Bells to ring once this thread has released the engine's lock.
    static DUE: RefCell<Vec<Arc<Bell>>> = const { RefCell::new(Vec::new()) };
}

/// Rings a bell once this thread has released the engine's lock ([`ring_due`]), so that the thread
/// that wakes finds the lock free.
pub fn ring_later(bell: &Arc<Bell>) {
    let noted = DUE.try_with(|due| due.borrow_mut().push(bell.clone()));
    // A thread that ends has no thread-local storage any more.
    if noted.is_err() {
        ring(bell.fd());
    }
}

/// Rings the bells of [`ring_later`].
#[inline]
pub fn ring_due() {
    let _ = DUE.try_with(|due| {
        let mut due = due.borrow_mut();
        due.drain(..).for_each(|bell| ring(bell.fd()));
    });
}

/// This thread's bell. A child of `fork` gets a new one.
pub fn bell() -> Result<Arc<Bell>, Errno> {
    let pid = std::process::id();
    let kept = BELL.try_with(|bell| match &*bell.borrow() {
        Some((of, bell)) if *of == pid => Some(bell.clone()),
        _ => None,
    });
    if let Ok(Some(bell)) = kept {
        return Ok(bell);
    }
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let high = with_numbers_beyond_the_limit(|| {
        let low = rustix::event::eventfd(0, flags)?;
        dup_high(std::os::fd::AsRawFd::as_raw_fd(&low))
    })?;
    let bell = Arc::new(Bell(high));
    let stored = BELL.try_with(|kept| kept.replace(Some((pid, bell.clone()))));
    match stored {
        Ok(_) => Ok(bell),
        Err(_) => Err(Errno::NOMEM),
    }
}

/// The name of this thread, padded with zeros.
fn thread_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: it writes sixteen bytes at most.
    let _ = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// True in a thread of the library's, which has its name before it calls anything. The first call
/// notes the answer, so that copies of the program's descriptors cost no system call more.
pub fn is_own_thread() -> bool {
    thread_local! {
        static IS_OWN: std::cell::OnceCell<bool> = const { std::cell::OnceCell::new() };
    }
    let noted =
        IS_OWN.try_with(|is_own| *is_own.get_or_init(|| thread_name().starts_with(b"millstream")));
    noted.unwrap_or(false)
}

/// Raises `SIGPIPE` in this thread, as Linux does for a write to a socket that was shut.
pub fn sigpipe() {
    // SAFETY: a signal to this thread.
    let _ = unsafe { libc::raise(libc::SIGPIPE) };
}

/// The position of a file. A pipe has none, which is `EINVAL` to the calls that ask for it here.
pub fn position(fd: c_int) -> Result<i64, Errno> {
    // SAFETY: it takes numbers alone.
    told(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).map_err(|errno| match errno {
        Errno::SPIPE => Errno::INVAL,
        errno => errno,
    })
}

/// Sets the read position of a file.
pub fn move_to(fd: c_int, position: i64) -> Result<(), Errno> {
    // SAFETY: it takes numbers alone.
    told(unsafe { libc::lseek(fd, position, libc::SEEK_SET) }).map(|_| ())
}

/// Lends a descriptor of the program to a call.
pub fn with_borrowed<T>(fd: c_int, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the caller holds the lock, and the number is that of a socket of the program. If the
    // program closes it in another thread, the kernel refuses the call or uses another file, which
    // the service will not accept.
    call(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// True if the kernel's socket listens.
pub fn is_listening(fd: c_int) -> bool {
    with_borrowed(fd, |socket| rustix::net::sockopt::socket_acceptconn(socket)) == Ok(true)
}

/// Sets an option of a kernel socket.
pub fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let len = value.len() as socklen_t;
    // SAFETY: bytes of ours, and their length.
    let set = unsafe { real_unsafe::setsockopt(fd, level, name, value.as_ptr().cast(), len) };
    told(set.into()).map(|_| ())
}

/// Replaces a descriptor by a copy of another one, which `exec` closes if it closes the first.
pub fn copy_onto(from: c_int, to: c_int) -> Result<(), Errno> {
    let flags = match fcntl(to, libc::F_GETFD, 0)? & i64::from(libc::FD_CLOEXEC) {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: it takes numbers alone.
    told(unsafe { real_unsafe::dup3(from, to, flags) }.into()).map(|_| ())
}

/// The number that tells a kernel socket from all others.
pub fn cookie(fd: c_int) -> Option<u64> {
    with_borrowed(fd, |socket| rustix::net::sockopt::socket_cookie(socket)).ok()
}

/// True if the kernel's socket has a peer.
pub fn is_connected(fd: c_int) -> bool {
    with_borrowed(fd, |socket| rustix::net::getpeername(socket)).is_ok()
}

/// The local address of a kernel socket.
pub fn kernel_name(fd: c_int) -> Result<SocketAddr, Errno> {
    let mut bytes = [0_u8; SOCKADDR_LEN_MAX];
    let mut len = bytes.len() as socklen_t;
    // SAFETY: room of ours, and its length.
    told(unsafe { real_unsafe::getsockname(fd, bytes.as_mut_ptr().cast(), &raw mut len) }.into())?;
    match to_address(&bytes[..(len as usize).min(SOCKADDR_LEN_MAX)]) {
        Address::Inet(name) => Ok(name),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_holds_the_numbers_postpones_signals() {
        let held = hold_numbers();
        assert!(inside::is_inside());
        drop(held);
        assert!(!inside::is_inside());
    }

    #[test]
    fn bell_to_ring_later_is_silent_until_the_lock_is_free() {
        let bell = bell().expect("an eventfd");
        let is_rung = || {
            let mut fds = [pollfd {
                fd: bell.fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            look(&mut fds) == Ok(1)
        };
        ring_later(&bell);
        assert!(!is_rung());
        ring_due();
        assert!(is_rung());
        silence(bell.fd());
        ring_due();
        assert!(!is_rung());
    }
}
