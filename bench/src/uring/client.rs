//! The client.

use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::IntoRawFd;

use measure::{Exchange, Plan, Tally};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::ring_unsafe::{Done, Operation, Ring};

struct Slot {
    fd: i32,
    /// Bytes of the response that have not come.
    wanted: usize,
    /// Responses to come; counts down from 0 for ever.
    left: u64,
    started_ns: u64,
}

struct Client<'a> {
    plan: &'a Plan,
    ring: Ring,
    slots: Vec<Slot>,
    tally: Tally,
}

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn load(plan: &Plan, server: SocketAddr) -> io::Result<()> {
    let SocketAddr::V4(server) = server else {
        return Err(io::Error::other("the server's address is not IPv4"));
    };
    println!("{}", serde_json::json!({ "idle": 0 }));
    io::stdout().flush()?;
    let mut client = Client::new(plan, server)?;
    client.run()?;
    println!("{}", serde_json::json!(client.tally.seen()));
    io::stdout().flush()
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan, server: SocketAddrV4) -> io::Result<Self> {
        // Room for the end behind a response.
        let buffer_bytes = plan.request_bytes.max(plan.response_bytes + 1);
        let slots = (0..plan.connections).map(|_| Slot {
            fd: -1,
            wanted: 0,
            left: 0,
            started_ns: 0,
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
        };
        self.ring.connect(index, fd, true)?;
        if self.plan.exchange == Exchange::Messages {
            self.ring.send(index, fd, self.plan.request_bytes, true)?;
        }
        self.receive(index)
    }

    /// With the last response its end, which makes the receive a short one.
    fn receive(&mut self, index: usize) -> io::Result<()> {
        let slot = &self.slots[index];
        let last = slot.left == 1 || self.plan.exchange == Exchange::Reset;
        self.ring
            .receive(index, slot.fd, slot.wanted + usize::from(last), true)
    }

    fn visit(&mut self, done: &Done) -> io::Result<()> {
        let index = done.slot;
        match (done.operation, self.plan.exchange) {
            (Operation::Receive, Exchange::Messages) => self.received(index, done.result),
            (Operation::Receive, Exchange::Reset) => {
                const RESET: i32 = -104;
                const CANCELED: i32 = -125;
                match done.result {
                    // The reset may have met the connect already.
                    RESET | CANCELED => self.tally.succeed(self.slots[index].started_ns),
                    other => self.tally.fail(&format!("{other} instead of a reset")),
                }
                self.again(index)
            }
            _ => Ok(()),
        }
    }

    fn received(&mut self, index: usize, result: i32) -> io::Result<()> {
        let slot = &mut self.slots[index];
        if result != slot.wanted as i32 {
            self.tally
                .fail(&format!("{result} instead of {} bytes", slot.wanted));
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
