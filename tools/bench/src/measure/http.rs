//! The HTTP exchange of the crowd benchmark: the request, and a response told from its bytes.
//!
//! The servers that are compared were written by others too, so the responses differ in their
//! heads. The client reads the status and the length and counts the body.

use std::io;

use crate::measure::Plan;

/// Bytes of a response's head. A longer one is refused.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The name of the document that has the plan's size.
pub fn document(plan: &Plan) -> String {
    format!("{}.html", plan.response_bytes)
}

/// The bytes of every request of the plan. With one request per connection, the request asks the
/// server to close.
pub fn request(plan: &Plan) -> Vec<u8> {
    let close = match plan.messages {
        1 => "Connection: close\r\n",
        _ => "",
    };
    let document = document(plan);
    format!("GET /{document} HTTP/1.1\r\nHost: bench\r\n{close}\r\n").into_bytes()
}

/// A response as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The bytes of a head of which the end has not come.
    head: Vec<u8>,
    /// Bytes of the body that have not come; none before the head is whole.
    missing: Option<usize>,
}

impl Response {
    /// Takes the next bytes; true if the response is whole with them.
    ///
    /// # Errors
    ///
    /// The status is not 200, the head has no length or is too long, or bytes follow the body.
    pub fn take(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let body = match self.missing {
            Some(_) => bytes.len(),
            None => match self.take_head(bytes)? {
                Some(body) => body,
                None => return Ok(false),
            },
        };
        let missing = self.missing.unwrap_or(0).checked_sub(body);
        let missing = missing.ok_or_else(|| io::Error::other("bytes behind the response"))?;
        self.missing = Some(missing);
        Ok(missing == 0)
    }

    /// The number of these bytes that belong to the body, if the head is whole with them.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (end, whole) = match self.head.is_empty() {
            // The usual case: the head comes in one piece, and nothing is copied.
            true => (end_of_head(bytes), bytes),
            false => {
                self.head.extend_from_slice(bytes);
                (end_of_head(&self.head), &self.head[..])
            }
        };
        let Some(end) = end else {
            if whole.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("a head without an end"));
            }
            if self.head.is_empty() {
                self.head.extend_from_slice(bytes);
            }
            return Ok(None);
        };
        self.missing = Some(length_of_body(&whole[..end])?);
        Ok(Some(whole.len() - end))
    }
}

/// Index of the body's first byte.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(HEAD_END.len());
    let at = windows.position(|window| window == HEAD_END)?;
    Some(at + HEAD_END.len())
}

fn length_of_body(head: &[u8]) -> io::Result<usize> {
    let head = std::str::from_utf8(head).map_err(io::Error::other)?;
    let (status, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    if status.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("answered {status:?}")));
    }
    let mut fields = fields.split("\r\n").filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.trim().parse().ok());
    length.ok_or_else(|| io::Error::other("a response without a length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 5\r\n\r\nhello";

    #[test]
    fn response_is_whole_however_it_is_cut() {
        for first in 1..RESPONSE.len() {
            let mut response = Response::default();
            assert!(!response.take(&RESPONSE[..first]).unwrap(), "{first}");
            assert!(response.take(&RESPONSE[first..]).unwrap(), "{first}");
        }
        let mut response = Response::default();
        assert!(response.take(RESPONSE).unwrap());
        let mut response = Response::default();
        let (last, bytes) = RESPONSE.split_last().unwrap();
        for byte in bytes {
            assert!(!response.take(&[*byte]).unwrap());
        }
        assert!(response.take(&[*last]).unwrap());
    }

    #[test]
    fn anything_but_the_document_is_an_error() {
        let longer = [RESPONSE, b"!"].concat();
        let endless = vec![b'a'; HEAD_BYTES_MAX + 1];
        for bytes in [
            &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n",
            &longer,
            &endless,
        ] {
            assert!(Response::default().take(bytes).is_err());
        }
    }

    #[test]
    fn only_the_request_of_a_short_connection_asks_for_its_end() {
        let of = |messages| {
            let plan = Plan {
                messages,
                response_bytes: 7168,
                ..Plan::default()
            };
            String::from_utf8(request(&plan)).unwrap()
        };
        assert_eq!(of(0), "GET /7168.html HTTP/1.1\r\nHost: bench\r\n\r\n");
        assert!(of(1).ends_with("\r\nConnection: close\r\n\r\n"));
    }
}
