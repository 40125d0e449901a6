//! The crank of a stack, held by the application's thread: it takes one turn, or sleeps until an
//! event may have arrived.
//!
//! The application's thread turns the stack inside its own calls, under a try-lock. While that
//! thread is away, a watchdog turns the stack: one for the whole process (inline crank), or a
//! thread for this stack alone with a shorter tick (dedicated crank).

use std::sync::Arc;
use std::time::Duration;

use packetio::Clock;
use packetio::spin::Spin;
use packetio::wait::monotonic_ns;
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use stack::{Stack, Turned};

use crate::config::Config;
use crate::heir::Heir;
use crate::interleaving::{before_sleep, point};
use crate::limits::{COPIES_NS_MAX, TURNS_PER_MEASURE};
use crate::linger::linger;
use crate::shared_stack::SharedStack;
use crate::watchdog::Guarded;

/// The result of a turn of the stack.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// while context.turn_once()? != Turn::Idle {}
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something moved: look at the sockets again.
    Moved,
    /// Nothing moved, but turning again at once may find work.
    Looking,
    /// There is no work.
    Idle,
}

/// The application's end of the crank of one stack.
pub(crate) struct Crank {
    shared: Arc<SharedStack>,
    /// Registration with the watchdog. `None` with a virtual clock, whose holder turns the stack.
    guarded: Option<Guarded>,
    clock: Clock,
    turned_ns: u64,
    /// The last turn left segments to send beyond its budget.
    is_behind: bool,
    spin: Spin,
    /// Busy turns since the duration of one was measured.
    unmeasured: u64,
    /// Attempts in a row that found the stack locked by the watchdog.
    refused: u32,
    /// The last step found no work, and a helper thread that moves the port's frames needs this
    /// CPU.
    mover_shares_cpu: bool,
    /// A thread of the application sleeps on copies of the stack's descriptors and will turn it.
    /// The watchdog stays away until that thread wakes.
    has_leader: bool,
}

/// Descriptors and deadline for a thread that sleeps in the stack's place.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// // Another thread may use the context between `lead` and `stop_leading`.
/// if let Some(armed) = context.lead()? {
///     assert!(!armed.descriptors.is_empty());
///     context.stop_leading();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Armed {
    /// Copies of the descriptors to sleep on, and the events of `poll` to watch each for.
    pub descriptors: Vec<(OwnedFd, PollFlags)>,
    /// Time at which the stack has something to do although nothing arrives, on the context's
    /// clock.
    pub due_ns: Option<u64>,
    /// Digest of the descriptors and their events; [`Crank::rearm`] compares it.
    watches: u64,
    /// Time at which the descriptors were copied, ns.
    copied_ns: u64,
}

impl Armed {
    /// True if the copies serve another sleep. The digest does not tell a descriptor from one that
    /// came to its number later, so copies are made anew from time to time.
    fn serves(&self, watches: u64, now_ns: u64) -> bool {
        self.watches == watches && now_ns.saturating_sub(self.copied_ns) < COPIES_NS_MAX
    }
}

impl Crank {
    pub fn new(shared: Arc<SharedStack>, guarded: Option<Guarded>, config: &Config) -> Self {
        Self {
            shared,
            guarded,
            clock: config.clock.clone(),
            turned_ns: 0,
            is_behind: false,
            spin: Spin::new(if config.clock.is_virtual() {
                0
            } else {
                config.spin_ns
            }),
            unmeasured: 0,
            refused: 0,
            mover_shares_cpu: false,
            has_leader: false,
        }
    }

    /// Turns the stack once. `NetworkDown` when the wire is gone.
    pub fn turn_once(&mut self) -> std::io::Result<Turn> {
        self.turn_with(Stack::turn)
    }

    /// Like [`turn_once`](Self::turn_once), for a caller that hands out events and returns with the
    /// answers to them.
    pub fn turn_before_answers(&mut self) -> std::io::Result<Turn> {
        self.turn_with(Stack::turn_before_answers)
    }

    /// Like [`turn_before_answers`](Self::turn_before_answers), for a write amid the answers.
    pub fn turn_amid_answers(&mut self) -> std::io::Result<Turn> {
        self.turn_with(Stack::turn_amid_answers)
    }

    /// True if the last turn left segments to send beyond its budget.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The time of the last turn, ns.
    pub fn turned_ns(&self) -> u64 {
        self.turned_ns
    }

