//! The errors of a connection that ends or fails, and the calls that report them.

mod common;

use std::io::{IoSlice, IoSliceMut};

use common::*;
use posix::number::*;
use posix::{Call, Errno, Outcome, Reply, Request};

#[test]
fn failure_is_told_after_the_bytes_that_came_before_it() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    world.b.write(b, b"last words").unwrap();
    world.settle();
    let abort = posix::layout::linger(true, 0);
    assert_eq!(world.b.setsockopt(b, SOL_SOCKET, SO_LINGER, abort), Ok(0));
    world.b.close(b).unwrap();
    world.settle();
    assert_eq!(world.a.read(a, 100).unwrap(), b"last words");
    assert_eq!(world.a.read(a, 100), Err(Errno::CONNRESET));
    assert_eq!(world.a.read(a, 100).unwrap(), b"");
    assert_eq!(world.a.write(a, b"x"), Err(Errno::PIPE));
}

/// Resets a connection.
fn abort(host: &mut Host, fd: i32) {
    let at_once = posix::layout::linger(true, 0);
    assert_eq!(host.setsockopt(fd, SOL_SOCKET, SO_LINGER, at_once), Ok(0));
    assert_eq!(host.close(fd), Ok(0));
}

#[test]
fn failure_between_two_pieces_is_for_the_next_call_to_find() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    world.b.write(b, b"last words").unwrap();
    world.settle();
    abort(&mut world.b, b);
    world.settle();
    let (mut first, mut second, mut third) = ([0; 5], [0; 5], [0; 5]);
    let pieces = &mut [&mut first, &mut second, &mut third].map(|it| IoSliceMut::new(it));
    assert_eq!(world.a.sockets.read_into(a, pieces), Ok(10));
    assert_eq!(world.a.read(a, 100), Err(Errno::CONNRESET));

    let (a, b) = connected_to(&mut world, 3);
    let waits = Request::Fcntl {
        fd: a,
        command: F_SETFL,
        argument: 0,
    };
    assert_eq!(world.a.done(waits), Ok(0));
    // The reset is on the wire. It arrives while a piece waits for room.
    abort(&mut world.b, b);
    let pieces = vec![IoSlice::new(b"x"); 1 << 20];
    let sent = world.a.sockets.write_from(a, &pieces).unwrap();
    assert!((1..pieces.len()).contains(&sent), "{sent}");
    assert_eq!(world.a.write(a, b"x"), Err(Errno::CONNRESET));
    assert_eq!(world.a.write(a, b"x"), Err(Errno::PIPE));
}

#[test]
fn failure_behind_an_urgent_byte_is_found_by_a_peek() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let urgent = Request::Send {
        fd: b,
        bytes: b"!".to_vec(),
        flags: MSG_OOB,
        to: None,
        control: Vec::new(),
    };
    assert_eq!(world.b.done(urgent), Ok(1));
    world.settle();
    assert_eq!(world.a.recv(a, 10, MSG_PEEK), Err(Errno::AGAIN));
    abort(&mut world.b, b);
    world.settle();
    assert_eq!(world.a.recv(a, 10, MSG_PEEK), Err(Errno::CONNRESET));
    assert_eq!(world.a.recv(a, 10, MSG_PEEK).unwrap(), b"");
    assert_eq!(world.a.read(a, 10).unwrap(), b"");
}

/// A call waits for ten bytes and gets five; then `ends` ends the wait.
fn waits_for_all(flags: i32, ends: impl FnOnce(&mut World, i32)) {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let blocking = Request::Fcntl {
        fd: a,
        command: F_SETFL,
        argument: 0,
    };
    assert_eq!(world.a.done(blocking), Ok(0));
    let mut read = Call::start(Request::Recv {
        fd: a,
        len: 10,
        flags: flags | MSG_WAITALL,
    });
    world.b.write(b, b"01234").unwrap();
    world.settle();
    assert_eq!(read.poll(&mut world.a.sockets), Outcome::Pending);
    ends(&mut world, b);
    world.settle();
    assert_eq!(read.poll(&mut world.a.sockets), Outcome::Done(Ok(5)));
    assert_eq!(read.into_reply(), Reply::Bytes(b"01234".to_vec()));
}

#[test]
fn call_that_waits_for_all_ends_with_the_connection() {
    fn end(world: &mut World, fd: i32) {
        let how = SHUT_WR;
        assert_eq!(world.b.done(Request::Shutdown { fd, how }), Ok(0));
    }
    fn reset(world: &mut World, fd: i32) {
        let abort = posix::layout::linger(true, 0);
        assert_eq!(world.b.setsockopt(fd, SOL_SOCKET, SO_LINGER, abort), Ok(0));
        world.b.close(fd).unwrap();
    }
    for flags in [0, MSG_PEEK] {
        waits_for_all(flags, end);
        waits_for_all(flags, reset);
    }
}
