//! Received bytes that are lent to the caller in the receive buffer, in virtual time.

mod common;

use common::*;
use posix::number::*;
use posix::{Errno, Request};

#[test]
fn established_bytes_are_lent_until_they_are_consumed() {
    let mut world = World::new();
    let (a, b, listener) = world.connected();
    assert_eq!(world.b.sockets.lend(b), Err(Errno::AGAIN));
    assert_eq!(world.b.sockets.consume(b, 0), Ok(()));
    assert_eq!(world.b.sockets.consume(b, 1), Err(Errno::INVAL));
    assert_eq!(world.a.write(a, b"question"), Ok(8));
    world.settle();
    assert_eq!(world.b.sockets.lend(b), Ok(&b"question"[..]));
    assert_eq!(world.b.sockets.consume(b, 9), Err(Errno::INVAL));
    assert_eq!(world.b.sockets.consume(b, 3), Ok(()));
    assert_eq!(world.b.sockets.lend(b), Ok(&b"stion"[..]));
    assert_eq!(world.b.read(b, 2).unwrap(), b"st");
    assert_eq!(world.b.sockets.consume(b, 3), Ok(()));
    assert_eq!(world.b.sockets.lend(b), Err(Errno::AGAIN));
    assert_eq!(world.a.close(a), Ok(0));
    world.settle();
    assert_eq!(world.b.sockets.lend(b), Ok(&b""[..]));
    assert_eq!(world.b.sockets.lend(listener), Err(Errno::NOTCONN));
    assert_eq!(world.b.sockets.lend(99), Err(Errno::BADF));
    assert_eq!(world.b.sockets.consume(listener, 0), Err(Errno::OPNOTSUPP));
}

#[test]
fn established_bytes_lent_one_by_one_are_all_bytes_in_order() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let sent: Vec<u8> = (0..200_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    while got.len() < sent.len() {
        if let Ok(count) = world.a.write(a, &sent[written..]) {
            written += count as usize;
        }
        world.settle();
        while let Ok(lent) = world.b.sockets.lend(b) {
            got.extend_from_slice(lent);
            let count = lent.len();
            assert!(count > 0, "the stream has not ended");
            assert_eq!(world.b.sockets.consume(b, count), Ok(()));
        }
    }
    assert_eq!(got, sent);
}

#[test]
fn established_bytes_with_an_urgent_one_are_not_lent() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let urgent = Request::Send {
        fd: a,
        bytes: b"now!".to_vec(),
        flags: MSG_OOB,
        control: Vec::new(),
        to: None,
    };
    assert_eq!(world.a.done(urgent), Ok(4));
    world.settle();
    assert_eq!(world.b.sockets.lend(b), Err(Errno::OPNOTSUPP));
    assert_eq!(world.b.read(b, 10).unwrap(), b"now");
}
