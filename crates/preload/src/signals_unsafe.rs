//! Signal handlers of the program, each called through [`deliver`], so that the library knows which
//! one ran.
//!
//! This serves two purposes. A handler that comes while its thread holds the engine's lock is
//! postponed until the lock is free, so that it may make any call. A handler that comes before or
//! during a sleep ends the call, or not, according to the flags with which it was installed.
//!
//! Signals that the processor raises (`SIGSEGV` and the like) are not intercepted: they cannot be
//! postponed, and runtimes check that their own handler is installed.
//!
//! ```text
//!  signal ─▶ deliver ─┬─ lock held: queued again and blocked ─▶ locked() ends ─▶ unblock ─▶ deliver
//!                     └─ otherwise: handler; note what ran, ring the bell of a sleep that begins
//! ```

use std::cell::Cell;

use libc::{c_int, c_void, sighandler_t, siginfo_t, ucontext_t};
use ring::published::Published64;

use crate::limits::SIGNALS_MAX;
use crate::postponed_unsafe::{self, bit, unblock};
use crate::{errno_unsafe, inside, memory_unsafe, own_process, real_unsafe};

/// The program's handler of each signal with the flags of [`KEPT`], packed. 0: the kernel has the
/// handler that the program installed.
static HANDLERS: [Published64; SIGNALS_MAX + 1] = [const { Published64::new(0) }; SIGNALS_MAX + 1];
/// Signals for which `siginterrupt` made `signal` install handlers that end calls.
static ENDING: Published64 = Published64::new(0);

/// Flags that the kernel does not get as the program gave them.
const KEPT: [c_int; 4] = [
    libc::SA_SIGINFO,
    libc::SA_NODEFER,
    libc::SA_RESETHAND,
    libc::SA_RESTART,
];

/// Handlers that ran in this thread since its call began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ran {
    /// At least one handler ran.
    pub any: bool,
    /// At least one handler without `SA_RESTART` ran.
    pub ends: bool,
}

const NONE: Ran = Ran {
    any: false,
    ends: false,
};

thread_local! {
    static RAN: Cell<Ran> = const { Cell::new(NONE) };
    /// The bell of the sleep that this thread begins or is in; -1: none.
    static BELL: Cell<c_int> = const { Cell::new(-1) };
    /// The signal stack on which a handler last ran: its address and its bytes.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Begins a call.
#[inline]
pub fn begin() {
    RAN.set(NONE);
}

/// Begins a sleep, which a handler ends by ringing `bell`. Returns the handlers that ran before.
pub fn sleep_begins(bell: c_int) -> Ran {
    BELL.set(bell);
    RAN.get()
}

/// Ends a sleep. Returns the handlers that ran since the call began.
pub fn sleep_ended() -> Ran {
    BELL.set(-1);
    RAN.replace(NONE)
}

/// True if a frame of this thread lies on the stack of signal handlers.
pub fn is_on_signal_stack(frame: usize) -> bool {
    let (from, bytes) = STACK.get();
    frame.wrapping_sub(from) < bytes
}

/// Notes the signal stack on which the handler with this context runs, if it has one.
unsafe fn note_stack(context: *const ucontext_t) {
    // SAFETY: the kernel's frame. It holds the stack also if the kernel disarms it meanwhile.
    let stack = unsafe { (*context).uc_stack };
    let (from, bytes) = (stack.ss_sp.addr(), stack.ss_size);
    if context.addr().wrapping_sub(from) < bytes {
        STACK.set((from, bytes));
    }
}

fn pack(handler: sighandler_t, flags: c_int) -> u64 {
    let given = KEPT.iter().enumerate();
    let given = given.filter(|(_, flag)| flags & **flag != 0);
    given.fold((handler as u64) << KEPT.len(), |all, (at, _)| all | 1 << at)
}

fn unpack(packed: u64) -> (sighandler_t, c_int) {
    let given = KEPT.iter().enumerate();
    let given = given.filter(|(at, _)| packed & 1 << at != 0);
    let flags = given.fold(0, |all, (_, flag)| all | flag);
    ((packed >> KEPT.len()) as sighandler_t, flags)
}

/// The handler's entry; `None`: the signal is not intercepted.
fn place(signal: c_int) -> Option<&'static Published64> {
    let is_raised = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS
    );
    let at = usize::try_from(signal).ok().filter(|&at| at > 0)?;
    HANDLERS.get(at).filter(|_| !is_raised)
}

