//! One connection of the server: reads requests, sends answers, in order, a bounded amount per
//! visit.
//!
//! Owns the stream and what is under way on it. The worker visits it when it is ready and closes it
//! when the visit says so. Answers of pipelined requests gather in one buffer until it is full or a
//! document must be read.

use std::io;

use super::answer::{self, Body};
use super::documents::{Content, Documents};
use super::file_buffer::FileBuffer;
use super::stats::Stats;
use super::timeouts::Reason;
use crate::http::request::Refusal;
use crate::http::response::{self, DateLine};
use crate::http::server::{Requests, Step};
use crate::http::status::Status;
use crate::limits::{GATHERED_BYTES_MAX, READ_BYTES, VISIT_BYTES_MAX};
use crate::net::{Interest, Net};

/// Parts of the worker that it lends to the connection that it visits.
pub struct Desk {
    pub documents: Documents,
    pub date: DateLine,
    pub stats: Stats,
    pub now_ns: u64,
    pub input: Box<[u8]>,
    pub file_bytes: FileBuffer,
    /// Where the visited connection gathers its answers; it keeps the memory only while they cannot
    /// leave.
    pub out: Vec<u8>,
}

impl Desk {
    pub fn new(documents: Documents) -> Self {
        Self {
            documents,
            date: DateLine::new(0),
            stats: Stats::default(),
            now_ns: 0,
            input: vec![0; READ_BYTES].into_boxed_slice(),
            file_bytes: FileBuffer::new(),
            out: Vec::new(),
        }
    }
}

/// The fate of the connection after a visit.
#[derive(Debug, PartialEq, Eq)]
pub enum Visit {
    /// Visit it again when it is ready for this; why it waits; whether it got anywhere.
    Wait {
        interest: Interest,
        reason: Reason,
        progress: bool,
    },
    /// Everything is said: close it.
    Close,
    /// The connection failed, or its answer cannot be completed: reset it.
    Abort,
}

/// The action when all is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stay,
    Close,
    /// Say that we are done, then read until the peer has seen it: closing at once would reset it
    /// and lose the answer.
    Linger,
    Lingering,
}

/// One connection.
pub struct Connection<N: Net> {
    pub stream: N::Stream,
    requests: Requests,
    out: Vec<u8>,
    /// Bytes of `out` that are sent.
    sent: usize,
    /// Follows `out`.
    body: Option<Body>,
    fate: Fate,
}

/// How far sending came.
enum Sent {
    All,
    /// The peer's or the network's turn.
    Blocked,
    /// The other connections' turn.
    Budget,
    Failed,
}

impl<N: Net> Connection<N> {
    pub fn new(stream: N::Stream) -> Self {
        Self {
            stream,
            requests: Requests::default(),
            out: Vec::new(),
            sent: 0,
            body: None,
            fate: Fate::Stay,
        }
    }

