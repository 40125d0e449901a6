//! Endpoints that an application's own socket reserves in the kernel: the application listens on
//! both sides. In network namespaces, as root, with a data plane that only records calls.

mod support;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use packetio::mux::message::{Claim, HOLD, Message};

use support::netns::can_run;
use support::{Client, World};

const ADDRINUSE: i32 = 98;
const INVAL: i32 = 22;
const PLACE: &str = "0.0.0.0:8080";

/// Holds an endpoint with a socket of the application; returns 0 or an errno.
fn hold_bound(client: &mut Client, endpoint: &str, socket: &impl AsFd) -> i32 {
    let claim = Claim {
        context: HOLD,
        ..client.claim_of(endpoint)
    };
    let message = Message::Bound(claim);
    let socket = Some(socket.as_fd());
    client.channel.send(&message, socket).expect("send");
    client.outcome(claim.request)
}

fn listen(world: &World, endpoint: &str) -> TcpListener {
    world
        .near
        .inside(|| TcpListener::bind(endpoint))
        .expect("a listener")
}

#[test]
fn place_that_the_program_keeps_is_held_until_it_lets_go() {
    if !can_run("place_that_the_program_keeps_is_held_until_it_lets_go") {
        return;
    }
    let world = World::new("bound-hold");
    let listener = listen(&world, PLACE);
    let mut one = world.application();
    assert_eq!(one.hold(PLACE), ADDRINUSE, "the kernel's, so far");
    assert_eq!(hold_bound(&mut one, PLACE, &listener), 0);
    assert_eq!(one.claim(PLACE), 0, "its context joins");
    let mut other = world.application();
    assert_eq!(other.claim(PLACE), ADDRINUSE);
    // The service's copy reserves the endpoint while connections remain.
    drop(listener);
    let bound = world.near.inside(|| TcpListener::bind(PLACE));
    assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
    assert_eq!(one.release(PLACE), 0);
    assert_eq!(one.let_go(PLACE), 0);
    world.must_be_free(PLACE);
}

#[test]
fn place_that_the_program_keeps_is_free_after_its_death() {
    if !can_run("place_that_the_program_keeps_is_free_after_its_death") {
        return;
    }
    let world = World::new("bound-death");
    let listener = listen(&world, PLACE);
    let mut one = world.application();
    assert_eq!(hold_bound(&mut one, PLACE, &listener), 0);
    drop((one, listener));
    world.until("burial", |recorded| recorded.claims.is_empty());
    world.must_be_free(PLACE);
}

#[test]
fn socket_that_does_not_keep_the_place_is_refused() {
    if !can_run("socket_that_does_not_keep_the_place_is_refused") {
        return;
    }
    let world = World::new("bound-liar");
    let mut one = world.application();
    let elsewhere = listen(&world, "0.0.0.0:8081");
    assert_eq!(hold_bound(&mut one, PLACE, &elsewhere), INVAL);
    let of_another_namespace = world.far.inside(|| TcpListener::bind(PLACE)).unwrap();
    assert_eq!(hold_bound(&mut one, PLACE, &of_another_namespace), INVAL);
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    assert_eq!(hold_bound(&mut one, PLACE, &pipe), INVAL);
    assert!(world.plane.recorded(|recorded| recorded.claims.is_empty()));
}

#[test]
fn place_that_the_program_keeps_survives_the_service() {
    if !can_run("place_that_the_program_keeps_survives_the_service") {
        return;
    }
    let mut world = World::new("bound-restart");
    let listener = listen(&world, PLACE);
    let mut one = world.connect();
    let number = one.hello(1).application;
    let (socket, _) = one.port(0);
    assert_eq!(hold_bound(&mut one, PLACE, &listener), 0);
    assert_eq!(one.claim(PLACE), 0);
    world.leave();
    world.start();
    let endpoint: SocketAddr = PLACE.parse().unwrap();
    let contexts = world
        .plane
        .recorded(|recorded| recorded.claims.get(&endpoint).cloned());
    assert_eq!(contexts, Some((number, vec![0])), "its flows go on");
    let mut again = world.connect();
    again.hello(1);
    assert_eq!(again.come_back(number, &socket), 0);
    assert_eq!(hold_bound(&mut again, PLACE, &listener), 0);
    drop(listener);
    let bound = world.near.inside(|| TcpListener::bind(PLACE));
    assert!(bound.is_err(), "the service has a copy again");
    assert_eq!(again.release(PLACE), 0);
    assert_eq!(again.let_go(PLACE), 0);
    world.must_be_free(PLACE);
}
