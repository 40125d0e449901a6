//! The answer to a request: its head, and the range of a document to send. Uses no socket.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use super::documents::{Document, Found};
use super::log;
use crate::http::path::DocumentPath;
use crate::http::request::{Refusal, Request};
use crate::http::response::{self, DateLine, Head};
use crate::http::status::Status;

/// Content that is sent after the head.
#[derive(Debug)]
pub struct Body {
    pub document: Rc<Document>,
    /// Bytes still to be sent.
    pub range: Range<u64>,
}

/// Appends the head, and the content of a small answer, to `out`. The caller sends a document's
/// content.
pub fn answer(
    request: &Request,
    found: io::Result<Found>,
    date: &DateLine,
    out: &mut Vec<u8>,
) -> Option<Body> {
    let refuse = |status: Status| Refusal {
        status,
        head_only: request.head_only,
        connection: request.connection,
    };
    match found {
        Ok(Found::Document(document)) => answer_document(request, document, date, out),
        Ok(Found::Directory) => {
            answer_moved(request, date, out);
            None
        }
        Ok(Found::Nothing) => {
            response::write_refusal(&refuse(Status::NotFound), date, out);
            None
        }
        Err(error) => {
            let path = String::from_utf8_lossy(&request.path.bytes);
            log::DOCUMENT_UNREADABLE.warn(format_args!("{path}: {error}"));
            response::write_refusal(&refuse(Status::InternalServerError), date, out);
            None
        }
    }
}

fn answer_document(
    request: &Request,
    document: Rc<Document>,
    date: &DateLine,
    out: &mut Vec<u8>,
) -> Option<Body> {
    let length = document.length;
    let mut head = Head {
        content_length: Some(length),
        content_type: Some(&document.media),
        last_modified: Some(document.modified),
        ..Head::new(Status::Ok, request.connection)
    };
    if request
        .modified_since
        .is_some_and(|since| document.modified <= since)
    {
        head.status = Status::NotModified;
        head.content_length = None;
        head.content_type = None;
        head.write(date, out);
        return None;
    }
    let mut range = 0..length;
    if let Some(asked) = request.range {
        let Some(within) = asked.within(length) else {
            head.status = Status::RangeNotSatisfiable;
            head.content_length = Some(0);
            head.content_type = None;
            head.content_range = Some((None, length));
            head.write(date, out);
            return None;
        };
        head.status = Status::PartialContent;
        head.content_length = Some(within.end - within.start);
        head.content_range = Some((Some(within.clone()), length));
        range = within;
    }
    head.write(date, out);
    (!request.head_only && !range.is_empty()).then_some(Body { document, range })
}

/// Appends a redirect for a directory's name without its slash.
fn answer_moved(request: &Request, date: &DateLine, out: &mut Vec<u8>) {
    let location = encoded(&request.path);
    let head = Head {
        content_length: Some(0),
        location: Some(&location),
        ..Head::new(Status::MovedPermanently, request.connection)
    };
    head.write(date, out);
}

/// The path with a slash at both ends, encoded for a header field.
fn encoded(path: &DocumentPath) -> String {
    let mut text = String::from("/");
    for &byte in &path.bytes {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.push('/');
    text
}
