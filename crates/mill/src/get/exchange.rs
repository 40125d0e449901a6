//! One request and its response on one connection. Driven by readiness; owns no socket.

use std::io;

use crate::http::client::{Output, Response, ResponseError, ResponseHead};
use crate::http::url::Url;
use crate::limits::VISIT_BYTES_MAX;
use crate::net::{Interest, Net};

/// The request's bytes, the same for all exchanges of a load.
pub fn request_bytes(url: &Url, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive {
        ""
    } else {
        "Connection: close\r\n"
    };
    let agent = concat!("mill/", env!("CARGO_PKG_VERSION"));
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {agent}\r\n{connection}\r\n",
        url.target,
        url.authority()
    )
    .into_bytes()
}

/// The reason why there is no complete response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("connect: {}", reason(.0))]
    Connect(io::Error),
    #[error("{}", reason(.0))]
    Io(io::Error),
    #[error("{0}")]
    Response(#[from] ResponseError),
    #[error("write: {0}")]
    Sink(io::Error),
}

/// The error's text without the number that std appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

/// The state of an exchange after a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    Wait(Interest),
    /// The response is complete. `reusable`: the connection may carry another one.
    Done {
        reusable: bool,
    },
}

/// One request and its response.
#[derive(Debug)]
pub struct Exchange {
    connecting: bool,
    sent: usize,
    response: Response,
    head: Option<ResponseHead>,
    content_bytes: u64,
}

impl Exchange {
    /// An exchange on a connection that was just begun (`connecting`), or on an open one.
    pub fn new(connecting: bool) -> Self {
        Self {
            connecting,
            sent: 0,
            response: Response::new(false),
            head: None,
            content_bytes: 0,
        }
    }

    pub fn head(&self) -> Option<ResponseHead> {
        self.head
    }

    /// Number of content bytes received so far.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Advances by a bounded amount; the content goes to `sink`.
    pub fn advance<N: Net>(
        &mut self,
        net: &N,
        stream: &mut N::Stream,
        request: &[u8],
        buffer: &mut [u8],
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Progress, ExchangeError> {
        if self.sent < request.len()
            && let Some(wait) = self.send(net, stream, request)?
        {
            return Ok(wait);
        }
        let mut budget = VISIT_BYTES_MAX;
        while budget > 0 {
            let count = match net.read(stream, buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(ExchangeError::Io(error)),
            };
            if count == 0 {
                self.response.close()?;
                return Ok(Progress::Done { reusable: false });
            }
            budget = budget.saturating_sub(count);
            if let Some(done) = self.take(&buffer[..count], sink)? {
                return Ok(done);
            }
        }
        Ok(Progress::Wait(Interest::Read))
    }

    fn send<N: Net>(
        &mut self,
        net: &N,
        stream: &mut N::Stream,
        request: &[u8],
    ) -> Result<Option<Progress>, ExchangeError> {
        if self.connecting
            && let Some(error) = net.take_error(stream).map_err(ExchangeError::Connect)?
        {
            return Err(ExchangeError::Connect(error));
        }
        while self.sent < request.len() {
            match net.write(stream, &request[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.connecting = false;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(Some(Progress::Wait(Interest::Write))),
                    io::ErrorKind::NotConnected if self.connecting => {
                        return Ok(Some(Progress::Wait(Interest::Write)));
                    }
                    _ if self.connecting => return Err(ExchangeError::Connect(error)),
                    _ => return Err(ExchangeError::Io(error)),
                },
            }
        }
        Ok(None)
    }

    fn take(
        &mut self,
        mut input: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Option<Progress>, ExchangeError> {
        loop {
            let (used, output) = self.response.take(input)?;
            input = &input[used..];
            match output {
                Output::Nothing if input.is_empty() => return Ok(None),
                Output::Nothing => {}
                Output::Head(head) => self.head = Some(head),
                Output::Content(content) => {
                    self.content_bytes += content.len() as u64;
                    sink(content).map_err(ExchangeError::Sink)?;
                }
                Output::End => {
                    // Bytes without a request: the connection cannot be trusted with another
                    // request.
                    let keep_alive = self.head.is_some_and(|head| head.keep_alive);
                    let reusable = keep_alive && input.is_empty();
                    return Ok(Some(Progress::Done { reusable }));
                }
            }
        }
    }
}
