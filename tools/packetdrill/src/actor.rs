//! The thread that owns the stack. It answers packetdrill's threads, holds calls that block, and
//! moves the clock.
//!
//! Virtual time moves only while the script's thread sleeps, waits for a packet, or blocks in a
//! call of its own. It also moves by microseconds when a packet is late, and when a thread polls
//! the clock. The clock goes from one deadline of the stack to the next, so that everything happens
//! when it is due.
//!
//! A call that another thread made and that blocks stays here until it is over. Its answer says
//! when that was, and the thread handles the answer before time moves on.
//!
//! With the system's clock the thread sleeps until the stack's deadlines instead.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use millstream::VirtualClock;
use posix::{Call, Outcome, Request};
use rustix::thread::Pid;

use crate::ask::{Answer, Ask, Asker, What};
use crate::limits::{IDLE_LOOKS_MAX, SPIN_NS, WAIT_NS_MAX, WAIT_STEPS_MAX};
use crate::threads::wait_until_asleep;
use crate::world::World;

/// See the module's documentation.
pub struct Actor {
    world: World,
    /// The thread that runs the script. Virtual time moves for this thread only.
    driver: Pid,
    blocked: Vec<Blocked>,
    /// The thread that waits for a packet; used only with the system's clock.
    receiver: Option<Asker>,
    /// Number of looks at the clock in a row, without any other request.
    idle_looks: u32,
}

/// A call of another thread that has not ended.
struct Blocked {
    call: Call,
    asker: Asker,
}

/// The outcome of a wait of the script's thread.
enum Wait<T> {
    Over(T),
    /// The wait can never end, for this reason.
    Never(&'static str),
}

impl Actor {
    /// An actor whose script is run by the thread `driver`.
    pub fn new(world: World, driver: Pid) -> Self {
        Self {
            world,
            driver,
            blocked: Vec::new(),
            receiver: None,
            idle_looks: 0,
        }
    }

    /// Answers requests, `first` and those of `asks`, until one of them ends the thread or no
    /// thread can ask.
    pub fn run(mut self, first: Ask, asks: &Receiver<Ask>) {
        let mut next = Some(first);
        while let Some(ask) = next {
            if matches!(ask.what, What::Quit) {
                let at_ns = self.world.now_ns();
                return ask.answer(Answer::Done { at_ns });
            }
            self.on_ask(ask);
            next = match self.world.virtual_clock() {
                Some(_) => asks.recv().ok(),
                None => self.next_ask_in_time(asks),
            };
        }
    }

    fn on_ask(&mut self, ask: Ask) {
        if !matches!(ask.what, What::Now) {
            self.idle_looks = 0;
            self.world.settings_may_have_changed();
        }
        let (what, asker) = ask.into_asker();
        match what {
            What::Call(request) => self.on_call(request, asker),
            What::Inject(packet) => {
                self.be_late();
                let outcome = self.world.inject(&packet);
                self.turn();
                asker.answer(match outcome {
                    Ok(()) => self.done(),
                    Err(reason) => Answer::Never(reason),
                });
            }
            What::Next => self.on_next(asker),
            What::Sleep { ns } => {
                self.on_sleep(ns);
                let done = self.done();
                asker.answer(done);
            }
            What::Now => {
                self.on_look();
                let done = self.done();
                asker.answer(done);
            }
            What::Quit => {}
        }
    }

    fn done(&self) -> Answer {
        let at_ns = self.world.now_ns();
        Answer::Done { at_ns }
    }

    /// Lets the stack act, and ends blocked calls that are over.
    fn turn(&mut self) {
        self.world.turn();
        self.carry_on_blocked();
    }

    fn on_call(&mut self, request: Request, asker: Asker) {
        self.world.prepare(&request);
        let mut call = Call::start(request);
        let outcome = call.poll(&mut self.world.host.sockets);
        self.turn();
        match outcome {
            Outcome::Done(_) => self.finish(Blocked { call, asker }, outcome, false),
            Outcome::Pending if asker.thread != self.driver => {
                self.blocked.push(Blocked { call, asker });
                self.carry_on_blocked();
            }
            Outcome::Pending => self.wait_for(call, asker),
        }
    }

    /// Lets time pass until the blocking call of the script's thread is over.
    fn wait_for(&mut self, mut call: Call, asker: Asker) {
        let Some(clock) = self.world.virtual_clock().cloned() else {
            self.blocked.push(Blocked { call, asker });
            return;
        };
        let waited = self.pass_time(&clock, |actor| {
            let outcome = call.poll(&mut actor.world.host.sockets);
            actor.world.turn();
            let is_over = outcome != Outcome::Pending;
            (is_over.then_some(outcome), call.deadline_ns())
        });
        match waited {
            Wait::Over(outcome) => self.finish(Blocked { call, asker }, outcome, true),
            Wait::Never(why) => asker.answer(Answer::Never(format!(
                "{} blocks for ever: {why}",
                name(call.request())
            ))),
        }
    }

    fn on_next(&mut self, asker: Asker) {
        self.turn();
        let Some(clock) = self.world.virtual_clock().cloned() else {
            self.receiver = Some(asker);
            return self.serve_receiver();
        };
        let waited = self.pass_time(&clock, |actor| (actor.world.departed(), None));
        asker.answer(match waited {
            Wait::Over(departed) => Answer::Packet {
                packet: departed.packet,
                at_ns: departed.at_ns,
            },
            Wait::Never(why) => Answer::Never(format!("no packet leaves: {why}")),
        });
    }

