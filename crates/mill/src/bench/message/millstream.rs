//! Millstream's side of the comparison: the same server and client over its sockets and its poll.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use millstream::{Context, Event, Events, Interest, Mode, Poll, TcpListener, TcpStream, Token};
use slab::Slab;

use super::tally::Tally;
use super::{MESSAGE_BYTES, SideOptions};
use crate::failure::Failure;
use crate::limits::EVENTS_MAX;
use crate::net::millstream as net;

const LISTENER: Token = Token(usize::MAX);
const STDIN: Token = Token(usize::MAX - 1);
const PORT: u16 = 7;

/// Serves until stdin closes.
pub fn server(options: &SideOptions) -> Result<(), Failure> {
    let runtime = net::runtime(&options.net)?;
    let context = runtime
        .context(0)
        .map_err(|error| Failure::Run(error.to_string()))?;
    let address = options.net.listen_address(PORT);
    serve(&context, address).map_err(|error| Failure::Run(error.to_string()))
}

fn serve(context: &Context, address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(context, address)?;
    listener.set_nonblocking(true);
    let mut poll = Poll::new(context);
    poll.register(&listener, LISTENER, Interest::READABLE, Mode::Edge)?;
    poll.register_fd(io::stdin(), STDIN, Interest::READABLE)?;
    println!("{}", serde_json::json!({ "address": address }));
    io::stdout().flush()?;
    let mut waiting: Slab<TcpStream> = Slab::new();
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        poll.wait(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => accept(&listener, &mut poll, &mut waiting)?,
                STDIN => return Ok(()),
                Token(key) => {
                    // Dropping the stream closes it.
                    if waiting.get_mut(key).is_some_and(answer) {
                        waiting.remove(key);
                    }
                }
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    poll: &mut Poll,
    waiting: &mut Slab<TcpStream>,
) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true);
        if !answer(&mut stream) {
            let place = waiting.vacant_entry();
            poll.register(&stream, Token(place.key()), Interest::READABLE, Mode::Edge)?;
            place.insert(stream);
        }
    }
}

/// Answers if the request is there. True if the connection is to be closed, answered or broken.
fn answer(stream: &mut TcpStream) -> bool {
    let mut message = [0; MESSAGE_BYTES];
    match stream.read(&mut message) {
        Ok(MESSAGE_BYTES) => {
            // A peer that does not take 64 bytes counts it as failed itself.
            let _ = stream.write(&message);
            true
        }
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        Ok(_) => true,
    }
}

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn client(options: &SideOptions) -> Result<(), Failure> {
    let runtime = net::runtime(&options.net)?;
    let context = runtime
        .context(0)
        .map_err(|error| Failure::Run(error.to_string()))?;
    let server = options
        .server
        .ok_or_else(|| Failure::Usage("--server is missing".to_owned()))?;
    let mut client = Client {
        poll: Poll::new(&context),
        context,
        server,
        slots: (0..options.connections).map(|_| None).collect(),
        idle: Vec::new(),
        tally: Tally::new(options),
    };
    client
        .run()
        .map_err(|error| Failure::Run(error.to_string()))?;
    println!("{}", serde_json::json!(client.tally.seen()));
    Ok(())
}

struct Slot {
    stream: TcpStream,
    sent: bool,
    received: usize,
    started_ns: u64,
}

struct Client {
    poll: Poll,
    context: Context,
    server: SocketAddr,
    slots: Vec<Option<Slot>>,
    /// Slots whose connection could not be opened: tried again after the next wait.
    idle: Vec<usize>,
    tally: Tally,
}

impl Client {
    fn run(&mut self) -> io::Result<()> {
        for index in 0..self.slots.len() {
            self.begin(index);
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.tally.goes_on() {
            self.poll.wait(&mut events, Some(Duration::from_secs(1)))?;
            self.tally.goes_on();
            for event in &events {
                self.visit(event);
            }
            for index in std::mem::take(&mut self.idle) {
                self.begin(index);
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: usize) {
        let started_ns = self.tally.now_ns();
        let opened = TcpStream::start_connect(&self.context, self.server).and_then(|stream| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .register(&stream, Token(index), both, Mode::Edge)?;
            Ok(Slot {
                stream,
                sent: false,
                received: 0,
                started_ns,
            })
        });
        match opened {
            Ok(slot) => self.slots[index] = Some(slot),
            Err(error) => self.give_up(index, &error),
        }
    }

    fn give_up(&mut self, index: usize, cause: &dyn std::fmt::Display) {
        self.tally.fail(cause);
        self.idle.push(index);
    }

    fn visit(&mut self, event: &Event) {
        let index = event.token().0;
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        match advance(slot) {
            Ok(false) => return,
            Ok(true) => self.tally.succeed(slot.started_ns),
            Err(error) => self.tally.fail(&error),
        }
        self.slots[index] = None;
        self.begin(index);
    }
}

/// True if the whole response and then the server's end have come.
fn advance(slot: &mut Slot) -> io::Result<bool> {
    if !slot.sent {
        match slot.stream.write(&[b'q'; MESSAGE_BYTES]) {
            Ok(MESSAGE_BYTES) => slot.sent = true,
            Ok(count) => {
                return Err(io::Error::other(format!(
                    "{count} bytes of the request were taken"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    loop {
        let mut message = [0; MESSAGE_BYTES + 1];
        match slot.stream.read(&mut message) {
            Ok(0) if slot.received == MESSAGE_BYTES => return Ok(true),
            Ok(0) => {
                return Err(io::Error::other(format!(
                    "a response of {} bytes",
                    slot.received
                )));
            }
            Ok(count) => slot.received += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if slot.received > MESSAGE_BYTES {
            return Err(io::Error::other("bytes behind the response"));
        }
    }
}
