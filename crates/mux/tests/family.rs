//! Several processes of one application share endpoints, each with contexts of its own. In network
//! namespaces, as root, with a data plane that only records calls.

mod support;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};

use packetio::mux::message::{Change, Claim, Hello, Message, Move, PROTOCOL_TCP, Seek, Tuple};
use packetio::text::Text;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use support::netns::can_run;
use support::{Client, World, sealed};

const ADDRINUSE: i32 = 98;
const AGAIN: i32 = 11;
const NOENT: i32 = 2;
const PLACE: &str = "10.9.0.1:8080";

fn shared_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap()
}

/// A process of the family with one context, and its application's number.
fn join(world: &World, family: &OwnedFd) -> (Client, u16) {
    join_with(world.connect(), family)
}

/// Two processes of the family that listen at [`PLACE`].
fn two_listeners(world: &World, family: &OwnedFd) -> (Client, Client) {
    let (mut one, _) = join(world, family);
    let (mut other, _) = join(world, family);
    assert_eq!((one.claim(PLACE), other.claim(PLACE)), (0, 0));
    (one, other)
}

fn join_with(mut client: Client, family: &OwnedFd) -> (Client, u16) {
    let hello = Hello {
        name: Text::new("worker"),
        contexts: 1,
    };
    let message = Message::Join(hello);
    let family = Some(family.as_fd());
    client.channel.send_first(&message, family).unwrap();
    let Some(Message::Welcome(welcome)) = client.answer() else {
        panic!("no welcome");
    };
    client.news(|message| *message == Message::Change(Change::Complete));
    client.port(0);
    (client, welcome.application)
}

fn listeners(world: &World) -> Option<Vec<u16>> {
    let endpoint: SocketAddr = PLACE.parse().unwrap();
    let claim = world
        .plane
        .recorded(|recorded| recorded.claims.get(&endpoint).cloned());
    claim.map(|(_, contexts)| contexts)
}

#[test]
fn place_held_by_the_master_is_served_by_workers() {
    if !can_run("place_held_by_the_master_is_served_by_workers") {
        return;
    }
    let world = World::new("family-serve");
    let family = shared_socket();
    let (mut master, number) = join(&world, &family);
    assert_eq!(master.hold(PLACE), 0);
    assert_eq!(listeners(&world), Some(vec![]), "nobody listens yet");
    let bound = world.near.inside(|| TcpListener::bind(PLACE));
    assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));

    let (mut one, of_one) = join(&world, &family);
    let (mut two, of_two) = join(&world, &family);
    assert_eq!((of_one, of_two), (number, number));
    assert_eq!(one.claim(PLACE), 0);
    assert_eq!(two.claim(PLACE), 0);
    assert_eq!(listeners(&world), Some(vec![1, 2]));
    let mut stranger = world.application();
    assert_eq!(stranger.claim(PLACE), ADDRINUSE);
    assert_eq!(stranger.hold(PLACE), ADDRINUSE);

    drop(one);
    world.until("one gone", |recorded| {
        recorded.claims.values().any(|(_, left)| *left == [2])
    });
    assert_eq!(two.release(PLACE), 0);
    assert_eq!(listeners(&world), Some(vec![]), "the master holds it");
    assert_eq!(two.let_go(PLACE), NOENT, "only its holder lets go");
    assert_eq!(master.let_go(PLACE), 0);
    assert_eq!(listeners(&world), None);
    world.must_be_free(PLACE);
}

#[test]
fn worker_outlives_the_master_and_the_last_process_frees_the_place() {
    if !can_run("worker_outlives_the_master_and_the_last_process_frees_the_place") {
        return;
    }
    let world = World::new("family-orphan");
    let family = shared_socket();
    let (mut master, _) = join(&world, &family);
    assert_eq!(master.hold(PLACE), 0);
    let (mut worker, _) = join(&world, &family);
    assert_eq!(worker.claim(PLACE), 0);
    drop(master);
    world.until("master gone", |recorded| recorded.ports.len() == 1);
    assert_eq!(listeners(&world), Some(vec![1]));
    // The master's number is free again.
    let (mut next, _) = join(&world, &family);
    assert_eq!(next.claim(PLACE), 0);
    assert_eq!(listeners(&world), Some(vec![1, 0]));
    drop((worker, next));
    world.until("all gone", |recorded| {
        recorded.claims.is_empty() && recorded.ports.is_empty()
    });
    world.must_be_free(PLACE);
}

#[test]
fn join_without_a_socket_is_disconnected() {
    if !can_run("join_without_a_socket_is_disconnected") {
        return;
    }
    let world = World::new("family-liar");
    let mut client = world.connect();
    let hello = Hello {
        name: Text::new("liar"),
        contexts: 1,
    };
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let message = Message::Join(hello);
    let file = Some(file.as_fd());
    client.channel.send_first(&message, file).unwrap();
    assert!(client.is_disconnected());
}

