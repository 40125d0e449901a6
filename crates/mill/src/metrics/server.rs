//! The HTTP server of `mill metrics`, on a kernel socket. It serves many clients at once, so that a
//! client that is slow or silent delays no scrape. Each connection has one request.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::text;
use crate::limits::{SCRAPE_HEAD_BYTES_MAX, SCRAPE_HEADERS_MAX, SCRAPES_MAX};

/// Pause after the kernel had no descriptor for a client.
const PAUSE: Duration = Duration::from_millis(10);
/// Reads and writes of one client before the next one's turn.
const STEPS_MAX: usize = 64;

/// Serves clients for good. `page` makes the answer to a scrape. A client that makes no progress
/// for `patience` is disconnected.
///
/// # Errors
/// The listener's error.
pub fn serve(
    listener: &TcpListener,
    patience: Duration,
    mut page: impl FnMut() -> String,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut clients: Vec<Client> = Vec::new();
    loop {
        wait(listener, &clients);
        let now = Instant::now();
        for client in &mut clients {
            client.turn(now, patience, &mut page);
        }
        clients.retain(|client| client.step != Step::Over);
        // Each look takes a limited number, so that a crowd that connects delays nobody else.
        for _ in 0..SCRAPES_MAX {
            match listener.accept() {
                Ok((stream, _)) => {
                    if clients.len() >= SCRAPES_MAX {
                        // The one that has been there for longest makes way.
                        clients.remove(0);
                    }
                    let mut client = Client::new(stream, now + patience);
                    client.turn(now, patience, &mut page);
                    clients.push(client);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The client has gone again, or no descriptor is free.
                Err(_) => {
                    std::thread::sleep(PAUSE);
                    break;
                }
            }
        }
    }
}

/// Waits for a client, or until the first one has lost its time.
fn wait(listener: &TcpListener, clients: &[Client]) {
    let end = clients.iter().map(|client| client.end).min();
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec {
        tv_sec: left.as_secs() as i64,
        // Not zero, so that an end that is not reached yet costs no turn.
        tv_nsec: i64::from(left.subsec_nanos()).max(1),
    });
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(clients.iter().map(|client| {
        let flags = match client.step {
            Step::Answer => PollFlags::OUT,
            _ => PollFlags::IN,
        };
        PollFd::new(&client.stream, flags)
    }));
    // An interruption is a turn without work.
    let _ = poll(&mut polled, left.as_ref());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The request is read.
    Request,
    /// The answer is sent.
    Answer,
    /// Further bytes of the client are dropped, since the kernel answers unread bytes of a closed
    /// connection with a reset, which may overtake the answer.
    Drain,
    Over,
}

struct Client {
    stream: TcpStream,
    step: Step,
    head: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    /// Time at which the client's patience ends.
    end: Instant,
}

impl Client {
    fn new(stream: TcpStream, end: Instant) -> Self {
        let is_ready = stream.set_nonblocking(true).is_ok();
        Self {
            stream,
            step: if is_ready { Step::Request } else { Step::Over },
            head: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            end,
        }
    }

    /// Does what is possible without waiting.
    fn turn(&mut self, now: Instant, patience: Duration, page: &mut impl FnMut() -> String) {
        for _ in 0..STEPS_MAX {
            let went = match self.step {
                Step::Request => self.request(page),
                Step::Answer => self.send(),
                Step::Drain => self.drain(),
                Step::Over => return,
            };
            match went {
                // Bytes that are dropped are no progress.
                Ok(()) if self.step == Step::Drain => {}
                Ok(()) => self.end = now + patience,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.step = Step::Over,
            }
        }
        if now < self.end {
            return;
        }
        match self.step {
            Step::Request if !self.head.is_empty() => {
                self.refuse("408 Request Timeout", "the request is not complete\n");
                self.end = now + patience;
                // What the socket does not take is left.
                let _ = self.send();
            }
            _ => self.step = Step::Over,
        }
    }

