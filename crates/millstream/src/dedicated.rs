//! The dedicated crank: a thread that does nothing but turn one stack.

use std::sync::Arc;
use std::thread::JoinHandle;

use packetio::Clock;
use ring::doorbell::{AppBell, StackBell};
use ring::last_cpu::LastCpu;
use ring::published::Flag;
use rustix::thread::{CpuSet, sched_setaffinity};
use stack::Stack;

use crate::config::Config;
use crate::error::Error;
use crate::limits::FAREWELL_NS_MAX;
use crate::spin::Spin;

/// A running stack thread. Dropped, it lets connections close for as long as configured, and ends.
pub(crate) struct StackThread {
    stop: Arc<Flag>,
    ended: Arc<Flag>,
    bell: StackBell,
    /// Where the thread ran last.
    cpu: Arc<LastCpu>,
    thread: Option<JoinHandle<()>>,
}

impl StackThread {
    pub fn start(
        stack: Stack,
        bell: StackBell,
        app_bell: AppBell,
        config: &Arc<Config>,
        index: usize,
    ) -> Result<Self, Error> {
        let (stop, ended) = (Arc::new(Flag::new()), Arc::new(Flag::new()));
        let cpu = Arc::<LastCpu>::default();
        let (stopped, noted, config) = (stop.clone(), cpu.clone(), config.clone());
        let end = End {
            ended: ended.clone(),
            app_bell,
        };
        let thread = std::thread::Builder::new()
            .name(format!("millstream-{index}"))
            .spawn(move || {
                let _end = end;
                if config.pin {
                    pin(index);
                }
                run(stack, &stopped, &noted, &config);
            })
            .map_err(|source| Error::System {
                what: "stack thread",
                source,
            })?;
        Ok(Self {
            stop,
            ended,
            bell,
            cpu,
            thread: Some(thread),
        })
    }

    /// The thread turns its stack no more: the wire is gone, or it panicked.
    pub fn has_ended(&self) -> bool {
        self.ended.is_raised()
    }

    /// The thread needs the CPU of the calling thread to move on.
    pub fn shares_cpu(&self) -> bool {
        self.cpu.is_ours()
    }
}

/// Tells the application that the thread has ended, for any reason. Without this a call would wait
/// for a stack that no thread turns.
struct End {
    ended: Arc<Flag>,
    app_bell: AppBell,
}

impl Drop for End {
    fn drop(&mut self) {
        self.ended.raise();
        self.app_bell.wake();
    }
}

impl Drop for StackThread {
    fn drop(&mut self) {
        self.stop.raise();
        self.bell.insist();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn run(mut stack: Stack, stop: &Flag, cpu: &LastCpu, config: &Config) {
    cpu.note();
    let mut spin = Spin::new(config.spin_ns);
    while !stop.is_raised() {
        let now_ns = config.clock.now_ns();
        let turned = stack.turn_before_answers(now_ns);
        if stack.is_gone() {
            return;
        }
        if turned.busy {
            spin.worked(now_ns);
            continue;
        }
        cpu.note();
        if spin.looks_on(now_ns) {
            // The application's thread may need this very core, to answer what it was just told of.
            std::thread::yield_now();
        } else if stack.wait(now_ns, None, &[]).is_err() {
            // A wait that fails at once must not become a busy loop.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    linger(&mut stack, config.linger_ns, &config.clock);
}

/// Turns the stack until no connection is left or the time is over; those left then are reset.
pub(crate) fn linger(stack: &mut Stack, linger_ns: u64, clock: &Clock) {
    let until_ns = clock.now_ns() + linger_ns;
    loop {
        let now_ns = clock.now_ns();
        let turned = stack.turn(now_ns);
        let usage = stack.usage();
        let is_done = usage.sockets == 0 && usage.fin_wait_2 == 0 && !stack.has_output();
        if is_done || stack.is_gone() {
            return;
        }
        if now_ns >= until_ns {
            return say_farewell(stack, clock);
        }
        if !turned.busy && stack.wait(now_ns, Some(until_ns), &[]).is_err() {
            return;
        }
    }
}

/// Resets the connections that have not closed by now: in portions, as many as the stack has room
/// for, and for as long as the port may need to take them.
#[cold]
fn say_farewell(stack: &mut Stack, clock: &Clock) {
    let until_ns = clock.now_ns() + FAREWELL_NS_MAX;
    let mut next = Some(0);
    loop {
        next = next.and_then(|next| stack.abort_some(next));
        let now_ns = clock.now_ns();
        let turned = stack.turn(now_ns);
        let is_done = next.is_none() && !stack.has_output();
        if is_done || stack.is_gone() || now_ns >= until_ns {
            return;
        }
        // Time that stands still brings the port no room.
        let waits = !turned.busy;
        if waits && (clock.is_virtual() || stack.wait(now_ns, Some(until_ns), &[]).is_err()) {
            return;
        }
    }
}

/// Binds this thread to CPU `index` modulo those online. Without the right to do so it runs where
/// the kernel puts it.
fn pin(index: usize) {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(index % online);
    let _ = sched_setaffinity(None, &set);
}
