//! The watchdog: a thread that turns a stack whose owner stays away. With the inline crank one
//! thread per process looks after all stacks, once a tick. With the dedicated crank each stack has
//! a thread of its own, with a shorter tick.
//!
//! An owner that returns to its own code marks itself *away*. If it is still away a tick later and
//! its stack has not been turned since, the watchdog takes one turn under the crank's try-lock.
//! While there is work it takes one more turn each tick; for an owner that stays away, it soon
//! turns as often as there is work. Without work it sleeps on copies of the port's descriptors and
//! until the stack's next timer. It does not hold the lock then, so the owner finds the stack free.
//! While no owner is away the watchdog sleeps without a timeout, and the next owner to leave wakes
//! it. A busy owner pays at most one system call a tick, and an idle process none.
//!
//! A device lives as long as the copies of its descriptors. A stack that ends while the watchdog
//! sleeps on them therefore wakes it and waits until it has released them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use packetio::wait::monotonic_ns;
use ring::doorbell::StackBell;
use ring::published::{Flag, Published64};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;

use crate::error::Error;
use crate::limits::{
    STACK_THREAD_TICK_NS, WATCHDOG_LETS_GO_NS_MAX, WATCHDOG_SINGLE_TURNS, WATCHDOG_TICK_NS,
};
use crate::placement;
use crate::shared_stack::SharedStack;

/// A stack's registration with the watchdog, until dropped.
pub(crate) struct Guarded {
    watchdog: Arc<Watchdog>,
    key: u64,
    /// The thread that looks after this stack alone, if there is one. It ends with the stack.
    thread: Option<JoinHandle<()>>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.watchdog.stop.raise();
            self.watchdog.bell.insist();
            // A child of `fork` does not have the thread. If the thread panicked, it has reported
            // that itself.
            if self.watchdog.pid == std::process::id() {
                let _ = thread.join();
            }
            return;
        }
        let mut guarded = self.watchdog.guarded();
        let Some(at) = guarded.stacks.iter().position(|it| it.key == self.key) else {
            return;
        };
        let guarded_stack = guarded.stacks.swap_remove(at);
        if guarded_stack.armed.is_some() && self.watchdog.pid == std::process::id() {
            self.watchdog.await_letting_go(guarded);
        }
    }
}

struct Watchdog {
    /// The process that the thread runs in. A child of `fork` does not have the thread.
    pid: u32,
    pace: Pace,
    stop: Flag,
    guarded: Mutex<GuardedStacks>,
    /// Signalled when the watchdog holds no copies of descriptors.
    let_go: Condvar,
    /// Rung by an owner that leaves, or whose stack ends. A ring costs a system call only while the
    /// watchdog sleeps without a timeout.
    bell: StackBell,
}

/// The times at which a watchdog replaces an absent owner.
#[derive(Clone, Copy)]
struct Pace {
    /// Time between two looks at an owner that comes and goes, in ns.
    tick_ns: u64,
    /// Turns in a row at intervals of one tick; later turns follow each other at once.
    single_turns: u32,
}

/// The pace of the thread for all stacks of the process.
const SHARED: Pace = Pace {
    tick_ns: WATCHDOG_TICK_NS,
    single_turns: WATCHDOG_SINGLE_TURNS,
};

/// The pace of a thread for one stack.
const OWN: Pace = Pace {
    tick_ns: STACK_THREAD_TICK_NS,
    single_turns: 0,
};

/// The stacks that the watchdog looks after.
#[derive(Default)]
struct GuardedStacks {
    stacks: Vec<GuardedStack>,
    /// A thread waits for the watchdog to release copies of descriptors.
    is_awaited: bool,
}

