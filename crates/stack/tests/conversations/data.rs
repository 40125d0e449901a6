//! Data in both directions: which segments are believed, where their bytes go, and what happens to
//! damaged ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packetio::ChecksumPolicy;
use rustix::io::Errno;
use wire::tcp::{Flags, Options, Timestamp};
use wire::{Addr, checksum, protocol};

use crate::common::{Client, MILLIS, SECOND, World, frames};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[test]
fn established_data_is_read_and_acknowledged() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"hello"));
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(w.app.take_events(), [socket]);
    assert_eq!(w.read(socket), b"hello");
    assert_eq!(w.stack.counters().rx_fused_bytes, 5);
}

/// Two peers may choose the same port, so the port alone does not identify a flow.
#[test]
fn established_peers_with_the_same_port_in_one_batch_are_told_apart() {
    let mut w = World::new();
    let neighbour = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    w.peer.answers_for.push(neighbour);
    let listener = w.listen();
    let mut first = w.client();
    let mut second = Client::new(SocketAddr::new(neighbour, first.peer.port()), first.stack);
    let mut sockets = Vec::new();
    for client in [&mut first, &mut second] {
        w.handshake(client);
        sockets.extend(w.app.accept(listener));
    }
    for _ in 0..2 {
        for (client, text) in [(&mut first, b"to one"), (&mut second, b"to two")] {
            let segment = client.data(text);
            w.peer.transmit(&w.peer.frame(&segment));
        }
    }
    w.settle();
    assert_eq!(w.read(sockets[0]), b"to oneto one");
    assert_eq!(w.read(sockets[1]), b"to twoto two");
    let acks = w.peer.take_tcp();
    assert!(acks.iter().all(|ack| ack.flags == Flags::ACK), "{acks:?}");
}

#[test]
fn established_write_leaves_with_push_and_is_freed_when_acknowledged() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.write(socket, b"answer");
    let data = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(client.take(&data), b"answer");
    assert_eq!(w.stack.usage().small_chunks, 1);
    w.send(&client.ack());
    assert_eq!(w.stack.usage().small_chunks, 0);
    w.silent();
}

#[test]
fn established_both_ways_at_once_each_gets_all() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let (ours, theirs) = (pattern(100_000), pattern(90_000));
    let (mut written, mut sent) = (0, 0);
    let (mut got, mut received) = (Vec::new(), Vec::new());
    while got.len() < theirs.len() || received.len() < ours.len() {
        let n = w.app.write(socket, &ours[written..]);
        written += n;
        w.settle();
        for segment in w.peer.take_tcp() {
            received.extend(client.take(&segment));
        }
        let end = theirs.len().min(sent + 1_460);
        let segment = client.data(&theirs[sent..end]);
        sent = end;
        w.send(&segment);
        got.extend(w.read(socket));
        w.advance(MILLIS);
    }
    assert!(got == theirs && received == ours);
}

#[test]
fn established_out_of_order_is_held_until_the_gap_closes() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let first = client.data(&pattern(1_000));
    let second = client.data(&pattern(500));
    let third = client.data(&pattern(250));
    w.send(&third);
    w.send(&second);
    assert_eq!(w.read(socket), b"");
    let acks = w.peer.take_tcp();
    assert!(acks.iter().all(|ack| ack.ack == first.seq) && acks.len() == 2);
    w.send(&first);
    let mut whole = pattern(1_000);
    whole.extend(pattern(500));
    whole.extend(pattern(250));
    assert_eq!(w.read(socket), whole);
    assert_eq!(
        w.stack.usage().large_chunks + w.stack.usage().small_chunks,
        0
    );
}

#[test]
fn established_repeated_data_is_read_once() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let first = client.data(b"once");
    w.send(&first);
    w.send(&first);
    let mut more = first.clone().data(b"once and more");
    more.seq = first.seq;
    w.send(&more);
    client.nxt = more.seq + 13;
    assert_eq!(w.read(socket), b"once and more");
    w.peer.forget();
    w.send(&client.ack());
}

#[test]
fn established_wrong_checksum_is_dropped_on_the_fused_path() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"published before"));
    w.peer.forget();
    let segment = client.data(&pattern(1_000));
    for at in [54, 500, 1_053] {
        let mut frame = w.peer.frame(&segment);
        frame[at] ^= 0x10;
        let moved = w.counted(|w| w.send_frame(&frame));
        assert_eq!(moved, [("rx_drop_tcp_checksum", 1)]);
    }
    w.silent();
    assert_eq!(w.read(socket), b"published before");
    assert_eq!(
        w.stack.usage().small_chunks + w.stack.usage().large_chunks,
        0
    );
    w.send(&segment);
    assert_eq!(w.read(socket), pattern(1_000));
}

