//! Blocking streams over a loopback wire, with both ways of turning the crank.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use common::{connect, converse, server_addr};
use millstream::{Context, Crank, TcpListener, TcpStream};

fn echo_once(context: &Context) {
    let listener = TcpListener::bind(context, server_addr()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![0; 16_384];
    loop {
        match stream.read(&mut bytes).unwrap() {
            0 => return,
            n => stream.write_all(&bytes[..n]).unwrap(),
        }
    }
}

fn both_cranks(
    server: impl Fn(&Context) + Send + Sync + Copy,
    client: impl Fn(&Context) + Send + Sync + Copy,
) {
    converse(Crank::Inline, server, client);
    converse(Crank::Dedicated, server, client);
}

#[test]
fn established_bytes_come_back_as_they_were_sent() {
    both_cranks(echo_once, |context| {
        let mut stream = connect(context);
        stream.write_all(b"hello, wire").unwrap();
        let mut back = [0; 11];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello, wire");
        assert_eq!(stream.peer_addr(), server_addr());
        assert_eq!(stream.local_addr().unwrap().ip().to_string(), "10.9.0.2");
    });
}

#[test]
fn half_closed_peer_still_sends_all_it_has() {
    const LEN: usize = 3_000_000;
    both_cranks(
        |context| {
            let listener = TcpListener::bind(context, server_addr()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, pattern(LEN, 1));
            stream.write_all(&pattern(LEN, 2)).unwrap();
        },
        |context| {
            let mut stream = connect(context);
            stream.write_all(&pattern(LEN, 1)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(
                stream.write(b"x").unwrap_err().kind(),
                ErrorKind::BrokenPipe
            );
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, pattern(LEN, 2));
        },
    );
}

#[test]
fn closed_port_refuses() {
    both_cranks(
        |context| {
            let listener = TcpListener::bind(context, server_addr()).unwrap();
            listener.accept().unwrap();
        },
        |context| {
            let mut elsewhere = server_addr();
            elsewhere.set_port(9);
            let refused = TcpStream::connect(context, elsewhere).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            connect(context);
        },
    );
}

#[test]
fn aborted_connection_is_reset_at_the_peer() {
    both_cranks(
        |context| {
            let listener = TcpListener::bind(context, server_addr()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.abort();
        },
        |context| {
            let mut stream = connect(context);
            stream.write_all(b"x").unwrap();
            let mut byte = [0];
            assert_eq!(
                stream.read(&mut byte).unwrap_err().kind(),
                ErrorKind::ConnectionReset
            );
            assert_eq!(stream.read(&mut byte).unwrap(), 0);
            assert_eq!(
                stream.write(b"x").unwrap_err().kind(),
                ErrorKind::BrokenPipe
            );
        },
    );
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761);
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}
