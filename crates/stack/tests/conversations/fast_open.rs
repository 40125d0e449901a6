//! Fast Open (RFC 7413), server and client, over raw frames.

use std::net::SocketAddr;

use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use stack::context::SocketOption;
use tcp::FastOpenKeys;
use wire::tcp::{FastOpenCookie, Flags, Options};

use crate::common::{Client, PEER_V4, PORT, SECOND, STACK_V4, World};
use crate::icmp::{about, unreachable};

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);

fn keys() -> FastOpenKeys {
    FastOpenKeys::new([7; 16])
}

/// A listener that allows `pending` Fast Opens.
fn server(pending: u32) -> (World, SocketId) {
    let mut w = World::with(|setup| {
        setup.config.tcp.fast_open.server = true;
        setup.config.tcp.fast_open.keys = Some(keys());
    });
    let options = vec![SocketOption::FastOpen(pending)];
    let listener = w
        .app
        .listen_with(SocketAddr::new(STACK_V4, PORT), 8, options);
    w.settle();
    (w, listener)
}

fn cookie(keys: FastOpenKeys) -> FastOpenCookie {
    let flow = wire::FlowKey {
        local: STACK_V4.into(),
        remote: PEER_V4.into(),
        local_port: 0,
        remote_port: 0,
    };
    keys.cookie(&flow, false)
}

/// A SYN with a Fast Open option and `bytes`.
fn send_syn(w: &mut World, fast_open: FastOpenCookie, bytes: &[u8]) -> Client {
    let mut client = w.client();
    let options = Options {
        mss: Some(1460),
        fast_open: Some(fast_open),
        ..Options::default()
    };
    let syn = client.syn().options(options).data(bytes);
    w.send(&syn);
    client
}

/// Checks the SYN-ACK of a Fast Open, and sets the client's sequence numbers by it.
fn opened(w: &mut World, client: &mut Client, len: u32) {
    let syn_ack = w.tcp_with(SYN_ACK);
    assert_eq!(syn_ack.ack, client.nxt + len);
    assert_eq!(syn_ack.options.fast_open, None);
    client.nxt += len;
    client.on_syn_ack(&syn_ack);
}