const fn is_function(handler: sighandler_t) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// The handler that the kernel calls in place of the program's.
unsafe extern "C-unwind" fn deliver(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(place) = place(signal) else { return };
    // SAFETY: the kernel's own arguments.
    if inside::is_inside() && unsafe { postpone(signal, info, context.cast()) } {
        return;
    }
    let (handler, flags) = unpack(place.load());
    if !is_function(handler) {
        return;
    }
    // SAFETY: the kernel's own argument.
    unsafe { note_stack(context.cast()) };
    let (mut ran, bell) = (RAN.get(), BELL.get());
    ran.any = true;
    ran.ends |= flags & libc::SA_RESTART == 0;
    // SAFETY: the program installed a function of this type. One that takes the number alone does
    // not look at the others.
    unsafe {
        if flags & libc::SA_RESETHAND != 0 {
            install(signal, libc::SIG_DFL, 0);
        }
        if flags & libc::SA_NODEFER != 0 {
            unblock(bit(signal));
        }
        type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
        std::mem::transmute::<sighandler_t, Handler>(handler)(signal, info, context);
    }
    // Calls in the handler have changed these; restore them.
    RAN.set(ran);
    BELL.set(bell);
    if bell >= 0 {
        let errno = errno_unsafe::errno_number();
        memory_unsafe::ring(bell);
        errno_unsafe::set_errno(errno);
    }
}

/// Postpones a signal until the lock is free: queues it again for this thread, and blocks it in the
/// mask that is restored when this handler returns. False: the kernel's queue is full.
unsafe fn postpone(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) -> bool {
    let errno = errno_unsafe::errno_number();
    // SAFETY: the kernel reads the information that it gave.
    let queued = unsafe {
        let thread = real_unsafe::syscall(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) as usize;
        let process = libc::getpid() as usize;
        let (signal, info) = (signal as usize, info as usize);
        let call = libc::SYS_rt_tgsigqueueinfo;
        real_unsafe::syscall(call, process, thread, signal, info, 0, 0)
    };
    errno_unsafe::set_errno(errno);
    if queued != 0 {
        return false;
    }
    // SAFETY: the kernel's frame, which this handler's end restores.
    unsafe { libc::sigaddset(&raw mut (*context).uc_sigmask, signal) };
    postponed_unsafe::add(signal);
    true
}

/// True if a handler that the library does not know ends blocked calls.
pub fn strangers_end_calls() -> bool {
    (1..=SIGNALS_MAX as c_int).any(|signal| {
        // SAFETY: all zeros is such a structure.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: it writes into our structure.
        let asked = unsafe { real_unsafe::sigaction(signal, std::ptr::null(), &raw mut action) };
        let handler = action.sa_sigaction;
        let is_strange = is_function(handler) && handler != deliver as *const () as sighandler_t;
        asked == 0 && is_strange && action.sa_flags & libc::SA_RESTART == 0
    })
}

