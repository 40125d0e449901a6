//! Threads that sleep in their calls, and the rules for waking them.
//!
//! One sleeper leads: it sleeps on the wire and turns the stack when it wakes. The others sleep on
//! their bells until a thread that turned the stack finds news for them, like the threads of
//! `posix::Shared`. A thread that makes a call turns the stack for its own requests while the
//! leader sleeps on. A thread that has several sockets to answer leaves those turns to the leader.

use std::cell::Cell;

use millstream::Armed;
use posix::{Awaited, Sockets};

use crate::limits::VISITOR_TURNS_MAX;
use crate::memory_unsafe;

thread_local! {
    /// The last wait of this thread reported several sockets.
    static ANSWERS_SEVERAL: Cell<bool> = const { Cell::new(false) };
}

/// Notes the number of sockets that a wait of this thread reported. With several, the thread does
/// not turn the stack for each answer: the leader wakes and sends all of them together.
pub fn told_of(sockets: usize) {
    ANSWERS_SEVERAL.set(sockets > 1);
}

/// A thread that sleeps in a call.
pub struct Sleeper {
    /// The thread's eventfd.
    pub bell: i32,
    /// True after the bell was rung.
    pub is_rung: bool,
    /// The stack's sleep, if this thread leads.
    pub armed: Option<Armed>,
    /// The sockets that the thread waits for.
    pub news: News,
}

/// The sockets that a call waits for, and the news of them that it has seen.
pub struct News {
    awaited: Awaited,
    seen: u64,
    /// Only one of several such threads that wait for the same sockets is woken.
    is_exclusive: bool,
}

impl News {
    /// Reads the news, before the call looks at the sockets themselves.
    pub fn begin(sockets: &Sockets, awaited: Awaited) -> Self {
        Self {
            seen: sockets.news(&awaited),
            awaited,
            is_exclusive: false,
        }
    }

    /// Like [`begin`](Self::begin), for `accept` and `epoll_wait`, where waking one thread
    /// suffices.
    pub fn begin_exclusive(sockets: &Sockets, awaited: Awaited) -> Self {
        Self {
            is_exclusive: true,
            ..Self::begin(sockets, awaited)
        }
    }

    /// True if there is news that the call has not seen.
    pub fn has_news(&self, sockets: &Sockets) -> bool {
        sockets.news(&self.awaited) != self.seen
    }

    fn shares_with(&self, other: &Self) -> bool {
        self.is_exclusive && other.is_exclusive && self.awaited.is_same(&other.awaited)
    }
}

/// See the module's documentation. The first sleeper has slept longest.
#[derive(Default)]
pub struct Sleepers(Vec<Sleeper>);

impl Sleepers {
    /// No sleeper.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    fn leader(&self) -> Option<usize> {
        self.0.iter().position(|one| one.armed.is_some())
    }

    /// True if a sleeper leads.
    pub fn has_leader(&self) -> bool {
        self.leader().is_some()
    }

    /// Adds a thread that is about to sleep. Exclusive waiters on the same sockets have then seen
    /// the same news: the thread was woken for all of them and found nothing.
    pub fn enlist(&mut self, sleeper: Sleeper) {
        for other in &mut self.0 {
            if !other.is_rung && other.news.shares_with(&sleeper.news) {
                other.news.seen = sleeper.news.seen;
            }
        }
        self.0.push(sleeper);
    }

    /// Removes a sleeper.
    pub fn take_out(&mut self, bell: i32) -> Option<Sleeper> {
        let at = self.0.iter().position(|one| one.bell == bell)?;
        Some(self.0.remove(at))
    }

    /// Begins a call that may turn the stack: the leader must not wake for what it does.
    pub fn visit(&self, sockets: &Sockets) {
        if self.has_leader() {
            sockets.context().visit();
        }
    }

    /// Ends such a call, as the last step before the lock is released. Requests leave, threads with
    /// news are woken, and a sleeper becomes leader if there is none.
    pub fn before_unlock(&mut self, sockets: &Sockets) {
        if self.0.is_empty() {
            return;
        }
        let context = sockets.context();
        if self.has_leader() && !ANSWERS_SEVERAL.get() {
            for _ in 0..VISITOR_TURNS_MAX {
                // Calls that wait report a wire that is gone.
                if !context.has_requests() || context.turn_once().is_err() {
                    break;
                }
            }
        }
        self.wake_those_with_news(sockets);
        match self.leader() {
            Some(at) => {
                let leader = &mut self.0[at];
                let armed = leader.armed.as_ref();
                if !armed.is_some_and(|armed| context.rearm(armed)) {
                    leader.ring();
                }
            }
            None if self.0.iter().any(|one| one.is_rung) => {}
            None => self.0.iter_mut().take(1).for_each(Sleeper::ring),
        }
    }

    fn wake_those_with_news(&mut self, sockets: &Sockets) {
        for at in 0..self.0.len() {
            let one = &self.0[at];
            let is_for_another = || {
                let shares = |other: &Sleeper| other.is_rung && other.news.shares_with(&one.news);
                one.news.is_exclusive && self.0.iter().any(shares)
            };
            if !one.is_rung && one.news.has_news(sockets) && !is_for_another() {
                self.0[at].ring();
            }
        }
    }

    /// Wakes all sleepers: a call may have changed what they wait for.
    pub fn wake_all(&mut self) {
        self.0.iter_mut().for_each(Sleeper::ring);
    }
}

