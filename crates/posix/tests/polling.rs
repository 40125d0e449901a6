//! Programs that poll: their waits have a timeout of zero, and they do other things in between.

mod common;

use std::io::{IoSlice, IoSliceMut};

use common::{Host, World};
use posix::number::*;
use posix::{EpollEvent, Errno, Request};

/// More events than a wait that may sleep reports at once.
const CROWD: usize = 40;

/// An epoll that watches `fds` for input.
fn epoll_of(host: &mut Host, fds: &[i32]) -> i32 {
    let epfd = host.done(Request::EpollCreate { flags: 0 }).unwrap() as i32;
    for &fd in fds {
        let event = EpollEvent {
            events: EPOLLIN,
            data: fd as u64,
        };
        let op = EPOLL_CTL_ADD;
        let added = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        assert_eq!(host.done(added), Ok(0));
    }
    epfd
}

/// Waits; returns the descriptors that are readable.
fn wait(host: &mut Host, epfd: i32, timeout_ms: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let waited = host
        .sockets
        .epoll_wait_into(epfd, 64, timeout_ms, &mut found);
    assert_eq!(waited, Ok(()));
    found.iter().map(|event| event.data as i32).collect()
}

fn read(host: &mut Host, fd: i32) -> Result<usize, Errno> {
    let mut bytes = [0; 16];
    host.sockets
        .read_into(fd, &mut [IoSliceMut::new(&mut bytes)])
}

fn write(host: &mut Host, fd: i32) {
    let written = host.sockets.write_from(fd, &[IoSlice::new(b"text")]);
    assert_eq!(written, Ok(4));
}

/// The first host sends a byte on each connection, and the second one receives it.
fn ask(world: &mut World, fds: &[i32]) {
    for &fd in fds {
        write(&mut world.a, fd);
    }
    world.settle();
}

/// Number of bytes that the first host reads after only its own stack has turned.
fn heard(world: &mut World, fd: i32) -> Result<usize, Errno> {
    world.a.sockets.turn();
    read(&mut world.a, fd)
}

#[test]
fn answer_of_a_program_that_polls_leaves_before_it_polls_again() {
    let mut world = World::new();
    let (client, server, _) = world.connected();
    let epfd = epoll_of(&mut world.b, &[server]);
    for _ in 0..3 {
        ask(&mut world, &[client]);
        assert_eq!(wait(&mut world.b, epfd, 0), [server]);
        assert_eq!(read(&mut world.b, server), Ok(4));
        write(&mut world.b, server);
        assert_eq!(heard(&mut world, client), Ok(4));
    }
}

#[test]
fn answers_of_a_program_that_polls_leave_together_with_the_last() {
    let mut world = World::new();
    let (one, server_one, listener) = world.connected();
    let two = world.a.socket();
    assert_eq!(world.a.connect(two, common::B, 80), Err(Errno::INPROGRESS));
    world.settle();
    let server_two = world.b.accept(listener).unwrap();
    world.b.nonblocking(server_two);
    let epfd = epoll_of(&mut world.b, &[server_one, server_two]);
    ask(&mut world, &[one, two]);
    let found = wait(&mut world.b, epfd, 0);
    assert_eq!(found.len(), 2);
    for fd in &found {
        assert_eq!(read(&mut world.b, *fd), Ok(4));
    }
    write(&mut world.b, found[0]);
    assert_eq!(heard(&mut world, one), Err(Errno::AGAIN));
    assert_eq!(heard(&mut world, two), Err(Errno::AGAIN));
    write(&mut world.b, found[1]);
    assert_eq!(heard(&mut world, one), Ok(4));
    assert_eq!(heard(&mut world, two), Ok(4));
}

#[test]
fn poll_without_a_timeout_tells_of_all_that_is_ready() {
    let mut world = World::new();
    let listener = world.b.listener(80);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..CROWD {
        let client = world.a.socket();
        let begun = world.a.connect(client, common::B, 80);
        assert_eq!(begun, Err(Errno::INPROGRESS));
        world.settle();
        clients.push(client);
        servers.push(world.b.accept(listener).unwrap());
    }
    let epfd = epoll_of(&mut world.b, &servers);
    for &client in &clients {
        write(&mut world.a, client);
    }
    // The requests are on the wire, and the wait's own turn receives them.
    world.a.sockets.turn();
    assert_eq!(wait(&mut world.b, epfd, 0).len(), CROWD);
}

#[test]
fn answer_of_a_program_whose_waits_sleep_leaves_with_the_next_wait() {
    let mut world = World::new();
    let (client, server, _) = world.connected();
    let epfd = epoll_of(&mut world.b, &[server]);
    ask(&mut world, &[client]);
    assert_eq!(wait(&mut world.b, epfd, -1), [server]);
    assert_eq!(read(&mut world.b, server), Ok(4));
    write(&mut world.b, server);
    assert_eq!(heard(&mut world, client), Err(Errno::AGAIN));
    assert!(wait(&mut world.b, epfd, 0).is_empty());
    assert_eq!(heard(&mut world, client), Ok(4));
}