/// The peer of an offered connection.
const PEER: &str = "10.9.0.2:40000";

/// Offers an unaccepted connection. The service adds its own number to the offer.
fn offer(client: &Client, request: u32) {
    offer_at(client, request, PLACE.parse().unwrap());
}

/// Offers a connection whose local end is `local`.
fn offer_at(client: &Client, request: u32, local: SocketAddr) {
    let endpoint: SocketAddr = PLACE.parse().unwrap();
    let offered = Message::Move(Move {
        request,
        context: 0,
        tuple: Tuple {
            protocol: PROTOCOL_TCP,
            address: endpoint.ip(),
            port: endpoint.port(),
        },
        local: local.ip(),
        remote: PEER.parse().unwrap(),
        bytes: 100,
    });
    let file = sealed(100);
    client.channel.send(&offered, Some(file.as_fd())).unwrap();
}

/// The offer that another process receives.
fn offered(client: &mut Client) -> Move {
    match client.answer() {
        Some(Message::Move(one)) => one,
        other => panic!("no connection: {other:?}"),
    }
}

#[test]
fn connections_that_a_user_leaves_unanswered_have_a_limit() {
    if !can_run("connections_that_a_user_leaves_unanswered") {
        return;
    }
    let world = World::new("family-unanswered");
    let family = shared_socket();
    let (mut old, _) = join_with(world.connect_as(1234), &family);
    let (mut new, _) = join_with(world.connect_as(1234), &family);
    assert_eq!(old.claim(PLACE), 0);
    assert_eq!(new.claim(PLACE), 0);
    // Seven eighths of 4,096.
    for request in 0..3584 {
        offer(&old, request);
        offered(&mut new);
    }
    offer(&old, 5000);
    assert_eq!(old.outcome(5000), AGAIN);
}

#[test]
fn connection_offered_by_one_worker_is_taken_by_another() {
    if !can_run("connection_offered_by_one_worker_is_taken_by_another") {
        return;
    }
    let world = World::new("family-move");
    let family = shared_socket();
    let (mut master, _) = join(&world, &family);
    assert_eq!(master.hold(PLACE), 0);
    let (mut old, _) = join(&world, &family);
    assert_eq!(old.claim(PLACE), 0);
    offer(&old, 70);
    assert_eq!(old.outcome(70), AGAIN, "nobody else listens yet");

    let (mut new, of_new) = join(&world, &family);
    assert_eq!(new.claim(PLACE), 0);
    offer(&old, 71);
    let came = offered(&mut new);
    assert_eq!((came.context, came.bytes), (0, 100));
    let flow = |world: &World| {
        world
            .plane
            .recorded(|recorded| recorded.flows.values().next().copied())
    };
    assert_eq!(flow(&world), None, "it is not taken yet");
    new.send(&Message::Granted {
        request: came.request,
    });
    assert_eq!(old.outcome(71), 0);
    let taker = Some((of_new, 2));
    assert_eq!(flow(&world), taker, "known before the sender hears of it");
    let forget = Message::Forget {
        context: 0,
        local: PLACE.parse().unwrap(),
        remote: PEER.parse().unwrap(),
    };
    old.send(&forget);
    offer(&old, 72);
    let came = offered(&mut new);
    let (request, errno) = (came.request, AGAIN as u16);
    new.send(&Message::Refused { request, errno });
    assert_eq!(old.outcome(72), AGAIN);
    assert_eq!(flow(&world), taker, "it was not the old one's to forget");
    new.send(&forget);
    world.until("forgotten", |recorded| recorded.flows.is_empty());
}

#[test]
fn connection_offered_to_a_worker_that_dies_comes_back() {
    if !can_run("connection_offered_to_a_worker_that_dies_comes_back") {
        return;
    }
    let world = World::new("family-move-back");
    let family = shared_socket();
    let (mut old, mut new) = two_listeners(&world, &family);
    offer(&old, 70);
    offered(&mut new);
    drop(new);
    assert_eq!(old.outcome(70), AGAIN);
    offer(&old, 71);
    assert_eq!(old.outcome(71), NOENT, "it has the endpoint alone");
}

#[test]
fn connection_offered_at_an_address_that_is_not_its_places_ends_the_sender() {
    if !can_run("connection_offered_at_an_address_that_is_not_its_places_ends_the_sender") {
        return;
    }
    let world = World::new("family-move-lie");
    let family = shared_socket();
    for local in ["10.9.0.2:8080", "[fd00::1]:8080"] {
        let (mut old, _new) = two_listeners(&world, &family);
        offer_at(&old, 70, local.parse().unwrap());
        assert!(old.is_disconnected());
        assert!(world.plane.recorded(|recorded| recorded.flows.is_empty()));
    }
}

