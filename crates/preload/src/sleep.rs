//! Waits without the lock: try, arm, unlock, sleep, lock, try again.
//!
//! One sleeper leads: it sleeps on the wire. The others sleep on their bells ([`sleepers`]). All of
//! them also sleep on the kernel descriptors of their call.
//!
//! [`sleepers`]: crate::sleepers
//!
//! A signal handler that interrupts a sleep may make a call that sleeps, too. The inner sleep
//! replaces the outer one, which looks again when the handler returns. If the handler leaves by
//! `longjmp`, the thread's next sleep replaces the abandoned one.
//!
//! A thread may end in its sleep: by `pthread_cancel`, or by `pthread_exit` in a handler. libc then
//! unwinds the thread's stack, so each state that a sleep leaves with others has a guard
//! ([`Asleep`], [`Kept`]). A thread sleeps in one place only, [`memory_unsafe::sleep`]. The other
//! calls of the kernel that the library makes with its lock held do not end the thread.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use libc::{pollfd, sigset_t};
use millstream::{AcceptCall, Armed, Context, Turn};
use packetio::wait::monotonic_ns;
use posix::{Call, Errno, Outcome, Reply, Request};

use crate::engine::{self, Engine, Entry};
use crate::limits::{DEPUTY_TICK_NS, LOOK_PAUSES, UNANNOUNCED_NS};
use crate::memory_unsafe::Bell;
use crate::signals_unsafe::{self, Ran};
use crate::sleepers::{News, Sleeper, Tick};
use crate::waits::Place;
use crate::{closing, listeners, memory_unsafe, pace, passes, waits};

thread_local! {
    /// The last sleep of this thread's call has told of events of the kernel's descriptors.
    static KERNELS_ROSE: Cell<bool> = const { Cell::new(false) };
}

/// True once after a sleep that a kernel descriptor of the call, or a signal, has ended.
pub fn kernels_rose() -> bool {
    KERNELS_ROSE.replace(false)
}

/// The result of an attempt.
pub enum Attempt<T> {
    /// The call is over.
    Done(T),
    /// The call waits.
    Wait {
        /// Time at which the call gives up, on the monotonic clock, in ns.
        until_ns: Option<u64>,
        /// Kernel descriptors that it waits for, with events.
        kernel: Vec<(i32, i16)>,
        /// News of Millstream's sockets, read before they were tried.
        news: News,
    },
}

/// The effect of a signal handler on a wait.
#[derive(Clone, Copy)]
pub enum Signals {
    /// Any signal ends the call (`poll` and its relatives), with this mask during the sleep.
    End(Option<sigset_t>),
    /// A signal ends the call unless its handler was installed with `SA_RESTART`.
    Restart,
}

