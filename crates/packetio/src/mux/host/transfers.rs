//! Connections on their way between this process and another one of its application.
//!
//! [`Transfers`] owns unanswered connections that left, each in a sealed memory file, and the
//! answers that this process owes. A connection that no process can take is offered again for a
//! while, because a new worker may not listen yet. The control thread sends and receives; ports
//! fill the lists.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;

use super::{Books, MuxHost, PROTOCOL_TCP, Shared, Tuple};
use crate::foreign::Foreign;
use crate::host::Transfer;
use crate::host::host_queues::ring_bell;
use crate::limits::{
    MUX_TRANSFER_ALONE_WAIT, MUX_TRANSFER_BACK_WAIT, MUX_TRANSFER_BYTES_MAX, MUX_TRANSFER_RETRY,
    MUX_TRANSFER_WAIT,
};
use crate::mux::message::{Message, Move, Seek};

/// A connection that left a stack.
#[derive(Debug)]
struct Leaving {
    context: u16,
    /// The stack's number for the connection.
    number: u32,
    tuple: Tuple,
    /// Both ends of the connection, this host's first.
    ends: (SocketAddr, SocketAddr),
    file: OwnedFd,
    bytes: u32,
    /// Time of the next offer.
    at: Instant,
    /// Time at which the connection is given up if no other process has the address.
    alone_until: Instant,
    /// Time at which the connection is given up in any case.
    until: Instant,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// Connections to be offered.
    waiting: Vec<Leaving>,
    /// Connections that are offered, by request number.
    offered: HashMap<u32, Leaving>,
    /// Answers to received connections and questions.
    answers: Vec<Message>,
    /// Questions of this process's stacks to be sent.
    questions: Vec<Message>,
    /// Questions without an answer, by request number: context, and the stack's number.
    asked: HashMap<u32, (u16, u32)>,
}

impl Transfers {
    /// Forgets the requests that a service had which is gone.
    fn forget_service(&mut self) {
        self.answers.clear();
        self.questions.clear();
        self.waiting
            .extend(self.offered.drain().map(|(_, one)| one));
    }
}

impl MuxHost {
    /// True if this process holds the address, so that other processes of its application may
    /// listen there.
    pub(in crate::mux) fn is_shared(&self, local: SocketAddr) -> bool {
        let books = self.shared.books();
        books.claims.holds().any(|held| held == local)
    }

    /// Takes a connection, or the answer to one, from a stack.
    pub(in crate::mux) fn transfer(&self, context: usize, transfer: Transfer) {
        let mut books = self.shared.books();
        let refused = |request| Message::Refused {
            request,
            errno: Errno::AGAIN.raw_os_error() as u16,
        };
        match transfer {
            Transfer::Taken { number } => {
                let request = number;
                books.transfers.answers.push(Message::Granted { request });
            }
            Transfer::Refused { number } => books.transfers.answers.push(refused(number)),
            Transfer::Seek {
                number,
                local,
                accepts,
                is_urgent,
            } => books.seek((context as u16, number), local, (accepts, is_urgent)),
            Transfer::Connection {
                number,
                local,
                ends,
                bytes,
                comes_back,
            } => match Leaving::new((context as u16, number), (local, comes_back), ends, &bytes) {
                Ok(leaving) => books.transfers.waiting.push(leaving),
                Err(_) => books.tell_end(context as u16, Transfer::Refused { number }),
            },
        }
        drop(books);
        ring_bell(&self.shared.bell);
    }
}

