//! Reads while the stack acts between the reader's looks.

use std::io::{BufRead, Read};

use packetio::loopback::{self, LoopbackOptions};

use super::*;
use crate::config::Config;
use crate::{Clock, Limits, Runtime, TcpListener, VirtualClock};

/// Two contexts of this thread on a wire with a virtual clock.
struct Pair {
    contexts: [Context; 2],
    _runtimes: [Runtime; 2],
}

impl Pair {
    fn new() -> Self {
        let clock = VirtualClock::new(tcp::SECOND_NS);
        let (near, far) = loopback::pair(&LoopbackOptions::default()).unwrap();
        let runtimes = [("10.9.0.1/24", near), ("10.9.0.2/24", far)].map(|(address, port)| {
            let mut config = Config::new("loopback:unused".parse().unwrap());
            config.clock = Clock::Virtual(clock.clone());
            config.addresses.push(address.parse().unwrap());
            config.limits = Limits::for_connections(8);
            Runtime::with_ports(config, vec![Box::new(port)]).unwrap()
        });
        Self {
            contexts: runtimes.each_ref().map(|it| it.context(0).unwrap()),
            _runtimes: runtimes,
        }
    }

    fn settle(&self) {
        while self
            .contexts
            .iter()
            .fold(false, |moved, it| moved | it.turn_until_idle().unwrap())
        {}
    }

    /// Both ends of a connection from the first to the second.
    fn connected(&self) -> (TcpStream, TcpStream) {
        let [here, there] = &self.contexts;
        let address = "10.9.0.2:80".parse().unwrap();
        let listener = TcpListener::bind(there, address).unwrap();
        let client = TcpStream::start_connect(here, address).unwrap();
        self.settle();
        (client, listener.accept().unwrap().0)
    }
}

#[test]
fn established_failure_between_two_looks_is_told_behind_the_bytes_before_it() {
    let pair = Pair::new();
    let (client, mut server) = pair.connected();
    let inner = client.inner.clone();
    // The reader has read the state and finds no bytes; now the stack runs.
    let said = inner.state().block(client.id).state();
    assert_eq!(client.readable(), 0);
    server.write_all(b"last words").unwrap();
    pair.settle();
    server.abort();
    pair.settle();
    let found = inner.state().nothing_to_read(client.id, said);
    assert!(found.is_none(), "{found:?}");
    let mut bytes = [0; 16];
    assert_eq!(client.peek(&mut bytes).unwrap(), 10);
    assert_eq!((&client).read(&mut bytes).unwrap(), 10);
    let error = (&client).read(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!((&client).read(&mut bytes).unwrap(), 0);
}

#[test]
fn established_bytes_are_lent_piece_by_piece_until_they_are_consumed() {
    let pair = Pair::new();
    let (mut client, mut server) = pair.connected();
    let blocked = client.fill_buf().map(<[u8]>::len).unwrap_err();
    assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
    let sent: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
    server.write_all(&sent).unwrap();
    pair.settle();
    let mut received = Vec::new();
    while received.len() < sent.len() {
        let piece = client.fill_buf().unwrap();
        assert!(!piece.is_empty());
        // A reader may look twice, and take less than it saw.
        let taken = piece.len().div_ceil(2);
        received.extend_from_slice(&piece[..taken]);
        client.consume(taken);
        pair.settle();
    }
    assert!(received == sent);
    assert_eq!(client.readable(), 0);
    // More than has arrived: `consume` must not take later bytes.
    client.consume(10);
    server.write_all(b"end").unwrap();
    drop(server);
    pair.settle();
    assert_eq!(client.fill_buf().unwrap(), b"end");
    client.consume(3);
    assert_eq!(client.fill_buf().unwrap(), b"");
}

#[test]
fn established_reset_is_told_behind_the_bytes_that_are_lent() {
    let pair = Pair::new();
    let (mut client, mut server) = pair.connected();
    server.write_all(b"last words").unwrap();
    pair.settle();
    server.abort();
    pair.settle();
    assert_eq!(client.fill_buf().unwrap(), b"last words");
    client.consume(10);
    let error = client.fill_buf().map(<[u8]>::len).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(client.fill_buf().unwrap(), b"");
}
