//! The server's side of one connection: bytes in, requests out, in order.
//!
//! Owns the bytes that are not yet a request. `serve::connection` calls [`Requests::push`] with
//! what it read and then [`Requests::next`] until it says [`Step::More`]. After a refusal that
//! closes, the rest of the input is thrown away.

use super::request::{self, Parsed, Refusal, Request};
use super::status::Status;
use crate::limits::{
    BLANK_LINES_MAX, HEAD_BYTES_MAX, IDLE_BUFFER_BYTES_MAX, REQUEST_LINE_BYTES_MAX,
};

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing whole is here: read more.
    More,
    /// Answer it with a document, or say why there is none.
    Request(Request),
    /// Answer it with this status.
    Refuse(Refusal),
}

/// Turns the bytes of one connection into requests.
#[derive(Debug, Default)]
pub struct Requests {
    input: Vec<u8>,
    /// Where the next request starts in `input`.
    start: usize,
    /// Up to here `input` holds no end of a head.
    scanned: usize,
    /// Bytes of content still to come that nobody wants.
    skip: u64,
    blank_lines: u32,
    closed: bool,
}

impl Requests {
    /// Takes what was read.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if self.closed {
            return;
        }
        if self.start == self.input.len() {
            bytes = self.skip_content(bytes);
        }
        self.compact();
        self.input.extend_from_slice(bytes);
    }

    /// The next whole request, in the order of arrival.
    pub fn next(&mut self) -> Step {
        if self.closed {
            return Step::More;
        }
        self.skip_buffered_content();
        if self.skip_blank_lines().is_err() {
            return self.close(Status::BadRequest);
        }
        let Some(end) = self.head_end() else {
            self.compact();
            return self.check_length();
        };
        let head = &self.input[self.start..end];
        if let Some(status) = too_long(head) {
            return self.close(status);
        }
        let Parsed {
            outcome,
            content_bytes,
        } = request::parse(head);
        self.start = end;
        self.scanned = end;
        self.skip = content_bytes;
        self.blank_lines = 0;
        match outcome {
            Ok(request) => {
                self.closed = !request.connection.stays();
                Step::Request(request)
            }
            Err(refusal) => {
                self.closed = !refusal.connection.stays();
                Step::Refuse(refusal)
            }
        }
    }

    /// A request has begun and is not whole.
    pub fn is_partial(&self) -> bool {
        !self.closed && (self.start < self.input.len() || self.skip > 0)
    }

    /// Ends the reading of requests: 408 and such.
    pub fn stop(&mut self) {
        self.closed = true;
        self.input = Vec::new();
        self.start = 0;
    }

    fn close(&mut self, status: Status) -> Step {
        self.stop();
        Step::Refuse(Refusal::closing(status))
    }

    fn skip_content<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = self.skip.min(bytes.len() as u64);
        self.skip -= count;
        &bytes[count as usize..]
    }

    fn skip_buffered_content(&mut self) {
        let buffered = (self.input.len() - self.start) as u64;
        let count = self.skip.min(buffered);
        self.skip -= count;
        self.start += count as usize;
        self.scanned = self.scanned.max(self.start);
    }

    /// Moves what is left to the front, and lets a large buffer go when nothing is left.
    fn compact(&mut self) {
        if self.start == 0 {
            return;
        }
        if self.start == self.input.len() {
            self.input.clear();
            self.input.shrink_to(IDLE_BUFFER_BYTES_MAX);
        } else {
            self.input.drain(..self.start);
        }
        self.scanned -= self.start;
        self.start = 0;
    }

    /// RFC 9112, 2.2: a server ignores an empty line before a request. We ignore a few.
    fn skip_blank_lines(&mut self) -> Result<(), ()> {
        loop {
            let rest = &self.input[self.start..];
            let length = match rest {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                _ => return Ok(()),
            };
            self.start += length;
            self.scanned = self.scanned.max(self.start);
            self.blank_lines += 1;
            if self.blank_lines > BLANK_LINES_MAX {
                return Err(());
            }
        }
    }

    /// Where the head ends: behind its blank line. Looks at each byte once, however slowly they
    /// come.
    fn head_end(&mut self) -> Option<usize> {
        // The blank line may have begun in what was scanned already.
        let from = self.scanned.saturating_sub(2).max(self.start);
        let bytes = &self.input[from..];
        let mut feeds = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let end = feeds.find_map(|(index, _)| match &bytes[index + 1..] {
            [b'\n', ..] => Some(from + index + 2),
            [b'\r', b'\n', ..] => Some(from + index + 3),
            _ => None,
        });
        self.scanned = self.input.len();
        end
    }

    /// No whole head is here; is it too long already?
    fn check_length(&mut self) -> Step {
        match too_long(&self.input[self.start..]) {
            Some(status) => self.close(status),
            None => Step::More,
        }
    }
}

/// The status for a head, whole or not, that is over a limit.
fn too_long(head: &[u8]) -> Option<Status> {
    let first = &head[..head.len().min(REQUEST_LINE_BYTES_MAX + 1)];
    if first.len() > REQUEST_LINE_BYTES_MAX && !first.contains(&b'\n') {
        return Some(Status::UriTooLong);
    }
    (head.len() > HEAD_BYTES_MAX).then_some(Status::HeaderFieldsTooLarge)
}

#[cfg(test)]
mod tests;