impl Watchdog {
    fn guarded(&self) -> MutexGuard<'_, GuardedStacks> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the watchdog, and waits until it has released the descriptors of a removed stack.
    #[cold]
    fn await_letting_go(&self, mut guarded: MutexGuard<'_, GuardedStacks>) {
        guarded.is_awaited = true;
        self.bell.ring();
        let patience = Duration::from_nanos(WATCHDOG_LETS_GO_NS_MAX);
        // After a timeout the watchdog releases them when it next wakes.
        let _ = self
            .let_go
            .wait_timeout_while(guarded, patience, |guarded| guarded.is_awaited);
    }
}

/// A copy of a port's descriptor, and the events to poll it for.
type Watched = (Arc<OwnedFd>, PollFlags);

struct GuardedStack {
    key: u64,
    pace: Pace,
    stack: Weak<SharedStack>,
    turns_seen: u64,
    /// Turns in a row that the watchdog took while the owner took none.
    stood_in: u32,
    /// While armed: the descriptors to sleep on, and the number of the arming.
    armed: Option<(Vec<Watched>, u64)>,
}

/// Puts a stack under the process's watchdog and starts that for the first stack.
pub(crate) fn guard(stack: &Arc<SharedStack>) -> Result<Guarded, Error> {
    static WATCHDOG: Mutex<Option<Arc<Watchdog>>> = Mutex::new(None);
    static KEYS: Published64 = Published64::new(1);
    let mut place = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    let watchdog = match &*place {
        Some(watchdog) if watchdog.pid == std::process::id() => watchdog.clone(),
        _ => {
            let watchdog = new_watchdog(SHARED)?;
            start("millstream-tick".to_owned(), &watchdog, None)?;
            place.insert(watchdog).clone()
        }
    };
    drop(place);
    let key = KEYS.add_shared(1);
    adopt(&watchdog, stack, key);
    Ok(Guarded {
        watchdog,
        key,
        thread: None,
    })
}

/// Gives the stack of context `index` a thread of its own, which runs on `cpu` if one is named.
pub(crate) fn guard_alone(
    stack: &Arc<SharedStack>,
    index: usize,
    cpu: Option<usize>,
) -> Result<Guarded, Error> {
    let watchdog = new_watchdog(OWN)?;
    adopt(&watchdog, stack, 0);
    let thread = start(format!("millstream-{index}"), &watchdog, cpu)?;
    Ok(Guarded {
        watchdog,
        key: 0,
        thread: Some(thread),
    })
}

fn adopt(watchdog: &Arc<Watchdog>, stack: &Arc<SharedStack>, key: u64) {
    let guarded_stack = GuardedStack {
        key,
        pace: watchdog.pace,
        stack: Arc::downgrade(stack),
        turns_seen: 0,
        stood_in: 0,
        armed: None,
    };
    watchdog.guarded().stacks.push(guarded_stack);
    stack.watch.guard(watchdog.bell.clone());
}

fn new_watchdog(pace: Pace) -> Result<Arc<Watchdog>, Error> {
    let bell = StackBell::new().map_err(|errno| Error::System {
        what: "eventfd",
        source: errno.into(),
    })?;
    Ok(Arc::new(Watchdog {
        pid: std::process::id(),
        pace,
        stop: Flag::new(),
        guarded: Mutex::default(),
        let_go: Condvar::new(),
        bell,
    }))
}

/// Starts a watchdog's thread. Names of the library's threads begin with `millstream`, by which
/// `preload` tells them from the program's.
fn start(
    name: String,
    watchdog: &Arc<Watchdog>,
    cpu: Option<usize>,
) -> Result<JoinHandle<()>, Error> {
    let watchdog = watchdog.clone();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            // The runtime has checked the CPU. If it has gone since, the kernel chooses another.
            let _ = cpu.map(placement::bind);
            watch(&watchdog);
        })
        .map_err(|source| Error::System {
            what: "watchdog thread",
            source,
        })
}

