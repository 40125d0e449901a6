//! ACKs that wait a few turns for the application's answer: those of a SYN-ACK, and of short data
//! on a young connection.

use ring::socket_block::SocketId;
use wire::tcp::Flags;

use crate::common::{Client, PEER_V4, Tcp, World};

impl World {
    /// Lets the peer send a segment; the application gets its event before an ACK leaves.
    fn send_and_tell(&mut self, segment: &Tcp) {
        let frame = self.peer.frame(segment);
        self.peer.transmit(&frame);
        assert!(self.stack.turn_before_answers(self.now_ns).busy);
        self.peer.collect();
    }

    /// Lets the application return without having written.
    fn come_back(&mut self) {
        assert!(self.stack.has_output());
        assert!(self.stack.turn_before_answers(self.now_ns).busy);
        assert!(!self.stack.has_output());
        self.peer.collect();
    }
}

/// A connection that the application opens; it was told of the SYN-ACK.
fn answered() -> (World, Client, SocketId) {
    let mut w = World::new();
    let socket = w.app.connect(std::net::SocketAddr::new(PEER_V4, 443));
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    let mut client = Client::answering(&syn);
    let syn_ack = client.syn_ack();
    w.send_and_tell(&syn_ack);
    w.silent();
    assert_eq!(w.app.take_events(), [socket]);
    client.rcv = syn.seq + 1;
    (w, client, socket)
}

/// An accepted connection with a request; the application was told of it.
fn asked() -> (World, Client, SocketId) {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let request = client.data(b"request");
    w.send_and_tell(&request);
    w.silent();
    (w, client, socket)
}

#[test]
fn syn_sent_syn_ack_is_acknowledged_by_the_first_request() {
    let (mut w, mut client, socket) = answered();
    w.write(socket, b"request");
    let data = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(client.take(&data), b"request");
    w.silent();
}

#[test]
fn syn_sent_syn_ack_is_acknowledged_when_the_application_comes_back_and_nobody_writes() {
    let (mut w, client, _) = answered();
    w.come_back();
    assert_eq!(w.tcp_with(Flags::ACK).seq, client.rcv);
    w.settle();
    w.silent();
}

#[test]
fn established_text_is_acknowledged_by_the_answer() {
    let (mut w, mut client, socket) = asked();
    assert_eq!(w.app.read(socket), b"request");
    w.write(socket, b"response");
    let data = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(
        (data.ack, client.take(&data)),
        (client.nxt, b"response".to_vec())
    );
    w.silent();
}

#[test]
fn established_text_is_acknowledged_when_the_application_comes_back_and_nobody_answers() {
    let (mut w, client, _) = asked();
    w.come_back();
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert!(!w.stack.has_output());
}

#[test]
fn established_text_is_acknowledged_at_once_when_the_application_may_stay_away() {
    let (mut w, client, _) = asked();
    w.turn();
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
}

#[test]
fn established_second_segment_sends_the_ack_that_waited_for_the_first() {
    let mut w = World::new();
    let (mut client, _) = w.established();
    let full = client.data(&[7; 1_460]);
    w.send_and_tell(&full);
    w.silent();
    let first_end = client.nxt;
    let full = client.data(&[7; 1_460]);
    w.send_and_tell(&full);
    assert_eq!(w.tcp_with(Flags::ACK).ack, first_end);
    w.silent();
    w.come_back();
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
}

#[test]
fn established_duplicate_is_acknowledged_at_once() {
    let mut w = World::new();
    let (mut client, _) = w.established();
    let text = client.data(b"once");
    w.send(&text);
    w.peer.forget();
    w.send_and_tell(&text);
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
}