    /// Moves the clock from deadline to deadline until `attempt` succeeds. `attempt` also returns
    /// its own deadline in ns.
    fn pass_time<T>(
        &mut self,
        clock: &VirtualClock,
        mut attempt: impl FnMut(&mut Self) -> (Option<T>, Option<u64>),
    ) -> Wait<T> {
        let give_up_ns = clock.now_ns().saturating_add(WAIT_NS_MAX);
        for _ in 0..WAIT_STEPS_MAX {
            let (outcome, deadline_ns) = attempt(self);
            if let Some(outcome) = outcome {
                return Wait::Over(outcome);
            }
            let due = [self.next_deadline_ns(), deadline_ns].into_iter().flatten();
            let Some(due_ns) = due.min() else {
                return Wait::Never("nothing is due any more");
            };
            if due_ns > give_up_ns {
                return Wait::Never("nothing is due for hours");
            }
            self.advance(Some(due_ns), u64::MAX);
        }
        Wait::Never("something is due again and again and comes to nothing")
    }

    /// The earliest deadline of the stack and of the blocked calls, in ns.
    fn next_deadline_ns(&self) -> Option<u64> {
        let calls = self.blocked.iter().filter_map(|b| b.call.deadline_ns());
        calls.chain(self.world.next_deadline_ns()).min()
    }

    /// Moves the clock to the deadline, but not beyond the limit, and turns the stack.
    fn advance(&mut self, due_ns: Option<u64>, limit_ns: u64) {
        self.world.host.advance(due_ns, limit_ns);
        self.turn();
    }

    fn on_sleep(&mut self, ns: u64) {
        let Some(clock) = self.world.virtual_clock().cloned() else {
            return;
        };
        let until_ns = clock.now_ns().saturating_add(ns).saturating_add(SPIN_NS);
        self.turn();
        self.pass_until(&clock, until_ns);
    }

    fn pass_until(&mut self, clock: &VirtualClock, until_ns: u64) {
        while clock.now_ns() < until_ns {
            self.advance(self.next_deadline_ns(), until_ns);
        }
    }

    /// Moves a virtual clock by the few microseconds by which the next packet is late.
    fn be_late(&mut self) {
        let Some(clock) = self.world.virtual_clock().cloned() else {
            return;
        };
        let late_ns = self.world.host.take_lateness_ns();
        self.pass_until(&clock, clock.now_ns() + late_ns);
    }

    /// Moves a virtual clock a step if a thread does nothing but look at it: that thread waits for
    /// it to move.
    fn on_look(&mut self) {
        self.idle_looks = self.idle_looks.saturating_add(1);
        if self.idle_looks <= IDLE_LOOKS_MAX {
            return;
        }
        if self.world.virtual_clock().is_some() {
            self.advance(Some(self.world.now_ns()), u64::MAX);
        }
    }

    /// Polls all blocked calls, and again whenever one of them ended.
    fn carry_on_blocked(&mut self) {
        loop {
            let sockets = &mut self.world.host.sockets;
            let ended = self.blocked.iter_mut().enumerate().find_map(|(at, b)| {
                let outcome = b.call.poll(sockets);
                (outcome != Outcome::Pending).then_some((at, outcome))
            });
            self.world.turn();
            let Some((at, outcome)) = ended else { return };
            let blocked = self.blocked.swap_remove(at);
            self.finish(blocked, outcome, true);
        }
    }

    fn finish(&mut self, ended: Blocked, outcome: Outcome, has_blocked: bool) {
        let Outcome::Done(result) = outcome else {
            return;
        };
        self.world.finish(ended.call.request(), result);
        let thread = ended.asker.thread;
        ended.asker.answer(Answer::Call {
            result,
            reply: ended.call.into_reply(),
            at_ns: self.world.now_ns(),
            has_blocked,
        });
        if has_blocked && thread != self.driver && self.world.virtual_clock().is_some() {
            wait_until_asleep(thread);
        }
    }

    /// The next request, with the system's clock. The stack is turned until it comes.
    fn next_ask_in_time(&mut self, asks: &Receiver<Ask>) -> Option<Ask> {
        loop {
            self.turn();
            self.serve_receiver();
            let now_ns = self.world.now_ns();
            let due_ns = self.next_deadline_ns().unwrap_or(u64::MAX);
            let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(NAP_MAX);
            match asks.recv_timeout(wait) {
                Ok(ask) => return Some(ask),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn serve_receiver(&mut self) {
        if let Some(asker) = self.receiver.take() {
            match self.world.departed() {
                Some(departed) => asker.answer(Answer::Packet {
                    packet: departed.packet,
                    at_ns: departed.at_ns,
                }),
                None => self.receiver = Some(asker),
            }
        }
    }
}

/// The name of a call, for a message.
fn name(request: &Request) -> String {
    let text = format!("{request:?}");
    let end = text.find([' ', '{']).unwrap_or(text.len());
    text[..end].to_lowercase()
}

/// Longest time between two turns of the stack, with the system's clock.
const NAP_MAX: Duration = Duration::from_millis(10);
