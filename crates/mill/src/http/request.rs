//! A request's head as values (RFC 9112, 2 to 7). Called by [`super::server`] with a complete head.

use super::date;
use super::path::{self, DocumentPath};
use super::range::{self, ByteRange};
use super::status::Status;
use crate::limits::{HEADERS_MAX, REQUEST_CONTENT_BYTES_MAX};

/// A request that the server may answer with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub path: DocumentPath,
    /// HEAD: the answer has no content.
    pub head_only: bool,
    /// Set only if the range must be honoured.
    pub range: Option<ByteRange>,
    /// Seconds since 1970; set only if the condition must be honoured.
    pub modified_since: Option<u64>,
    pub connection: Persistence,
}

/// Whether the connection stays open after the answer, and whether the answer says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The connection stays, by HTTP/1.1's default.
    Stay,
    /// The connection stays, as an HTTP/1.0 client has asked, and the answer says so.
    StayTold,
    Close,
}

impl Persistence {
    pub fn stays(self) -> bool {
        self != Self::Close
    }
}

/// The request in a head, and the number of content bytes after it to skip.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    pub outcome: Result<Request, Refusal>,
    pub content_bytes: u64,
}

/// A request that is refused with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    pub head_only: bool,
    pub connection: Persistence,
}

impl Refusal {
    /// A refusal after which the input no longer begins with a request, so the connection closes.
    pub fn closing(status: Status) -> Self {
        Self {
            status,
            head_only: false,
            connection: Persistence::Close,
        }
    }
}

/// Parses a head, including its blank line.
pub fn parse(head: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut raw = httparse::Request::new(&mut headers);
    let refusal = match raw.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => None,
        Ok(_) => Some(Status::BadRequest),
        Err(httparse::Error::TooManyHeaders) => Some(Status::HeaderFieldsTooLarge),
        Err(httparse::Error::Version) => Some(version_refusal(head)),
        Err(_) => Some(Status::BadRequest),
    };
    if let Some(status) = refusal {
        return refused(Refusal::closing(status));
    }
    let fields = match Fields::gather(raw.headers) {
        Ok(fields) => fields,
        Err(status) => return refused(Refusal::closing(status)),
    };
    let (Some(method), Some(target), Some(version)) = (raw.method, raw.path, raw.version) else {
        return refused(Refusal::closing(Status::BadRequest));
    };
    interpret(method, target, version, &fields)
}

fn refused(refusal: Refusal) -> Parsed {
    Parsed {
        outcome: Err(refusal),
        content_bytes: 0,
    }
}

/// 505 for a well-formed version, 400 for any other word.
fn version_refusal(head: &[u8]) -> Status {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    let word = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next();
    match word.and_then(|word| word.strip_prefix(b"HTTP/")) {
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Status::VersionNotSupported
        }
        _ => Status::BadRequest,
    }
}

/// The fields that matter, each at most once.
#[derive(Default)]
struct Fields {
    hosts: u32,
    content_length: Option<u64>,
    transfer_encoding: bool,
    close: bool,
    keep_alive: bool,
    expect: Option<bool>,
    range: Option<ByteRange>,
    ranges: u32,
    if_range: bool,
    modified_since: Option<u64>,
    if_none_match: bool,
}

impl Fields {
    fn gather(headers: &[httparse::Header<'_>]) -> Result<Self, Status> {
        let mut fields = Self::default();
        for header in headers {
            fields.take(header.name, header.value)?;
        }
        // Both fields at once serve to smuggle requests past a proxy (RFC 9112, 6.3).
        if fields.transfer_encoding && fields.content_length.is_some() {
            return Err(Status::BadRequest);
        }
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), Status> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let text = std::str::from_utf8(value).unwrap_or("");
        match name.len() {
            4 if is("host") => self.hosts += 1,
            5 if is("range") => {
                self.ranges += 1;
                self.range = range::parse(text);
            }
            6 if is("expect") => {
                self.expect = Some(text.trim().eq_ignore_ascii_case("100-continue"))
            }
            8 if is("if-range") => self.if_range = true,
            10 if is("connection") => self.connection(text),
            13 if is("if-none-match") => self.if_none_match = true,
            14 if is("content-length") => self.content_length(text)?,
            17 if is("transfer-encoding") => self.transfer_encoding = true,
            17 if is("if-modified-since") => self.modified_since = date::parse(text),
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, list: &str) {
        for option in list.split(',').map(str::trim) {
            self.close |= option.eq_ignore_ascii_case("close");
            self.keep_alive |= option.eq_ignore_ascii_case("keep-alive");
        }
    }

    /// Accepts equal repetitions (RFC 9112, 6.3), and refuses different values and non-numbers.
    fn content_length(&mut self, list: &str) -> Result<(), Status> {
        for text in list.split(',').map(str::trim) {
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Status::BadRequest);
            }
            let length = text.parse().unwrap_or(u64::MAX);
            if self.content_length.is_some_and(|other| other != length) {
                return Err(Status::BadRequest);
            }
            self.content_length = Some(length);
        }
        Ok(())
    }

    fn persistence(&self, version: u8) -> Persistence {
        match version {
            _ if self.close => Persistence::Close,
            0 if self.keep_alive => Persistence::StayTold,
            0 => Persistence::Close,
            _ => Persistence::Stay,
        }
    }
}

fn interpret(method: &str, target: &str, version: u8, fields: &Fields) -> Parsed {
    // RFC 9112, 3.2: exactly one Host in HTTP/1.1.
    if version >= 1 && fields.hosts != 1 || fields.hosts > 1 {
        return refused(Refusal::closing(Status::BadRequest));
    }
    let content_bytes = fields.content_length.unwrap_or(0);
    let known_end = !fields.transfer_encoding && content_bytes <= REQUEST_CONTENT_BYTES_MAX;
    // A client that expects 100 may or may not send the content after another answer.
    let may_stay = known_end && fields.expect.is_none();
    let connection = if may_stay {
        fields.persistence(version)
    } else {
        Persistence::Close
    };
    let head_only = method == "HEAD";
    let refuse = |status: Status| Parsed {
        outcome: Err(Refusal {
            status,
            head_only,
            connection,
        }),
        content_bytes: if connection.stays() { content_bytes } else { 0 },
    };
    if let Some(status) = method_refusal(method) {
        return refuse(status);
    }
    if fields.transfer_encoding {
        return refuse(Status::LengthRequired);
    }
    if content_bytes > REQUEST_CONTENT_BYTES_MAX {
        return refuse(Status::ContentTooLarge);
    }
    if fields.expect == Some(false) {
        return refuse(Status::ExpectationFailed);
    }
    let path = match path::parse(target) {
        Ok(path) => path,
        Err(status) => return refuse(status),
    };
    // A range applies to GET only. We send no validator that If-Range could match, so such a
    // request gets the whole document.
    let honour_range = !head_only && !fields.if_range && fields.ranges == 1;
    let request = Request {
        path,
        head_only,
        range: fields.range.filter(|_| honour_range),
        modified_since: fields.modified_since.filter(|_| !fields.if_none_match),
        connection,
    };
    Parsed {
        outcome: Ok(request),
        content_bytes: if connection.stays() { content_bytes } else { 0 },
    }
}

/// 405 for methods that exist, 501 for unknown words; `None` for supported methods.
fn method_refusal(method: &str) -> Option<Status> {
    match method {
        "GET" | "HEAD" => None,
        "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS" | "TRACE" | "CONNECT" => {
            Some(Status::MethodNotAllowed)
        }
        _ => Some(Status::NotImplemented),
    }
}
