//! Millstream's side of the comparison: the same server and client over its sockets and its poll.
//!
//! Both are turned from outside, one batch of events at a time. So they run in a process each, in a
//! thread per context, or together in one thread ([`super::one_thread`]).

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::measure::{Answering, Asking, Batches, Exchange, Next, Plan, Tally};
use millstream::{
    Context, Event, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpStream, Token,
};
use slab::Slab;

use super::SideOptions;
use super::sides::Spent;
use mill::failure::Failure;
use mill::limits::{BACKLOG_DEFAULT, EVENTS_MAX, READ_BYTES};
use mill::net::millstream as net;

const LISTENER: Token = Token(usize::MAX);
const STDIN: Token = Token(usize::MAX - 1);
const PORT: u16 = 7;
/// Idle connections that are opened at once.
const OPENING_MAX: usize = 512;
/// Longest time without a further idle connection that opens, and longest wait for contexts to
/// listen.
const OPENING_TIME: Duration = Duration::from_secs(30);

/// All events of a connection.
fn both() -> Interest {
    Interest::READABLE | Interest::WRITABLE
}

/// A command to a server on stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// To say what it has spent so far.
    Mark,
    /// To leave.
    End,
}

/// Serves until stdin closes. At each mark, prints what the server has spent so far.
pub fn server(options: &SideOptions) -> Result<(), Failure> {
    let runtime = net::runtime(&options.net)?;
    let address = options.net.listen_address(PORT);
    let listening = Listening::of(runtime.contexts());
    on_every_context(&runtime, &options.more_cores, |context, index| {
        let mut server = Server::new(&context, address, &options.plan)?;
        server
            .poll
            .register_fd(io::stdin(), STDIN, Interest::READABLE)?;
        listening.note();
        if index == 0 {
            listening.wait()?;
            println!("{}", serde_json::json!({ "address": address }));
            io::stdout().flush()?;
        }
        let timeout = options.plan.polls.then_some(Duration::ZERO);
        loop {
            match server.turn(timeout)? {
                Told::Nothing => {}
                Told::Mark => say_spent(&context)?,
                Told::End => break,
            }
        }
        if options.counters {
            say_counters(&context)?;
        }
        Ok(())
    })
}

/// Contexts of a server that do not listen yet. A client that connects to one of them loses its
/// SYN, and a short run is over before the second one.
struct Listening {
    missing: Mutex<usize>,
    all: Condvar,
}

impl Listening {
    fn of(contexts: usize) -> Self {
        Self {
            missing: Mutex::new(contexts),
            all: Condvar::new(),
        }
    }

    /// Notes that one more context listens.
    fn note(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        self.all.notify_all();
    }

    /// Waits until all contexts listen. If one of them failed, this error is reported instead of
    /// its own.
    fn wait(&self) -> io::Result<()> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .all
            .wait_timeout_while(missing, OPENING_TIME, |missing| *missing > 0)
            .unwrap_or_else(PoisonError::into_inner);
        match *waited.0 {
            0 => Ok(()),
            missing => Err(io::Error::other(format!(
                "{missing} contexts do not listen after {} s",
                OPENING_TIME.as_secs()
            ))),
        }
    }
}

fn say_spent(context: &Context) -> io::Result<()> {
    let report = context.report()?;
    let rows = report.stages.rows();
    let rows = rows.map(|(name, n)| (name.into(), n as f64));
    let activity = &report.activity;
    let batches = [
        ("jobs", &activity.job_batch),
        ("events", &activity.event_batch),
        ("frames received", &activity.rx_batch),
        ("frames sent", &activity.tx_batch),
    ];
    let batches = batches.map(|(name, histogram)| Batches {
        name: name.to_owned(),
        turns: histogram.buckets.to_vec(),
        sum: histogram.sum,
    });
    let spent = Spent {
        stages: rows.collect(),
        looked_seconds: context.looked_ns() as f64 / 1e9,
        batches: batches.to_vec(),
    };
    println!("{}", serde_json::json!(spent));
    io::stdout().flush()
}

/// Reads the command of a stdin that is ready. One context alone sees a mark; all see the end.
fn told() -> io::Result<Told> {
    let mut byte = [0];
    Ok(match rustix::io::read(rustix::stdio::stdin(), &mut byte)? {
        0 => Told::End,
        _ => Told::Mark,
    })
}

/// Prints the counters of a stack that are not zero.
pub fn say_counters(context: &Context) -> io::Result<()> {
    let counted: Vec<String> = net::counters(context)
        .into_iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    eprintln!("{}", counted.join(", "));
    Ok(())
}

