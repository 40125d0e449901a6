//! The client's side of one exchange: takes a response's bytes, returns its head and content (RFC
//! 9112, 6).
//!
//! `get` calls [`Response::take`] with the bytes read until the input is used up or it returns
//! [`Output::End`].

use crate::limits::{CHUNK_LINE_BYTES_MAX, HEADERS_MAX, RESPONSE_HEAD_BYTES_MAX};

/// A part of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// No complete part yet.
    Nothing,
    /// The complete head.
    Head(ResponseHead),
    /// A part of the content.
    Content(&'a [u8]),
    /// The end of the response. Further input is not part of it.
    End,
}

/// The parts of the head that a client needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    /// Bytes of content, if the head says so.
    pub content_length: Option<u64>,
    /// The connection may carry another request after this response.
    pub keep_alive: bool,
}

/// The reason why bytes are not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    #[error("the response's head is malformed")]
    Head,
    #[error("the response's head is too long")]
    HeadTooLong,
    #[error("the response's Content-Length or Transfer-Encoding is malformed")]
    Framing,
    #[error("the response's chunks are malformed")]
    Chunk,
    #[error("the connection closed before the response was whole")]
    CutShort,
}

/// The way to find the content's end (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    End,
}

/// A response being received.
#[derive(Debug)]
pub struct Response {
    state: State,
    to_head: bool,
    /// An incomplete head, or an incomplete line of the chunked coding.
    partial: Vec<u8>,
}

impl Response {
    /// The response to a request. One to HEAD has no content.
    pub fn new(to_head: bool) -> Self {
        Self {
            state: State::Head,
            to_head,
            partial: Vec::new(),
        }
    }

    /// Takes bytes from the front of the input; returns their number.
    pub fn take<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Output<'a>), ResponseError> {
        match self.state {
            State::End | State::Length(0) => {
                self.state = State::End;
                Ok((0, Output::End))
            }
            _ if input.is_empty() => Ok((0, Output::Nothing)),
            State::Head => self.take_head(input),
            State::UntilClose => Ok((input.len(), Output::Content(input))),
            State::Length(left) => {
                let (content, left) = first_of(input, left);
                self.state = State::Length(left);
                Ok((content.len(), Output::Content(content)))
            }
            State::Chunk(left) => {
                let (content, left) = first_of(input, left);
                self.state = if left == 0 {
                    State::ChunkEnd
                } else {
                    State::Chunk(left)
                };
                Ok((content.len(), Output::Content(content)))
            }
            State::ChunkSize | State::ChunkEnd | State::Trailer => self.take_line(input),
        }
    }

    /// Handles the end of the connection, which also ends a response without a length.
    pub fn close(&self) -> Result<(), ResponseError> {
        match self.state {
            State::UntilClose | State::End | State::Length(0) => Ok(()),
            _ => Err(ResponseError::CutShort),
        }
    }

    fn take_head<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Output<'a>), ResponseError> {
        let before = self.partial.len();
        // Usually the whole head comes at once, and is not copied.
        let bytes: &[u8] = if before == 0 {
            input
        } else {
            self.partial.extend_from_slice(input);
            &self.partial
        };
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut raw = httparse::Response::new(&mut headers);
        let length = match raw.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() > RESPONSE_HEAD_BYTES_MAX => {
                return Err(ResponseError::HeadTooLong);
            }
            Ok(httparse::Status::Partial) => {
                if before == 0 {
                    self.partial.extend_from_slice(input);
                }
                return Ok((input.len(), Output::Nothing));
            }
            Err(_) => return Err(ResponseError::Head),
        };
        let (head, state) = interpret(&raw, self.to_head)?;
        self.partial.clear();
        let used = length.saturating_sub(before);
        if (100..200).contains(&head.status) {
            return Ok((used, Output::Nothing));
        }
        self.state = state;
        Ok((used, Output::Head(head)))
    }

    /// A line of the chunked coding (RFC 9112, 7.1).
    fn take_line<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Output<'a>), ResponseError> {
        let feed = input.iter().position(|&byte| byte == b'\n');
        let used = feed.map_or(input.len(), |feed| feed + 1);
        self.partial.extend_from_slice(&input[..used]);
        if self.partial.len() > CHUNK_LINE_BYTES_MAX {
            return Err(ResponseError::Chunk);
        }
        if feed.is_none() {
            return Ok((used, Output::Nothing));
        }
        let line = self.partial.trim_ascii_end();
        self.state = match self.state {
            State::ChunkSize => match chunk_size(line)? {
                0 => State::Trailer,
                size => State::Chunk(size),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::ChunkEnd => return Err(ResponseError::Chunk),
            _ if line.is_empty() => State::End,
            _ => State::Trailer,
        };
        self.partial.clear();
        Ok((used, Output::Nothing))
    }
}

fn first_of(input: &[u8], left: u64) -> (&[u8], u64) {
    let count = left.min(input.len() as u64);
    (&input[..count as usize], left - count)
}

fn chunk_size(line: &[u8]) -> Result<u64, ResponseError> {
    let size = line.split(|&byte| byte == b';').next().unwrap_or(line);
    let size = std::str::from_utf8(size)
        .map_err(|_| ResponseError::Chunk)?
        .trim();
    if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ResponseError::Chunk);
    }
    u64::from_str_radix(size, 16).map_err(|_| ResponseError::Chunk)
}

fn interpret(
    raw: &httparse::Response<'_, '_>,
    to_head: bool,
) -> Result<(ResponseHead, State), ResponseError> {
    let status = raw.code.ok_or(ResponseError::Head)?;
    let mut keep_alive = raw.version == Some(1);
    let mut content_length = None;
    let mut chunked = false;
    for header in raw.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("").trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().map_err(|_| ResponseError::Framing)?;
            if content_length.is_some_and(|other: u64| other != length) {
                return Err(ResponseError::Framing);
            }
            content_length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
            if !chunked {
                return Err(ResponseError::Framing);
            }
        } else if header.name.eq_ignore_ascii_case("connection") {
            let has = |word: &str| {
                value
                    .split(',')
                    .any(|option| option.trim().eq_ignore_ascii_case(word))
            };
            keep_alive = !has("close") && (keep_alive || has("keep-alive"));
        }
    }
    let state = match content_length {
        _ if to_head || matches!(status, 100..200 | 204 | 304) => State::End,
        _ if chunked => State::ChunkSize,
        Some(length) => State::Length(length),
        None => State::UntilClose,
    };
    let head = ResponseHead {
        status,
        content_length: content_length.filter(|_| !chunked),
        keep_alive: keep_alive && state != State::UntilClose,
    };
    Ok((head, state))
}

#[cfg(test)]
mod tests;
