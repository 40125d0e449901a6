//! What a service leaves to the next one: resets that are under way, virtual ports without an
//! owner, reserved ports. In network namespaces, as root, with a data plane that only records
//! calls.

mod support;

use std::time::Duration;

use mux::plane::Plane as _;
use packetio::ledger::Entry;
use packetio::mux::message::Query;

use support::netns::can_run;
use support::{World, ask, forgotten, must_be_reset};

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
    let reserved = |world: &World| {
        let text = world
            .near
            .exec("cat /proc/sys/net/ipv4/ip_local_reserved_ports");
        text.trim().to_owned()
    };
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
