//! The io_uring server: a slot for each connection, found by its descriptor.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use bench::measure::{Exchange, Plan, kernel};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType, sockopt};

use crate::ring_unsafe::{Done, Operation, Ring};

struct Slot {
    /// Bytes of the request that have not come.
    wanted: usize,
    /// Requests to come on this connection. 0 at the start stands for no limit, because the count
    /// wraps.
    left: u64,
}

/// Serves until stdin closes, at `port`, or at any free port if it is 0.
pub fn serve(plan: &Plan, port: u16) -> io::Result<()> {
    kernel::allow_descriptors(plan);
    let listener = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    if plan.exchange == Exchange::Reset {
        sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    }
    net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], port)))?;
    net::listen(&listener, kernel::backlog(plan))?;
    let address: SocketAddr = net::getsockname(&listener)?.try_into()?;
    let buffer_bytes = plan.request_bytes.max(plan.response_bytes);
    // One slot for each connection, by descriptor.
    let slots = kernel::descriptors(plan);
    let mut ring = Ring::new(slots, buffer_bytes, None)?;
    println!("{}", serde_json::json!({ "address": address }));
    io::stdout().flush()?;
    ring.accept(listener.as_raw_fd())?;
    ring.readable(io::stdin().as_raw_fd())?;
    let mut slots: Vec<Slot> = (0..slots).map(|_| Slot { wanted: 0, left: 0 }).collect();
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
                // A response that was not taken is counted as a failure by the client.
                Operation::Send | Operation::Close | Operation::Connect => {}
            }
        }
        ring.recycle(batch);
    }
}

fn welcome(plan: &Plan, ring: &mut Ring, slots: &mut [Slot], accepted: i32) -> io::Result<()> {
    let fd = match accepted {
        // The client had gone by then.
        code if code == -Errno::CONNABORTED.raw_os_error() => return Ok(()),
        code if code < 0 => return Err(io::Error::from_raw_os_error(-code)),
        fd => fd,
    };
    let Some(slot) = slots.get_mut(fd as usize) else {
        return Err(io::Error::other(format!("no slot for descriptor {fd}")));
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
