//! Threads that sleep in their calls, and the rules for waking them.
//!
//! One sleeper leads: it sleeps on the wire and turns the stack when it wakes. The others sleep on
//! their bells until a thread that turned the stack finds news for them, like the threads of
//! `posix::Shared`. A thread that makes a call turns the stack for its own requests while the
//! leader sleeps on. A thread that has several sockets to answer leaves those turns to the leader,
//! or makes them in its next wait.
//!
//! In a busy program the lead goes to the thread that gets the news, so that frames wake one thread
//! instead of two. While that thread handles its news, nobody sleeps on the wire. A *deputy* among
//! the sleepers looks once a tick: it leads if the stack was not turned for that long.
//!
//! ```text
//!   leader wakes ─┬─ news of its own: handles them, expected back ──▶ waits again: leads
//!                 └─ news of another's: rings it, becomes the deputy;  that one waits again: leads
//!   deputy        ── each tick: stack turned or leader asleep? sleep on : lead
//! ```

use std::cell::Cell;
use std::sync::Arc;

use millstream::Armed;
use posix::{Awaited, PollFd, Sockets, number};

use crate::limits::{DEPUTY_TICK_NS, VISITOR_TURNS_MAX};
use crate::memory_unsafe::Bell;
use crate::{memory_unsafe, pace, waits};

thread_local! {
    /// The last wait of this thread reported several sockets.
    static ANSWERS_SEVERAL: Cell<bool> = const { Cell::new(false) };
}

/// Notes the number of sockets that a wait of this thread reported. With several, the thread does
/// not turn the stack for each answer: the leader wakes and sends all of them together.
pub fn told_of(sockets: usize) {
    ANSWERS_SEVERAL.set(sockets > 1);
    pace::told_of(sockets);
}

/// A thread that sleeps in a call.
pub struct Sleeper {
    /// The thread's bell.
    pub bell: Arc<Bell>,
    /// The thread's number.
    pub thread: usize,
    /// True after the bell was rung.
    pub is_rung: bool,
    /// The stack's sleep, if this thread leads.
    pub armed: Option<Armed>,
    /// The sockets that the thread waits for.
    pub news: News,
    /// The thread is soon back in its wait when it has news.
    pub is_quick: bool,
    /// If this thread is the deputy: the leader's wake-ups that it has seen.
    pub deputy: Option<u64>,
}

/// A deputy's next step, after a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tick {
    /// Another tick of sleep.
    Again,
    /// A sleep on its bell alone: the leader sleeps, and nothing arrives.
    Quiet,
    /// Another look, as the leader.
    Lead,
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
pub struct Sleepers {
    all: Vec<Sleeper>,
    /// A thread that is awake and will lead when it next waits.
    absent: Option<usize>,
    /// The thread whose wait last ended with news, and the time of the turn before that, ns.
    told: (usize, u64),
    /// That thread is soon back in its wait.
    told_quick: bool,
    /// Times at which a leader woke: their number, and the last one, ns.
    wakes: u64,
    woke_ns: u64,
    /// Copies of descriptors on which the last leader slept, for the next one.
    spare: Option<Armed>,
}

impl Sleepers {
    /// No sleeper.
    pub const fn none() -> Self {
        Self {
            all: Vec::new(),
            absent: None,
            told: (0, 0),
            told_quick: false,
            wakes: 0,
            woke_ns: 0,
            spare: None,
        }
    }