/// `sigaction`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let place = place(signal).filter(|_| own_process::is_noted());
    let Some(place) = place else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::sigaction(signal, new, old) };
    };
    let before = place.load();
    // SAFETY: the caller's promise.
    let Ok(given) = (unsafe { memory_unsafe::optional(new) }) else {
        // SAFETY: the caller's promise, as far as it goes.
        return unsafe { real_unsafe::sigaction(signal, new, old) };
    };
    // A child of `vfork` has its own signal table in the kernel, but this process's memory.
    let is_own = given.is_some() && !own_process::is_vforked();
    let is_handled = given.is_some_and(|given| is_function(given.sa_sigaction));
    let installed = given.map(|mut action| {
        if is_own && is_handled {
            place.store(pack(action.sa_sigaction, action.sa_flags));
            action.sa_sigaction = deliver as *const () as sighandler_t;
            action.sa_flags &= !(libc::SA_NODEFER | libc::SA_RESETHAND);
            action.sa_flags |= libc::SA_SIGINFO;
        }
        action
    });
    let new = installed
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the caller's promise, and a value of ours.
    let done = unsafe { real_unsafe::sigaction(signal, new, old) };
    match (done, is_own, is_handled) {
        (0, true, false) => place.store(0),
        (0, ..) | (_, false, _) => {}
        _ => place.store(before),
    }
    // SAFETY: the caller's promise; the call has filled the structure.
    if let (0, Some(mut action)) = (done, unsafe { memory_unsafe::value(old) })
        && action.sa_sigaction == deliver as *const () as sighandler_t
    {
        let (handler, flags) = unpack(before);
        action.sa_sigaction = handler;
        action.sa_flags = action.sa_flags & !libc::SA_SIGINFO | flags;
        // SAFETY: `old` is not null, and the caller promises a structure there.
        unsafe { old.write_unaligned(action) };
    }
    done
}

/// Installs a handler, with the signal itself in its mask unless `SA_NODEFER` is set.
unsafe fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: all zeros is such a structure, with an empty mask; the caller's promise.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        if flags & libc::SA_NODEFER == 0 && libc::sigaddset(&raw mut new.sa_mask, signal) != 0 {
            return libc::SIG_ERR;
        }
        match sigaction(signal, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// `signal`, with BSD semantics.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let is_known = (1..=SIGNALS_MAX as c_int).contains(&signal);
    if handler == libc::SIG_ERR || !is_known {
        errno_unsafe::set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let flags = match ENDING.load() & bit(signal) {
        0 => libc::SA_RESTART,
        _ => 0,
    };
    // SAFETY: the caller's promise.
    unsafe { install(signal, handler, flags) }
}

/// `bsd_signal`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's promise.
    unsafe { signal(number, handler) }
}

/// `__sysv_signal`: `signal` with System V semantics.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __sysv_signal(
    signal: c_int,
    handler: sighandler_t,
) -> sighandler_t {
    if handler == libc::SIG_ERR {
        errno_unsafe::set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: the caller's promise.
    unsafe { install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

/// `siginterrupt`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
    // SAFETY: a structure of ours.
    let (asked, mut action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (sigaction(signal, std::ptr::null(), &raw mut action), action)
    };
    if asked != 0 {
        return asked;
    }
    if ends == 0 {
        ENDING.store(ENDING.load() & !bit(signal));
        action.sa_flags |= libc::SA_RESTART;
    } else {
        ENDING.store(ENDING.load() | bit(signal));
        action.sa_flags &= !libc::SA_RESTART;
    }
    // SAFETY: a structure of ours.
    unsafe { sigaction(signal, &raw const action, std::ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_packed_comes_back_with_its_flags() {
        let handler = 0x7fff_1234_5677;
        for flags in [
            0,
            libc::SA_RESTART,
            libc::SA_SIGINFO | libc::SA_NODEFER,
            KEPT.iter().sum(),
        ] {
            assert_eq!(
                unpack(pack(handler, flags | libc::SA_ONSTACK)),
                (handler, flags)
            );
        }
    }

    #[test]
    fn signals_of_the_processor_are_the_programs_alone() {
        assert!(place(libc::SIGSEGV).is_none());
        assert!(place(libc::SIGALRM).is_some());
        assert!(place(0).is_none() && place(65).is_none() && place(-1).is_none());
    }
}