#[test]
fn established_wrong_checksum_does_not_touch_what_is_published() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"abc"));
    let bad = client.segment(Flags::ACK).data(b"defghi");
    let mut frame = w.peer.frame(&bad);
    frame[50] ^= 1;
    w.send_frame(&frame);
    // This text is shorter than the discarded one.
    w.send(&client.data(b"de"));
    assert_eq!(w.read(socket), b"abcde");
}

#[test]
fn established_wrong_checksum_is_dropped_in_place() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let first = client.data(b"first");
    let second = client.data(b"second");
    // Neither data out of order, nor a pure ACK, a RST or a FIN is believed.
    let fin = client.segment(Flags::FIN | Flags::ACK).at(first.seq);
    let rst = client.rst().at(first.seq);
    for segment in [second.clone(), client.ack().at(first.seq), rst, fin] {
        let mut frame = w.peer.frame(&segment);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        let moved = w.counted(|w| w.send_frame(&frame));
        assert_eq!(moved, [("rx_drop_tcp_checksum", 1)], "{segment:?}");
    }
    w.silent();
    w.send(&first);
    w.send(&second);
    assert_eq!(w.read(socket), b"firstsecond");
}

#[test]
fn established_wrong_ack_or_stamp_with_good_data_leaves_no_trace() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    let stamp = |value| Options {
        timestamp: Some(Timestamp { value, echo: 0 }),
        ..Options::default()
    };
    w.send(&client.syn().options(stamp(100)));
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    let echo = syn_ack.options.timestamp.unwrap().value;
    let mut ack = client.ack().options(stamp(101));
    ack.options.timestamp.as_mut().unwrap().echo = echo;
    w.send(&ack);
    let socket = w.app.accept(listener).unwrap();
    // The segment is in order and thus copied at once, but it is older than earlier ones, or
    // acknowledges data never sent.
    w.send(
        &client
            .segment(Flags::ACK)
            .data(&pattern(900))
            .options(stamp(50)),
    );
    let beyond = client.segment(Flags::ACK).acking(client.rcv + 9);
    w.send(&beyond.data(&pattern(900)).options(stamp(102)));
    assert_eq!(w.read(socket), b"");
    w.send(&client.data(b"short").options(stamp(103)));
    assert_eq!(w.read(socket), b"short");
    let usage = w.stack.usage();
    assert_eq!(
        usage.small_chunks + usage.large_chunks,
        0,
        "idle, yet it holds memory"
    );
}

#[test]
fn established_partial_checksum_counts_only_where_the_policy_takes_it() {
    for (policy, taken) in [
        (ChecksumPolicy::Verify, false),
        (ChecksumPolicy::AcceptPartial, true),
        (ChecksumPolicy::Trust, true),
    ] {
        let mut w = World::with(|s| s.policy = policy);
        let (mut client, socket) = w.established();
        let segment = client.segment(Flags::ACK | Flags::PSH).data(b"offloaded");
        let mut frame = w.peer.frame(&segment);
        let len = frame.len() as u32 - 34;
        let (src, dst) = (Addr::from(segment.src), Addr::from(segment.dst));
        let partial = checksum::pseudo_header(src, dst, protocol::TCP, len).fold();
        frame[50..52].copy_from_slice(&partial.to_be_bytes());
        w.send_frame(&frame);
        let want: &[u8] = if taken { b"offloaded" } else { b"" };
        assert_eq!(w.read(socket), want, "{policy:?}");
        if taken {
            client.nxt += 9;
        }
        // A complete checksum is always accepted; a wrong one only by the policy `trust`.
        w.send(&client.data(b"whole"));
        assert_eq!(w.read(socket), b"whole");
        let mut frame = w.peer.frame(&client.segment(Flags::ACK).data(b"wrong"));
        frame[50] ^= 0x55;
        w.send_frame(&frame);
        assert_eq!(w.read(socket).is_empty(), policy != ChecksumPolicy::Trust);
    }
}

