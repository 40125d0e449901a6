//! The application's end of one stack: jobs leave through it, events arrive through it, and calls
//! that have to wait sleep in it.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ring::memory::Memory;
use ring::socket_block::SocketId;
use ring::spsc::Producer;
use rustix::io::Errno;
use stack::context::{AppSide, Control, Report, SourcePool};
use stack::rules::{Judge, RuleSet};
use stack::{IpCidr, Limits, Stack};

use crate::app_socket::AppSockets;
use crate::config::Config;
use crate::crank::{Crank, Turn};
use crate::interrupter::Interrupter;
use crate::lease::Lease;
use crate::limits::WRITTEN_BYTES_PER_TURN;
use crate::observed;
use crate::poll_set::PollSets;
use crate::state::State;

/// A handle on one of the runtime's stacks. Clones are the same context; all of them, and all
/// sockets made with them, stay on one thread.
///
/// When the last of them and of its sockets is gone, connections get [`Config::linger_ns`] to close
/// in order.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let clone = context.clone();
/// let socket = TcpSocket::new_v4(&clone)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Rc<Inner>,
}

pub struct Inner {
    /// The context's number in its runtime.
    index: usize,
    state: RefCell<State>,
    /// The memory file that holds the sockets' bytes, for readers who look at them where they lie.
    memory: Memory,
    crank: RefCell<Option<Crank>>,
    /// Bytes written since the application last turned the crank.
    written: Cell<usize>,
    config: Arc<Config>,
    /// The current settings of TCP. They may change at run time.
    tcp: RefCell<Rc<tcp::Config>>,
    /// A connection from this stack to itself was begun ([`Context::talks_to_itself`]).
    talks_to_itself: Cell<bool>,
    /// Addresses of this context's listeners, each with whether `::` stands for IPv4 as well.
    pub(crate) listening: RefCell<Vec<(SocketAddr, bool)>>,
    /// Ends this context's waits early.
    interrupter: RefCell<Option<Interrupter>>,
    /// Dropped last: the runtime may then open the context again.
    pub(crate) lease: Arc<Lease>,
}

impl Context {
    pub(crate) fn new(
        index: usize,
        side: AppSide,
        crank: Crank,
        config: Arc<Config>,
        lease: Arc<Lease>,
    ) -> Self {
        let memory = side.memory.clone();
        let state = State {
            side,
            sockets: AppSockets::default(),
            polls: PollSets::default(),
            refused: Vec::new(),
            cut_short: None,
            last_writer: SocketId::default(),
            writers_share: false,
            share: None,
            promised_more: false,
        };
        Self {
            inner: Rc::new(Inner {
                index,
                state: RefCell::new(state),
                memory,
                crank: RefCell::new(Some(crank)),
                written: Cell::new(0),
                tcp: RefCell::new(Rc::new(config.tcp.clone())),
                talks_to_itself: Cell::new(false),
                listening: RefCell::default(),
                interrupter: RefCell::new(None),
                lease,
                config,
            }),
        }
    }

    /// Makes sockets of this context take urgent bytes out of the stream by default, as BSD's
    /// sockets do ([`TcpStream::urgent_mark`](crate::TcpStream::urgent_mark)). Otherwise they stay
    /// in the stream (RFC 6093).
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.set_urgent_apart(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_urgent_apart(&self, on: bool) {
        self.inner.state().sockets.urgent_apart = on;
    }

    /// The stack's counters, and the tables and pools that it uses.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert_eq!(context.report()?.stack.rx_no_buffer, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self) -> io::Result<Report> {
        self.inner.ask(Control::Report)
    }

