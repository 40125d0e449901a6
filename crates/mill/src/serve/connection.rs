//! One connection of the server: reads requests and sends answers, in order, a bounded amount per
//! visit.
//!
//! Owns the stream and its present request. The worker visits a connection when it is ready, and
//! closes it when the visit says so. Answers of pipelined requests are gathered in one buffer until
//! it is full or a document must be read.

use std::io;

use super::answer::{self, Body};
use super::documents::{Content, Documents};
use super::file_buffer::FileBuffer;
use super::log;
use super::stats::Stats;
use super::timeouts::Reason;
use crate::http::request::Refusal;
use crate::http::response::{self, DateLine};
use crate::http::server::{Requests, Step};
use crate::http::status::Status;
use crate::limits::{GATHERED_BYTES_MAX, READ_BYTES, VISIT_BYTES_MAX};
use crate::net::{Interest, Net};

/// Parts of the worker that a connection uses during a visit.
pub struct Desk {
    pub documents: Documents,
    pub date: DateLine,
    pub stats: Stats,
    pub now_ns: u64,
    pub input: Box<[u8]>,
    pub file_bytes: FileBuffer,
    /// Buffer for the answers of the visited connection, which keeps it only while it cannot send.
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
    /// Visit the connection again when it is ready; with the reason for waiting, and whether it
    /// made progress.
    Wait {
        interest: Interest,
        reason: Reason,
        progress: bool,
    },
    /// Everything was sent: close it.
    Close,
    /// The connection failed, or its answer cannot be completed: reset it.
    Abort,
}

/// The action after everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stay,
    Close,
    /// Shut our direction, then read until the peer closes. Closing at once would send a reset,
    /// which could destroy the answer.
    Linger,
    Lingering,
}

/// One connection.
pub struct Connection<N: Net> {
    pub stream: N::Stream,
    requests: Requests,
    out: Vec<u8>,
    /// Number of bytes of `out` that were sent.
    sent: usize,
    /// Sent after `out`.
    body: Option<Body>,
    fate: Fate,
}

/// The result of sending.
enum Sent {
    All,
    /// The peer or the network has to take bytes first.
    Blocked,
    /// The visit has used its budget.
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

    /// Advances as far as possible.
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
                // There may be more requests than the buffer had room to answer.
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

    /// Handles a connection that waited too long.
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

    /// Answers requests until the buffer is full, a body has to be sent first, or no request is
    /// left.
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

    /// Appends a small cached document to its head, so that one write sends both.
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
                    log::DOCUMENT_CUT.warn(format_args!("{error}, while it was sent"));
                    return Sent::Failed;
                }
            };
            // A file is read in pieces that do not end where segments do, so only its end is one.
            let is_end = bytes.len() as u64 == body.range.end - body.range.start;
            let sent = match is_end {
                true => net.write(&mut self.stream, bytes),
                false => net.write_more(&mut self.stream, bytes),
            };
            match written(sent) {
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

    /// Ends a connection on which everything was sent.
    fn finish(&mut self, net: &N, desk: &mut Desk) -> Visit {
        if self.fate == Fate::Close || net.shutdown_write(&self.stream).is_err() {
            return Visit::Close;
        }
        self.fate = Fate::Lingering;
        match self.linger(net, desk) {
            // The time limit holds from now on, however much the peer sends.
            Visit::Wait {
                interest, reason, ..
            } => wait(interest, reason, true),
            visit => visit,
        }
    }

    /// Reads and drops bytes. The peer cannot extend the time for this.
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

/// Interprets the result of a write. An interrupted one wrote nothing.
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