    /// Reads a part of the request, and answers a complete one.
    fn request(&mut self, page: &mut impl FnMut() -> String) -> io::Result<()> {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes)? {
            0 => self.step = Step::Over,
            read => self.head.extend_from_slice(&bytes[..read]),
        }
        let mut headers = [EMPTY_HEADER; SCRAPE_HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        let too_large = "431 Request Header Fields Too Large";
        match request.parse(&self.head) {
            Ok(Status::Partial) if self.head.len() > SCRAPE_HEAD_BYTES_MAX => {
                self.refuse(too_large, "the request is too long\n");
            }
            Ok(Status::Partial) => {}
            Err(httparse::Error::TooManyHeaders) => self.refuse(too_large, "too many headers\n"),
            Err(_) => self.refuse("400 Bad Request", "no request of HTTP/1\n"),
            Ok(Status::Complete(_)) => {
                let method = request.method.unwrap_or_default();
                let target = path(request.path.unwrap_or_default());
                let has_body = method != "HEAD";
                match (method, target) {
                    ("GET" | "HEAD", "/metrics" | "/") => {
                        let page = page();
                        self.say("200 OK", text::CONTENT_TYPE, &page, has_body);
                    }
                    ("GET" | "HEAD", _) => {
                        self.say("404 Not Found", "text/plain", "see /metrics\n", has_body);
                    }
                    _ => self.refuse(
                        "405 Method Not Allowed\r\nAllow: GET, HEAD",
                        "GET and HEAD only\n",
                    ),
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, status: &str, why: &str) {
        self.say(status, "text/plain", why, true);
    }

    fn say(&mut self, status: &str, kind: &str, body: &str, has_body: bool) {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        self.answer = head.into_bytes();
        if has_body {
            self.answer.extend_from_slice(body.as_bytes());
        }
        self.step = Step::Answer;
    }

    fn send(&mut self) -> io::Result<()> {
        match self.stream.write(&self.answer[self.sent..])? {
            0 => return Err(ErrorKind::WriteZero.into()),
            sent => self.sent += sent,
        }
        if self.sent == self.answer.len() {
            self.stream.shutdown(Shutdown::Write)?;
            self.step = Step::Drain;
        }
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        if self.stream.read(&mut [0; 1024])? == 0 {
            self.step = Step::Over;
        }
        Ok(())
    }
}

/// The path of a request's target, which may be a whole URL.
fn path(target: &str) -> &str {
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    target.split('?').next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// Longer than a busy machine takes, and less than many silent clients in turn would.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn served(patience: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || serve(&listener, patience, || "page".to_owned()));
        address
    }

    fn connected(address: SocketAddr) -> TcpStream {
        let client = TcpStream::connect(address).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        client
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = connected(address);
        client.write_all(request.as_bytes()).expect("a request");
        let mut text = String::new();
        client.read_to_string(&mut text).expect("the answer");
        text
    }

    #[test]
    fn scrape_is_answered_and_other_requests_are_refused() {
        let address = served(PATIENCE);
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(20_000));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /?x=y HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            (
                "GET http://127.0.0.1:9464/metrics HTTP/1.1\r\n\r\n",
                "200 OK",
            ),
            ("GET http://other HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET /other HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("\x16\x03\x01 HTTP\r\n\r\n", "400 Bad Request"),
            (&long, "431 "),
        ] {
            let text = ask(address, request);
            assert!(
                text.starts_with(&format!("HTTP/1.1 {status}")),
                "{request}: {text}"
            );
            assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        }
        let refused = ask(
            address,
            "POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab",
        );
        assert!(
            refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"),
            "{refused}"
        );
    }

    #[test]
    fn head_request_is_answered_without_a_body() {
        let address = served(PATIENCE);
        for target in ["/metrics", "/other"] {
            let text = ask(address, &format!("HEAD {target} HTTP/1.1\r\n\r\n"));
            assert!(
                text.ends_with("\r\n\r\n") && text.contains("Content-Length: "),
                "{text}"
            );
        }
        let text = ask(address, "HEAD / HTTP/1.1\r\n\r\n");
        assert!(text.contains("200 OK") && text.contains("Content-Length: 4\r\n"));
    }

    #[test]
    fn scrape_beside_many_silent_clients_is_answered_at_once() {
        let address = served(PATIENCE * 100);
        let silent: Vec<TcpStream> = (0..3 * SCRAPES_MAX).map(|_| connected(address)).collect();
        for stream in &silent[..SCRAPES_MAX] {
            // Those that were disconnected to make room refuse it.
            let _ = (&mut &*stream).write_all(b"GET /met");
        }
        let text = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.ends_with("\r\n\r\npage"), "{text}");
    }

    #[test]
    fn half_a_request_is_told_that_its_time_is_over() {
        let address = served(Duration::from_millis(50));
        let text = ask(address, "GET /metrics HT");
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
        // A client that has said nothing has nothing to be told.
        assert_eq!(ask(address, ""), "");
    }

    #[test]
    fn client_that_goes_in_the_middle_is_left() {
        let address = served(PATIENCE);
        let mut client = connected(address);
        client.write_all(b"GET /met").expect("half a request");
        drop(client);
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").ends_with("page"));
    }
}