#[test]
fn established_priority_tag_is_looked_through() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let frame = w.peer.frame(&client.data(b"tagged"));
    w.send_frame(&frames::tagged(&frame, 0x6000));
    assert_eq!(w.read(socket), b"tagged");
    w.peer.forget();
    let frame = w
        .peer
        .frame(&client.segment(Flags::ACK).data(b"another network"));
    let moved = w.counted(|w| w.send_frame(&frames::tagged(&frame, 7)));
    assert_eq!(moved, [("rx_drop_vlan", 1)]);
}

#[test]
fn established_padded_frames_end_where_the_header_says() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    for padding in [1, 6, 200] {
        let mut frame = w.peer.frame(&client.data(b"1"));
        frame.extend(vec![0xaa; padding]);
        w.send_frame(&frame);
        let mut frame = w.peer.frame(&client.ack());
        frame.extend(vec![0xaa; padding]);
        w.send_frame(&frame);
    }
    assert_eq!(w.read(socket), b"111");
}

#[test]
fn established_window_closes_and_opens_with_reading() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let mut sent = 0;
    let mut window = 65_535;
    while window > 0 {
        let len = window.min(1_460);
        w.send(&client.data(&vec![3; len]));
        sent += len;
        w.advance(300 * MILLIS);
        window = usize::from(w.peer.take_tcp().last().unwrap().window);
        assert!(sent <= 131_072, "more than the buffer's memory");
    }
    assert!(sent > 60_000, "{sent}");
    assert_eq!(w.read(socket).len(), sent);
    let update = w.tcp_with(Flags::ACK);
    assert!(update.window > 60_000);
    w.send(&client.data(b"on"));
    assert_eq!(w.read(socket), b"on");
}

#[test]
fn established_data_beyond_the_window_is_not_stored() {
    let mut w = World::with(|s| {
        s.config.tcp.recv_buffer.bytes_default = 4_096;
        s.config.tcp.recv_buffer.bytes_max = 4_096;
    });
    let (mut client, socket) = w.established();
    w.send(&client.data(&pattern(1_460)));
    let long = client.segment(Flags::ACK).data(&pattern(1_460));
    w.send(&long);
    let got = w.read(socket).len();
    assert_eq!(got, 1_460, "what does not fit is refused whole");
}

#[test]
fn established_without_acknowledgment_repeats_and_fails() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    w.write(socket, b"anybody?");
    w.advance(1_800 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::TIMEDOUT));
    // Linux gives up after the time of fifteen retransmissions, counted from the first one at 200
    // ms. A sixteenth fits.
    assert_eq!(w.peer.take_tcp().len(), 17);
    assert_eq!(w.stack.usage().flows, 0);
    // The application closes later.
    assert_eq!(w.stack.usage().sockets, 2);
    w.close(socket);
    assert_eq!(w.stack.usage().sockets, 1);
    assert_eq!(w.stack.usage().small_chunks, 0);
}

#[test]
fn established_zero_window_is_probed_until_it_opens() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    client.window = 0;
    w.send(&client.ack());
    w.write(socket, b"patience");
    w.silent();
    w.advance(2 * SECOND);
    let probes = w.peer.take_tcp();
    assert!(!probes.is_empty());
    assert!(probes.iter().all(|probe| probe.payload.is_empty()));
    client.window = 1_000;
    w.send(&client.ack());
    assert_eq!(w.tcp().payload, b"patience");
}

#[test]
fn orphan_with_a_window_shut_for_ever_ends() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    client.window = 0;
    w.send(&client.ack());
    w.write(socket, b"never to be read");
    w.close(socket);
    // The peer answers every probe but keeps its window closed.
    for _ in 0..3_600 {
        w.advance(SECOND);
        for _probe in w.peer.take_tcp() {
            w.send(&client.ack());
        }
    }
    let usage = w.stack.usage();
    assert_eq!(
        (usage.sockets, usage.flows),
        (1, 0),
        "held by a peer that owes it nothing"
    );
}

#[test]
fn established_text_held_beyond_the_fin_gives_its_memory_back() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let last = client.data(&pattern(1_000)).with(Flags::ACK | Flags::FIN);
    let beyond = client.data(&pattern(1_400));
    w.send(&beyond);
    w.send(&last);
    let end = last.seq + 1_001;
    w.advance(SECOND);
    assert_eq!(w.tcp_last_ack(), Some(end));
    assert_eq!(w.read(socket), pattern(1_000));
    assert!(w.app.has(socket, ring::socket_block::SocketState::EOF));
    let usage = w.stack.usage();
    assert_eq!(usage.large_chunks + usage.small_chunks, 0);
    assert_eq!(usage.range_blocks, 0);
}