impl Sleeper {
    fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            memory_unsafe::ring(self.bell);
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream::{Config, Runtime};
    use posix::{Address, Errno, Outcome, Request, number};

    use super::*;

    const FIRST: i32 = -2;
    const SECOND: i32 = -3;

    fn sockets() -> Sockets {
        let mut config = Config::new("loopback:".parse().unwrap());
        config.addresses.push("10.0.0.1/24".parse().unwrap());
        Sockets::new(Runtime::new(config).unwrap().context(0).unwrap())
    }

    fn done(sockets: &mut Sockets, request: Request) -> Result<i64, Errno> {
        match sockets.call(request) {
            (Outcome::Done(outcome), _) => outcome,
            (Outcome::Pending, _) => Err(Errno::AGAIN),
        }
    }

    fn socket(sockets: &mut Sockets) -> i32 {
        let request = Request::Socket {
            domain: number::AF_INET,
            kind: number::SOCK_STREAM | number::SOCK_NONBLOCK,
            protocol: 0,
        };
        done(sockets, request).unwrap() as i32
    }

    fn address(port: u16) -> Address {
        Address::Inet(([10, 0, 0, 1], port).into())
    }

    fn listener(sockets: &mut Sockets, port: u16) -> i32 {
        let fd = socket(sockets);
        let address = address(port);
        done(sockets, Request::Bind { fd, address }).unwrap();
        done(sockets, Request::Listen { fd, backlog: 8 }).unwrap();
        while sockets.turn() {}
        fd
    }

    fn connect(sockets: &mut Sockets, port: u16) {
        let fd = socket(sockets);
        let address = address(port);
        assert_eq!(
            done(sockets, Request::Connect { fd, address }),
            Err(Errno::INPROGRESS)
        );
        while sockets.turn() {}
    }

    /// A thread that waits in `accept`, by a bell that is none.
    fn acceptor(sockets: &Sockets, bell: i32, listener: i32) -> Sleeper {
        Sleeper {
            bell,
            is_rung: false,
            armed: None,
            news: News::begin_exclusive(sockets, sockets.awaited(listener)),
        }
    }

    /// Two threads that wait in `accept` of these listeners; the first has waited longer.
    fn acceptors(sockets: &Sockets, listeners: [i32; 2]) -> Sleepers {
        let mut sleepers = Sleepers::none();
        for (bell, listener) in [FIRST, SECOND].into_iter().zip(listeners) {
            sleepers.enlist(acceptor(sockets, bell, listener));
        }
        sleepers
    }

    fn rung(sleepers: &Sleepers) -> Vec<i32> {
        let rung = sleepers.0.iter().filter(|one| one.is_rung);
        rung.map(|one| one.bell).collect()
    }

    #[test]
    fn sleepers_one_with_news_sleeps_on_without_it() {
        let mut sockets = sockets();
        let listeners = [80, 81].map(|port| listener(&mut sockets, port));
        let mut sleepers = acceptors(&sockets, listeners);
        connect(&mut sockets, 81);
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [SECOND]);
    }

    #[test]
    fn acceptors_of_one_listener_are_woken_one_by_one() {
        let mut sockets = sockets();
        let listener = listener(&mut sockets, 80);
        let mut sleepers = acceptors(&sockets, [listener; 2]);
        connect(&mut sockets, 80);
        sleepers.before_unlock(&sockets);
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [FIRST]);
        // It has accepted, and leaves: there may be another connection.
        assert!(sleepers.take_out(FIRST).is_some());
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [SECOND]);
    }

    #[test]
    fn acceptor_that_finds_nothing_leaves_the_other_asleep() {
        let mut sockets = sockets();
        let listener = listener(&mut sockets, 80);
        let mut sleepers = acceptors(&sockets, [listener; 2]);
        connect(&mut sockets, 80);
        sleepers.before_unlock(&sockets);
        assert!(sleepers.take_out(FIRST).is_some());
        sleepers.enlist(acceptor(&sockets, FIRST, listener));
        assert!(sleepers.0.iter().all(|one| !one.news.has_news(&sockets)));
    }

    #[test]
    fn sleepers_without_a_leader_one_is_woken_to_lead() {
        let mut sockets = sockets();
        let listeners = [80, 81].map(|port| listener(&mut sockets, port));
        let mut sleepers = acceptors(&sockets, listeners);
        sleepers.before_unlock(&sockets);
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [FIRST]);
    }

    #[test]
    fn listener_closed_wakes_its_acceptor() {
        let mut sockets = sockets();
        let listeners = [80, 81].map(|port| listener(&mut sockets, port));
        let mut sleepers = acceptors(&sockets, listeners);
        let fd = listeners[1];
        done(&mut sockets, Request::Close { fd }).unwrap();
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [SECOND]);
    }
}