/// Repeats attempts until one is done. A call that waits keeps the entry `on`.
///
/// # Errors
/// The attempt's error; `EINTR`; `EBADF` if `dup2` has replaced the descriptor.
pub fn until_done<T>(
    signals: Signals,
    on: Option<usize>,
    attempt: impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<T, Errno> {
    let local = 0;
    until_done_keeping(signals, Kept::of(on, &local), attempt)
}

/// Like [`until_done`], for a call that waits on several entries and goes on if `dup2` replaces one
/// of their descriptors.
///
/// # Errors
/// The attempt's error; `EINTR`.
pub fn until_done_on_all<T>(
    signals: Signals,
    all: Vec<usize>,
    attempt: impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<T, Errno> {
    let local = 0;
    let mut kept = Kept::of(None, &local);
    kept.all = all;
    until_done_keeping(signals, kept, attempt)
}

fn until_done_keeping<T>(
    signals: Signals,
    mut kept: Kept,
    attempt: impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<T, Errno> {
    repeat(signals, &mut kept, attempt)
}

/// The entries that a call keeps while it waits.
pub struct Kept {
    /// The address of a local variable of the call.
    frame: usize,
    /// The entry whose last descriptor ends the call when `dup2` replaces it.
    on: Option<usize>,
    /// Entries of a call that waits on several.
    all: Vec<usize>,
    /// The wait's place, once it has begun.
    begun: Option<Place>,
    /// The listeners for whose connections the call waits.
    calls: Vec<AcceptCall>,
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.begun {
            end_wait(place);
        }
    }
}

impl Kept {
    /// The entry of a call with a local variable, which it does not keep yet.
    pub fn of(on: Option<usize>, local: &u8) -> Self {
        Self {
            frame: std::ptr::from_ref(local).addr(),
            on,
            all: Vec::new(),
            begun: None,
            calls: Vec::new(),
        }
    }

    /// Keeps the entry from now on, or looks whether the call has to end.
    ///
    /// # Errors
    /// `EBADF`
    pub fn begin(&mut self, engine: &mut Engine) -> Result<(), Errno> {
        match (self.on, self.begun) {
            (None, None) if self.all.is_empty() => {}
            (on, None) => {
                let place = Place::of(self.frame);
                self.begun = Some(place);
                let keys = on.as_ref().map_or(&self.all[..], std::slice::from_ref);
                closing::begin_wait(engine, place, keys);
                if !engine.opened.is_empty() {
                    self.calls = listeners::begin_calls(engine, keys);
                }
            }
            (Some(_), Some(place)) if engine.waits.is_over(place) => return Err(Errno::BADF),
            _ => {}
        }
        Ok(())
    }
}

fn repeat<T>(
    signals: Signals,
    kept: &mut Kept,
    mut attempt: impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<T, Errno> {
    let mut is_interrupted = false;
    signals_unsafe::begin();
    KERNELS_ROSE.set(false);
    let mut is_back = false;
    let mut slept: Option<Arc<Bell>> = None;
    loop {
        let note_back = !std::mem::replace(&mut is_back, true);
        let slept_by = slept.take();
        let plan_next = |engine: &mut Engine| match attempt_noting(engine, note_back, &mut attempt)?
        {
            Attempt::Done(value) => {
                // While no wire is open there is nobody to lead.
                if let Ok((sockets, sleepers)) = engine.sockets_and_sleepers() {
                    sleepers.note_told(sockets.context().turned_ns());
                }
                Ok(Plan::Done(value))
            }
            Attempt::Wait { .. } if is_interrupted => Err(Errno::INTR),
            Attempt::Wait {
                until_ns,
                kernel,
                news,
            } => {
                kept.begin(engine)?;
                // A call with a time limit is never restarted after a signal, as in Linux.
                let is_ended_by_any = until_ns.is_some() || matches!(signals, Signals::End(_));
                plan(engine, until_ns, kernel, news, is_ended_by_any)
            }
        };
        let planned = engine::locked(|engine| {
            if let Some(bell) = slept_by {
                take_out(engine, bell.fd())?;
            }
            engine.moving(plan_next)
        })?;
        let sleep = match planned {
            Plan::Done(value) => return Ok(value),
            Plan::Again { is_alone } => {
                let pauses = if is_alone { 0 } else { LOOK_PAUSES };
                (0..pauses).for_each(|_| std::hint::spin_loop());
                continue;
            }
            Plan::Sleep(sleep) => sleep,
        };
        slept = Some(sleep.bell.clone());
        is_interrupted = sleep.sleep(signals)?;
    }
}

/// Makes an attempt, the first one of a call if `note_back`.
fn attempt_noting<T>(
    engine: &mut Engine,
    note_back: bool,
    attempt: &mut impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<Attempt<T>, Errno> {
    if note_back && let Ok((sockets, sleepers)) = engine.sockets_and_sleepers() {
        sleepers.note_back(sockets);
    }
    attempt(engine)
}

enum Plan<T> {
    Done(T),
    /// Another attempt follows. If no other thread sleeps in a call, it follows at once.
    Again {
        is_alone: bool,
    },
    Sleep(Sleep),
}

struct Sleep {
    bell: Arc<Bell>,
    fds: Vec<pollfd>,
    /// The kernel's descriptors of the call among them.
    kernels: Range<usize>,
    /// The thread is the deputy.
    ticks: bool,
    until_ns: Option<u64>,
    is_ended_by_any: bool,
}

fn plan<T>(
    engine: &mut Engine,
    until_ns: Option<u64>,
    kernel: Vec<(i32, i16)>,
    news: News,
    is_ended_by_any: bool,
) -> Result<Plan<T>, Errno> {
    let bell = memory_unsafe::bell()?;
    passes::forget_lost(engine);
    // The entry of a sleep in this thread that a signal handler has interrupted.
    take_out(engine, bell.fd())?;
    if news.has_news(engine.open()?.sockets()) {
        return Ok(again(engine));
    }
    let (armed, deputy) = match engine.sleepers.has_leader() {
        true => (None, None),
        false => match lead(engine)? {
            Some(Lead::Own(armed)) => (Some(armed), None),
            Some(Lead::HandedOver) => (None, engine.sleepers.new_deputy()),
            None => return Ok(again(engine)),
        },
    };
    if news.has_news(engine.open()?.sockets()) {
        return Ok(again(engine));
    }
    let watched = |fd, events| pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut fds = vec![watched(bell.fd(), libc::POLLIN)];
    fds.extend(kernel.into_iter().map(|(fd, events)| watched(fd, events)));
    let kernels = 1..fds.len();
    fds.extend(engine.passes.ends().map(|end| watched(end, 0)));
    let mut stack_ns = None;
    if let Some(armed) = &armed {
        let wire = armed.descriptors.iter();
        fds.extend(wire.map(|(fd, events)| watched(fd.as_raw_fd(), events.bits() as i16)));
        stack_ns = armed.due_ns;
    }
    engine.sleepers.enlist(Sleeper {
        bell: bell.clone(),
        thread: waits::thread(),
        is_rung: false,
        armed,
        news,
        is_quick: pace::is_quick(),
        deputy,
    });
    Ok(Plan::Sleep(Sleep {
        bell,
        fds,
        kernels,
        ticks: deputy.is_some(),
        until_ns: [until_ns, stack_ns].into_iter().flatten().min(),
        is_ended_by_any,
    }))
}

fn again<T>(engine: &Engine) -> Plan<T> {
    let is_alone = engine.sleepers.is_empty();
    Plan::Again { is_alone }
}

/// Removes a sleeping thread. If it led, no thread leads.
fn take_out(engine: &mut Engine, bell: i32) -> Result<(), Errno> {
    let armed = engine.sleepers.take_out(bell).and_then(|one| one.armed);
    if let Some(armed) = armed {
        let (sockets, sleepers) = engine.sockets_and_sleepers()?;
        let context = sockets.context();
        context.stop_leading();
        // The next attempt reports a wire that is gone.
        let _ = context.turn_once();
        context.go_away();
        sleepers.leader_woke(armed, context.turned_ns());
    }
    Ok(())
}

/// The lead of a stack, for a thread that is about to sleep.
enum Lead {
    /// The thread leads.
    Own(Armed),
    /// Another thread has news, and leads when it next waits.
    HandedOver,
}

/// Prepares the sleep of a thread that leads, unless it hands over the lead. `None`: look again.
fn lead(engine: &mut Engine) -> Result<Option<Lead>, Errno> {
    let (sockets, sleepers) = engine.sockets_and_sleepers()?;
    let context = sockets.context();
    if !context.has_requests() && sleepers.hand_over(sockets, context.now_ns()) {
        return Ok(Some(Lead::HandedOver));
    }
    let looks_on = sleepers.has_own_news();
    let armed = arm(context, sleepers.spare(), looks_on);
    let armed = armed.map_err(|error| posix::errno(&error))?;
    if armed.is_some() {
        sleepers.leads();
    }
    Ok(armed.map(Lead::Own))
}

/// Turns the stack and, if there was nothing to do, prepares a sleep. `None`: look again. A thread
/// that `looks_on` looks for a while before it sleeps.
fn arm(
    context: &Context,
    spare: &mut Option<Armed>,
    looks_on: bool,
) -> std::io::Result<Option<Armed>> {
    let armed = match context.turn_once() {
        Ok(Turn::Idle) => context.lead_with(spare),
        Ok(Turn::Looking) if !looks_on => context.lead_with(spare),
        Ok(Turn::Moved | Turn::Looking) => Ok(None),
        Err(error) => Err(error),
    };
    // The next attempt may be the last one. Without this call the watchdog would rely on the caller
    // to turn the stack, and later writes of the program would not leave.
    if !matches!(armed, Ok(Some(_))) {
        context.go_away();
    }
    armed
}

/// A sleeping thread's bell. The drop takes the thread out of the sleepers if the thread ends in
/// its sleep.
struct Asleep(i32);

impl Drop for Asleep {
    #[cold]
    fn drop(&mut self) {
        // The thread makes no further call that could report an error.
        signals_unsafe::sleep_ended();
        let _ = engine::moving(|engine| take_out(engine, self.0));
    }
}

impl Sleep {
    /// Sleeps. True: a signal ended the sleep; it ends the call unless the next attempt is done.
    /// After the sleep of a call that goes on, the thread is still among the sleepers.
    fn sleep(mut self, signals: Signals) -> Result<bool, Errno> {
        let mask = match signals {
            Signals::End(mask) => mask,
            Signals::Restart => None,
        };
        // From here on a signal handler rings the bell.
        let before = signals_unsafe::sleep_begins(self.bell.fd());
        let asleep = Asleep(self.bell.fd());
        if self.is_ended_by(before) {
            self.until_ns = Some(0);
        }
        let slept = self.sleep_ticking(mask);
        std::mem::forget(asleep);
        let ran = signals_unsafe::sleep_ended();
        let has_risen = |fd: &pollfd| fd.revents != 0;
        KERNELS_ROSE.set(slept.is_err() || self.fds[self.kernels.clone()].iter().any(has_risen));
        let was_rung = self.fds[0].revents != 0;
        if was_rung {
            memory_unsafe::silence(self.bell.fd());
        }
        match slept {
            _ if ran.any => Ok(self.is_ended_by(ran)),
            Err(Errno::INTR) => Ok(self.is_ended_by_any || signals_unsafe::strangers_end_calls()),
            Err(errno) => {
                // The call ends here, so another sleeper has to lead.
                engine::moving(|engine| take_out(engine, self.bell.fd()))?;
                Err(errno)
            }
            Ok(_) => Ok(false),
        }
    }

    /// Sleeps until the time is over, or one of the descriptors or a signal ends the sleep. A
    /// deputy looks once a tick whether it has to lead.
    fn sleep_ticking(&mut self, mask: Option<sigset_t>) -> Result<i64, Errno> {
        loop {
            let left = |at_ns: u64| at_ns.saturating_sub(monotonic_ns());
            let left_ns = self.until_ns.map(left);
            let tick_ns = self.ticks.then_some(DEPUTY_TICK_NS);
            let sleep_ns = [left_ns, tick_ns].into_iter().flatten().min();
            let slept = memory_unsafe::sleep(&mut self.fds, sleep_ns, mask)?;
            if slept > 0 || sleep_ns == left_ns {
                return Ok(slept);
            }
            let tick = engine::locked(|engine| {
                let (sockets, sleepers) = engine.sockets_and_sleepers()?;
                let context = sockets.context();
                Ok(sleepers.tick(self.bell.fd(), context.turned_ns(), context.now_ns()))
            });
            match tick? {
                Tick::Again => {}
                Tick::Quiet => self.ticks = false,
                Tick::Lead => return Ok(0),
            }
        }
    }

    fn is_ended_by(&self, ran: Ran) -> bool {
        ran.ends || (ran.any && self.is_ended_by_any)
    }
}

/// Makes a call of `posix` and waits for its end.
///
/// # Errors
/// The error of the call.
pub fn call(request: Request) -> Result<(i64, Reply), Errno> {
    let local = 0;
    wait_for(Kept::of(None, &local), |_| Ok(request))
}

/// Makes a call on the socket of an entry, which the call keeps, and waits for its end. `request`
/// gets the socket's number in `posix`.
///
/// # Errors
/// The error of the call.
pub fn call_on(key: usize, request: impl FnOnce(i32) -> Request) -> Result<(i64, Reply), Errno> {
    let local = 0;
    call_keeping(Kept::of(Some(key), &local), request)
}

/// Like [`call_on`], for a call that may keep the entry already.
///
/// # Errors
/// The error of the call.
pub fn call_keeping(
    kept: Kept,
    request: impl FnOnce(i32) -> Request,
) -> Result<(i64, Reply), Errno> {
    let on = kept.on;
    wait_for(kept, |engine| {
        let key = on.ok_or(Errno::BADF)?;
        Ok(request(listeners::socket(engine, key)?.id))
    })
}

fn wait_for(
    kept: Kept,
    request: impl FnOnce(&mut Engine) -> Result<Request, Errno>,
) -> Result<(i64, Reply), Errno> {
    let mut request = Some(request);
    let mut begun: Option<Call> = None;
    let outcome = until_done_keeping(Signals::Restart, kept, |engine| {
        if let Some(request) = request.take() {
            begun = Some(Call::start(request(engine)?));
        }
        let call = begun.as_mut().ok_or(Errno::BADF)?;
        let sockets = engine.open()?.sockets();
        let awaited = sockets.awaited_by_call(call);
        let news = match call.request() {
            Request::Accept { .. } => News::begin_exclusive(sockets, awaited),
            _ => News::begin(sockets, awaited),
        };
        match call.poll(sockets) {
            Outcome::Done(outcome) => outcome.map(Attempt::Done),
            Outcome::Pending => {
                let is_unannounced = matches!(call.request(), Request::Close { .. });
                let soon_ns = is_unannounced.then(|| monotonic_ns() + UNANNOUNCED_NS);
                let until_ns = [call.deadline_ns(), soon_ns].into_iter().flatten().min();
                let kernel = Vec::new();
                Ok(Attempt::Wait {
                    until_ns,
                    kernel,
                    news,
                })
            }
        }
    });
    let moved = begun.as_ref().map_or(0, Call::moved);
    let value = match outcome {
        Err(Errno::INTR) if moved > 0 => moved as i64,
        outcome => outcome?,
    };
    let reply = begun.map(Call::into_reply).unwrap_or_default();
    Ok((value, reply))
}

/// Ends the wait of a call. Closes the entries that have no descriptor any more.
#[cold]
fn end_wait(place: Place) {
    let unused = engine::locked(|engine| {
        let kept = engine.waits.end(place);
        let unused = kept
            .into_iter()
            .filter_map(|key| closing::take_unused(engine, key));
        Ok(unused.collect::<Vec<_>>())
    });
    for last in unused.unwrap_or_default() {
        // `close` has returned before, so there is no call to report an error to.
        let _ = close_last(Some(last));
    }
}

/// Closes what a removed entry was in `posix`.
///
/// # Errors
/// The error of the close.
pub fn close_last(last: Option<Entry>) -> Result<(), Errno> {
    let Some(fd) = last.and_then(|entry| entry.what.watched_id()) else {
        return Ok(());
    };
    match call(Request::Close { fd }) {
        // A signal ends the wait of a lingering close, but the socket is closed.
        Err(Errno::INTR) => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