    /// Time that this thread spent looking for work, ns.
    pub fn looked_ns(&self) -> u64 {
        self.spin.looked_ns()
    }

    /// Yields this CPU to a helper thread that may bring frames. True: the caller, which found
    /// nothing and will not sleep, looks again.
    pub fn give_way_to_helper(&self) -> bool {
        if self.mover_shares_cpu {
            std::thread::yield_now();
        }
        self.mover_shares_cpu
    }

    /// Begins a call of the application's thread into the library. The watchdog stays away until
    /// [`leave`](Self::leave).
    pub fn enter(&self) {
        self.shared.watch.enter();
    }

    /// Ends a call into the library. The application may stay away for long.
    pub fn leave(&mut self) {
        self.spin.left();
        if !self.has_leader {
            self.shared.watch.leave();
        }
    }

    /// Prepares a sleep on copies of the stack's descriptors, while other threads may turn the
    /// stack. `None`: there is work, or the watchdog holds the stack, so look again.
    /// [`stop_leading`](Self::stop_leading) ends the sleep. The copies in `spare`, of an earlier
    /// sleep, are used again if they are those of the same descriptors.
    pub fn lead(
        &mut self,
        spare: &mut Option<Armed>,
        has_events: impl FnOnce() -> bool,
    ) -> std::io::Result<Option<Armed>> {
        if self.clock.is_virtual() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let Some(mut stack) = self.shared.stack.try_lock() else {
            leave_to_watchdog(&mut self.refused);
            return Ok(None);
        };
        if has_events() || !stack.arm_again() {
            return Ok(None);
        }
        let (watches, now_ns) = (stack.watches(), self.turned_ns);
        let mut armed = match spare.take().filter(|spare| spare.serves(watches, now_ns)) {
            Some(armed) => armed,
            None => Armed {
                descriptors: stack.copies()?,
                due_ns: None,
                watches,
                copied_ns: now_ns,
            },
        };
        armed.due_ns = stack.next_timer_ns();
        self.shared.watch.armed();
        self.has_leader = true;
        Ok(Some(armed))
    }

    /// Disarms the stack. Either the thread that slept in the stack's place is awake, or another
    /// thread is about to turn the stack and to [`rearm`](Self::rearm) it.
    pub fn stop_leading(&mut self, leader_is_awake: bool) {
        let mut refused = 0;
        loop {
            if let Some(mut stack) = self.shared.stack.try_lock() {
                stack.disarm();
                break;
            }
            leave_to_watchdog(&mut refused);
        }
        self.has_leader &= !leader_is_awake;
    }

    /// Arms the stack again for a thread that still sleeps. False: that thread has to wake up.
    /// There is work, its sleep would last too long, or the descriptors have changed.
    pub fn rearm(&mut self, armed: &Armed) -> bool {
        let Some(mut stack) = self.shared.stack.try_lock() else {
            return false;
        };
        let is_late = |due_ns: u64| armed.due_ns.is_none_or(|armed_ns| due_ns < armed_ns);
        let is_armed = stack.arm_again()
            && stack.watches() == armed.watches
            && !stack.next_timer_ns().is_some_and(is_late);
        self.shared.watch.armed();
        is_armed
    }

