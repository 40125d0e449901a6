//! The whole server over kernel sockets, from the clients' side.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::testing::{Server, Site};

const PATIENCE: Duration = Duration::from_secs(30);

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The server's whole output for these bytes, until it closes.
fn say(server: &Server, text: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(text).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(server: &Server, target: &str, fields: &str) -> String {
    say(
        server,
        format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n").as_bytes(),
    )
}

fn site(name: &str) -> Site {
    let site = Site::new(name);
    site.write("a.txt", "hello, world");
    site.write("sub/index.html", "<p>sub</p>");
    site
}

/// Bytes with a long period, so that a misplaced piece is detected.
fn large_content(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn documents_ranges_and_refusals() {
    let site = site("serve-plain");
    let server = Server::start(&site.path, 100);
    let answer = get(&server, "/a.txt", "");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello, world"),
        "{answer}"
    );
    assert!(answer.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"));
    assert!(get(&server, "/sub/", "").ends_with("\r\n\r\n<p>sub</p>"));
    assert!(get(&server, "/sub", "").contains("\r\nLocation: /sub/\r\n"));
    let answer = get(&server, "/a.txt", "Range: bytes=7-\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 206 ") && answer.ends_with("\r\n\r\nworld"),
        "{answer}"
    );
    assert!(answer.contains("\r\nContent-Range: bytes 7-11/12\r\n"));
    let answer = get(&server, "/a.txt", "Range: bytes=12-\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 416 ") && answer.contains("\r\nContent-Range: bytes */12\r\n")
    );
    assert!(get(&server, "/a.txt", "Range: bytes=0-1,3-4\r\n").starts_with("HTTP/1.1 200 "));
    assert!(get(&server, "/none", "").starts_with("HTTP/1.1 404 "));
    assert!(get(&server, "/../a.txt", "").starts_with("HTTP/1.1 400 "));
    let head = say(&server, b"HEAD /a.txt HTTP/1.0\r\n\r\n");
    assert!(
        head.contains("\r\nContent-Length: 12\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(server.stop().requests, 8);
}

#[test]
fn unmodified_document_is_304() {
    let site = site("serve-modified");
    let server = Server::start(&site.path, 100);
    let answer = get(&server, "/a.txt", "");
    let date = answer
        .split("Last-Modified: ")
        .nth(1)
        .unwrap()
        .split("\r\n")
        .next()
        .unwrap();
    let answer = get(&server, "/a.txt", &format!("If-Modified-Since: {date}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 304 ") && answer.ends_with("\r\n\r\n"));
    let old = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert!(get(&server, "/a.txt", old).starts_with("HTTP/1.1 200 "));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = site("serve-pipeline");
    let server = Server::start(&site.path, 100);
    let one = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\nGET /none HTTP/1.1\r\nHost: h\r\n\r\n";
    let last = "GET /sub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let count = 1000;
    let answer = say(&server, (one.repeat(count) + last).as_bytes());
    let statuses: Vec<&str> = answer
        .match_indices("HTTP/1.1 ")
        .map(|(at, _)| &answer[at + 9..at + 12])
        .collect();
    let expected = ["200", "404"].repeat(count);
    assert_eq!(statuses[..2 * count], expected);
    assert_eq!(statuses[2 * count..], ["200"]);
    assert!(answer.ends_with("<p>sub</p>"));
}

#[test]
fn request_in_single_bytes_is_answered() {
    let site = site("serve-bytes");
    let server = Server::start(&site.path, 100);
    let mut stream = connect(&server);
    stream.set_nodelay(true).unwrap();
    for byte in b"GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello, world"));
}

#[test]
fn large_file_arrives_whole_at_a_slow_reader() {
    let site = Site::new("serve-large");
    let content = large_content(5_000_000);
    site.write("large", &content);
    let server = Server::start(&site.path, 100);
    let mut stream = connect(&server);
    stream.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&content));
    let mut stream = connect(&server);
    stream
        .write_all(b"GET /large HTTP/1.0\r\nRange: bytes=1000000-4999998\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&content[1_000_000..4_999_999]));
    assert_eq!(server.stop().cut_short, 0);
}

#[test]
fn file_that_shrinks_while_it_is_sent_resets_the_connection() {
    let site = Site::new("serve-shrinks");
    let path = site.write("large", large_content(50_000_000));
    let server = Server::start(&site.path, 100);
    let mut stream = connect(&server);
    stream.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    let mut first = [0; 100];
    stream.read_exact(&mut first).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(server.stop().cut_short, 1);
}

#[test]
fn refused_content_still_lets_the_answer_be_read() {
    let site = site("serve-linger");
    let server = Server::start(&site.path, 100);
    let mut stream = connect(&server);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n")
        .unwrap();
    for _ in 0..20 {
        stream.write_all(&[b'x'; 10_000]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn accepting_stops_at_the_limit_and_goes_on_below_it() {
    let site = site("serve-limit");
    let server = Server::start(&site.path, 2);
    let mut first = connect(&server);
    let second = connect(&server);
    let request = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    first.write_all(request).unwrap();
    let mut answer = [0; 100];
    first.read_exact(&mut answer).unwrap();
    let mut third = connect(&server);
    third.write_all(request).unwrap();
    third
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(third.read(&mut answer).is_err());
    drop(second);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    third.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    assert!(server.stop().full >= 1);
}

#[test]
fn peer_that_leaves_in_the_middle_does_no_harm() {
    let site = Site::new("serve-leaves");
    site.write("large", large_content(10_000_000));
    site.write("a.txt", "hello, world");
    let server = Server::start(&site.path, 100);
    for _ in 0..20 {
        let mut stream = connect(&server);
        stream
            .write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        let mut first = [0; 10];
        stream.read_exact(&mut first).unwrap();
    }
    assert!(get(&server, "/a.txt", "").ends_with("hello, world"));
}
