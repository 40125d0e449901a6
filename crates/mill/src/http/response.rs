//! The head of a response as bytes (RFC 9112, 4). Called by `serve`.

use std::ops::Range;

use super::date;
use super::request::{Persistence, Refusal};
use super::status::Status;

/// The `Date` line of every response, made anew each second.
pub struct DateLine {
    seconds: u64,
    line: String,
}

impl DateLine {
    pub fn new(seconds: u64) -> Self {
        let line = format!("Date: {}\r\n", date::format(seconds));
        Self { seconds, line }
    }

    /// Sets the time.
    pub fn update(&mut self, seconds: u64) {
        if seconds != self.seconds {
            *self = Self::new(seconds);
        }
    }
}

/// The values of a response's head.
pub struct Head<'a> {
    pub status: Status,
    pub connection: Persistence,
    /// Bytes of content that follow, or would follow without HEAD. `None` for 304.
    pub content_length: Option<u64>,
    pub content_type: Option<&'a str>,
    /// The range and the document's length for 206; no range and the length for 416.
    pub content_range: Option<(Option<Range<u64>>, u64)>,
    /// Seconds since 1970.
    pub last_modified: Option<u64>,
    /// The new location, already percent-encoded.
    pub location: Option<&'a str>,
}

impl Head<'_> {
    /// A head without optional fields.
    pub fn new(status: Status, connection: Persistence) -> Self {
        Self {
            status,
            connection,
            content_length: None,
            content_type: None,
            content_range: None,
            last_modified: None,
            location: None,
        }
    }

    /// Appends the head, including its blank line.
    pub fn write(&self, date: &DateLine, out: &mut Vec<u8>) {
        let mut text = |part: &str| out.extend_from_slice(part.as_bytes());
        text("HTTP/1.1 ");
        text(self.status.line());
        text("\r\nServer: mill\r\n");
        text(&date.line);
        if let Some(length) = self.content_length {
            text(&format!("Content-Length: {length}\r\n"));
        }
        if let Some(media) = self.content_type {
            text("Content-Type: ");
            text(media);
            text("\r\n");
        }
        match &self.content_range {
            Some((Some(range), length)) => {
                let last = range.end - 1;
                text(&format!(
                    "Content-Range: bytes {}-{last}/{length}\r\n",
                    range.start
                ));
            }
            Some((None, length)) => text(&format!("Content-Range: bytes */{length}\r\n")),
            None => {}
        }
        if let Some(seconds) = self.last_modified {
            text(&format!("Last-Modified: {}\r\n", date::format(seconds)));
            text("Accept-Ranges: bytes\r\n");
        }
        if let Some(location) = self.location {
            text(&format!("Location: {location}\r\n"));
        }
        if self.status == Status::MethodNotAllowed {
            text("Allow: GET, HEAD\r\n");
        }
        match self.connection {
            Persistence::Stay => {}
            Persistence::StayTold => text("Connection: keep-alive\r\n"),
            Persistence::Close => text("Connection: close\r\n"),
        }
        text("\r\n");
    }
}

/// Appends a complete response with a status and a line of text.
pub fn write_refusal(refusal: &Refusal, date: &DateLine, out: &mut Vec<u8>) {
    let content = format!("{}\n", refusal.status.line());
    let head = Head {
        content_length: Some(content.len() as u64),
        content_type: Some("text/plain; charset=utf-8"),
        ..Head::new(refusal.status, refusal.connection)
    };
    head.write(date, out);
    if !refusal.head_only {
        out.extend_from_slice(content.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: u64 = 784_111_777;

    fn written(head: &Head<'_>) -> String {
        let mut out = Vec::new();
        head.write(&DateLine::new(DATE), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn document() {
        let head = Head {
            content_length: Some(5),
            content_type: Some("text/html"),
            last_modified: Some(0),
            ..Head::new(Status::Ok, Persistence::Stay)
        };
        let expected = "HTTP/1.1 200 OK\r\nServer: mill\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
            Content-Length: 5\r\nContent-Type: text/html\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
            Accept-Ranges: bytes\r\n\r\n";
        assert_eq!(written(&head), expected);
    }

    #[test]
    fn ranges() {
        let mut head = Head::new(Status::PartialContent, Persistence::StayTold);
        head.content_range = Some((Some(5..10), 20));
        let text = written(&head);
        assert!(text.contains("\r\nContent-Range: bytes 5-9/20\r\n"));
        assert!(text.contains("\r\nConnection: keep-alive\r\n"));
        head.content_range = Some((None, 20));
        assert!(written(&head).contains("\r\nContent-Range: bytes */20\r\n"));
    }

    #[test]
    fn refusal_has_content_unless_it_answers_head() {
        let mut refusal = Refusal::closing(Status::MethodNotAllowed);
        let mut out = Vec::new();
        write_refusal(&refusal, &DateLine::new(DATE), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(
                "\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n405 Method Not Allowed\n"
            )
        );
        assert!(text.contains("\r\nContent-Length: 23\r\n"));
        refusal.head_only = true;
        let mut out = Vec::new();
        write_refusal(&refusal, &DateLine::new(DATE), &mut out);
        assert!(out.ends_with(b"\r\n\r\n"));
    }
}