fn watch(watchdog: &Watchdog) {
    while !watchdog.stop.is_raised() {
        let look = || {
            if watchdog.stop.is_raised() {
                return None;
            }
            let mut guarded = watchdog.guarded();
            if std::mem::take(&mut guarded.is_awaited) {
                watchdog.let_go.notify_all();
            }
            let now_ns = monotonic_ns();
            let mut until_ns: Option<u64> = None;
            for guarded_stack in &mut guarded.stacks {
                let due_ns = guarded_stack.turn_if_away(now_ns);
                until_ns = [until_ns, due_ns].into_iter().flatten().min();
            }
            let fds: Vec<Watched> = guarded
                .stacks
                .iter()
                .flat_map(GuardedStack::descriptors)
                .collect();
            let timeout_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns));
            Some((fds, timeout_ns))
        };
        // An owner that leaves after the look finds the sleep announced, and rings.
        watchdog
            .bell
            .sleep_unless(look, |(fds, timeout_ns)| sleep(watchdog, &fds, timeout_ns));
    }
}

fn sleep(watchdog: &Watchdog, fds: &[Watched], timeout_ns: Option<u64>) {
    let mut polled: Vec<_> = fds
        .iter()
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), *flags))
        .collect();
    // A sleep of a tick or less ignores the bell: the look that follows covers all stacks, and a
    // busy owner that rings would end the sleep in vain.
    if timeout_ns.is_none_or(|ns| ns > watchdog.pace.tick_ns) {
        polled.push(PollFd::from_borrowed_fd(watchdog.bell.fd(), PollFlags::IN));
    }
    let timeout = timeout_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    // An error (no memory) counts as a wake-up after a tick.
    if poll(&mut polled, timeout.as_ref()).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
        std::thread::sleep(Duration::from_nanos(WATCHDOG_TICK_NS));
    }
}

impl GuardedStack {
    /// Turns the stack if its owner has been away since the last look. Returns the time of the next
    /// look.
    fn turn_if_away(&mut self, now_ns: u64) -> Option<u64> {
        let Pace {
            tick_ns,
            single_turns,
        } = self.pace;
        let shared = self.stack.upgrade()?;
        let (is_away, turns) = shared.watch.owner_away_and_turns();
        let moved = std::mem::replace(&mut self.turns_seen, turns) != turns;
        if !is_away || moved {
            self.stood_in = 0;
            self.disarm(&shared);
            // Look again after a tick at an owner that comes and goes, even if it is here now. If
            // the watchdog slept without a timeout, each leave would ring and run it, between a
            // request and its answer.
            return (is_away || moved).then_some(now_ns + tick_ns);
        }
        let Some(mut stack) = shared.stack.try_lock() else {
            return Some(now_ns + tick_ns);
        };
        if self.armed.take().is_some() {
            stack.disarm();
        }
        self.stood_in = self.stood_in.saturating_add(1);
        // A crowd may send more within a tick than one turn takes in.
        stack.drain();
        if stack.turn(now_ns).busy {
            // Keep to the tick while the owner may only be busy with what the last turn brought.
            // Each of our turns takes its core and its caches, and leaves it more to do (decision
            // 0043).
            let sleeps = self.stood_in > single_turns;
            return Some(now_ns + if sleeps { 0 } else { tick_ns });
        }
        // The stack had no work.
        self.stood_in = single_turns;
        if stack.is_gone() {
            stack.observe(now_ns);
            return None;
        }
        match stack.arm() {
            // Without descriptors to sleep on, the clock has to wake the watchdog.
            Err(_) => Some(now_ns + tick_ns),
            Ok(None) => Some(now_ns),
            Ok(Some(fds)) => {
                let due_ns = stack.next_timer_ns();
                let fds = fds.into_iter().map(|(fd, flags)| (Arc::new(fd), flags));
                self.armed = Some((fds.collect(), shared.watch.armed()));
                due_ns
            }
        }
    }