#[test]
fn listen_syn_that_asks_for_a_cookie_gets_it_and_a_plain_handshake() {
    let (mut w, listener) = server(4);
    let mut client = send_syn(&mut w, FastOpenCookie::REQUEST, b"not taken");
    let syn_ack = w.tcp_with(SYN_ACK);
    assert_eq!(syn_ack.ack, client.nxt, "the SYN alone is acknowledged");
    assert_eq!(syn_ack.options.fast_open, Some(cookie(keys())));
    assert_eq!(w.app.accept(listener), None);
    client.on_syn_ack(&syn_ack);
    w.send(&client.ack());
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn listen_syn_with_a_good_cookie_is_accepted_read_and_answered_at_once() {
    let (mut w, listener) = server(4);
    let mut client = send_syn(&mut w, cookie(keys()), b"question");
    opened(&mut w, &mut client, 8);
    let socket = w.app.accept(listener).unwrap();
    assert_eq!(w.read(socket), b"question");
    w.write(socket, b"answer");
    let answer = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(client.take(&answer), b"answer");
    w.send(&client.ack());
    w.silent();
    assert_eq!(w.stack.tcp_counters().fast_opens_passive, 1);
}

/// An ICMP error ends a Fast Open only until the application has accepted it.
#[test]
fn fast_opened_port_unreachable_ends_it_until_it_is_accepted() {
    const PORT_UNREACHABLE: u8 = 3;
    for is_accepted in [false, true] {
        let (mut w, listener) = server(4);
        send_syn(&mut w, cookie(keys()), b"question");
        let syn_ack = w.tcp_with(SYN_ACK);
        if is_accepted {
            assert!(w.app.accept(listener).is_some());
            w.settle();
        }
        let error = about(&w, &syn_ack, unreachable(PORT_UNREACHABLE, 0));
        w.send_frame(&error);
        assert_eq!(w.stack.usage().flows, usize::from(is_accepted));
    }
}

#[test]
fn listen_syn_with_another_cookie_falls_back_and_gets_the_good_one() {
    let (mut w, listener) = server(4);
    let client = send_syn(&mut w, cookie(FastOpenKeys::new([8; 16])), b"lost");
    let syn_ack = w.tcp_with(SYN_ACK);
    assert_eq!(syn_ack.ack, client.nxt);
    assert_eq!(syn_ack.options.fast_open, Some(cookie(keys())));
    assert_eq!(w.app.accept(listener), None);
    assert_eq!(w.stack.counters().fast_open_cookies_bad, 1);
}

#[test]
fn listen_cookie_of_the_backup_key_opens_and_is_replaced() {
    let (mut w, listener) = server(4);
    let rotated = FastOpenKeys {
        primary: [9; 16],
        backup: Some([7; 16]),
    };
    w.app.option(listener, SocketOption::FastOpenKey(rotated));
    w.settle();
    let client = send_syn(&mut w, cookie(keys()), b"old key");
    let syn_ack = w.tcp_with(SYN_ACK);
    assert_eq!(syn_ack.ack, client.nxt + 7);
    assert_eq!(syn_ack.options.fast_open, Some(cookie(rotated)));
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn listen_at_the_limit_of_pending_falls_back_until_one_completes() {
    let (mut w, listener) = server(1);
    let mut first = send_syn(&mut w, cookie(keys()), b"1");
    opened(&mut w, &mut first, 1);
    let second = send_syn(&mut w, cookie(keys()), b"2");
    assert_eq!(w.tcp_with(SYN_ACK).ack, second.nxt, "nothing but the SYN");
    assert_eq!(w.stack.counters().fast_open_queue_full, 1);
    w.send(&first.ack());
    let mut third = send_syn(&mut w, cookie(keys()), b"3");
    opened(&mut w, &mut third, 1);
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn fast_opened_reset_after_accept_counts_for_a_minute() {
    let (mut w, listener) = server(1);
    let mut client = send_syn(&mut w, cookie(keys()), b"x");
    opened(&mut w, &mut client, 1);
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.segment(Flags::RST));
    assert_eq!(w.app.errno(socket), Some(Errno::CONNRESET));
    assert_eq!(w.read(socket), b"x", "what the SYN brought stays");
    let spoofed = send_syn(&mut w, cookie(keys()), b"y");
    assert_eq!(w.tcp_with(SYN_ACK).ack, spoofed.nxt);
    w.advance(61 * SECOND);
    w.peer.forget();
    let mut client = send_syn(&mut w, cookie(keys()), b"z");
    opened(&mut w, &mut client, 1);
}

#[test]
fn fast_opened_syn_ack_is_repeated_and_the_connection_gives_up() {
    let (mut w, listener) = server(4);
    let mut client = send_syn(&mut w, cookie(keys()), b"x");
    opened(&mut w, &mut client, 1);
    let socket = w.app.accept(listener).unwrap();
    w.advance(300 * SECOND);
    let repeated = w.peer.take_tcp();
    assert_eq!(repeated.len(), 6, "one more than for a plain handshake");
    assert!(
        repeated
            .iter()
            .all(|s| s.flags == SYN_ACK && s.payload.is_empty())
    );
    assert_eq!(w.app.errno(socket), Some(Errno::TIMEDOUT));
}

#[test]
fn fast_opened_unaccepted_is_reset_when_the_listener_closes() {
    let (mut w, listener) = server(4);
    let mut client = send_syn(&mut w, cookie(keys()), b"x");
    opened(&mut w, &mut client, 1);
    w.close(listener);
    let reset = w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!(reset.seq, client.rcv);
}

#[test]
fn fast_opened_closed_early_sends_its_fin_and_waits_for_the_handshake() {
    let (mut w, listener) = server(4);
    let mut client = send_syn(&mut w, cookie(keys()), b"x");
    opened(&mut w, &mut client, 1);
    let socket = w.app.accept(listener).unwrap();
    assert_eq!(w.read(socket), b"x");
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    assert_eq!(fin.seq, client.rcv);
    w.advance(SECOND + SECOND / 10);
    w.tcp_with(SYN_ACK);
    client.rcv += 1;
    w.send(&client.segment(Flags::FIN | Flags::ACK));
    w.tcp_with(Flags::ACK);
    assert_eq!(w.stack.usage().time_wait, 1);
}

fn remote() -> SocketAddr {
    SocketAddr::new(PEER_V4, 9_000)
}

/// Connects by Fast Open with `bytes`; returns the SYN that leaves.
fn connect_fast(w: &mut World, bytes: &[u8]) -> (SocketId, crate::common::frames::Tcp) {
    let socket = w.app.connect_fast(remote(), bytes);
    w.settle();
    (socket, w.tcp_with(Flags::SYN))
}

fn syn_ack(client: &mut Client, cookie: Option<&[u8]>) -> crate::common::frames::Tcp {
    let options = Options {
        mss: Some(940),
        fast_open: cookie.and_then(FastOpenCookie::new),
        ..Options::default()
    };
    client.syn_ack().options(options)
}

#[test]
fn connect_fast_asks_first_and_brings_data_with_the_cookie_next_time() {
    let mut w = World::new();
    let (first, syn) = connect_fast(&mut w, b"hello");
    assert_eq!(syn.options.fast_open, Some(FastOpenCookie::REQUEST));
    assert!(syn.payload.is_empty());
    let mut client = Client::answering(&syn);
    w.send(&syn_ack(&mut client, Some(&[1, 2, 3, 4])));
    let data = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(
        data.payload, b"hello",
        "the handshake's last ACK rides on it"
    );
    w.app.abort(first);
    w.settle();
    w.peer.forget();
    let (second, syn) = connect_fast(&mut w, &[9; 1_000]);
    assert_eq!(syn.options.fast_open, FastOpenCookie::new(&[1, 2, 3, 4]));
    assert_eq!(
        syn.payload.len(),
        900,
        "the peer's MSS less room for options"
    );
    let mut client = Client::answering(&syn);
    let answer = syn_ack(&mut client, None).acking(syn.seq + 1 + 900);
    w.send(&answer);
    let rest = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!((rest.seq, rest.payload.len()), (syn.seq + 901, 100));
    assert!(w.app.has(second, SocketState::CONNECTED));
    assert_eq!(w.stack.tcp_counters().fast_opens_active, 1);
}

#[test]
fn connect_fast_data_that_the_syn_ack_leaves_out_goes_again_at_once() {
    let mut w = World::with(|setup| setup.config.tcp.fast_open.client_without_cookie = true);
    let (_, syn) = connect_fast(&mut w, b"hello");
    assert_eq!((syn.options.fast_open, syn.payload.len()), (None, 5));
    let mut client = Client::answering(&syn);
    w.send(&syn_ack(&mut client, None));
    let again = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(
        (again.seq, again.payload.as_slice()),
        (syn.seq + 1, &b"hello"[..])
    );
    assert_eq!(w.stack.tcp_counters().fast_opens_active_failed, 1);
}

#[test]
fn connect_fast_syn_is_repeated_plain_and_a_black_hole_pauses() {
    let mut w = World::with(|setup| {
        setup.config.tcp.fast_open.client_without_cookie = true;
        setup.config.tcp.fast_open.blackhole_timeout_ns = 3_600 * SECOND;
    });
    let (_, syn) = connect_fast(&mut w, b"hello");
    w.advance(SECOND + SECOND / 10);
    let again = w.tcp_with(Flags::SYN);
    assert_eq!((again.seq, again.payload.len()), (syn.seq, 0));
    w.advance(5 * SECOND);
    assert_eq!(w.stack.counters().fast_open_paused, 1);
    w.peer.forget();
    let (_, plain) = connect_fast(&mut w, b"hello");
    assert!(plain.payload.is_empty());
}

#[test]
fn connect_fast_that_gives_up_after_one_timeout_pauses_too() {
    let mut w = World::with(|setup| {
        setup.config.tcp.fast_open.client_without_cookie = true;
        setup.config.tcp.fast_open.blackhole_timeout_ns = 3_600 * SECOND;
        setup.config.tcp.syn_retries_max = 1;
        setup.config.tcp.syn_linear_timeouts_max = 0;
    });
    let (_, _) = connect_fast(&mut w, b"hello");
    w.advance(SECOND + SECOND / 10);
    w.tcp_with(Flags::SYN);
    assert_eq!(w.stack.counters().fast_open_paused, 0);
    w.advance(5 * SECOND);
    assert_eq!(w.stack.counters().fast_open_paused, 1);
    w.silent();
}

#[test]
fn listen_syn_with_a_good_cookie_and_no_socket_shakes_hands_and_is_counted() {
    let mut w = World::with(|setup| {
        setup.config.limits.sockets_max = 2;
        setup.config.tcp.fast_open.server = true;
        setup.config.tcp.fast_open.keys = Some(keys());
    });
    let options = vec![SocketOption::FastOpen(4)];
    let local = SocketAddr::new(STACK_V4, PORT);
    let _ = w.app.listen_with(local, 8, options);
    w.settle();
    let mut first = send_syn(&mut w, cookie(keys()), b"taken");
    opened(&mut w, &mut first, 5);
    assert_eq!(w.stack.counters().fast_open_no_room, 0);
    let second = send_syn(&mut w, cookie(keys()), b"not taken");
    let syn_ack = w.tcp_with(SYN_ACK);
    assert_eq!(syn_ack.ack, second.nxt, "the SYN alone is acknowledged");
    assert_eq!(w.stack.counters().fast_open_no_room, 1);
}