impl Leaving {
    fn new(
        (context, number): (u16, u32),
        (local, comes_back): (SocketAddr, bool),
        ends: (SocketAddr, SocketAddr),
        bytes: &[u8],
    ) -> Result<Self, Errno> {
        let file = memfd_create("moving", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.write_all_at(bytes, 0)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        fcntl_add_seals(&file, SEALS)?;
        let now = Instant::now();
        let (alone, wait) = match comes_back {
            true => (Duration::ZERO, MUX_TRANSFER_BACK_WAIT),
            false => (MUX_TRANSFER_ALONE_WAIT, MUX_TRANSFER_WAIT),
        };
        Ok(Self {
            context,
            number,
            tuple: tuple_of(local),
            ends,
            file: file.into(),
            bytes: bytes.len() as u32,
            at: now,
            alone_until: now + alone,
            until: now + wait,
        })
    }
}

fn tuple_of(local: SocketAddr) -> Tuple {
    Tuple {
        protocol: PROTOCOL_TCP,
        address: local.ip(),
        port: local.port(),
    }
}

/// Seals that make a memory file immutable, so that reading never waits.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE)
    .union(SealFlags::SEAL);

fn is_sealed(file: BorrowedFd<'_>) -> Result<(), &'static str> {
    match fcntl_get_seals(file) {
        Ok(seals) if seals.contains(SEALS) => Ok(()),
        _ => Err("not a sealed memory file"),
    }
}

fn read(one: &Move, descriptor: Foreign) -> Option<Vec<u8>> {
    if one.bytes > MUX_TRANSFER_BYTES_MAX {
        return None;
    }
    let file = File::from(descriptor.keep_if("no file", is_sealed).ok()?);
    let mut bytes = vec![0; one.bytes as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

impl Shared {
    /// Time until the control thread must offer a connection again; `None`: for ever.
    pub(super) fn until_next_move(&self) -> Option<Duration> {
        let books = self.books();
        let next = books.transfers.waiting.iter().map(|one| one.at).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Sends the answers to received connections and questions.
    pub(super) fn send_answers(&self) {
        let mut books = self.books();
        for answer in std::mem::take(&mut books.transfers.answers) {
            // If the answer is lost, the sender offers the connection again.
            let _ = self.send(&answer, None);
        }
    }

    /// Offers connections whose time has come, and sends questions and answers.
    pub(super) fn send_moves(&self) {
        self.send_answers();
        let mut books = self.books();
        for question in std::mem::take(&mut books.transfers.questions) {
            if let (Err(_), Message::Seek(seek)) = (self.send(&question, None), question) {
                books.move_ended(seek.request, Some(Errno::AGAIN.raw_os_error() as u16));
            }
        }
        let now = Instant::now();
        let due: Vec<Leaving> = books
            .transfers
            .waiting
            .extract_if(.., |one| one.at <= now)
            .collect();
        for one in due {
            if one.until <= now {
                let number = one.number;
                books.tell_end(one.context, Transfer::Refused { number });
                continue;
            }
            let request = books.number();
            let message = Message::Move(Move {
                request,
                context: one.context,
                tuple: one.tuple,
                local: one.ends.0.ip(),
                remote: one.ends.1,
                bytes: one.bytes,
            });
            match self.send(&message, Some(one.file.as_fd())) {
                Ok(()) => {
                    books.transfers.offered.insert(request, one);
                }
                Err(_) => books.transfers.waiting.push(one.later()),
            }
        }
    }
}

impl Leaving {
    fn later(self) -> Self {
        Self {
            at: Instant::now() + MUX_TRANSFER_RETRY,
            ..self
        }
    }
}

impl Books {
    /// Processes the answer to an offer or a question. False: there is none with this number.
    pub(super) fn move_ended(&mut self, request: u32, errno: Option<u16>) -> bool {
        if let Some((context, number)) = self.transfers.asked.remove(&request) {
            self.tell_end(
                context,
                match errno {
                    None => Transfer::Taken { number },
                    Some(_) => Transfer::Refused { number },
                },
            );
            return true;
        }
        let Some(one) = self.transfers.offered.remove(&request) else {
            return false;
        };
        let (context, number) = (one.context, one.number);
        match errno.map(|errno| Errno::from_raw_os_error(i32::from(errno))) {
            None => self.tell_end(context, Transfer::Taken { number }),
            Some(Errno::AGAIN) => self.transfers.waiting.push(one.later()),
            Some(Errno::NOENT) if Instant::now() < one.alone_until => {
                self.transfers.waiting.push(one.later());
            }
            Some(_) => self.tell_end(context, Transfer::Refused { number }),
        }
        true
    }

    /// Asks for a process that accepts, on behalf of a stack of this process.
    fn seek(&mut self, asker: (u16, u32), local: SocketAddr, (accepts, is_urgent): (bool, bool)) {
        let request = self.number();
        self.transfers.asked.insert(request, asker);
        self.transfers.questions.push(Message::Seek(Seek {
            request,
            context: asker.0,
            tuple: tuple_of(local),
            accepts,
            is_urgent,
        }));
    }

    /// Receives the question of another process.
    pub(super) fn seek_came(&mut self, seek: &Seek) {
        let question = Transfer::Seek {
            number: seek.request,
            local: SocketAddr::new(seek.tuple.address, seek.tuple.port),
            accepts: seek.accepts,
            is_urgent: seek.is_urgent,
        };
        if !self.give(seek.context, question) {
            self.transfers.answers.push(Message::Refused {
                request: seek.request,
                errno: Errno::AGAIN.raw_os_error() as u16,
            });
        }
    }

    /// Receives a connection from another process.
    pub(super) fn move_came(&mut self, one: &Move, descriptor: Foreign) {
        let local = SocketAddr::new(one.tuple.address, one.tuple.port);
        let number = one.request;
        let given = read(one, descriptor).is_some_and(|bytes| {
            let connection = Transfer::Connection {
                number,
                local,
                ends: (SocketAddr::new(one.local, local.port()), one.remote),
                bytes,
                comes_back: false,
            };
            self.give(one.context, connection)
        });
        if !given {
            self.transfers.answers.push(Message::Refused {
                request: number,
                errno: Errno::AGAIN.raw_os_error() as u16,
            });
        }
    }

    /// Forgets the requests that a service had which is gone. Its stacks ask again later.
    pub(super) fn forget_moves(&mut self) {
        self.transfers.forget_service();
        for (context, number) in std::mem::take(&mut self.transfers.asked).into_values() {
            self.tell_end(context, Transfer::Refused { number });
        }
    }

    /// Refuses everything in transit, because no service will come back: the stacks end what they
    /// have sent.
    pub(super) fn end_moves(&mut self) {
        self.forget_moves();
        for one in std::mem::take(&mut self.transfers.waiting) {
            let number = one.number;
            self.tell_end(one.context, Transfer::Refused { number });
        }
    }

    /// Tells a stack what became of a connection that it sent. There is room, because a stack has
    /// fewer connections under way than its queue has places.
    fn tell_end(&mut self, context: u16, answer: Transfer) {
        let _ = self.give(context, answer);
    }

    fn give(&mut self, context: u16, transfer: Transfer) -> bool {
        let mut links = self.links.iter_mut();
        match links.find(|link| link.context == context) {
            Some(link) => link.link.give(transfer),
            None => false,
        }
    }
}
