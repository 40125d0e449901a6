//! Signals: after the program's handler has run, no context goes on sleeping.

use std::ffi::c_int;
use std::sync::OnceLock;

use millstream::Interrupter;
use posix::Errno;
use ring::published::Published64;

use crate::limits::CONTEXTS_MAX;

/// A signal handler in C: `SIG_DFL`, `SIG_IGN`, `SIG_ERR` or a function.
pub type Handler = libc::sighandler_t;

/// The interrupter of each context number. Each is made when first used, and then kept, so that a
/// handler can use all of them at any time.
static INTERRUPTERS: [OnceLock<Interrupter>; CONTEXTS_MAX] =
    [const { OnceLock::new() }; CONTEXTS_MAX];

/// Number of signal numbers, including 0.
const SIGNALS: usize = 65;
/// The program's handlers, indexed by signal.
static HANDLERS: [Published64; SIGNALS] =
    [const { Published64::new(libc::SIG_DFL as u64) }; SIGNALS];

/// The interrupter of context `index`.
pub fn interrupter(index: usize) -> Result<Interrupter, Errno> {
    let place = INTERRUPTERS.get(index).ok_or(Errno::INVAL)?;
    if let Some(interrupter) = place.get() {
        return Ok(interrupter.clone());
    }
    let fresh = Interrupter::new().map_err(|_| Errno::MFILE)?;
    Ok(place.get_or_init(|| fresh).clone())
}

extern "C" fn on_signal(signal: c_int) {
    let place = usize::try_from(signal)
        .ok()
        .and_then(|signal| HANDLERS.get(signal));
    let handler = place.map_or(libc::SIG_IGN, |place| place.load() as Handler);
    if handler != libc::SIG_IGN && handler != libc::SIG_DFL {
        // SAFETY: a program that registers a number as a handler promises that it is a function of
        // this type.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
    for interrupter in INTERRUPTERS.iter().filter_map(OnceLock::get) {
        interrupter.interrupt();
    }
}

/// Registers a handler; returns the previous one.
pub fn register(signal: c_int, handler: Handler) -> Result<Handler, Errno> {
    let place = usize::try_from(signal)
        .ok()
        .and_then(|signal| HANDLERS.get(signal))
        .ok_or(Errno::INVAL)?;
    let is_function = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    let before = place.load() as Handler;
    place.store(handler as u64);
    let ours: extern "C" fn(c_int) = on_signal;
    let installed = match is_function {
        true => ours as Handler,
        false => handler,
    };
    // SAFETY: `on_signal` stores to flags, writes to eventfds and calls the program's handler.
    let was = unsafe { libc::signal(signal, installed) };
    if was == libc::SIG_ERR {
        place.store(before as u64);
        return Err(Errno::INVAL);
    }
    Ok(match was == ours as Handler {
        true => before,
        false => was,
    })
}