    /// Time that this thread spent looking for work in vain
    /// ([`Config::spin_ns`](crate::Config::spin_ns)), in ns.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let before = context.looked_ns();
    /// context.turn()?;
    /// assert!(context.looked_ns() >= before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn looked_ns(&self) -> u64 {
        self.inner.crank().looked_ns()
    }

    /// Turns the stack once without waiting. For a thread that was busy with other things and does
    /// not want to leave its connections to the watchdog.
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.turn()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn turn(&self) -> io::Result<()> {
        self.inner.turn_once().map(|_| ())
    }

    /// Turns the stack until it has nothing to do: what can be sent was sent, what has arrived was
    /// processed. True if anything moved.
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_all(b"hello")?;
    /// here.turn_until_idle()?;
    /// let mut bytes = [0; 5];
    /// server.read_exact(&mut bytes)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn turn_until_idle(&self) -> io::Result<bool> {
        let mut turns = 0;
        while turns < IDLE_TURNS_MAX && self.inner.turn_once()? != Turn::Idle {
            turns += 1;
        }
        Ok(turns > 0)
    }

    /// A [`TcpSocket`](crate::TcpSocket) has begun to connect to this stack itself, so a call at
    /// one end may have to be seen at the other at once.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let place = "10.0.0.1:80".parse()?;
    /// let listener = TcpListener::bind(&context, place)?;
    /// listener.set_nonblocking(true);
    /// let client = TcpSocket::new_v4(&context)?.start_connect(place)?;
    /// context.deliver_to_itself();
    /// assert!(context.talks_to_itself() && client.is_to_itself());
    /// assert!(listener.accept().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn talks_to_itself(&self) -> bool {
        self.inner.talks_to_itself.get()
    }

    /// Delivers what was sent from the stack to itself. On the kernel's loopback device it has
    /// arrived when the call returns. Takes a bounded number of turns.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let place = "10.0.0.1:80".parse()?;
    /// let listener = TcpListener::bind(&context, place)?;
    /// listener.set_nonblocking(true);
    /// let client = TcpSocket::new_v4(&context)?.start_connect(place)?;
    /// context.deliver_to_itself();
    /// assert!(context.talks_to_itself() && client.is_to_itself());
    /// assert!(listener.accept().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deliver_to_itself(&self) {
        for _ in 0..SELF_TURNS_MAX {
            // Calls that wait report a wire that is gone.
            if !matches!(self.inner.turn_once(), Ok(Turn::Moved)) {
                return;
            }
        }
    }

    /// True if a listener of this context takes connections to `place`.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "0.0.0.0:80".parse()?)?;
    /// assert!(context.listens_at("10.0.0.1:80".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn listens_at(&self, place: SocketAddr) -> bool {
        let (ip, port) = (place.ip().to_canonical(), place.port());
        let listening = self.inner.listening.borrow();
        listening.iter().any(|&(local, dual)| {
            let is_any = local.ip().is_unspecified()
                && (local.is_ipv4() == ip.is_ipv4() || (dual && ip.is_ipv4()));
            local.port() == port && (is_any || local.ip().to_canonical() == ip)
        })
    }

    /// Turns once and, if there was no work, sleeps until the stack has an event, one of `extra` is
    /// readable, or the time is `until_ns`. For layers that repeat a call until it succeeds. The
    /// sleep may end early, so the caller looks again. True: a signal ended the sleep, and there is
    /// an [`Interrupter`].
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good; `Interrupted` by an [`Interrupter`];
    /// `WouldBlock` on a virtual clock.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let until_ns = context.now_ns() + 1_000_000;
    /// context.park(Some(until_ns), &[])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn park(&self, until_ns: Option<u64>, extra: &[BorrowedFd<'_>]) -> io::Result<bool> {
        let inner = &*self.inner;
        let mut crank = inner.crank();
        crank.enter();
        let outcome = match crank.turn_once() {
            Ok(turn) if (inner.drain_events() || turn != Turn::Idle) && !inner.is_interrupted() => {
                Ok(false)
            }
            Ok(_) if until_ns.is_some_and(|until_ns| inner.now_ns() >= until_ns) => Ok(false),
            Ok(_) => match inner.sleep(&mut crank, until_ns, extra) {
                Ok(by_signal) => crank.turn_once().map(|_| {
                    inner.drain_events();
                    by_signal
                }),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        crank.leave();
        outcome
    }

    /// Lets `interrupter` end this context's waits, which then fail with `Interrupted`.
    /// [`Poll::wait`](crate::Poll::wait) then also fails so when a signal arrives while it sleeps,
    /// as `epoll_wait` does.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let interrupter = Interrupter::new()?;
    /// context.set_interrupter(interrupter.clone());
    /// interrupter.interrupt();
    /// let mut events = Events::with_capacity(1);
    /// let error = Poll::new(&context).wait(&mut events, None).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_interrupter(&self, interrupter: Interrupter) {
        *self.inner.interrupter.borrow_mut() = Some(interrupter);
    }

    /// True if the clock is virtual: its holder advances time, and only the caller turns the stack.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert!(!context.is_virtual());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.inner.config().clock.is_virtual()
    }

    /// Makes an address ours from now on, with the prefix of its subnet, beside
    /// [`Config::addresses`]. An address that is ours already, or that no host can have, changes
    /// nothing.
    ///
    /// # Errors
    /// Errors of waiting for room in the queue of requests.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.add_address("10.0.1.1/24".parse()?)?;
    /// TcpListener::bind(&context, "10.0.1.1:80".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_address(&self, address: IpCidr) -> io::Result<()> {
        self.inner.control(Control::Address(address))
    }

    /// Lets connections to the pool's destination leave from the pool's addresses, unless they are
    /// bound or have a [source](crate::TcpSocket::set_source). If the wire's receive hash is known,
    /// the pool uses only pairs of address and port whose answers reach this context's queue. A
    /// pool that is used up refuses with `AddrNotAvailable`. `None` removes the pool.
    ///
    /// # Errors
    /// Errors of waiting for room in the queue of requests.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// use millstream::SourcePool;
    /// let pool = SourcePool::new("10.0.0.2:80".parse()?, "10.0.0.1".parse()?, 1);
    /// context.set_source_pool(Some(pool))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_source_pool(&self, pool: Option<SourcePool>) -> io::Result<()> {
        self.inner.control(Control::Sources(pool))
    }

    /// Forgets the Fast Open cookies of all peers and everything else learnt about Fast Open with
    /// them, as Linux does on `ip tcp_metrics flush`. The next connection to each peer asks for a
    /// cookie again. Path MTUs that routers reported stay.
    ///
    /// # Errors
    /// Errors of waiting for room in the queue of requests.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.forget_peers()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_peers(&self) -> io::Result<()> {
        self.inner.control(Control::ForgetPeers)
    }

    /// Sizes of the stack's tables and buffers.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert!(context.limits().sockets_max > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.config().limits
    }

    /// The current settings of TCP.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert_eq!(context.tcp_config().congestion, CongestionAlgorithm::Cubic);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tcp_config(&self) -> tcp::Config {
        (*self.inner.tcp_config()).clone()
    }

    /// Replaces the settings of TCP. Existing connections keep the values that they copied. The
    /// runtime keeps its added congestion controls ([`Config::add_congestion_control`]).
    /// [`Config::tcp`] does not change.
    ///
    /// # Errors
    /// `ENOENT` if the runtime does not have the congestion control. Errors of waiting for room in
    /// the queue of requests.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let mut tcp = context.tcp_config();
    /// tcp.timestamps = false;
    /// context.reconfigure(tcp)?;
    /// assert!(!context.tcp_config().timestamps);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reconfigure(&self, tcp: tcp::Config) -> io::Result<()> {
        if !self.inner.tcp_config().knows_congestion(tcp.congestion) {
            return Err(Errno::NOENT.into());
        }
        Rc::make_mut(&mut self.inner.tcp.borrow_mut()).replace(tcp.clone());
        self.inner.control(Control::Settings(Box::new(tcp)))
    }

    /// Replaces the packet rules of this context's stack as a whole. The next frame meets the new
    /// set, whose counters begin at zero and whose token buckets begin full. Existing connections
    /// go on, also those that the new rules would deny. [`Config::rules`](crate::Config::rules)
    /// does not change.
    ///
    /// # Errors
    /// `InvalidInput` names a rule that cannot be obeyed. Errors of waiting for room in the queue
    /// of requests.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let set = millstream::rules::parse("[[rule]]\nsource = '192.0.2.0/24'\naction = 'deny'")?;
    /// context.set_rules(&set)?;
    /// assert_eq!(context.report()?.rules[0].packets, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_rules(&self, rules: &RuleSet) -> io::Result<()> {
        let judge = Judge::new(rules, self.now_ns())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.inner.control(Control::Rules(judge))
    }

    /// The time by the runtime's clock, in ns.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let before = context.now_ns();
    /// assert!(context.now_ns() >= before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    /// Converts a time of the runtime's clock to one since 1970 (UTC), in ns, the form of time
    /// stamps.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let now = context.wall_ns(context.now_ns());
    /// assert!(now > 1_600_000_000_000_000_000, "later than 2020");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wall_ns(&self, at_ns: u64) -> u64 {
        self.inner.config().clock.wall_ns(at_ns)
    }

    /// The time at which the stack must be turned although nothing arrives and no request is made;
    /// `None`: never. The time may be a little early, and is never too late. For the holder of a
    /// virtual clock.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// // A listener without connections has no timer.
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// context.turn_until_idle()?;
    /// println!("{:?}", context.next_deadline_ns());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.inner.crank().next_deadline_ns()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(crank) = self.crank.get_mut().take() {
            let bell = self.state.get_mut().side.stack_bell.clone();
            // The agent's thread is not in a child of `fork`, so an heir starts another.
            let show = |stack: &mut Stack| {
                observed::join(stack, &bell, &self.config, self.index);
            };
            crank.finish(self.config.linger_ns, self.config.heir, &show);
        }
    }
}