/// Runs `task` for each context, the first one on our thread and the others on threads of their
/// own. The others are pinned to `cores`, as far as there are any.
fn on_every_context<T>(runtime: &Runtime, cores: &[usize], task: T) -> Result<(), Failure>
where
    T: Fn(Context, usize) -> io::Result<()> + Sync,
{
    let run = |index: usize| {
        if let Some(&core) = index.checked_sub(1).and_then(|index| cores.get(index)) {
            super::pin(core).map_err(|failure| io::Error::other(failure.to_string()))?;
        }
        let context = runtime
            .context(index)
            .map_err(|error| io::Error::other(error.to_string()))?;
        task(context, index)
    };
    let outcome = std::thread::scope(|scope| {
        let others: Vec<_> = (1..runtime.contexts())
            .map(|index| scope.spawn(move || run(index)))
            .collect();
        let mut outcome = run(0);
        for other in others {
            let joined = other
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(joined);
        }
        outcome
    });
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

/// A server on one context.
pub struct Server<'a> {
    plan: &'a Plan,
    listener: TcpListener,
    poll: Poll,
    events: Events,
    waiting: Slab<(TcpStream, Answering)>,
    buffer: Vec<u8>,
}

impl<'a> Server<'a> {
    pub fn new(context: &Context, address: SocketAddr, plan: &'a Plan) -> io::Result<Self> {
        let listener = TcpListener::builder(context)
            .backlog(BACKLOG_DEFAULT.max(plan.connections))
            .bind(address)?;
        listener.set_nonblocking(true);
        let mut poll = Poll::new(context);
        poll.register(&listener, LISTENER, Interest::READABLE, Mode::Edge)?;
        Ok(Self {
            plan,
            listener,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waiting: Slab::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// One batch of events.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<Told> {
        let mut heard = Told::Nothing;
        self.poll.wait(&mut self.events, timeout)?;
        for event in &self.events {
            match event.token() {
                LISTENER => loop {
                    match self.listener.accept() {
                        Ok((stream, _)) => {
                            welcome(
                                stream,
                                self.plan,
                                &mut self.poll,
                                &mut self.waiting,
                                &mut self.buffer,
                            )?;
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                },
                STDIN => heard = told()?,
                Token(key) => {
                    let Some((stream, answering)) = self.waiting.get_mut(key) else {
                        continue;
                    };
                    // Dropping the stream closes it.
                    if answering.go_on(stream, self.plan, &mut self.buffer) == Next::Over {
                        self.waiting.remove(key);
                    } else if answering.has_unsent() {
                        self.poll
                            .reregister(stream, Token(key), both(), Mode::Edge)?;
                    }
                }
            }
        }
        Ok(heard)
    }
}

fn welcome(
    mut stream: TcpStream,
    plan: &Plan,
    poll: &mut Poll,
    waiting: &mut Slab<(TcpStream, Answering)>,
    buffer: &mut [u8],
) -> io::Result<()> {
    if plan.exchange == Exchange::Reset {
        stream.abort();
        return Ok(());
    }
    stream.set_nonblocking(true);
    let mut answering = Answering::new(plan);
    if answering.go_on(&mut stream, plan, buffer) == Next::Over {
        return Ok(());
    }
    let place = waiting.vacant_entry();
    // A small answer may be refused as well: a stack that has a thread of its own may not have
    // filled the stock of chunks yet.
    let interest = match plan.response_bytes > READ_BYTES || answering.has_unsent() {
        true => both(),
        false => Interest::READABLE,
    };
    poll.register(&stream, Token(place.key()), interest, Mode::Edge)?;
    place.insert((stream, answering));
    Ok(())
}

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn client(options: &SideOptions) -> Result<(), Failure> {
    let runtime = net::runtime(&options.net)?;
    let server = options
        .server
        .ok_or_else(|| Failure::Usage("--server is missing".to_owned()))?;
    let plan = options.plan.share(runtime.contexts());
    let whole = Mutex::new(Whole {
        tally: None,
        missing: runtime.contexts(),
    });
    on_every_context(&runtime, &[], |context, index| {
        let idle = open_idle(&context, server, options, plan.idle)?;
        if index == 0 {
            super::say_idle(idle.len())?;
        }
        let tally = match index {
            0 => Tally::announcing(&plan),
            _ => Tally::new(&plan),
        };
        let mut client = Client::new(&context, server, &plan, tally);
        while client.goes_on() {
            client.turn(Some(Duration::from_secs(1)))?;
        }
        client.leave();
        if options.counters {
            say_counters(&context)?;
        }
        let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.add(client.tally)?;
        drop(whole);
        // Idle connections are checked and closed after the sum is printed. At the sum the parent
        // reads what the server has spent, and the end of a million connections is no part of that.
        super::all_stand(idle.iter().map(is_quiet))
    })
}

/// True if nothing has come on an idle connection, not even its end.
fn is_quiet(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true);
    stream
        .peek(&mut [0])
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Results of all contexts of a client.
struct Whole {
    tally: Option<Tally>,
    /// Contexts whose tally is still to come.
    missing: usize,
}

impl Whole {
    /// Adds the tally of a context. With the last one, prints the sum.
    fn add(&mut self, tally: Tally) -> io::Result<()> {
        self.missing -= 1;
        let whole = match self.tally.take() {
            Some(mut whole) => {
                whole.merge(&tally);
                whole
            }
            None => tally,
        };
        if self.missing == 0 {
            println!("{}", serde_json::json!(whole.seen()));
            return io::stdout().flush();
        }
        self.tally = Some(whole);
        Ok(())
    }
}

/// Connections that do nothing, spread over our addresses. The first one is left to those that do
/// something, if there are others: tens of thousands at once need most of an address's ports.
fn open_idle(
    context: &Context,
    server: SocketAddr,
    options: &SideOptions,
    count: usize,
) -> io::Result<Vec<TcpStream>> {
    let addresses = match &options.net.addresses[..] {
        [_, others @ ..] if !others.is_empty() => others,
        all => all,
    };
    let mut poll = Poll::new(context);
    let mut events = Events::with_capacity(EVENTS_MAX);
    let mut idle: Vec<TcpStream> = Vec::with_capacity(count);
    let mut opened = 0;
    let mut last = std::time::Instant::now();
    while opened < count {
        while idle.len() < count && idle.len() - opened < OPENING_MAX {
            let local = addresses[idle.len() % addresses.len()].value.address;
            let stream =
                TcpStream::start_connect_from(context, Some(SocketAddr::new(local, 0)), server)?;
            let token = Token(idle.len());
            poll.register_once(&stream, token, Interest::WRITABLE, Mode::Edge)?;
            idle.push(stream);
        }
        poll.wait(&mut events, Some(Duration::from_secs(1)))?;
        for event in &events {
            if let Some(error) = idle[event.token().0].take_error() {
                return Err(error);
            }
            poll.deregister(&idle[event.token().0])?;
            opened += 1;
            last = std::time::Instant::now();
        }
        if last.elapsed() > OPENING_TIME {
            let cause = format!("{opened} of {count} idle connections have opened, no more come");
            return Err(io::Error::other(cause));
        }
    }
    Ok(idle)
}

/// A client on one context.
pub struct Client<'a> {
    plan: &'a Plan,
    context: Context,
    poll: Poll,
    events: Events,
    server: SocketAddr,
    slots: Vec<Option<(TcpStream, Asking)>>,
    /// Slots whose connection could not be opened: tried again after the next wait.
    unopened: Vec<usize>,
    buffer: Vec<u8>,
    pub tally: Tally,
}

impl<'a> Client<'a> {
    pub fn new(context: &Context, server: SocketAddr, plan: &'a Plan, tally: Tally) -> Self {
        let mut client = Self {
            plan,
            context: context.clone(),
            poll: Poll::new(context),
            events: Events::with_capacity(EVENTS_MAX),
            server,
            slots: (0..plan.connections).map(|_| None).collect(),
            unopened: Vec::new(),
            buffer: vec![0; READ_BYTES],
            tally,
        };
        for index in 0..client.slots.len() {
            client.begin(index);
        }
        client
    }

    /// Counts the transactions that are under way when the plan is done.
    pub fn leave(&mut self) {
        for (_, asking) in self.slots.iter().flatten() {
            asking.was_left(&mut self.tally);
        }
    }

    /// False when the plan is done.
    pub fn goes_on(&self) -> bool {
        self.tally.goes_on()
    }

    /// One batch of events.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        let waited = self.poll.wait(&mut events, timeout);
        self.tally.look();
        for event in &events {
            self.visit(event);
        }
        self.events = events;
        for index in std::mem::take(&mut self.unopened) {
            self.begin(index);
        }
        waited.map(|_| ())
    }

    fn begin(&mut self, index: usize) {
        let opened = TcpStream::start_connect(&self.context, self.server).and_then(|stream| {
            self.poll
                .register(&stream, Token(index), both(), Mode::Edge)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => self.slots[index] = Some((stream, Asking::new(self.plan, &self.tally))),
            Err(error) => {
                self.tally.fail(&error);
                self.unopened.push(index);
            }
        }
    }

    fn visit(&mut self, event: &Event) {
        let index = event.token().0;
        let Some((stream, asking)) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let outcome = match self.plan.exchange {
            Exchange::Messages => {
                asking.go_on(stream, self.plan, &mut self.buffer, &mut self.tally)
            }
            Exchange::Reset => match stream.take_error() {
                None => Ok(Next::Wait),
                Some(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    asking.was_reset(&mut self.tally);
                    Ok(Next::Over)
                }
                Some(error) => Err(error),
            },
        };
        match outcome {
            Ok(Next::Wait) => return,
            Ok(Next::Over) => {}
            Err(error) => self.tally.fail(&error),
        }
        self.slots[index] = None;
        self.begin(index);
    }
}