    /// Disarms the stack of an owner that is back; its own waits arm the port anew. An owner that
    /// sleeps on copies of its own by now stays armed.
    fn disarm(&mut self, shared: &SharedStack) {
        if let Some((_, number)) = self.armed.take()
            && let Some(mut stack) = shared.stack.try_lock()
            && shared.watch.is_last_armed(number)
        {
            stack.disarm();
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = Watched> + '_ {
        self.armed.iter().flat_map(|(fds, _)| fds).cloned()
    }
}

#[cfg(test)]
mod tests {
    use packetio::Port;
    use packetio::loopback::{self, Loopback, LoopbackOptions};
    use ring::trylock::TryLock;
    use stack::{Stack, StackConfig};

    use super::*;
    use crate::shared_stack::Watch;

    /// A stack whose owner is away, the other end of its wire, and the watchdog's view of it.
    fn left_alone() -> (Arc<SharedStack>, Loopback, GuardedStack) {
        let (near, far) = loopback::pair(&LoopbackOptions::default()).expect("a link");
        let config = StackConfig {
            addresses: vec!["10.0.0.1/24".parse().expect("an address")],
            ..StackConfig::default()
        };
        let (stack, _app) = Stack::new(config, Box::new(near), 0).expect("a stack");
        let shared = Arc::new(SharedStack {
            stack: TryLock::new(stack),
            watch: Watch::new(),
        });
        shared.watch.leave();
        let guarded_stack = GuardedStack {
            key: 1,
            pace: SHARED,
            stack: Arc::downgrade(&shared),
            turns_seen: 0,
            stood_in: 0,
            armed: None,
        };
        (shared, far, guarded_stack)
    }

    fn arrives(far: &mut Loopback) {
        let frames = far.reserve(1);
        frames[0].write(0, &[0; 60]);
        frames[0].set_len(60);
        far.send(1).expect("room on the link");
    }

    #[test]
    fn owner_away_for_a_moment_is_stood_in_for_once_a_tick() {
        let (shared, mut far, mut guarded_stack) = left_alone();
        for _ in 0..2 {
            for turn in 1..=2 * WATCHDOG_SINGLE_TURNS {
                arrives(&mut far);
                let wait_ns = if turn <= WATCHDOG_SINGLE_TURNS {
                    WATCHDOG_TICK_NS
                } else {
                    0
                };
                assert_eq!(
                    guarded_stack.turn_if_away(7),
                    Some(7 + wait_ns),
                    "turn {turn}"
                );
            }
            // The owner is back for a moment, and goes again.
            shared.watch.turned();
            assert_eq!(guarded_stack.turn_if_away(7), Some(7 + WATCHDOG_TICK_NS));
        }
        let stack = shared.stack.try_lock().expect("nobody turns it");
        let taken = stack.counters().rx_frames;
        assert_eq!(taken, u64::from(4 * WATCHDOG_SINGLE_TURNS));
    }

    #[test]
    fn owner_who_comes_and_goes_is_looked_at_once_a_tick_and_at_rest_never() {
        let (shared, _far, mut guarded_stack) = left_alone();
        for _ in 0..3 {
            shared.watch.enter();
            shared.watch.turned();
            assert_eq!(guarded_stack.turn_if_away(7), Some(7 + WATCHDOG_TICK_NS));
        }
        assert_eq!(guarded_stack.turn_if_away(7), None, "it waits for work");
    }

    #[test]
    fn owner_away_and_nothing_arrives_sleeps_on_the_wire() {
        let (_shared, mut far, mut guarded_stack) = left_alone();
        // A stack's first turn fills the application's stocks.
        guarded_stack.turn_if_away(7);
        guarded_stack.turn_if_away(7);
        assert!(guarded_stack.armed.is_some());
        arrives(&mut far);
        assert_eq!(
            guarded_stack.turn_if_away(7),
            Some(7),
            "what comes is answered at once"
        );
        assert!(guarded_stack.armed.is_none());
    }
}
