//! Several listeners at one address and port (`SO_REUSEPORT`), each with its own accept queue.

use std::net::SocketAddr;

use ring::socket_block::SocketId;
use ring::spsc;
use rustix::io::Errno;
use stack::context::{Bind, Control};
use wire::tcp::Flags;

use crate::common::{PORT, STACK_V4, World};

fn place() -> SocketAddr {
    SocketAddr::new(STACK_V4, PORT)
}

/// Binds a new socket to the usual port, and listens.
fn listener(w: &mut World, reuse_port: bool) -> Result<SocketId, Errno> {
    let socket = w.app.socket();
    let (answer, mut answers) = spsc::queue(1);
    w.app.control(Control::Bind(Bind {
        socket,
        local: place(),
        dual: false,
        reuse_addr: false,
        reuse_port,
        free: false,
        again: false,
        answer,
    }));
    w.settle();
    match answers.pop().expect("an answer") {
        Ok(_) => {
            w.app.listen_on(socket, place(), 16);
            w.settle();
            Ok(socket)
        }
        Err(errno) => {
            w.close(socket);
            Err(errno)
        }
    }
}

#[test]
fn listeners_that_share_a_port_each_get_connections() {
    let mut w = World::new();
    let all = [(); 2].map(|()| listener(&mut w, true).expect("a share"));
    for _ in 0..16 {
        let mut client = w.client();
        w.handshake(&mut client);
    }
    let counts = all.map(|one| {
        let accepted: Vec<_> = std::iter::from_fn(|| w.app.accept(one)).collect();
        accepted.len()
    });
    assert_eq!(counts.iter().sum::<usize>(), 16);
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    w.peer.forget();
}

/// Connections in the closed listener's queue are reset, as in Linux. Handshakes and queue of the
/// other listener are not affected.
#[test]
fn shared_port_listener_closed_takes_its_own_queue_along_alone() {
    let mut w = World::new();
    let [first, second] = [(); 2].map(|()| listener(&mut w, true).expect("a share"));
    let mut clients: Vec<_> = (0..12).map(|_| w.client()).collect();
    for client in &mut clients {
        w.begin_handshake(client);
    }
    for client in &clients[..6] {
        w.send(&client.ack());
    }
    w.app.close(first);
    w.settle();
    let resets = w.peer.take_tcp();
    assert!(resets.iter().all(|seen| seen.flags.contains(Flags::RST)));
    for client in &clients[6..] {
        w.send(&client.ack());
    }
    let accepted: Vec<_> = std::iter::from_fn(|| w.app.accept(second)).collect();
    let refused = w.peer.take_tcp();
    assert!(refused.iter().all(|seen| seen.flags.contains(Flags::RST)));
    assert_eq!(accepted.len() + resets.len() + refused.len(), 12);
    assert!(!accepted.is_empty() && !resets.is_empty());
    // Only the second listener has the port now.
    for _ in 0..4 {
        let mut client = w.client();
        w.handshake(&mut client);
        assert!(w.app.accept(second).is_some());
    }
}

#[test]
fn listener_that_does_not_share_keeps_others_away() {
    let mut w = World::new();
    let own = listener(&mut w, false).expect("the port");
    assert_eq!(listener(&mut w, true), Err(Errno::ADDRINUSE));
    w.close(own);
    listener(&mut w, true).expect("the port");
    assert_eq!(listener(&mut w, false), Err(Errno::ADDRINUSE));
}
