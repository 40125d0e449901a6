//! Contexts of one process, each on a thread that executes a test's orders and answers every
//! connection with its number.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use millstream::{Config, Context, Report, Runtime, TcpListener, TcpStream};

use crate::common::lab::Namespace;

pub use stack::Counters;

/// The address at which all contexts listen.
pub const OURS: &str = "10.77.0.1:7000";
/// A byte that gets no answer.
pub const MUTE: u8 = b'-';
const LOOK: Duration = Duration::from_millis(1);

enum Order {
    Listen,
    CloseListener,
    Connect(SocketAddr),
    Report(Sender<Report>),
    /// The context stays away from its stack for a while.
    Stall,
    End,
}

/// A context's thread.
pub struct Agent {
    orders: Sender<(Order, Sender<()>)>,
    thread: Option<JoinHandle<()>>,
}

/// The contexts of a runtime.
pub struct Process {
    runtime: Arc<Runtime>,
    pub agents: Vec<Agent>,
}

impl Process {
    /// Opens the wire in the namespace, for `contexts` contexts.
    pub fn start(home: &Namespace, wire: &str, contexts: usize) -> Self {
        home.inside(|| Self::open(wire, contexts))
    }

    /// Opens the wire for `contexts` contexts.
    pub fn open(wire: &str, contexts: usize) -> Self {
        let mut config = Config::new(wire.parse().expect("a wire"));
        config.addresses.push("10.77.0.1/24".parse().expect("ours"));
        config.contexts = contexts;
        config.linger_ns = 0;
        let runtime = Runtime::lazy(config).expect("a runtime");
        (0..contexts).for_each(|index| runtime.open(index).expect("a context"));
        let runtime = Arc::new(runtime);
        let agents = (0..contexts).map(|index| Agent::start(&runtime, index));
        let agents = agents.collect();
        Self { runtime, agents }
    }

    /// Ends a context.
    pub fn end(&mut self, index: usize) {
        self.agents[index].end();
    }

    /// Takes a context again.
    pub fn begin(&mut self, index: usize) {
        self.agents[index] = Agent::start(&self.runtime, index);
    }
}

impl Agent {
    fn start(runtime: &Arc<Runtime>, index: usize) -> Self {
        let (orders, inbox) = channel();
        let runtime = runtime.clone();
        let thread = spawn(move || {
            let context = runtime.context(index).expect("the context");
            obey(&context, index as u8, &inbox);
        });
        let agent = Self {
            orders,
            thread: Some(thread),
        };
        agent.report();
        agent
    }

    fn order(&self, order: Order) {
        let (done, wait) = channel();
        self.orders.send((order, done)).expect("the thread");
        wait.recv().expect("the order is carried out");
    }

    pub fn listen(&self) {
        self.order(Order::Listen);
    }

    pub fn close_listener(&self) {
        self.order(Order::CloseListener);
    }

    pub fn connect(&self, to: SocketAddr) {
        self.order(Order::Connect(to));
    }

    pub fn stall(&self) {
        self.order(Order::Stall);
    }

    pub fn report(&self) -> Report {
        let (answer, report) = channel();
        self.order(Order::Report(answer));
        report.recv().expect("a report")
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.order(Order::End);
            thread.join().expect("the thread ends well");
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// The state of an agent's thread.
#[derive(Default)]
struct Serving {
    listener: Option<TcpListener>,
    streams: Vec<TcpStream>,
}

fn obey(context: &Context, number: u8, inbox: &Receiver<(Order, Sender<()>)>) {
    let mut serving = Serving::default();
    loop {
        let mut stall = false;
        if let Ok((order, done)) = inbox.try_recv() {
            match order {
                Order::Listen => {
                    let listener = TcpListener::bind(context, OURS.parse().expect("ours"));
                    let listener = listener.expect("bind");
                    listener.set_nonblocking(true);
                    serving.listener = Some(listener);
                }
                Order::CloseListener => {
                    serving.listener = None;
                    context.turn().expect("a turn");
                }
                Order::Connect(to) => {
                    let stream = TcpStream::connect(context, to).expect("connect");
                    stream.set_nonblocking(true);
                    serving.streams.push(stream);
                }
                Order::Report(answer) => {
                    let _ = answer.send(context.report().expect("a report"));
                }
                Order::Stall => stall = true,
                Order::End => {
                    drop(serving);
                    let _ = done.send(());
                    return;
                }
            }
            let _ = done.send(());
        }
        if stall {
            hold_stack();
        }
        serving.serve(number);
        let until_ns = context.now_ns() + LOOK.as_nanos() as u64;
        let _ = context.park(Some(until_ns), &[]);
    }
}

/// Holds the thread away from its stack. A watchdog turns the stack every few milliseconds, which
/// is slower than a sender on the same host.
fn hold_stack() {
    sleep(Duration::from_millis(300));
}

impl Serving {
    fn serve(&mut self, number: u8) {
        while let Some(listener) = &self.listener
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(true);
            self.streams.push(stream);
        }
        self.streams.retain_mut(|stream| answer(stream, number));
    }
}

/// Answers the bytes that have arrived. False: the connection is over.
fn answer(stream: &mut TcpStream, number: u8) -> bool {
    let mut bytes = [0; 65_536];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(len) => {
                let asked = bytes[..len].iter().filter(|byte| **byte != MUTE).count();
                if stream.write_all(&vec![number; asked]).is_err() {
                    return false;
                }
            }
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// True if a thread of this process has this name, of which the kernel keeps 15 bytes.
pub fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads");
    threads.flatten().any(|thread| {
        let comm = std::fs::read_to_string(thread.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    })
}