    /// True if no thread sleeps.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn leader(&self) -> Option<usize> {
        self.all.iter().position(|one| one.armed.is_some())
    }

    /// True if a sleeper leads.
    pub fn has_leader(&self) -> bool {
        self.leader().is_some()
    }

    /// Adds a thread that is about to sleep. Exclusive waiters on the same sockets have then seen
    /// the same news: the thread was woken for all of them and found nothing.
    pub fn enlist(&mut self, sleeper: Sleeper) {
        for other in &mut self.all {
            if !other.is_rung && other.news.shares_with(&sleeper.news) {
                other.news.seen = sleeper.news.seen;
            }
        }
        self.all.push(sleeper);
    }

    /// Removes a sleeper.
    pub fn take_out(&mut self, bell: i32) -> Option<Sleeper> {
        let at = self.all.iter().position(|one| one.bell.fd() == bell)?;
        Some(self.all.remove(at))
    }

    /// Copies of descriptors on which an earlier leader slept, for the next one.
    pub fn spare(&mut self) -> &mut Option<Armed> {
        &mut self.spare
    }

    /// Notes that the calling thread is back in its wait.
    pub fn note_back(&self, sockets: &Sockets) {
        if !self.all.is_empty() {
            pace::is_back(sockets.context().now_ns());
        }
    }

    /// Notes that a thread leads.
    pub fn leads(&mut self) {
        self.absent = None;
    }

    /// Notes that the leader, the calling thread, is awake. It may be back soon, or hand over.
    pub fn leader_woke(&mut self, armed: Armed, now_ns: u64) {
        let is_busy = self.is_busy(now_ns);
        self.spare = Some(armed);
        self.wakes += 1;
        self.woke_ns = now_ns;
        if self.absent.is_none() && is_busy && self.deputy().is_some() && pace::is_quick() {
            self.absent = Some(waits::thread());
        }
    }

    /// Notes that a wait of the calling thread has ended with news.
    pub fn note_told(&mut self, turned_ns: u64) {
        self.told = (waits::thread(), turned_ns);
        self.told_quick = pace::is_quick();
        if !self.all.is_empty() {
            pace::told(turned_ns);
        }
    }

    /// True if the last news was the calling thread's. If it was another's, looking for more before
    /// a sleep would keep the stack and the CPU from that one.
    pub fn has_own_news(&self) -> bool {
        self.told.0 == waits::thread()
    }

    /// True if a leader woke, or a wait ended with news, within the last tick.
    fn is_busy(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.woke_ns.max(self.told.1)) < DEPUTY_TICK_NS
    }

    /// Decides whether the calling thread, about to sleep, leaves the lead to another: the one that
    /// is awake with the last news, or one of the sleepers that has news.
    pub fn hand_over(&mut self, sockets: &Sockets, now_ns: u64) -> bool {
        let own = waits::thread();
        if self.absent.is_some_and(|absent| absent != own) {
            return true;
        }
        let has_news = |one: &&Sleeper| one.is_rung || one.news.has_news(sockets);
        let mut sleepers = self.all.iter().filter(|one| one.is_quick);
        let sleeper = sleepers.find(has_news).map(|one| one.thread);
        let told = self.told.0;
        let is_awake = told != own && told != 0 && self.all.iter().all(|one| one.thread != told);
        let told = (is_awake && self.told_quick).then_some(told);
        let Some(next) = sleeper.or(told).filter(|_| self.is_busy(now_ns)) else {
            return false;
        };
        self.wake_those_with_news(sockets);
        self.absent = Some(next);
        true
    }

    fn deputy(&self) -> Option<&Sleeper> {
        let mut all = self.all.iter();
        all.find(|one| one.deputy.is_some() && !one.is_rung)
    }

    /// The number of wake-ups that a deputy begins with; `None`: there is one.
    pub fn new_deputy(&self) -> Option<u64> {
        self.deputy().is_none().then_some(self.wakes)
    }

    /// A deputy's next step after a tick, in which the stack was last turned at `turned_ns`.
    pub fn tick(&mut self, bell: i32, turned_ns: u64, now_ns: u64) -> Tick {
        let (has_leader, wakes) = (self.has_leader(), self.wakes);
        let Some(own) = self.all.iter_mut().find(|one| one.bell.fd() == bell) else {
            return Tick::Lead;
        };
        if has_leader {
            own.deputy = own.deputy.filter(|seen| *seen != wakes).map(|_| wakes);
            return match own.deputy {
                Some(_) => Tick::Again,
                None => Tick::Quiet,
            };
        }
        if now_ns.saturating_sub(turned_ns) < DEPUTY_TICK_NS && self.absent.is_some() {
            return Tick::Again;
        }
        self.absent = None;
        Tick::Lead
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
        if self.all.is_empty() {
            return;
        }
        let context = sockets.context();
        if (self.has_leader() || self.absent.is_some()) && !ANSWERS_SEVERAL.get() {
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
                let leader = &mut self.all[at];
                let armed = leader.armed.as_ref();
                if !armed.is_some_and(|armed| context.rearm(armed)) {
                    leader.ring();
                    self.take_lead(context.turned_ns());
                }
            }
            None if self.all.iter().any(|one| one.is_rung) => {}
            None if self.absent.is_some() && self.deputy().is_some() => {}
            None => self.all.iter_mut().take(1).for_each(Sleeper::ring),
        }
    }

    /// Lets the calling thread lead when it next waits, in a busy program: it is awake and turns
    /// the stack, and the leader, which was woken, would only turn it between this thread's turns.
    fn take_lead(&mut self, now_ns: u64) {
        if self.absent.is_none() && self.is_busy(now_ns) && pace::is_quick() {
            self.absent = Some(waits::thread());
        }
    }

    /// Looks at an epoll for all threads that wait there alone. If it has nothing to report, they
    /// have seen its news. As a wait would, the look asks the stack to report room for writers.
    pub fn look_at(&mut self, sockets: &mut Sockets, epoll: i32) {
        let mut fds = [PollFd {
            fd: epoll,
            events: number::POLLIN,
            revents: 0,
        }];
        if sockets.poll_entries(&mut fds, 0) != Ok(0) {
            return;
        }
        let awaited = sockets.awaited(epoll);
        let waits_there = |one: &&mut Sleeper| {
            !one.is_rung && one.news.is_exclusive && one.news.awaited.is_same(&awaited)
        };
        for one in self.all.iter_mut().filter(waits_there) {
            one.news.seen = sockets.news(&awaited);
        }
    }

    /// Wakes the threads for which there is news. Of exclusive waiters on the same sockets it wakes
    /// one at a time.
    pub fn wake_those_with_news(&mut self, sockets: &Sockets) {
        for at in 0..self.all.len() {
            let one = &self.all[at];
            let is_for_another = || {
                let shares = |other: &Sleeper| other.is_rung && other.news.shares_with(&one.news);
                one.news.is_exclusive && self.all.iter().any(shares)
            };
            if !one.is_rung && one.news.has_news(sockets) && !is_for_another() {
                self.all[at].ring();
            }
        }
    }

    /// Wakes all sleepers: a call may have changed what they wait for.
    pub fn wake_all(&mut self) {
        self.all.iter_mut().for_each(Sleeper::ring);
    }
}