    /// Goes on as far as it can.
    pub fn visit(&mut self, net: &N, desk: &mut Desk) -> Visit {
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut desk.out);
        }
        let visit = self.go_on(net, desk);
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut desk.out);
        }
        visit
    }

    fn go_on(&mut self, net: &N, desk: &mut Desk) -> Visit {
        if self.fate == Fate::Lingering {
            return self.linger(net, desk);
        }
        let mut budget = VISIT_BYTES_MAX;
        let mut progress = false;
        let mut drained = false;
        loop {
            let answered = self.answer(desk);
            let before = budget;
            let sent = self.send(net, desk, &mut budget);
            progress |= answered || budget != before;
            match sent {
                Sent::Failed => return Visit::Abort,
                Sent::Blocked | Sent::Budget => {
                    return wait(Interest::Write, Reason::Send, progress);
                }
                Sent::All if self.fate != Fate::Stay => return self.finish(net, desk),
                // There may be more requests than the buffer took answers.
                Sent::All if answered => continue,
                Sent::All => {}
            }
            if drained || budget == 0 {
                return wait(Interest::Read, self.reading_reason(), progress);
            }
            match net.read(&mut self.stream, &mut desk.input) {
                Ok(0) => return Visit::Close,
                Ok(count) => {
                    drained = count < desk.input.len();
                    budget = budget.saturating_sub(count);
                    self.requests.push(&desk.input[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drained = true,
                Err(_) => return Visit::Abort,
            }
        }
    }

    /// Ends a connection that waited too long.
    pub fn time_out(&mut self, net: &N, desk: &mut Desk, reason: Reason) -> Visit {
        match reason {
            Reason::Idle | Reason::Linger => Visit::Close,
            Reason::Send => Visit::Abort,
            Reason::Head => {
                self.requests.stop();
                self.refuse(&Refusal::closing(Status::RequestTimeout), desk);
                self.visit(net, desk)
            }
        }
    }

    fn reading_reason(&self) -> Reason {
        if self.requests.is_partial() {
            Reason::Head
        } else {
            Reason::Idle
        }
    }

    /// Answers what was asked, until the buffer is full, a body has to leave first, or nothing more
    /// is asked.
    fn answer(&mut self, desk: &mut Desk) -> bool {
        let mut answered = false;
        while self.body.is_none() && self.out.len() < GATHERED_BYTES_MAX && self.fate == Fate::Stay
        {
            match self.requests.next() {
                Step::More => break,
                Step::Refuse(refusal) => self.refuse(&refusal, desk),
                Step::Request(request) => {
                    desk.stats.requests += 1;
                    let found = desk.documents.find(&request.path, desk.now_ns);
                    self.body = answer::answer(&request, found, &desk.date, &mut self.out);
                    self.gather_small_body();
                    if !request.connection.stays() {
                        self.fate = Fate::Close;
                    }
                }
            }
            answered = true;
        }
        answered
    }

    fn refuse(&mut self, refusal: &Refusal, desk: &mut Desk) {
        desk.stats.refusals += 1;
        response::write_refusal(refusal, &desk.date, &mut self.out);
        if !refusal.connection.stays() {
            self.fate = Fate::Linger;
        }
    }

    /// A small document in memory goes with its head, in one write.
    fn gather_small_body(&mut self) {
        let Some(body) = &self.body else { return };
        let Content::Memory(bytes) = &body.document.content else {
            return;
        };
        let (start, end) = (body.range.start as usize, body.range.end as usize);
        if self.out.len() + (end - start) <= GATHERED_BYTES_MAX {
            self.out.extend_from_slice(&bytes[start..end]);
            self.body = None;
        }
    }

    fn send(&mut self, net: &N, desk: &mut Desk, budget: &mut usize) -> Sent {
        while self.sent < self.out.len() {
            match written(net.write(&mut self.stream, &self.out[self.sent..])) {
                Ok(count) => {
                    self.sent += count;
                    desk.stats.bytes_sent += count as u64;
                    *budget = budget.saturating_sub(count);
                }
                Err(sent) => return sent,
            }
        }
        self.out.clear();
        self.sent = 0;
        self.send_body(net, desk, budget)
    }

    fn send_body(&mut self, net: &N, desk: &mut Desk, budget: &mut usize) -> Sent {
        let Some(body) = &mut self.body else {
            return Sent::All;
        };
        while !body.range.is_empty() {
            if *budget == 0 {
                return Sent::Budget;
            }
            let bytes = match chunk(body, &mut desk.file_bytes) {
                Ok(bytes) => bytes,
                Err(error) => {
                    desk.stats.cut_short += 1;
                    tracing::warn!("a document became unreadable while it was sent: {error}");
                    return Sent::Failed;
                }
            };
            match written(net.write(&mut self.stream, bytes)) {
                Ok(count) => {
                    body.range.start += count as u64;
                    desk.stats.bytes_sent += count as u64;
                    *budget = budget.saturating_sub(count);
                }
                Err(sent) => return sent,
            }
        }
        self.body = None;
        Sent::All
    }

    /// All is sent, and nothing more will be.
    fn finish(&mut self, net: &N, desk: &mut Desk) -> Visit {
        if self.fate == Fate::Close || net.shutdown_write(&self.stream).is_err() {
            return Visit::Close;
        }
        self.fate = Fate::Lingering;
        match self.linger(net, desk) {
            // From now on, however much the peer sends.
            Visit::Wait {
                interest, reason, ..
            } => wait(interest, reason, true),
            visit => visit,
        }
    }

    /// Reads and throws away. The time to do so is not extended by what the peer sends.
    fn linger(&mut self, net: &N, desk: &mut Desk) -> Visit {
        let mut budget = VISIT_BYTES_MAX;
        while budget > 0 {
            match net.read(&mut self.stream, &mut desk.input) {
                Ok(0) => return Visit::Close,
                Ok(count) => budget = budget.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Visit::Abort,
            }
        }
        wait(Interest::Read, Reason::Linger, false)
    }
}

fn wait(interest: Interest, reason: Reason, progress: bool) -> Visit {
    Visit::Wait {
        interest,
        reason,
        progress,
    }
}

/// Sorts out what a write said. An interrupted one wrote nothing.
fn written(result: io::Result<usize>) -> Result<usize, Sent> {
    match result {
        Ok(0) => Err(Sent::Blocked),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Sent::Blocked),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(_) => Err(Sent::Failed),
    }
}

/// The next bytes of a body, from memory or from the file.
fn chunk<'a>(body: &'a Body, buffer: &'a mut FileBuffer) -> io::Result<&'a [u8]> {
    match &body.document.content {
        Content::Memory(bytes) => Ok(&bytes[body.range.start as usize..body.range.end as usize]),
        Content::File(file) => buffer.bytes_of(&body.document, file, &body.range),
    }
}