    fn turn_with(&mut self, turn: fn(&mut Stack, u64) -> Turned) -> std::io::Result<Turn> {
        point();
        let held = self.shared.stack.try_lock();
        // The clock is read with the lock held: an earlier reading could precede the watchdog's
        // last turn.
        let now_ns = self.clock.now_ns();
        self.turned_ns = now_ns;
        self.is_behind = false;
        let Some(mut stack) = held else {
            leave_to_watchdog(&mut self.refused);
            return Ok(Turn::Moved);
        };
        self.refused = 0;
        let turned = turn(&mut stack, now_ns);
        self.unmeasured += 1;
        if turned.busy && self.unmeasured >= TURNS_PER_MEASURE {
            self.unmeasured = 0;
            stack.note_turn(self.clock.now_ns().saturating_sub(now_ns));
        }
        self.mover_shares_cpu = !turned.busy && stack.mover_shares_cpu();
        self.is_behind = turned.behind;
        self.shared.watch.turned();
        if stack.is_gone() {
            // The program may end on this error, and the cause shall be in its log.
            stack.observe(now_ns);
            return Err(Errno::NETDOWN.into());
        }
        if turned.busy {
            self.spin.worked(now_ns);
            return Ok(Turn::Moved);
        }
        if self.spin.looks_on(now_ns) {
            match self.mover_shares_cpu {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            return Ok(Turn::Looking);
        }
        Ok(Turn::Idle)
    }

    /// Sleeps until an event may have arrived, or until `until_ns`. `has_events` is the last look
    /// before the sleep. True if a signal ended the sleep.
    pub fn wait(
        &mut self,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
        has_events: impl FnOnce() -> bool,
    ) -> std::io::Result<bool> {
        if self.clock.is_virtual() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        point();
        let Some(mut stack) = self.shared.stack.try_lock() else {
            leave_to_watchdog(&mut self.refused);
            return Ok(false);
        };
        point();
        // The watchdog may have taken one more turn after ours, having seen the owner away before.
        if has_events() {
            return Ok(false);
        }
        before_sleep();
        stack.wait(monotonic_ns(), until_ns, extra)
    }

    /// The time at which the stack has something to do although nothing arrives.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let mut refused = 0;
        loop {
            if let Some(stack) = self.shared.stack.try_lock() {
                return stack.next_timer_ns();
            }
            leave_to_watchdog(&mut refused);
        }
    }

    /// Ends the stack. Its connections first get `linger_ns` to close in order, in this process or
    /// in its heir, which calls `in_heir`.
    pub fn finish(self, linger_ns: u64, heir: Option<Heir>, in_heir: &dyn Fn(&mut Stack)) {
        drop(self.guarded);
        let (shared, clock) = (self.shared, self.clock);
        // On a virtual clock no time passes in which connections could close.
        let linger_ns = if clock.is_virtual() { 0 } else { linger_ns };
        let mut refused = 0;
        loop {
            if let Some(mut stack) = shared.stack.try_lock() {
                let is_left = linger(&mut stack, linger_ns, &clock, heir, in_heir);
                if is_left {
                    // The heir closes the wire and its connections, so this process leaks the
                    // stack.
                    std::mem::forget(Arc::clone(&shared));
                }
                return;
            }
            leave_to_watchdog(&mut refused);
        }
    }
}

/// Waits while the watchdog takes one turn. The watchdog may need this very core: a thread of
/// real-time priority that only yielded would keep the core.
fn leave_to_watchdog(refused: &mut u32) {
    *refused = refused.saturating_add(1);
    match *refused <= WATCHDOG_YIELDS_MAX {
        true => std::thread::yield_now(),
        false => std::thread::sleep(WATCHDOG_PATIENCE),
    }
}

/// Number of yields to the watchdog before the owner sleeps, and the length of a sleep. A turn
/// takes from some microseconds to some tenths of a millisecond.
const WATCHDOG_YIELDS_MAX: u32 = 32;
const WATCHDOG_PATIENCE: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use packetio::loopback::{self, LoopbackOptions};
    use ring::trylock::TryLock;
    use stack::StackConfig;

    use super::*;
    use crate::shared_stack::Watch;

    #[test]
    fn owner_who_finds_the_watchdog_at_the_stack_leaves_it_the_core() {
        let (near, _far) = loopback::pair(&LoopbackOptions::default()).expect("a link");
        let stack_config = StackConfig {
            addresses: vec!["10.0.0.1/24".parse().expect("an address")],
            ..StackConfig::default()
        };
        let (stack, _app) = Stack::new(stack_config, Box::new(near), 0).expect("a stack");
        let shared = Arc::new(SharedStack {
            stack: TryLock::new(stack),
            watch: Watch::new(),
        });
        let config = Config::new("loopback:unused".parse().expect("a wire"));
        let mut crank = Crank::new(shared.clone(), None, &config);
        let at_it = shared.stack.try_lock().expect("nobody else");
        let begin = std::time::Instant::now();
        for _ in 0..WATCHDOG_YIELDS_MAX + 10 {
            assert_eq!(crank.turn_once().ok(), Some(Turn::Moved));
        }
        assert!(begin.elapsed() >= 10 * WATCHDOG_PATIENCE);
        drop(at_it);
        crank.turn_once().expect("a turn");
        assert_eq!(crank.refused, 0);
    }
}