impl Sleeper {
    /// Wakes the thread once the caller has released the lock.
    fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            memory_unsafe::ring_later(&self.bell);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use millstream::{Config, Runtime};
    use posix::{Address, EpollEvent, Errno, Outcome, Request};

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

    fn connect(sockets: &mut Sockets, port: u16) -> i32 {
        let fd = socket(sockets);
        let address = address(port);
        assert_eq!(
            done(sockets, Request::Connect { fd, address }),
            Err(Errno::INPROGRESS)
        );
        while sockets.turn() {}
        fd
    }

    /// A thread that waits in `accept`, by a bell that is none.
    fn acceptor(sockets: &Sockets, bell: i32, listener: i32) -> Sleeper {
        Sleeper {
            bell: Bell::silent(bell),
            thread: bell.unsigned_abs() as usize,
            is_rung: false,
            armed: None,
            news: News::begin_exclusive(sockets, sockets.awaited(listener)),
            is_quick: true,
            deputy: None,
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
        let rung = sleepers.all.iter().filter(|one| one.is_rung);
        rung.map(|one| one.bell.fd()).collect()
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
        assert!(sleepers.all.iter().all(|one| !one.news.has_news(&sockets)));
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

    /// An epoll that watches a socket for these events, and a thread that sleeps there.
    fn epoll(sockets: &mut Sockets, fd: i32, events: u32) -> (i32, Sleepers) {
        let epfd = done(sockets, Request::EpollCreate { flags: 0 }).unwrap() as i32;
        watch(sockets, epfd, number::EPOLL_CTL_ADD, fd, events);
        let mut sleepers = Sleepers::none();
        sleepers.enlist(acceptor(sockets, FIRST, epfd));
        (epfd, sleepers)
    }

    fn watch(sockets: &mut Sockets, epfd: i32, op: i32, fd: i32, events: u32) {
        let event = EpollEvent { events, data: 0 };
        let request = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        done(sockets, request).unwrap();
    }

    #[test]
    fn watch_changed_that_has_nothing_to_report_wakes_no_thread() {
        let mut sockets = sockets();
        let listener = listener(&mut sockets, 80);
        let (epfd, mut sleepers) = epoll(&mut sockets, listener, number::EPOLLIN);
        let change = number::EPOLL_CTL_MOD;
        watch(&mut sockets, epfd, change, listener, number::EPOLLIN);
        sleepers.look_at(&mut sockets, epfd);
        sleepers.before_unlock(&sockets);
        assert!(!sleepers.all[0].news.has_news(&sockets));
        connect(&mut sockets, 80);
        assert!(sleepers.all[0].news.has_news(&sockets));
    }

    #[test]
    fn watch_changed_to_write_without_room_is_told_of_room() {
        let mut sockets = sockets();
        let listener = listener(&mut sockets, 80);
        let fd = connect(&mut sockets, 80);
        let (epfd, mut sleepers) = epoll(&mut sockets, fd, number::EPOLLIN);
        let request = Request::Accept {
            fd: listener,
            flags: number::SOCK_NONBLOCK,
        };
        let peer = done(&mut sockets, request).unwrap() as i32;
        while sockets
            .send_from(fd, &[IoSlice::new(&[0; 4096])], 0)
            .is_ok()
        {
            while sockets.turn() {}
        }
        let change = number::EPOLL_CTL_MOD;
        watch(&mut sockets, epfd, change, fd, number::EPOLLOUT);
        sleepers.look_at(&mut sockets, epfd);
        assert!(!sleepers.all[0].news.has_news(&sockets));
        let mut bytes = vec![0; 1 << 20];
        while sockets
            .recv_into(peer, &mut [IoSliceMut::new(&mut bytes)], 0)
            .is_ok_and(|count| count > 0)
        {
            while sockets.turn() {}
        }
        assert!(sleepers.all[0].news.has_news(&sockets));
    }

    #[test]
    fn thread_rung_keeps_its_news_when_another_looks() {
        let mut sockets = sockets();
        let listener = listener(&mut sockets, 80);
        let (epfd, mut sleepers) = epoll(&mut sockets, listener, number::EPOLLIN);
        connect(&mut sockets, 80);
        sleepers.wake_those_with_news(&sockets);
        sleepers.look_at(&mut sockets, epfd);
        assert_eq!(rung(&sleepers), [FIRST]);
        assert!(sleepers.all[0].news.has_news(&sockets));
    }

    /// The number of the thread that waits by this bell.
    fn thread(bell: i32) -> usize {
        bell.unsigned_abs() as usize
    }

    /// Sleepers of which the first has become the deputy, as the second has news.
    fn handed_over(sockets: &mut Sockets) -> Sleepers {
        let listeners = [80, 81].map(|port| listener(sockets, port));
        let mut sleepers = acceptors(sockets, listeners);
        let mut own = sleepers.take_out(FIRST).unwrap();
        connect(sockets, 81);
        sleepers.note_told(NOW_NS);
        assert!(sleepers.hand_over(sockets, NOW_NS));
        own.deputy = sleepers.new_deputy();
        sleepers.enlist(own);
        sleepers
    }

    const NOW_NS: u64 = 7_000_000_000;

    #[test]
    fn thread_about_to_lead_hands_over_to_a_sleeper_with_news() {
        let mut sockets = sockets();
        let sleepers = handed_over(&mut sockets);
        assert_eq!(rung(&sleepers), [SECOND]);
        assert_eq!(sleepers.absent, Some(thread(SECOND)));
    }

    #[test]
    fn thread_about_to_lead_hands_over_to_the_one_awake_with_the_last_news() {
        let sockets = sockets();
        let mut sleepers = Sleepers::none();
        (sleepers.told, sleepers.told_quick) = ((thread(SECOND), NOW_NS), true);
        assert!(
            !sleepers.hand_over(&sockets, NOW_NS + DEPUTY_TICK_NS),
            "a quiet program"
        );
        assert!(sleepers.hand_over(&sockets, NOW_NS));
        assert_eq!(sleepers.absent, Some(thread(SECOND)));
    }

    #[test]
    fn thread_about_to_lead_hands_over_to_no_thread_that_stays_away_for_long() {
        let mut sockets = sockets();
        let listeners = [80, 81].map(|port| listener(&mut sockets, port));
        let mut sleepers = acceptors(&sockets, listeners);
        sleepers.all[1].is_quick = false;
        connect(&mut sockets, 81);
        sleepers.told = (thread(SECOND), NOW_NS);
        assert!(!sleepers.hand_over(&sockets, NOW_NS));
    }

    #[test]
    fn absent_leader_with_a_deputy_nobody_is_woken() {
        let mut sockets = sockets();
        let mut sleepers = handed_over(&mut sockets);
        assert!(sleepers.take_out(SECOND).is_some());
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), []);
        // The deputy has news of its own, and leaves: there is nobody to look.
        connect(&mut sockets, 80);
        sleepers.before_unlock(&sockets);
        assert_eq!(rung(&sleepers), [FIRST]);
    }

    #[test]
    fn deputy_leads_when_the_absent_leader_stays_away() {
        let mut sockets = sockets();
        let mut sleepers = handed_over(&mut sockets);
        assert!(sleepers.take_out(SECOND).is_some());
        let late_ns = NOW_NS + DEPUTY_TICK_NS;
        assert_eq!(sleepers.tick(FIRST, NOW_NS, late_ns - 1), Tick::Again);
        assert_eq!(sleepers.tick(FIRST, NOW_NS, late_ns), Tick::Lead);
        assert_eq!(sleepers.absent, None);
    }
}
