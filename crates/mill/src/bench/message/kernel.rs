//! The kernel's side of the comparison: an epoll server and an epoll client, each as quick as we can make them.
//!
//! * Server: accepts in batches and reads at once, since the request is often there already; only if it is not does the
//!   connection enter the epoll set. Response and FIN leave together: one `send`, one `close`.
//! * Client: sends right after `connect`, which on loopback is done when it returns; waits for one event only, the
//!   server's FIN, edge-triggered, and then finds the response and the end in one `recv` each.
//! * TCP_NODELAY is set nowhere: no side ever holds back a first small segment, so it would cost a call and change nothing. All
//!   sockets are non-blocking from birth (SOCK_NONBLOCK, accept4).

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::tally::Tally;
use super::{MESSAGE_BYTES, SideOptions};
use crate::limits::{ACCEPT_BATCH_MAX, EVENTS_MAX};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;
const BACKLOG: i32 = 4096;

/// Serves until stdin closes.
pub fn server(options: &SideOptions) -> io::Result<()> {
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    net::bind(&listener, &options.net.listen_address(0))?;
    net::listen(&listener, BACKLOG)?;
    let address: SocketAddr = net::getsockname(&listener)?.try_into()?;
    println!("{}", serde_json::json!({ "address": address }));
    io::stdout().flush()?;
    Server {
        epoll: new_epoll()?,
        waiting: Vec::new(),
    }
    .run(&listener)
}

struct Server {
    epoll: OwnedFd,
    /// Accepted connections whose request has not come, by descriptor.
    waiting: Vec<Option<OwnedFd>>,
}

impl Server {
    fn run(&mut self, listener: &OwnedFd) -> io::Result<()> {
        let stdin = io::stdin();
        epoll::add(
            &self.epoll,
            listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        epoll::add(
            &self.epoll,
            &stdin,
            EventData::new_u64(STDIN),
            EventFlags::IN,
        )?;
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        loop {
            let ready = match epoll::wait(&self.epoll, &mut events, None) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in ready.iter() {
                match event.data.u64() {
                    LISTENER => self.accept(listener)?,
                    STDIN => return Ok(()),
                    fd => self.serve_waiting(fd as usize),
                }
            }
        }
    }

    fn accept(&mut self, listener: &OwnedFd) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH_MAX {
            match net::accept_with(listener, FLAGS) {
                Ok(stream) => self.welcome(stream)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn welcome(&mut self, stream: OwnedFd) -> io::Result<()> {
        if answer(stream.as_fd()) {
            return Ok(());
        }
        let fd = stream.as_raw_fd() as usize;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &stream, EventData::new_u64(fd as u64), flags)?;
        if fd >= self.waiting.len() {
            self.waiting.resize_with(fd + 1, || None);
        }
        self.waiting[fd] = Some(stream);
        Ok(())
    }

    fn serve_waiting(&mut self, fd: usize) {
        let Some(place) = self.waiting.get_mut(fd) else {
            return;
        };
        // Dropping the stream closes it, which also takes it out of the epoll set.
        if place.as_ref().is_some_and(|stream| answer(stream.as_fd())) {
            *place = None;
        }
    }
}

/// Answers if the request is there. True if the connection is to be closed, answered or broken.
fn answer(stream: BorrowedFd<'_>) -> bool {
    let mut message = [0; MESSAGE_BYTES];
    match net::recv(stream, &mut message[..], RecvFlags::empty()) {
        Ok((MESSAGE_BYTES, _)) => {
            // A peer that does not take 64 bytes counts it as failed itself.
            let _ = net::send(stream, &message, SendFlags::NOSIGNAL);
            true
        }
        Err(Errno::AGAIN | Errno::INTR) => false,
        // The request is one segment on loopback; anything else is not our client.
        Ok(_) | Err(_) => true,
    }
}

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn client(options: &SideOptions) -> io::Result<()> {
    let server = options
        .server
        .ok_or_else(|| io::Error::other("--server is missing"))?;
    let mut client = Client {
        epoll: new_epoll()?,
        server,
        slots: (0..options.connections).map(|_| None).collect(),
        idle: Vec::new(),
        tally: Tally::new(options),
    };
    client.run()?;
    println!("{}", serde_json::json!(client.tally.seen()));
    io::stdout().flush()
}

struct Slot {
    stream: OwnedFd,
    sent: bool,
    started_ns: u64,
}

struct Client {
    epoll: OwnedFd,
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
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while self.tally.goes_on() {
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&second)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.tally.goes_on();
            for event in ready.iter() {
                self.visit(event.data.u64() as usize, event.flags);
            }
            for index in std::mem::take(&mut self.idle) {
                self.begin(index);
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: usize) {
        match open(self.server) {
            Ok(stream) => {
                let sent = send(&stream);
                let wanted = if sent {
                    EventFlags::empty()
                } else {
                    EventFlags::OUT
                };
                let flags = EventFlags::RDHUP | EventFlags::ET | wanted;
                if let Err(error) = epoll::add(
                    &self.epoll,
                    &stream,
                    EventData::new_u64(index as u64),
                    flags,
                ) {
                    return self.give_up(index, &error);
                }
                let started_ns = self.tally.now_ns();
                self.slots[index] = Some(Slot {
                    stream,
                    sent,
                    started_ns,
                });
            }
            Err(error) => self.give_up(index, &error),
        }
    }

    fn give_up(&mut self, index: usize, cause: &dyn std::fmt::Display) {
        self.tally.fail(cause);
        self.idle.push(index);
    }

    fn visit(&mut self, index: usize, flags: EventFlags) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !slot.sent {
            slot.sent = send(&slot.stream);
        }
        if !flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        match receive(slot.stream.as_fd()) {
            Ok(()) => self.tally.succeed(slot.started_ns),
            Err(error) => self.tally.fail(&error),
        }
        self.slots[index] = None;
        self.begin(index);
    }
}

fn open(server: SocketAddr) -> Result<OwnedFd, Errno> {
    let stream = net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    match net::connect(&stream, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error),
    }
}

/// True if the request has left; otherwise the connection is not there yet.
fn send(stream: &OwnedFd) -> bool {
    let message = [b'q'; MESSAGE_BYTES];
    net::send(stream, &message, SendFlags::NOSIGNAL) == Ok(MESSAGE_BYTES)
}

/// The whole response and then the server's end.
fn receive(stream: BorrowedFd<'_>) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES + 1];
    let (count, _) = net::recv(stream, &mut message[..], RecvFlags::empty())?;
    if count != MESSAGE_BYTES {
        return Err(io::Error::other(format!("a response of {count} bytes")));
    }
    match net::recv(stream, &mut message[..], RecvFlags::empty())? {
        (0, _) => Ok(()),
        (count, _) => Err(io::Error::other(format!(
            "{count} bytes behind the response"
        ))),
    }
}

fn new_epoll() -> io::Result<OwnedFd> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}