#[test]
fn answer_to_what_was_not_offered_ends_the_connection() {
    if !can_run("answer_to_what_was_not_offered_ends_the_connection") {
        return;
    }
    let world = World::new("family-move-liar");
    let (mut liar, _) = join(&world, &shared_socket());
    liar.send(&Message::Granted { request: 9 });
    assert!(liar.is_disconnected());
}

/// Asks for a process that accepts connections which wait.
fn seek(client: &Client, request: u32, accepts: bool) {
    let endpoint: SocketAddr = PLACE.parse().unwrap();
    client.send(&Message::Seek(Seek {
        request,
        context: 0,
        tuple: Tuple {
            protocol: PROTOCOL_TCP,
            address: endpoint.ip(),
            port: endpoint.port(),
        },
        accepts,
        is_urgent: false,
    }));
}

/// The question that another process receives.
fn asked(client: &mut Client) -> Seek {
    match client.answer() {
        Some(Message::Seek(seek)) => seek,
        other => panic!("no question: {other:?}"),
    }
}

/// Answers a question: yes, or no.
fn say(client: &Client, seek: Seek, is_yes: bool) {
    let request = seek.request;
    client.send(&match is_yes {
        true => Message::Granted { request },
        false => Message::Refused {
            request,
            errno: AGAIN as u16,
        },
    });
}

#[test]
fn connection_of_a_master_goes_to_the_worker_that_waits_and_later_ones_do_directly() {
    if !can_run("connection_of_a_master_goes_to_the_worker_that_waits") {
        return;
    }
    let world = World::new("family-seek");
    let family = shared_socket();
    let (mut master, _) = join(&world, &family);
    assert_eq!((master.hold(PLACE), master.claim(PLACE)), (0, 0));
    seek(&master, 70, false);
    assert_eq!(master.outcome(70), AGAIN, "nobody else listens yet");

    let (mut one, _) = join(&world, &family);
    let (mut two, _) = join(&world, &family);
    assert_eq!((one.claim(PLACE), two.claim(PLACE)), (0, 0));
    assert_eq!(listeners(&world), Some(vec![0, 1, 2]));
    seek(&master, 71, false);
    // The order depends on the number of the last question.
    let question = asked(&mut two);
    assert!(!question.accepts);
    say(&two, question, false);
    let question = asked(&mut one);
    say(&one, question, true);
    assert_eq!(master.outcome(71), 0);
    world.until("the master passed over", |recorded| {
        recorded.claims.values().any(|(_, all)| *all == [1, 2])
    });
    for request in [72, 73] {
        offer(&master, request);
        let came = offered(&mut one);
        say_moved(&one, came);
        assert_eq!(master.outcome(request), 0);
    }

    // The master is asked last, since it is passed over.
    seek(&one, 74, true);
    let question = asked(&mut two);
    say(&two, question, false);
    let question = asked(&mut master);
    say(&master, question, false);
    assert_eq!(one.outcome(74), AGAIN);
    assert_eq!(listeners(&world), Some(vec![1, 2]));

    let accepts = Claim {
        request: 0,
        ..master.claim_of(PLACE)
    };
    master.send(&Message::Accepts(accepts));
    world.until("the master is back", |recorded| {
        recorded.claims.values().any(|(_, all)| *all == [0, 1, 2])
    });
}

/// Takes an offered connection.
fn say_moved(client: &Client, one: Move) {
    let request = one.request;
    client.send(&Message::Granted { request });
}

#[test]
fn master_passed_over_gets_connections_again_when_the_workers_are_gone() {
    if !can_run("master_passed_over_gets_connections_again") {
        return;
    }
    let world = World::new("family-seek-alone");
    let family = shared_socket();
    let (mut master, mut worker) = two_listeners(&world, &family);
    seek(&master, 70, false);
    let question = asked(&mut worker);
    say(&worker, question, true);
    assert_eq!(master.outcome(70), 0);
    assert_eq!(listeners(&world), Some(vec![1]));
    drop(worker);
    world.until("the master alone", |recorded| {
        recorded.claims.values().any(|(_, all)| *all == [0])
    });
    // The next worker is preferred at once.
    let (mut next, _) = join(&world, &family);
    assert_eq!(next.claim(PLACE), 0);
    assert_eq!(listeners(&world), Some(vec![1]));
}

#[test]
fn search_goes_on_when_the_process_that_was_asked_ends() {
    if !can_run("search_goes_on_when_the_process_that_was_asked_ends") {
        return;
    }
    let world = World::new("family-seek-end");
    let family = shared_socket();
    let (mut old, mut new) = two_listeners(&world, &family);
    seek(&old, 70, true);
    let question = asked(&mut new);
    drop(new);
    assert_eq!(old.outcome(70), AGAIN);
    // Its number is known, but the question was not this process's.
    say(&old, question, true);
    seek(&old, 71, true);
    assert_eq!(old.outcome(71), AGAIN);
}
