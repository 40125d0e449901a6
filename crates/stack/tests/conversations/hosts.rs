//! A stack with a host behind its port: lent local ports, the list of connections, and changes of
//! the interface.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use packetio::MacAddr;
use packetio::host::{Change, Route, Wish};
use packetio::ledger::{ENTRY_BYTES, Entry, LedgerFile};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wire::tcp::Flags;

use crate::common::hosted::HostEnd;
use crate::common::{Client, MILLIS, PEER_V4, PORT, SECOND, STACK_MAC, STACK_V4, World};

const LENT: (u16, u16) = (21_000, 21_003);
/// Entries of the list: sockets, compact entries, and half-open handshakes.
const ENTRIES: usize = 64 + 16 + HALF_OPENS;
const HALF_OPENS: usize = 16;

/// A world with a host, which lends four local ports at first.
fn hosted(end: &HostEnd) -> World {
    World::with(|setup| {
        setup.config.local_ports = (20_000, 20_003);
        setup.host = Some(end.clone());
    })
}

fn remote() -> SocketAddr {
    SocketAddr::new(PEER_V4, 443)
}

#[test]
fn lent_ports_that_nothing_uses_are_given_back() {
    let end = HostEnd::default();
    let mut w = hosted(&end);
    let mut sockets: Vec<_> = (0..5).map(|_| w.app.connect(remote())).collect();
    w.settle();
    assert_eq!(end.wishes(), [Wish::LocalPorts]);
    end.talk().leases.push_back(Ok(LENT));
    w.settle();
    let mut ports: Vec<u16> = w.peer.take_tcp().iter().map(|syn| syn.src_port).collect();
    ports.sort_unstable();
    assert_eq!(ports.len(), 5);
    assert!((LENT.0..=LENT.1).contains(&ports[4]), "{ports:?}");
    // The last lent block is in use, so it stays.
    w.advance(11 * SECOND);
    assert_eq!(end.wishes(), []);
    for socket in sockets.drain(..) {
        w.app.abort(socket);
    }
    w.settle();
    w.peer.forget();
    w.advance(11 * SECOND);
    assert_eq!(end.wishes(), [Wish::ReturnPorts(LENT.0, LENT.1)]);
    w.advance(60 * SECOND);
    assert_eq!(end.wishes(), [], "the first block stays");
    let again = w.app.connect(remote());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    assert!((20_000..=20_003).contains(&syn.src_port));
    w.app.abort(again);
}

#[test]
fn place_of_a_closed_listener_is_released_when_its_last_connection_is_gone() {
    let end = HostEnd::default();
    let mut w = hosted(&end);
    let listener = w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    end.wishes();
    let place = SocketAddr::new(STACK_V4, PORT);
    w.close(listener);
    assert_eq!(end.wishes(), [Wish::Leave(place)]);
    w.advance(5 * SECOND);
    assert_eq!(end.wishes(), [], "a connection is there");
    w.send(&client.rst());
    w.close(socket);
    w.advance(2 * SECOND);
    assert_eq!(end.wishes(), [Wish::Release(place)]);
    w.advance(5 * SECOND);
    assert_eq!(end.wishes(), []);
}

/// The connections in the host's list.
fn listed(file: &OwnedFd) -> Vec<Entry> {
    let entry = |at: usize| {
        let mut bytes = [0; ENTRY_BYTES];
        let at = (at * ENTRY_BYTES) as u64;
        assert_eq!(rustix::io::pread(file, &mut bytes, at), Ok(ENTRY_BYTES));
        Entry::decode(&bytes)
    };
    (0..ENTRIES).filter_map(entry).collect()
}

/// Gives the host a list of connections.
fn ledger(end: &HostEnd) -> OwnedFd {
    let file = memfd_create("ledger", MemfdFlags::CLOEXEC).unwrap();
    let bytes = (ENTRIES * ENTRY_BYTES) as u64;
    ftruncate(&file, bytes).unwrap();
    end.talk().ledger = Some(LedgerFile::map(file.as_fd(), bytes).unwrap());
    file
}

#[test]
fn handshake_in_progress_is_in_the_ledger_until_it_ends() {
    let end = HostEnd::default();
    let file = ledger(&end);
    let mut w = hosted(&end);
    w.listen();
    let mut client = w.client();
    w.send(&client.syn());
    client.on_syn_ack(&w.tcp_with(Flags::SYN | Flags::ACK));
    let entry = |client: &Client| Entry {
        local: SocketAddr::new(STACK_V4, PORT),
        remote: client.peer,
    };
    assert_eq!(listed(&file), [entry(&client)]);
    w.send(&client.ack());
    assert_eq!(listed(&file), [entry(&client)], "once, when connected");
    // The second handshake times out.
    let mut other = w.client();
    w.send(&other.syn());
    other.on_syn_ack(&w.tcp_with(Flags::SYN | Flags::ACK));
    assert_eq!(listed(&file).len(), 2);
    w.send(&other.rst());
    assert_eq!(listed(&file), [entry(&client)]);
}

