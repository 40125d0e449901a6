//! Each example works: it runs in a thread with a client or server of this test as its peer.

#[allow(dead_code)]
#[path = "../examples/congestion.rs"]
mod congestion;
#[allow(dead_code)]
#[path = "../examples/contexts.rs"]
mod contexts;
#[allow(dead_code)]
#[path = "../examples/echo.rs"]
mod echo;
#[allow(dead_code)]
#[path = "../examples/http.rs"]
mod http;
#[allow(dead_code)]
#[path = "../examples/many.rs"]
mod many;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use millstream::{Config, Context, Runtime, TcpStream};

const SERVER: &str = "10.90.0.2/24";
const CLIENT: &str = "10.90.0.1/24";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A memif socket for this test, and the wires of both ends. The file goes when the test is over.
struct Wires {
    socket: std::path::PathBuf,
    queues: usize,
}

impl Wires {
    fn new(name: &str, queues: usize) -> Self {
        let name = format!("mst-{}-example-{name}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        Self { socket, queues }
    }

    fn wire(&self, role: &str) -> String {
        let (path, queues) = (self.socket.display(), self.queues);
        format!("memif:{path},role={role},queues={queues}")
    }

    fn client(&self) -> Runtime {
        let mut config = Config::new(self.wire("client").parse().unwrap());
        config.addresses.push(CLIENT.parse().unwrap());
        config.contexts = self.queues;
        Runtime::new(config).unwrap()
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn server(port: u16) -> SocketAddr {
    format!("10.90.0.2:{port}").parse().unwrap()
}

/// Connects as soon as the example listens.
fn connect(context: &Context, port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(context, server(port), PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE));
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                assert!(begun.elapsed() < PATIENCE, "nobody listens on port {port}");
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("port {port}: {error}"),
        }
    }
}

#[test]
fn echo_sends_back_what_it_is_sent() {
    let wires = Wires::new("echo", 1);
    let wire = wires.wire("server");
    thread::spawn(move || echo::serve(&wire, SERVER).map_err(|error| error.to_string()));
    let runtime = wires.client();
    let context = runtime.context(0).unwrap();
    for round in 0..3_u8 {
        let mut stream = connect(&context, 7);
        let sent = vec![round; 10_000];
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(back, sent);
    }
}

#[test]
fn http_answers_each_request_of_a_connection_and_many_answers_are_counted() {
    let wires = Wires::new("http", 1);
    let wire = wires.wire("server");
    thread::spawn(move || http::serve(&wire, SERVER).map_err(|error| error.to_string()));
    let runtime = wires.client();
    let context = runtime.context(0).unwrap();
    let mut stream = connect(&context, 80);
    for _ in 0..2 {
        // The head arrives in two pieces.
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        stream.write_all(b"Host: x\r\n\r\n").unwrap();
        let mut answer = [0; 44];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with(b"\r\n\r\nhello\n"));
    }
    drop((stream, context, runtime));
    let answered = many::ask(&wires.wire("client"), CLIENT, server(80), 500).unwrap();
    assert_eq!(answered, 500);
}

#[test]
fn contexts_serve_side_by_side() {
    let wires = Wires::new("contexts", 2);
    let wire = wires.wire("server");
    thread::spawn(move || contexts::serve(&wire, SERVER, 2).map_err(|error| error.to_string()));
    let runtime = wires.client();
    let mut told = BTreeSet::new();
    for index in 0..2 {
        let context = runtime.context(index).unwrap();
        let mut line = String::new();
        connect(&context, 4_000).read_to_string(&mut line).unwrap();
        told.insert(line);
    }
    let expected = ["context 0\n", "context 1\n"].map(str::to_owned);
    assert_eq!(told, BTreeSet::from(expected));
}

#[test]
fn congestion_transfers_with_its_own_algorithm() {
    let algorithm = congestion::Aimd {
        add: 4,
        keep_percent: 80,
    };
    let done = congestion::transfer(algorithm, 3_000_000).unwrap();
    assert_eq!((done.bytes, done.algorithm.as_str()), (3_000_000, "aimd"));
    assert!(done.cwnd > 10, "{done:?}");
}