impl Inner {
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The current settings of TCP.
    pub fn tcp_config(&self) -> Rc<tcp::Config> {
        self.tcp.borrow().clone()
    }

    /// Notes that a connection from this stack to itself was begun.
    pub(crate) fn note_talk_to_itself(&self) {
        self.talks_to_itself.set(true);
    }

    /// The time by the runtime's clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.config.clock.now_ns()
    }

    /// The end of a wait of `timeout` that begins now, in ns; `None`: never.
    pub fn until(&self, timeout: Option<Duration>) -> Option<u64> {
        timeout.map(|timeout| {
            let ns = timeout.as_nanos().min(u64::MAX.into()) as u64;
            self.now_ns().saturating_add(ns)
        })
    }

    /// Sends a request with arguments, and waits for room in a full queue.
    pub fn control(&self, control: Control) -> io::Result<()> {
        let refused = {
            let state = &mut *self.state();
            let pushed = state.side.control(control);
            state.ring();
            pushed
        };
        match refused {
            Ok(()) => Ok(()),
            Err(control) => self.control_when_room(control),
        }
    }

    #[cold]
    fn control_when_room(&self, control: Control) -> io::Result<()> {
        let mut waiting = Some(control);
        self.block_unannounced(|state| {
            let control = waiting.take()?;
            match state.side.control(control) {
                Ok(()) => Some(Ok(())),
                Err(back) => {
                    waiting = Some(back);
                    state.ring();
                    None
                }
            }
        })?;
        self.state().ring();
        Ok(())
    }

    /// Sends the stack a question and waits for the answer. `question` takes the place for it.
    pub(crate) fn ask<T: Send>(
        &self,
        question: impl FnOnce(Producer<T>) -> Control,
    ) -> io::Result<T> {
        let (answer, mut answers) = ring::spsc::queue(1);
        self.control(question(answer))?;
        self.block_unannounced(|_| answers.pop().map(Ok))
    }

    /// A socket id for a listener or an outgoing connection.
    pub fn socket(&self) -> io::Result<SocketId> {
        if let Some(id) = self.state().side.sockets.pop() {
            return Ok(id);
        }
        self.await_stock(SOCKETS_WAIT_NS_MAX, |state| {
            state.side.sockets.pop().map(Ok)
        })
        .map_err(|_| Errno::NOBUFS.into())
    }

    /// Repeats `attempt`, which failed because a stock (socket ids, chunks) was empty. A turn of
    /// the stack refills the stock. `TimedOut` if turns could not refill it for `wait_ns_max`.
    pub(crate) fn await_stock<T>(
        &self,
        wait_ns_max: u64,
        mut attempt: impl FnMut(&mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        self.state().ring();
        let end_ns = self.now_ns() + wait_ns_max;
        let mut tries = 0;
        loop {
            tries += 1;
            let until_ns = self.now_ns() + STOCK_WAIT_NS;
            match self.block(Some(until_ns), Interruption::Left, &mut attempt) {
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut
                        && error.raw_os_error().is_none()
                        && (until_ns < end_ns || tries < STOCK_TRIES_MIN) =>
                {
                    self.state().ring();
                }
                outcome => return outcome,
            }
        }
    }

    /// Calls `attempt` until it has an answer, turning the crank or sleeping in between. `TimedOut`
    /// at `until_ns`; `NetworkDown` when the wire is gone; `Interrupted` by an interrupter.
    pub(crate) fn block_until<T>(
        &self,
        until_ns: Option<u64>,
        attempt: impl FnMut(&mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        self.block(until_ns, Interruption::Heeded, attempt)
    }

    fn block<T>(
        &self,
        until_ns: Option<u64>,
        interruption: Interruption,
        mut attempt: impl FnMut(&mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let mut crank = self.crank();
        crank.enter();
        let outcome = loop {
            if let Some(answer) = attempt(&mut self.state()) {
                break answer;
            }
            let moved = match crank.turn_once() {
                Ok(turn) => turn != Turn::Idle,
                Err(error) => break Err(error),
            };
            let is_over = until_ns.is_some_and(|until_ns| self.now_ns() >= until_ns);
            let is_heard = interruption == Interruption::Heeded && self.is_interrupted();
            if (self.drain_events() || moved) && !is_over && !is_heard {
                continue;
            }
            // One more attempt follows the turn that moved nothing, since no event may report what
            // `attempt` waits for.
            if let Some(answer) = attempt(&mut self.state()) {
                break answer;
            }
            if is_over {
                break Err(io::ErrorKind::TimedOut.into());
            }
            let slept = match interruption {
                Interruption::Heeded => self.sleep(&mut crank, until_ns, &[]),
                Interruption::Left => self.sleep_through(&mut crank, until_ns, &[]),
            };
            if let Err(error) = slept {
                break Err(error);
            }
        };
        crank.leave();
        outcome
    }

    /// Like [`block_until`](Self::block_until), for the stack's answer to a request. No event
    /// announces the answer, so the wait looks again and again. It leaves an interruption to the
    /// next wait: a caller that gave up here would not know what the stack has done.
    pub(crate) fn block_unannounced<T>(
        &self,
        mut attempt: impl FnMut(&mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        loop {
            let until_ns = self.now_ns() + UNANNOUNCED_WAIT_NS;
            match self.block(Some(until_ns), Interruption::Left, &mut attempt) {
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut
                        && error.raw_os_error().is_none() => {}
                outcome => return outcome,
            }
        }
    }

    /// Prepares a write. If the application has written much since it last turned the crank, some
    /// of that leaves first, while the second-level cache still holds it. This happens before the
    /// write, because the caller may mark the new bytes before they leave
    /// (`TcpStream::mark_urgent`). Not on a virtual clock, whose holder alone turns the stack.
    #[inline]
    pub(crate) fn before_write(&self) {
        if self.written.get() < WRITTEN_BYTES_PER_TURN || self.config.clock.is_virtual() {
            return;
        }
        self.turn_amid_answers();
    }

    /// Turns the stack for a writer in the middle of its answers: ACKs wait to ride on them. The
    /// next wait reports a lost wire.
    pub(crate) fn turn_amid_answers(&self) {
        let _ = self.crank().turn_amid_answers();
        self.drain_events();
    }

    /// Counts `bytes` that the application wrote to a socket.
    #[inline]
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.set(self.written.get().saturating_add(bytes));
    }

    /// Turns the stack once and takes the events that it brought.
    pub(crate) fn turn_once(&self) -> io::Result<Turn> {
        let turn = self.crank().turn_once();
        self.drain_events();
        turn
    }

    /// True if an interruption waits. [`sleep`](Self::sleep) ends a wait for it. A call that always
    /// finds work never sleeps, so it has to check here.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        let interrupter = self.interrupter.borrow();
        interrupter.as_ref().is_some_and(Interrupter::is_raised)
    }

    /// Sleeps until an event may have arrived. True: a signal ended the sleep, and the context has
    /// an interrupter.
    pub(crate) fn sleep(
        &self,
        crank: &mut Crank,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
    ) -> io::Result<bool> {
        let interrupter = self.interrupter.borrow();
        let Some(interrupter) = &*interrupter else {
            return self.sleep_through(crank, until_ns, extra);
        };
        let has_events = || !self.state().side.events.is_empty();
        let slept = interrupter.sleep_unless_raised(|interruption| {
            let mut fds = Vec::with_capacity(extra.len() + 1);
            fds.extend_from_slice(extra);
            fds.push(interruption);
            crank.wait(until_ns, &fds, has_events)
        });
        slept.unwrap_or_else(|| Err(Errno::INTR.into()))
    }

    /// Like [`sleep`](Self::sleep), but ignores the interrupter.
    fn sleep_through(
        &self,
        crank: &mut Crank,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
    ) -> io::Result<bool> {
        let has_events = || !self.state().side.events.is_empty();
        crank.wait(until_ns, extra, has_events)?;
        Ok(false)
    }

    /// The crank, which its caller turns. It exists until the context is dropped. One call at a
    /// time borrows it.
    pub(crate) fn crank(&self) -> RefMut<'_, Crank> {
        self.written.set(0);
        RefMut::map(self.crank.borrow_mut(), |crank| {
            crank.as_mut().expect("taken only by drop")
        })
    }

    /// See [`Context::turned_ns`].
    pub(crate) fn turned_ns(&self) -> u64 {
        self.crank.borrow().as_ref().map_or(0, Crank::turned_ns)
    }

    /// Takes the stack's events and hands them to the polls. True if there were any.
    pub fn drain_events(&self) -> bool {
        self.state().drain_events()
    }
}

/// The effect of an interruption on a call that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// The interruption ends the wait.
    Heeded,
    /// The interruption is left for the next wait.
    Left,
}

/// Number of turns that carry a segment from the stack to itself, the answers, and what follows.
const SELF_TURNS_MAX: usize = 8;
/// Number of turns after which `settle` gives up on a stack that always finds something to do.
const IDLE_TURNS_MAX: usize = 100_000;
/// Longest wait for a free socket id, in ns.
const SOCKETS_WAIT_NS_MAX: u64 = 10_000_000;
/// Fewest sleeps before `await_stock` gives up. The time may have passed while this thread had no
/// core, or while a stack that shares the core had one long turn.
const STOCK_TRIES_MIN: u32 = 100;
/// Length of one sleep in `await_stock`, in ns. No event says that the stock was refilled.
const STOCK_WAIT_NS: u64 = 100_000;
/// Length of one sleep while waiting for an answer or for room in the queue of requests, in ns.
const UNANNOUNCED_WAIT_NS: u64 = 1_000_000;
