//! The crank, seen from the application's thread: make progress now, or sleep until there is
//! something to see.

use std::sync::Arc;
use std::time::Duration;

use packetio::Clock;
use packetio::wait::monotonic_ns;
use ring::doorbell::AppBell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use stack::{Stack, Turned};

use crate::config::Config;
use crate::dedicated::{StackThread, linger};
use crate::shared_stack::SharedStack;
use crate::spin::Spin;
use crate::watchdog::Guarded;

/// See the module's documentation.
pub(crate) enum CrankHandle {
    Inline(InlineCrank),
    Dedicated(StackThread),
}

/// The outcome of one step towards an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something moved: look at the sockets again.
    Moved,
    /// Nothing did, but it is worth looking again at once.
    Looking,
    /// Nothing is there to be seen: the caller may wait.
    Idle,
}

impl CrankHandle {
    /// Moves the stack on, if that is this thread's to do. `NetworkDown` when there is no wire, or
    /// no stack thread, any more.
    pub fn step(&mut self) -> std::io::Result<Step> {
        self.step_with(Stack::turn)
    }

    /// As [`step`](Self::step), for a caller who hands events out and will be back with what they
    /// are answered.
    pub fn step_before_answers(&mut self) -> std::io::Result<Step> {
        self.step_with(Stack::turn_before_answers)
    }

    fn step_with(&mut self, turn: fn(&mut Stack, u64) -> Turned) -> std::io::Result<Step> {
        match self {
            Self::Inline(crank) => crank.step(turn),
            Self::Dedicated(thread) if thread.has_ended() => Err(Errno::NETDOWN.into()),
            Self::Dedicated(_) => Ok(Step::Idle),
        }
    }

    /// The application works on without a step: the port makes room for what arrives meanwhile. A
    /// stack's own thread does so by itself.
    pub fn drain(&self) {
        if let Self::Inline(crank) = self
            && let Some(mut stack) = crank.shared.stack.try_lock()
        {
            stack.drain();
        }
    }

    /// The last step was a turn of this thread's that left more to send than a turn does.
    pub fn is_behind(&self) -> bool {
        matches!(self, Self::Inline(crank) if crank.is_behind)
    }

    /// The time of the last step.
    pub fn stepped_ns(&self) -> u64 {
        match self {
            Self::Inline(crank) => crank.stepped_ns,
            Self::Dedicated(_) => monotonic_ns(),
        }
    }

    /// Sleeps until the application may have something to see, or `until_ns`. `has_events` is the
    /// last look before the sleep. True if a signal ended it.
    pub fn wait(
        &mut self,
        bell: &AppBell,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
        has_events: impl FnOnce() -> bool,
    ) -> std::io::Result<bool> {
        match self {
            Self::Inline(crank) => crank.wait(until_ns, extra, has_events),
            Self::Dedicated(thread) => {
                let has_news = || has_events() || thread.has_ended();
                wait_for_bell(bell, until_ns, extra, has_news)
            }
        }
    }

    /// The caller has found nothing and will not sleep. If a thread that could bring something
    /// needs this CPU, that thread runs first; true: look again.
    pub fn give_way_to_helper(&self) -> bool {
        let shares_cpu = match self {
            Self::Inline(crank) => crank.mover_shares_cpu,
            Self::Dedicated(thread) => thread.shares_cpu(),
        };
        if shares_cpu {
            std::thread::yield_now();
        }
        shares_cpu
    }

    /// The application is about to ask again for what only the stack can bring: a stack's own
    /// thread may need this very core for it.
    pub fn give_way(&self) {
        if let Self::Dedicated(_) = self {
            std::thread::yield_now();
        }
    }

    /// Time that this thread spent looking for work, ns.
    pub fn looked_ns(&self) -> u64 {
        match self {
            Self::Inline(crank) => crank.spin.looked_ns(),
            Self::Dedicated(_) => 0,
        }
    }

    /// When the stack has something to do though nothing arrives, as far as this thread is the one
    /// to see to it.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Inline(crank) => crank.next_deadline_ns(),
            Self::Dedicated(_) => None,
        }
    }

    /// The step was this thread's own, and brought nothing: what is to be seen now was there before
    /// it.
    pub fn was_quiet(&self, step: Step) -> bool {
        matches!(self, Self::Inline(_)) && step != Step::Moved
    }

    /// The application's thread is inside a call of ours from here...
    pub fn enter(&self) {
        if let Self::Inline(crank) = self {
            crank.shared.watch.enter();
        }
    }

    /// ... to here, and may be away for long.
    pub fn leave(&mut self) {
        if let Self::Inline(crank) = self {
            crank.spin.left();
            crank.shared.watch.leave();
        }
    }

    /// The last thing that is done with it: connections may close in order for `linger_ns`.
    pub fn finish(self, linger_ns: u64) {
        if let Self::Inline(crank) = self {
            crank.finish(linger_ns);
        }
    }
}

