//! The server's side of one connection: takes bytes, returns requests in order.
//!
//! Owns the bytes of incomplete requests. `serve::connection` calls [`Requests::push`] with the
//! bytes read and then [`Requests::next`] until it returns [`Step::More`]. After a closing refusal
//! the remaining input is dropped.

use super::request::{self, Parsed, Refusal, Request};
use super::status::Status;
use crate::limits::{
    BLANK_LINES_MAX, HEAD_BYTES_MAX, IDLE_BUFFER_BYTES_MAX, REQUEST_LINE_BYTES_MAX,
};

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// No complete request: read more.
    More,
    /// A request to answer with a document, or with the reason why there is none.
    Request(Request),
    /// A request to refuse with this status.
    Refuse(Refusal),
}

/// Turns the bytes of one connection into requests.
#[derive(Debug, Default)]
pub struct Requests {
    input: Vec<u8>,
    /// The beginning of the next request in `input`.
    start: usize,
    /// The part of `input` before this index has no end of a head.
    scanned: usize,
    /// Remaining content bytes to skip.
    skip: u64,
    blank_lines: u32,
    closed: bool,
}

impl Requests {
    /// Adds bytes that were read.
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

    /// The next complete request, in the order of arrival.
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

    /// True if an incomplete request is there.
    pub fn is_partial(&self) -> bool {
        !self.closed && (self.start < self.input.len() || self.skip > 0)
    }

    /// Stops reading requests, as after 408.
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

    /// Moves the remaining bytes to the front, and frees a large buffer when none remain.
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

    /// Skips a few blank lines before a request (RFC 9112, 2.2).
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

    /// The end of the head, after its blank line. Looks at each byte only once, even if bytes
    /// arrive slowly.
    fn head_end(&mut self) -> Option<usize> {
        // The blank line may have begun in the part that was scanned before.
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

    /// Refuses an incomplete head that is too long already.
    fn check_length(&mut self) -> Step {
        match too_long(&self.input[self.start..]) {
            Some(status) => self.close(status),
            None => Step::More,
        }
    }
}

/// The status for a head, complete or not, that exceeds a limit.
fn too_long(head: &[u8]) -> Option<Status> {
    let first = &head[..head.len().min(REQUEST_LINE_BYTES_MAX + 1)];
    if first.len() > REQUEST_LINE_BYTES_MAX && !first.contains(&b'\n') {
        return Some(Status::UriTooLong);
    }
    (head.len() > HEAD_BYTES_MAX).then_some(Status::HeaderFieldsTooLarge)
}

#[cfg(test)]
mod tests;