#[test]
fn connection_is_in_the_ledger_until_its_compact_entry_is_gone() {
    let end = HostEnd::default();
    let file = ledger(&end);
    let mut w = hosted(&end);
    let listener = w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    let entry = Entry {
        local: SocketAddr::new(STACK_V4, PORT),
        remote: client.peer,
    };
    assert_eq!(listed(&file), [entry]);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    client.take(&w.tcp_with(Flags::FIN | Flags::ACK));
    w.send(&client.ack());
    // In FIN_WAIT_2 the connection stays listed, because the peer may never close.
    assert_eq!(w.stack.usage().fin_wait_2, 1);
    assert_eq!(listed(&file), [entry]);
    w.send(&client.fin());
    w.tcp_with(Flags::ACK);
    assert_eq!(w.stack.usage().fin_wait_2, 0);
    assert_eq!(listed(&file), [entry], "TIME_WAIT");
    w.advance(61 * SECOND);
    assert_eq!(listed(&file), []);
}

#[test]
fn established_connection_takes_a_new_mac_of_either_side() {
    let end = HostEnd::default();
    let mut w = hosted(&end);
    let (mut client, socket) = w.established();
    let ours = MacAddr([2, 0, 0, 0, 0, 0x77]);
    let theirs = MacAddr([2, 0, 0, 0, 0, 0x88]);
    // The connection stores its frame headers with the first segment.
    w.app.write(socket, b"zero");
    w.settle();
    client.take(&w.tcp());
    w.send(&client.ack());
    end.talk().changes.push_back(Change::Mac(ours));
    w.app.write(socket, b"one");
    w.settle();
    assert_eq!(w.peer.last_link, Some((w.peer.mac, ours)));
    client.take(&w.tcp());
    w.peer.stack_mac = ours;
    w.send(&client.ack());
    let (address, mac) = (PEER_V4, Some(theirs));
    end.talk()
        .changes
        .push_back(Change::NextHop { address, mac });
    w.app.write(socket, b"two");
    w.settle();
    assert_eq!(w.peer.last_link, Some((theirs, ours)));
    client.take(&w.tcp());
    w.send(&client.ack());
    w.send(&client.data(b"back"));
    assert_eq!(w.read(socket), b"back");
}

#[test]
fn established_connection_follows_a_new_route() {
    let end = HostEnd::default();
    let mut w = hosted(&end);
    let far = SocketAddr::new("10.1.0.9".parse().unwrap(), 443);
    let route = |gateway: [u8; 4]| Route {
        destination: "10.1.0.0".parse().unwrap(),
        prefix: 24,
        gateway: Some(gateway.into()),
        source: None,
        mtu: 0,
        metric: 0,
    };
    let (old, new) = (route([10, 0, 0, 2]), route([10, 0, 0, 3]));
    end.talk().changes.push_back(Change::RouteAdded(old));
    w.settle();
    let (mut client, socket) = w.connected(far);
    w.app.write(socket, b"by the old one");
    w.settle();
    client.take(&w.tcp());
    w.send(&client.ack());
    let second = MacAddr([2, 0, 0, 0, 0, 0x33]);
    let changes = [Change::RouteRemoved(old), Change::RouteAdded(new)];
    end.talk().mac_of.insert([10, 0, 0, 3].into(), second);
    end.talk().changes.extend(changes);
    w.app.write(socket, b"by the new one");
    // The host's answer for the gateway arrives in a later turn.
    w.advance(MILLIS);
    client.take(&w.tcp());
    assert_eq!(w.peer.last_link.map(|(to, _)| to), Some(second));
    w.send(&client.ack());
}

#[test]
fn peer_at_our_own_address_is_forged_unless_the_host_has_a_way_there() {
    let end = HostEnd::default();
    let mut w = hosted(&end);
    let hop = MacAddr([2, 0, 0, 0, 0, 0x99]);
    w.listen();
    let mut client = w.client_from(STACK_V4, SocketAddr::new(STACK_V4, PORT));
    let syn = client.syn();
    let moved = w.counted(|w| w.send(&syn));
    assert_eq!(moved, [("rx_drop_source_address", 1)]);
    w.silent();
    end.talk().changes.push_back(Change::OwnHop(Some(hop)));
    w.settle();
    w.send(&syn);
    client.on_syn_ack(&w.tcp_with(Flags::SYN | Flags::ACK));
    assert_eq!(w.peer.last_link, Some((hop, STACK_MAC)));
    w.send(&client.ack());
    w.send(&client.data(b"from here"));
    w.tcp_with(Flags::ACK);
    // A connection that the stack opens uses the same hop.
    w.app.connect(SocketAddr::new(STACK_V4, 443));
    w.settle();
    w.tcp_with(Flags::SYN);
    assert_eq!(w.peer.last_link, Some((hop, STACK_MAC)));
    end.talk().changes.push_back(Change::OwnHop(None));
    w.settle();
    w.peer.forget();
    let moved = w.counted(|w| w.send(&client.data(b"forged")));
    assert_eq!(moved, [("rx_drop_source_address", 1)]);
    w.silent();
}
