//! A stack with two gateways for everything on one link. The peer is either gateway by its MAC
//! address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packetio::MacAddr;
use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use wire::tcp::Flags;

use crate::common::{Client, PEER_V4, PORT, SECOND, STACK_V4, World, frames};

/// Both gateways, and their MAC addresses.
const GATEWAYS: [IpAddr; 2] = [PEER_V4, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3))];
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 3])];

/// A host behind both.
const FAR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), PORT);

/// A world whose peer is the gateway `answering` alone.
fn world(answering: usize) -> World {
    let mut w = World::with(|s| {
        s.acquainted = false;
        s.config.gateways.extend(GATEWAYS);
    });
    answer_as(&mut w, answering);
    w
}

/// From now on only this gateway answers.
fn answer_as(w: &mut World, gateway: usize) {
    w.peer.mac = MACS[gateway];
    w.peer.answers_for = vec![GATEWAYS[gateway]];
}

/// The gateway of the last frame.
fn last_gateway(w: &World) -> Option<usize> {
    let (destination, _) = w.peer.last_link?;
    MACS.iter().position(|mac| *mac == destination)
}

/// Opens a connection, of which the SYN leaves by `gateway` within `ns`.
fn connected(w: &mut World, gateway: usize, ns: u64) -> (Client, SocketId) {
    let socket = w.app.connect(FAR);
    w.settle();
    w.advance(ns);
    let syn = w.peer.take_tcp().pop().expect("a SYN");
    assert!(syn.flags.contains(Flags::SYN));
    assert_eq!(last_gateway(w), Some(gateway));
    let mut client = Client::answering(&syn);
    let answer = client.syn_ack();
    w.send(&answer);
    assert!(w.app.has(socket, SocketState::CONNECTED));
    w.peer.forget();
    (client, socket)
}

#[test]
fn first_gateway_that_answers_carries_all_connections() {
    let mut w = world(0);
    connected(&mut w, 0, 0);
    connected(&mut w, 0, 0);
}

#[test]
fn gateway_that_never_answers_leaves_a_waiting_connect_to_the_second() {
    let mut w = world(1);
    let (mut client, socket) = connected(&mut w, 1, 3 * SECOND + SECOND / 10);
    w.write(socket, b"by the second");
    assert_eq!(client.take(&w.tcp()), b"by the second");
    // The next connection does not wait.
    connected(&mut w, 1, 0);
}

#[test]
fn gateway_that_falls_silent_leaves_its_connections_to_the_second_until_it_is_heard_of() {
    let mut w = world(0);
    let (mut client, socket) = connected(&mut w, 0, 0);
    answer_as(&mut w, 1);
    w.write(socket, b"on its way");
    w.peer.forget();
    w.advance(30 * SECOND);
    assert_eq!(last_gateway(&w), Some(1));
    let data = w.peer.take_tcp().pop().expect("sent again");
    assert_eq!(client.take(&data), b"on its way");
    let ack = client.ack();
    w.send(&ack);
    w.peer.forget();
    w.write(socket, b"and on");
    assert_eq!(client.take(&w.tcp()), b"and on");
    assert_eq!(last_gateway(&w), Some(1));
    connected(&mut w, 1, 0);

    answer_as(&mut w, 0);
    w.send_frame(&frames::arp_request(MACS[0], GATEWAYS[0], STACK_V4));
    w.peer.forget();
    connected(&mut w, 0, 0);
}

#[test]
fn handshake_behind_a_silent_gateway_is_answered_by_the_second_when_asked_again() {
    let mut w = world(1);
    w.listen();
    let mut client = w.client_from(FAR.ip(), SocketAddr::new(STACK_V4, PORT));
    w.send(&client.syn());
    w.advance(3 * SECOND + SECOND / 10);
    w.peer.forget();
    w.send(&client.syn());
    let syn_ack = w.peer.take_tcp().pop().expect("a SYN-ACK");
    assert_eq!(last_gateway(&w), Some(1));
    client.on_syn_ack(&syn_ack);
}

#[test]
fn gateways_that_are_all_silent_refuse_a_connect() {
    let mut w = world(0);
    w.peer.answers_for.clear();
    let socket = w.app.connect(FAR);
    w.settle();
    w.advance(10 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::HOSTUNREACH));
}
