//! The server.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use measure::{Exchange, Plan};
use rustix::net::{self, AddressFamily, SocketType, sockopt};

use crate::ring_unsafe::{Done, Operation, Ring};

/// Connections that may wait to be accepted, or more if more are to come at once.
const BACKLOG: usize = 4_096;
/// Connections that it serves at once; one slot each, by descriptor.
const SLOTS: usize = 20_000;

struct Slot {
    /// Bytes of the request that have not come.
    wanted: usize,
    /// Requests to come; counts down from 0 for ever.
    left: u64,
}

/// Serves until stdin closes.
pub fn serve(plan: &Plan) -> io::Result<()> {
    let listener = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    if plan.exchange == Exchange::Reset {
        sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    }
    net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let backlog = BACKLOG.max(plan.connections);
    net::listen(&listener, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let address: SocketAddr = net::getsockname(&listener)?.try_into()?;
    let buffer_bytes = plan.request_bytes.max(plan.response_bytes);
    let mut ring = Ring::new(SLOTS, buffer_bytes, None)?;
    println!("{}", serde_json::json!({ "address": address }));
    io::stdout().flush()?;
    ring.accept(listener.as_raw_fd())?;
    ring.readable(io::stdin().as_raw_fd())?;
    let mut slots: Vec<Slot> = (0..SLOTS).map(|_| Slot { wanted: 0, left: 0 }).collect();
    loop {
        let batch = ring.wait()?;
        for done in &batch {
            match done.operation {
                Operation::Readable => return Ok(()),
                Operation::Accept => {
                    if !done.more {
                        ring.accept(listener.as_raw_fd())?;
                    }
                    welcome(plan, &mut ring, &mut slots, done.result)?;
                }
                Operation::Receive => received(plan, &mut ring, &mut slots[done.slot], done)?,
                // A peer that does not take the response counts it as failed itself.
                Operation::Send | Operation::Close | Operation::Connect => {}
            }
        }
        ring.recycle(batch);
    }
}

fn welcome(plan: &Plan, ring: &mut Ring, slots: &mut [Slot], fd: i32) -> io::Result<()> {
    let Some(slot) = usize::try_from(fd).ok().and_then(|fd| slots.get_mut(fd)) else {
        return Ok(());
    };
    *slot = Slot {
        wanted: plan.request_bytes,
        left: plan.messages,
    };
    match plan.exchange {
        Exchange::Reset => ring.close(fd as usize, fd),
        Exchange::Messages => ring.receive(fd as usize, fd, plan.request_bytes, true),
    }
}

fn received(plan: &Plan, ring: &mut Ring, slot: &mut Slot, done: &Done) -> io::Result<()> {
    let (index, fd) = (done.slot, done.slot as i32);
    if done.result <= 0 {
        return ring.close(index, fd);
    }
    slot.wanted = slot.wanted.saturating_sub(done.result as usize);
    if slot.wanted > 0 {
        return ring.receive(index, fd, slot.wanted, true);
    }
    slot.left = slot.left.wrapping_sub(1);
    slot.wanted = plan.request_bytes;
    ring.send(index, fd, plan.response_bytes, true)?;
    match slot.left {
        0 => ring.close(index, fd),
        _ => ring.receive(index, fd, plan.request_bytes, true),
    }
}
