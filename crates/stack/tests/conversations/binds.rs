//! Local ports that the stack chooses for `bind` and `connect`.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ring::spsc;
use rustix::io::Errno;
use stack::context::{Bind, Control};

use crate::common::{PEER_V4, World};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Binds a new socket; returns the address that it got.
fn bind(w: &mut World, local: &str) -> Result<SocketAddr, Errno> {
    let socket = w.app.socket();
    let (answer, mut answers) = spsc::queue(1);
    w.app.control(Control::Bind(Bind {
        socket,
        local: at(local),
        dual: false,
        reuse_addr: false,
        reuse_port: false,
        free: false,
        again: false,
        answer,
    }));
    w.settle();
    answers.pop().expect("an answer")
}

/// A world with local ports 40,000 to 40,002.
fn three_ports() -> World {
    World::with(|s| s.config.local_ports = (40_000, 40_002))
}

#[test]
fn bind_without_port_gives_each_port_of_the_range_once() {
    let mut w = three_ports();
    let ports: BTreeSet<u16> = (0..3)
        .map(|_| bind(&mut w, "10.0.0.1:0").expect("a port").port())
        .collect();
    assert_eq!(ports, BTreeSet::from([40_000, 40_001, 40_002]));
    assert_eq!(bind(&mut w, "10.0.0.1:0"), Err(Errno::ADDRINUSE));
    // The unspecified address conflicts with all of them; the other family has its own ports.
    assert_eq!(bind(&mut w, "0.0.0.0:0"), Err(Errno::ADDRINUSE));
    assert!(bind(&mut w, "[fd00::1]:0").is_ok());
}

#[test]
fn bind_without_port_leaves_out_what_listens() {
    let mut w = three_ports();
    w.listen_at(at("10.0.0.1:40001"), 1);
    let ports = [(); 2].map(|()| bind(&mut w, "10.0.0.1:0").expect("a port").port());
    assert_eq!(BTreeSet::from(ports), BTreeSet::from([40_000, 40_002]));
}

/// The search for a port begins at a different point for each peer (RFC 6056 section 3.3.3). So one
/// peer cannot count the connections to others.
#[test]
fn connect_begins_the_search_elsewhere_for_each_peer() {
    let mut w = World::new();
    let mut port_to = |remote: u16| {
        w.app.connect(SocketAddr::new(PEER_V4, remote));
        w.settle();
        w.tcp().src_port
    };
    let ports: Vec<u16> = (1..=4).map(&mut port_to).collect();
    let steps: BTreeSet<u16> = ports.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.len() == 3 && !steps.contains(&1), "{ports:?}");
    let again = port_to(1);
    // All peers share one counter, so the next search continues behind the four other connections.
    assert_eq!(again, ports[0].wrapping_add(4));
}