/// The inline crank.
pub(crate) struct InlineCrank {
    shared: Arc<SharedStack>,
    /// None with a virtual clock, whose holder turns the stack.
    guarded: Option<Guarded>,
    clock: Clock,
    stepped_ns: u64,
    /// The last turn had more to send than a turn does.
    is_behind: bool,
    spin: Spin,
    /// Looks in a row that found the watchdog at the stack.
    refused: u32,
    /// The last step brought nothing, and a helper thread that moves the port's frames needs this
    /// CPU.
    mover_shares_cpu: bool,
}

impl InlineCrank {
    pub fn new(shared: Arc<SharedStack>, guarded: Option<Guarded>, config: &Config) -> Self {
        Self {
            shared,
            guarded,
            clock: config.clock.clone(),
            stepped_ns: 0,
            is_behind: false,
            spin: Spin::new(if config.clock.is_virtual() {
                0
            } else {
                config.spin_ns
            }),
            refused: 0,
            mover_shares_cpu: false,
        }
    }

    fn step(&mut self, turn: fn(&mut Stack, u64) -> Turned) -> std::io::Result<Step> {
        let held = self.shared.stack.try_lock();
        // With the lock: a turn of the watchdog's may have been later than before it.
        let now_ns = self.clock.now_ns();
        self.stepped_ns = now_ns;
        self.is_behind = false;
        let Some(mut stack) = held else {
            leave_to_watchdog(&mut self.refused);
            return Ok(Step::Moved);
        };
        self.refused = 0;
        let turned = turn(&mut stack, now_ns);
        self.mover_shares_cpu = !turned.busy && stack.mover_shares_cpu();
        self.is_behind = turned.behind;
        self.shared.watch.turned();
        if stack.is_gone() {
            return Err(Errno::NETDOWN.into());
        }
        if turned.busy {
            self.spin.worked(now_ns);
            return Ok(Step::Moved);
        }
        if self.spin.looks_on(now_ns) {
            match self.mover_shares_cpu {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            return Ok(Step::Looking);
        }
        Ok(Step::Idle)
    }

    fn wait(
        &mut self,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
        has_events: impl FnOnce() -> bool,
    ) -> std::io::Result<bool> {
        if self.clock.is_virtual() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let Some(mut stack) = self.shared.stack.try_lock() else {
            leave_to_watchdog(&mut self.refused);
            return Ok(false);
        };
        // The watchdog may have taken one more turn after ours, having seen us away before we came.
        if has_events() {
            return Ok(false);
        }
        stack.wait(monotonic_ns(), until_ns, extra)
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let mut refused = 0;
        loop {
            if let Some(stack) = self.shared.stack.try_lock() {
                return stack.next_timer_ns();
            }
            leave_to_watchdog(&mut refused);
        }
    }

    fn finish(self, linger_ns: u64) {
        drop(self.guarded);
        let (shared, clock) = (self.shared, self.clock);
        // Time that stands still lets nothing close.
        let linger_ns = if clock.is_virtual() { 0 } else { linger_ns };
        let mut refused = 0;
        loop {
            if let Some(mut stack) = shared.stack.try_lock() {
                return linger(&mut stack, linger_ns, &clock);
            }
            leave_to_watchdog(&mut refused);
        }
    }
}

/// The watchdog has the stack; it takes one turn and lets go. It may need this very core for that,
/// and a thread of real-time priority that only yields keeps it for itself.
fn leave_to_watchdog(refused: &mut u32) {
    *refused = refused.saturating_add(1);
    match *refused <= WATCHDOG_YIELDS_MAX {
        true => std::thread::yield_now(),
        false => std::thread::sleep(WATCHDOG_PATIENCE),
    }
}

/// How often an owner yields to the watchdog before it sleeps, and how long it sleeps then: a turn
/// takes from some microseconds to some tenths of a millisecond.
const WATCHDOG_YIELDS_MAX: u32 = 32;
const WATCHDOG_PATIENCE: Duration = Duration::from_micros(50);

fn wait_for_bell(
    bell: &AppBell,
    until_ns: Option<u64>,
    extra: &[BorrowedFd<'_>],
    has_events: impl FnOnce() -> bool,
) -> std::io::Result<bool> {
    let timeout_ns = until_ns.map(|until_ns| until_ns.saturating_sub(monotonic_ns()));
    if extra.is_empty() {
        bell.wait_unless(has_events, timeout_ns);
        return Ok(false);
    }
    let own = bell.fd()?;
    let sleep = |()| {
        let fds = extra.iter().copied().chain([own]);
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as _,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    };
    let slept = bell.doze(|| (!has_events()).then_some(()), sleep);
    slept.unwrap_or(Ok(false))
}

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
        let mut crank = InlineCrank::new(shared.clone(), None, &config);
        let at_it = shared.stack.try_lock().expect("nobody else");
        let begin = std::time::Instant::now();
        for _ in 0..WATCHDOG_YIELDS_MAX + 10 {
            assert_eq!(crank.step(Stack::turn).ok(), Some(Step::Moved));
        }
        assert!(begin.elapsed() >= 10 * WATCHDOG_PATIENCE);
        drop(at_it);
        crank.step(Stack::turn).expect("a turn");
        assert_eq!(crank.refused, 0);
    }
}
