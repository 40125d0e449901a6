//! The client of the crowd benchmark: HTTP over the kernel's sockets, in one thread with epoll.
//!
//! Each connection sends its next request when the last response is whole. With one request for
//! each connection the transaction ends with the server's close, as in the other figures, and the
//! next connection takes its place. A request that waits too long is counted and not given up: a
//! client that breaks off would take load from the server that is late.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use crate::measure::http::{Response, request};
use crate::measure::{Plan, Tally, kernel};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::SideOptions;
use super::kernel::{Stream, Watch, start_connect};
use mill::limits::READ_BYTES;

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn client(options: &SideOptions) -> io::Result<()> {
    let server = options.server;
    let server = server.ok_or_else(|| io::Error::other("--server is missing"))?;
    let plan = &options.plan;
    kernel::allow_descriptors(plan);
    super::say_idle(0)?;
    let mut client = Client {
        plan,
        server,
        request: request(plan),
        watch: Watch::new(options)?,
        slots: (0..plan.connections).map(|_| None).collect(),
        unopened: Vec::new(),
        tally: Tally::announcing(plan),
        buffer: vec![0; READ_BYTES],
    };
    client.run()?;
    println!("{}", serde_json::json!(client.tally.seen()));
    io::stdout().flush()
}

/// A connection and its transaction.
struct Slot {
    stream: Stream,
    /// Bytes of the request that have left.
    sent: usize,
    response: Response,
    /// The response is whole, and the server's close is still to come.
    is_answered: bool,
    started_ns: u64,
}

/// The fate of a connection after a visit.
#[derive(PartialEq)]
enum Next {
    Wait,
    Over,
}

struct Client<'a> {
    plan: &'a Plan,
    server: SocketAddr,
    request: Vec<u8>,
    watch: Watch,
    slots: Vec<Option<Slot>>,
    /// Slots whose connection could not be opened: tried again after the next wait.
    unopened: Vec<usize>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl Client<'_> {
    fn run(&mut self) -> io::Result<()> {
        for index in 0..self.slots.len() {
            self.tally.look();
            self.begin(index);
        }
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while self.tally.goes_on() {
            let events = self.watch.wait(Some(&second))?;
            self.tally.look();
            for event in &events {
                self.visit(event.data.u64() as usize);
                // A batch of a thousand responses takes long enough to show in the times.
                self.tally.look();
            }
            self.watch.recycle(events);
            for index in std::mem::take(&mut self.unopened) {
                self.begin(index);
            }
        }
        for slot in self.slots.iter().flatten() {
            self.tally.leave_open(slot.started_ns);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize) {
        if let Err(error) = self.open(index) {
            self.tally.fail(&error);
            self.unopened.push(index);
        }
    }

    fn open(&mut self, index: usize) -> io::Result<()> {
        let stream = start_connect(self.server)?;
        // Edge-triggered: the connection is heard of when it is open and when anything comes.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.watch.epoll, &stream, data, flags)?;
        self.slots[index] = Some(Slot {
            stream: Stream(stream),
            sent: 0,
            response: Response::default(),
            is_answered: false,
            started_ns: self.tally.now_ns(),
        });
        Ok(())
    }

    fn visit(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let gone_on = slot.go_on(self.plan, &self.request, &mut self.buffer, &mut self.tally);
        match gone_on {
            Ok(Next::Wait) => return,
            Ok(Next::Over) => {}
            Err(error) => self.tally.fail(&error),
        }
        self.slots[index] = None;
        self.begin(index);
    }
}

impl Slot {
    /// Sends and reads as far as it goes.
    fn go_on(
        &mut self,
        plan: &Plan,
        request: &[u8],
        buffer: &mut [u8],
        tally: &mut Tally,
    ) -> io::Result<Next> {
        if !self.ask(request)? {
            return Ok(Next::Wait);
        }
        loop {
            let count = match self.stream.read(buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) => return Err(error),
            };
            if count == 0 {
                return match self.is_answered {
                    true => {
                        tally.succeed(self.started_ns);
                        Ok(Next::Over)
                    }
                    false => Err(io::Error::other("the server closed without a response")),
                };
            }
            if !self.response.take(&buffer[..count])? {
                continue;
            }
            if plan.messages == 1 {
                self.is_answered = true;
                continue;
            }
            tally.succeed(self.started_ns);
            self.sent = 0;
            self.response = Response::default();
            self.started_ns = tally.now_ns();
            // The next response cannot have come: wait to be told of it.
            self.ask(request)?;
            return Ok(Next::Wait);
        }
    }

    /// Sends what can leave of the request; true if that is all of it.
    fn ask(&mut self, request: &[u8]) -> io::Result<bool> {
        while self.sent < request.len() {
            match self.stream.write(&request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
