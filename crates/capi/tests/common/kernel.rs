//! Kernel peers in a namespace of the lab: threads of the test that have moved there.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::lab::Lab;

/// Longest time that a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a function on a new thread in a namespace of the lab.
pub fn within<T: Send + 'static>(
    lab: &Lab,
    side: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let place = File::open(format!("/run/netns/{}", lab.namespace(side))).unwrap();
    thread::spawn(move || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run()
    })
}

/// Connects as soon as a server listens.
pub fn connect(address: SocketAddr) -> TcpStream {
    let began = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(began.elapsed() < PATIENCE, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends the bytes and reads as many, at the same time.
pub fn echoed(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut back = vec![0; bytes.len()];
    thread::scope(|scope| {
        let mut out = stream;
        scope.spawn(move || out.write_all(bytes).unwrap());
        let mut input = stream;
        input.read_exact(&mut back).unwrap();
    });
    back
}

/// Starts an HTTP server with one document for any number of requests; returns its port.
pub fn serve(lab: &Lab, side: &str, address: &'static str, body: Vec<u8>) -> u16 {
    serve_at(lab, side, address, 0, body)
}

/// Like [`serve`], at a given port.
pub fn serve_at(lab: &Lab, side: &str, address: &'static str, port: u16, body: Vec<u8>) -> u16 {
    let listener = within(lab, side, move || {
        TcpListener::bind((address, port)).unwrap()
    });
    let listener = listener.join().unwrap();
    serve_on(listener, body)
}

/// Like [`serve`], on a listener, which may be in any namespace: a socket stays in the one in which
/// it was made. The thread ends with the test.
pub fn serve_on(listener: TcpListener, body: Vec<u8>) -> u16 {
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let body = body.clone();
            thread::spawn(move || answer(&stream, &body));
        }
    });
    port
}

fn answer(stream: &TcpStream, body: &[u8]) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            break;
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // An error means that a client has gone away, which does not matter.
    let mut out = stream;
    let _ = out.write_all(head.as_bytes());
    let _ = out.write_all(body);
}

/// Bytes with a long period.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}
