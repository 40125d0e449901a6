//! What a service leaves to the next one: resets that are under way, virtual ports without an
//! owner, reserved ports. In network namespaces, as root, with a data plane that only records
//! calls.

mod support;

use std::time::Duration;

use mux::plane::Plane as _;
use packetio::ledger::Entry;
use packetio::mux::message::Query;

use support::netns::can_run;
use support::{World, ask, forgotten, must_be_reset, was_said};

/// errno, as it stands in messages.
const EACCES: i32 = 13;

#[test]
fn service_that_ends_in_the_resets_leaves_them_to_the_next_one() {
    if !can_run("service_that_ends_in_the_resets_leaves_them_to_the_next_one") {
        return;
    }
    let mut world = World::new("service_that_ends_in_the_resets_leaves_them_to_the_next_one");
    // The peers of one connection a second.
    world.plane.recorded(|recorded| recorded.rate = 148);
    world.leave();
    world.start();
    let mut one = world.application();
    assert_eq!(one.claim("10.9.0.1:8081"), 0);
    // A slice has 256 connections, of which all but the last one have no peer.
    for index in 0..256 {
        let local = "10.9.0.1:8081".parse().unwrap();
        let remote = format!("10.9.0.2:{}", 100 + index).parse().unwrap();
        one.write_ledger_at(index, &Entry { local, remote });
    }
    assert_eq!(one.release("10.9.0.1:8081"), 0);
    let (peer, entry) = forgotten(&world);
    one.write_ledger_at(256, &entry);
    assert_eq!(one.claim("10.9.0.1:8081"), 0);
    drop(one);
    world.until("burial", |recorded| {
        recorded.ports.is_empty() && recorded.ledgers.is_empty()
    });
    assert_eq!(
        world.plane.recorded(|recorded| recorded.kept_ledgers.len()),
        1
    );
    world.leave();
    world.plane.recorded(|recorded| recorded.rate = 0);
    world.start();
    must_be_reset(peer);
    world.until("the end of the resets", |recorded| {
        recorded.kept_ledgers.is_empty()
    });
}

#[test]
fn kept_ledger_that_no_note_names_is_dropped() {
    if !can_run("kept_ledger_that_no_note_names_is_dropped") {
        return;
    }
    let mut world = World::new("kept_ledger_that_no_note_names_is_dropped");
    let one = world.application();
    one.write_ledger(&Entry {
        local: "10.9.0.1:8081".parse().unwrap(),
        remote: "10.9.0.2:9".parse().unwrap(),
    });
    world.leave();
    // The service was killed between the second pin and the notes.
    assert_eq!(world.plane.clone().ledger_keep(0, 0), Some(0));
    world.start();
    assert_eq!(
        world.plane.recorded(|recorded| recorded.kept_ledgers.len()),
        0
    );
    world.until("burial", |recorded| recorded.ledgers.is_empty());
}

#[test]
fn virtual_ports_without_a_note_delay_a_claim_by_one_of_them() {
    if !can_run("virtual_ports_without_a_note_delay_a_claim_by_one_of_them") {
        return;
    }
    let mut world = World::new("virtual_ports_without_a_note_delay_a_claim_by_one_of_them");
    world.leave();
    let ports = (0..200).map(|context| ((7, context), 1));
    world.plane.recorded(|recorded| {
        recorded.ports.extend(ports);
        recorded.port_removal_pause = Duration::from_millis(20);
    });
    world.start_with(|options| options.ports = 254);
    let mut one = world.application();
    assert_eq!(one.claim("10.9.0.1:8080"), 0);
    let removals = world.plane.recorded(|recorded| recorded.port_removals);
    assert!(removals < 50, "{removals} of 200 came first");
    world
        .plane
        .recorded(|recorded| recorded.port_removal_pause = Duration::ZERO);
    world.until("removal", |recorded| recorded.ports.len() == 1);
}

#[test]
fn range_of_a_service_that_was_left_goes_with_the_next_one() {
    if !can_run("range_of_a_service_that_was_left_goes_with_the_next_one") {
        return;
    }
    let mut world = World::new("range_of_a_service_that_was_left_goes_with_the_next_one");
    world.leave();
    assert_eq!(reserved(&world), "20000-20127");
    world.start_with(|options| options.leases = 21_000..=21_063);
    assert_eq!(reserved(&world), "21000-21063");
    world.leave();
    world.start();
    ask(&world, Query::Stop);
    world.join();
    assert_eq!(reserved(&world), "");
}

#[test]
fn range_of_two_services_stays_until_both_have_ended() {
    if !can_run("range_of_two_services_stays_until_both_have_ended") {
        return;
    }
    let mut world = World::new("range_of_two_services_stays_until_both_have_ended");
    let first = world.service.take();
    let others = world.run_dir.with_extension("second");
    std::fs::create_dir_all(&others).unwrap();
    let socket = others.join("sock").to_str().unwrap().to_owned();
    let of_first = std::mem::replace(&mut world.socket, socket.clone());
    world.start_with(|options| options.run_dir = others.clone());
    let second = std::mem::replace(&mut world.service, first);
    world.socket = of_first;
    ask(&world, Query::Stop);
    world.join();
    assert_eq!(reserved(&world), "20000-20127", "the second's");
    (world.service, world.socket) = (second, socket);
    ask(&world, Query::Stop);
    world.join();
    assert_eq!(reserved(&world), "");
    std::fs::remove_dir_all(others).unwrap();
}

#[test]
fn port_that_the_next_service_would_not_grant_is_kept_and_named() {
    if !can_run("port_that_the_next_service_would_not_grant_is_kept_and_named") {
        return;
    }
    let mut world = World::new("port_that_the_next_service_would_not_grant_is_kept_and_named");
    let mut one = world.connect_as(1234);
    let number = one.hello(1).application;
    let (socket, _) = one.port(0);
    assert_eq!(one.claim("10.9.0.1:80"), 0);
    assert_eq!(one.claim("10.9.0.1:8080"), 0);
    world.leave();
    drop(one);
    world.start_with(|options| options.rules.clear());
    let mut again = world.connect_as(1234);
    again.hello(1);
    assert_eq!(again.come_back(number, &socket), 0);
    assert!(was_said(
        "keeps 10.9.0.1:80, which --allow no longer grants"
    ));
    assert!(!was_said("keeps 10.9.0.1:8080"));
    assert_eq!(again.release("10.9.0.1:80"), 0);
    assert_eq!(again.claim("10.9.0.1:80"), EACCES);
}

/// The setting of the service's network namespace.
fn reserved(world: &World) -> String {
    let setting = "cat /proc/sys/net/ipv4/ip_local_reserved_ports";
    world.near.exec(setting).trim().to_owned()
}
