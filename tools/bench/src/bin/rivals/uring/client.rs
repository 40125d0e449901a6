//! The io_uring client: a slot for each connection, and one receive for each response.

use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::IntoRawFd;

use bench::measure::{Exchange, Plan, Tally, kernel};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::ring_unsafe::{Done, Operation, Ring};

struct Slot {
    fd: i32,
    /// Bytes of a response.
    wanted: usize,
    /// Responses to come on this connection. 0 at the start stands for no limit, because the count
    /// wraps.
    left: u64,
    started_ns: u64,
    /// The first error of the chain. It cancels the operations behind it.
    error: Option<Errno>,
}

struct Client<'a> {
    plan: &'a Plan,
    ring: Ring,
    slots: Vec<Slot>,
    tally: Tally,
}

/// Keeps the connections busy until the time is over, and prints the result.
pub fn load(plan: &Plan, server: SocketAddr) -> io::Result<()> {
    let SocketAddr::V4(server) = server else {
        return Err(io::Error::other("the server's address is not IPv4"));
    };
    kernel::allow_descriptors(plan);
    println!("{}", serde_json::json!({ "idle": 0 }));
    io::stdout().flush()?;
    let mut client = Client::new(plan, server)?;
    client.run()?;
    println!("{}", serde_json::json!(client.tally.seen()));
    io::stdout().flush()
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan, server: SocketAddrV4) -> io::Result<Self> {
        // One byte more than a response: the last receive also waits for the server's end.
        let buffer_bytes = plan.request_bytes.max(plan.response_bytes + 1);
        let slots = (0..plan.connections).map(|_| Slot {
            fd: -1,
            wanted: 0,
            left: 0,
            started_ns: 0,
            error: None,
        });
        Ok(Self {
            plan,
            ring: Ring::new(plan.connections, buffer_bytes, Some(server))?,
            slots: slots.collect(),
            tally: Tally::announcing(plan),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        for index in 0..self.slots.len() {
            self.begin(index)?;
        }
        while self.tally.goes_on() {
            let batch = self.ring.wait()?;
            self.tally.look();
            for done in &batch {
                self.visit(done)?;
            }
            self.ring.recycle(batch);
        }
        for slot in &self.slots {
            self.tally.leave_open(slot.started_ns);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let fd = fd.into_raw_fd();
        self.slots[index] = Slot {
            fd,
            wanted: self.plan.response_bytes,
            left: self.plan.messages,
            started_ns: self.tally.now_ns(),
            error: None,
        };
        self.ring.connect(index, fd, true)?;
        if self.plan.exchange == Exchange::Messages {
            self.ring.send(index, fd, self.plan.request_bytes, true)?;
        }
        self.receive(index)
    }

    /// Receives a response. The last receive asks for one byte more, so that it completes when the
    /// server's end has come.
    fn receive(&mut self, index: usize) -> io::Result<()> {
        let slot = &self.slots[index];
        let last = slot.left == 1 || self.plan.exchange == Exchange::Reset;
        self.ring
            .receive(index, slot.fd, slot.wanted + usize::from(last), true)
    }

    fn visit(&mut self, done: &Done) -> io::Result<()> {
        let index = done.slot;
        // A close in a slot belongs to the connection before. Its result is ignored.
        let is_chained = matches!(done.operation, Operation::Connect | Operation::Send);
        let slot = &mut self.slots[index];
        if (is_chained || done.operation == Operation::Receive) && done.result < 0 {
            let error = Errno::from_raw_os_error(-done.result);
            slot.error.get_or_insert(error);
        }
        match (done.operation, self.plan.exchange) {
            (Operation::Receive, Exchange::Messages) => self.received(index, done.result),
            (Operation::Receive, Exchange::Reset) => self.was_reset(index),
            _ => Ok(()),
        }
    }

    /// The completion of a receive that waited for the reset. The reset may have met the connect
    /// already, which cancels the receive.
    fn was_reset(&mut self, index: usize) -> io::Result<()> {
        let slot = &self.slots[index];
        match slot.error {
            Some(Errno::CONNRESET) => self.tally.succeed(slot.started_ns),
            Some(error) => self.tally.fail(&error),
            None => self.tally.fail(&"an end or data instead of a reset"),
        }
        self.again(index)
    }

    fn received(&mut self, index: usize, result: i32) -> io::Result<()> {
        let slot = &mut self.slots[index];
        if let Some(error) = slot.error {
            self.tally.fail(&error);
            return self.again(index);
        }
        if result != slot.wanted as i32 {
            let words = format!("{result} instead of {} bytes", slot.wanted);
            self.tally.fail(&words);
            return self.again(index);
        }
        self.tally.succeed(slot.started_ns);
        slot.left = slot.left.wrapping_sub(1);
        if slot.left == 0 {
            return self.again(index);
        }
        slot.started_ns = self.tally.now_ns();
        let fd = slot.fd;
        self.ring.send(index, fd, self.plan.request_bytes, true)?;
        self.receive(index)
    }

    fn again(&mut self, index: usize) -> io::Result<()> {
        self.ring.close(index, self.slots[index].fd)?;
        self.begin(index)
    }
}
