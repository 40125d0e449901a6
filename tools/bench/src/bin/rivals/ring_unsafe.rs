//! An io_uring with the memory that its operations work on, so that the rest of the program needs
//! no `unsafe`.
//!
//! Every operation belongs to a slot, and a slot has one buffer. Only the kernel touches the buffer
//! while an operation of the slot is under way, and only the kernel reads it. The contents of
//! messages do not matter here, only their length.

use std::cell::UnsafeCell;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};

const ENTRIES: u32 = 4_096;
const COMPLETIONS: u32 = 65_536;
/// Operations of the longest chain.
const CHAIN_MAX: usize = 4;

/// The kind of an operation, named in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Accept,
    Connect,
    Receive,
    Send,
    Close,
    /// Something to read on a descriptor.
    Readable,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Accept,
    Operation::Connect,
    Operation::Receive,
    Operation::Send,
    Operation::Close,
    Operation::Readable,
];

/// The completion of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub slot: usize,
    pub operation: Operation,
    /// A count of bytes, a descriptor, or `-errno`.
    pub result: i32,
    /// True for a multishot operation that will complete again.
    pub more: bool,
}

/// An io_uring and its buffers.
pub struct Ring {
    ring: IoUring,
    /// One buffer for each slot, one after another.
    buffers: Box<[UnsafeCell<u8>]>,
    buffer_bytes: usize,
    /// The server's address, as `connect` reads it.
    address: Box<libc_address::SockaddrIn>,
    done: Vec<Done>,
    /// True after a linked entry: the next one belongs to its chain.
    in_chain: bool,
}

/// `struct sockaddr_in`, in the form in which the kernel reads it.
mod libc_address {
    /// See `ip(7)`.
    #[repr(C)]
    pub struct SockaddrIn {
        pub family: u16,
        pub port_be: u16,
        pub address_be: u32,
        pub zero: [u8; 8],
    }
}

impl Ring {
    /// A ring with `slots` buffers of `buffer_bytes`; `server` is where [`connect`](Self::connect)
    /// goes.
    pub fn new(
        slots: usize,
        buffer_bytes: usize,
        server: Option<SocketAddrV4>,
    ) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES)?;
        let bytes = slots * buffer_bytes;
        let buffers = (0..bytes).map(|_| UnsafeCell::new(b'm')).collect();
        let (address_be, port_be) = server.map_or((0, 0), |server| {
            (
                u32::from_ne_bytes(server.ip().octets()),
                server.port().to_be(),
            )
        });
        let address = Box::new(libc_address::SockaddrIn {
            family: rustix::net::AddressFamily::INET.as_raw(),
            port_be,
            address_be,
            zero: [0; 8],
        });
        Ok(Self {
            ring,
            buffers,
            buffer_bytes,
            address,
            done: Vec::new(),
            in_chain: false,
        })
    }

    /// Accepts connections by one multishot operation, as long as its completions say `more`.
    pub fn accept(&mut self, listener: RawFd) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(types::Fd(listener)).build();
        self.push(entry, 0, Operation::Accept, false)
    }

    /// Connects to the server; with `linked`, what is pushed next begins when it is done.
    pub fn connect(&mut self, slot: usize, fd: RawFd, linked: bool) -> io::Result<()> {
        let address = (&raw const *self.address).cast();
        let length = size_of::<libc_address::SockaddrIn>() as u32;
        let entry = opcode::Connect::new(types::Fd(fd), address, length).build();
        self.push(entry, slot, Operation::Connect, linked)
    }

    /// Receives at most `bytes`; with `whole` until that many have come or the peer has closed.
    pub fn receive(&mut self, slot: usize, fd: RawFd, bytes: usize, whole: bool) -> io::Result<()> {
        const WAIT_ALL: i32 = 0x100;
        let bytes = bytes.min(self.buffer_bytes);
        let entry = opcode::Recv::new(types::Fd(fd), self.buffer(slot), bytes as u32)
            .flags(if whole { WAIT_ALL } else { 0 })
            .build();
        self.push(entry, slot, Operation::Receive, false)
    }

    /// Sends all of `bytes`; with `linked`, what is pushed next begins when they have been taken.
    pub fn send(&mut self, slot: usize, fd: RawFd, bytes: usize, linked: bool) -> io::Result<()> {
        const WAIT_ALL: i32 = 0x100;
        const NO_SIGNAL: i32 = 0x4000;
        let bytes = bytes.min(self.buffer_bytes);
        let entry = opcode::Send::new(types::Fd(fd), self.buffer(slot), bytes as u32)
            .flags(WAIT_ALL | NO_SIGNAL)
            .build();
        self.push(entry, slot, Operation::Send, linked)
    }

    /// Closes a descriptor.
    pub fn close(&mut self, slot: usize, fd: RawFd) -> io::Result<()> {
        let entry = opcode::Close::new(types::Fd(fd)).build();
        self.push(entry, slot, Operation::Close, false)
    }

    /// Completes when there is something to read.
    pub fn readable(&mut self, fd: RawFd) -> io::Result<()> {
        const POLL_IN: u32 = 1;
        let entry = opcode::PollAdd::new(types::Fd(fd), POLL_IN).build();
        self.push(entry, 0, Operation::Readable, false)
    }

    /// Submits what was pushed, waits for at least one completion, and hands over all there are.
    pub fn wait(&mut self) -> io::Result<Vec<Done>> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let mut done = std::mem::take(&mut self.done);
        done.extend(self.ring.completion().map(|entry| Done {
            slot: (entry.user_data() >> 8) as usize,
            operation: OPERATIONS[(entry.user_data() & 0xff) as usize % OPERATIONS.len()],
            result: entry.result(),
            more: io_uring::cqueue::more(entry.flags()),
        }));
        Ok(done)
    }

    /// Takes back the memory of a batch of completions.
    pub fn recycle(&mut self, mut done: Vec<Done>) {
        done.clear();
        self.done = done;
    }

    fn buffer(&self, slot: usize) -> *mut u8 {
        self.buffers[slot * self.buffer_bytes].get()
    }

    fn push(
        &mut self,
        entry: Entry,
        slot: usize,
        operation: Operation,
        linked: bool,
    ) -> io::Result<()> {
        let entry = entry.user_data((slot as u64) << 8 | operation as u64);
        // A chain must be submitted as a whole. So the longest chain must fit before its first
        // entry.
        if !self.in_chain {
            let queue = self.ring.submission();
            let room = queue.capacity() - queue.len();
            drop(queue);
            if room < CHAIN_MAX {
                self.ring.submit()?;
            }
        }
        self.in_chain = linked;
        let entry = match linked {
            true => entry.flags(Flags::IO_LINK),
            false => entry,
        };
        // SAFETY: the entry points at a slot's buffer or at the address. Both live on the heap as
        // long as the ring, do not move, and are given to the kernel only. Descriptors are plain
        // numbers, and a wrong one is an error of the kernel's.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_operations_than_entries_are_submitted_in_between() {
        let Ok(mut ring) = Ring::new(1, 64, None) else {
            println!("io_uring: skipped: the kernel does not let us");
            return;
        };
        for _ in 0..2 * ENTRIES {
            // No such descriptor: each is done at once, with an error.
            ring.receive(0, -1, 64, true).unwrap();
        }
        let mut done = 0;
        while done < 2 * ENTRIES as usize {
            done += ring.wait().unwrap().len();
        }
    }
}
