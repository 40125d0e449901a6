//! Each table filled once: what is refused and counted, and that everything works again afterwards.

use std::net::SocketAddr;

use packetio::fault::FaultOptions;
use ring::socket_block::SocketId;
use stack::limits::FLOW_PROBES_MAX;
use wire::siphash::siphash24_words;
use wire::tcp::Flags;
use wire::{FlowHasher, FlowKey};

use crate::common::hosted::HostEnd;
use crate::common::{Client, MILLIS, PEER_V4, PORT, SECOND, STACK_V4, Setup, World};

#[test]
fn socket_table_full_leaves_handshakes_half_open_until_there_is_room() {
    let mut w = World::with(|s| s.config.limits.sockets_max = 6);
    let listener = w.listen();
    let mut clients: Vec<Client> = Vec::new();
    while w.stack.counters().accept_no_socket == 0 {
        let mut client = w.client();
        w.handshake(&mut client);
        clients.push(client);
        assert!(clients.len() < 8, "the table has no end");
    }
    let accepted: Vec<SocketId> = std::iter::from_fn(|| w.app.accept(listener)).collect();
    assert_eq!(accepted.len(), clients.len() - 1);
    assert_eq!(w.stack.usage().half_open, 1);
    w.silent();
    w.app.abort(accepted[0]);
    w.settle();
    w.tcp_with(Flags::RST | Flags::ACK);
    let last = clients.last().unwrap();
    w.send(&last.ack());
    assert!(w.app.accept(listener).is_some());
    assert_eq!(w.stack.usage().half_open, 0);
}

#[test]
fn chunk_pool_exhausted_drops_and_works_again() {
    let mut w = World::with(|s| {
        s.config.limits.small_chunks = 16;
        s.config.limits.large_chunks = 16;
    });
    let listener = w.listen();
    let mut ends: Vec<(Client, SocketId)> = (0..4)
        .map(|_| {
            let mut client = w.client();
            w.handshake(&mut client);
            let socket = w.app.accept(listener).unwrap();
            (client, socket)
        })
        .collect();
    // All peers send, without a reader, until no byte is accepted.
    let mut dropped = Vec::new();
    for (client, _) in &mut ends {
        for _ in 0..40 {
            let before = w.stack.counters().rx_no_buffer;
            let segment = client.data(&[5; 1_000]);
            w.send(&segment);
            if w.stack.counters().rx_no_buffer > before {
                dropped.push(segment.seq);
                client.nxt = w.tcp_last_ack().unwrap_or(segment.seq);
                break;
            }
        }
        w.peer.forget();
    }
    assert!(!dropped.is_empty(), "the pool has no end");
    let mut total = 0;
    for (_, socket) in &ends {
        total += w.read(*socket).len();
    }
    assert!(total > 10_000, "{total}");
    w.peer.forget();
    let usage = w.stack.usage();
    assert_eq!((usage.small_chunks, usage.large_chunks), (0, 0));
    // Everything works again.
    for (client, socket) in &mut ends {
        let text = b"there is room again";
        w.send(&client.data(text));
        assert_eq!(w.read(*socket), text);
    }
}

#[test]
fn chunk_pool_exhausted_by_writers_tells_them_when_there_is_more() {
    let mut w = World::with(|s| {
        s.config.limits.small_chunks = 16;
        s.config.limits.large_chunks = 16;
    });
    let listener = w.listen();
    let mut first = w.client();
    w.handshake(&mut first);
    let hungry = w.app.accept(listener).unwrap();
    let mut second = w.client();
    w.handshake(&mut second);
    let waiting = w.app.accept(listener).unwrap();
    let mut third = w.client();
    w.handshake(&mut third);
    let hoarder = w.app.accept(listener).unwrap();
    for socket in [hungry, hoarder] {
        while w.app.write(socket, &[1; 60_000]) > 0 {
            w.settle();
        }
    }
    assert_eq!(w.app.write(waiting, b"me too"), 0);
    w.settle();
    w.app.take_events();
    let out = w.app.edges(waiting).1;
    for _ in 0..5 {
        w.advance(MILLIS);
    }
    assert_eq!(w.app.take_events(), [], "told of room that is not there");
    // The peer acknowledges the bytes of the socket that took all memory.
    for _ in 0..50 {
        for segment in w.peer.take_tcp() {
            if segment.src_port == first.stack.port() && segment.dst_port == first.peer.port() {
                first.take(&segment);
            }
        }
        w.send(&first.ack());
    }
    assert!(w.app.take_events().contains(&waiting));
    assert_eq!(w.app.edges(waiting).1, out + 1);
    w.write(waiting, b"me too");
    let got = w.peer.take_tcp();
    assert!(got.iter().any(|segment| segment.payload == b"me too"));
}

#[test]
fn control_queue_full_drops_the_newest() {
    let mut w = World::with(|s| {
        s.config.limits.control_queue_max = 16;
        s.wire.slots = 64;
    });
    // Forty SYNs to a closed port in one turn, with room for sixteen answers.
    let frames: Vec<Vec<u8>> = (0..40)
        .map(|_| {
            let mut client = w.client();
            w.peer.frame(&client.syn())
        })
        .collect();
    for frame in &frames {
        w.peer.transmit(frame);
    }
    w.settle();
    assert_eq!(w.peer.take_tcp().len(), 16);
    assert_eq!(w.stack.counters().control_queue_full, 24);
    assert_eq!(w.stack.counters().resets_sent, 40);
}

#[test]
fn flow_table_never_fills_before_its_parts() {
    let mut w = World::with(|s| {
        let limits = &mut s.config.limits;
        (
            limits.sockets_max,
            limits.half_open_max,
            limits.time_wait_max,
        ) = (8, 4, 4);
    });
    let listener = w.listen();
    for _ in 0..40 {
        let mut client = w.client();
        w.send(&client.syn());
        let Some(syn_ack) = w.peer.take_tcp().pop() else {
            continue;
        };
        if !syn_ack.flags.contains(Flags::SYN) {
            continue;
        }
        client.on_syn_ack(&syn_ack);
        w.send(&client.ack());
        if let Some(socket) = w.app.accept(listener) {
            w.close(socket);
            for segment in w.peer.take_tcp() {
                client.take(&segment);
            }
            w.send(&client.fin());
        }
        w.peer.forget();
    }
    assert_eq!(w.stack.counters().flow_table_full, 0);
    assert_eq!(w.stack.usage().time_wait, 4);
}

/// Number of flows that fit one home bucket of the flow table and those behind it.
const FLOWS_PER_HOME: usize = FLOW_PROBES_MAX * 10;

/// A listener with `FLOWS_PER_HOME` handshakes of a peer that knows the secrets: all have the same
/// home bucket in the flow table. A further client has it too.
pub(crate) fn aimed_at_one_bucket(
    backlog: usize,
    change: impl FnOnce(&mut Setup),
) -> (World, SocketId, Client) {
    let mut w = World::with(|s| {
        let limits = &mut s.config.limits;
        (limits.half_open_max, limits.backlog_max) = (400, 400);
        change(s);
    });
    let [a, b, c, d] = [1, 2, 3, 4];
    let hasher = FlowHasher::new([0, 1].map(|half| siphash24_words([a, b], &[c, d, 2, half])));
    let home = |client: &Client| {
        let key = FlowKey {
            local: client.stack.ip().into(),
            remote: client.peer.ip().into(),
            local_port: client.stack.port(),
            remote_port: client.peer.port(),
        };
        // With these limits the table has 128 buckets.
        hasher.hash(&key) % 128
    };
    let ports = 0..u16::MAX;
    let stack = SocketAddr::new(STACK_V4, PORT);
    let clients = ports.map(|port| Client::new(SocketAddr::new(PEER_V4, port), stack));
    let mut clients = clients.filter(|client| home(client) == 5);
    let listener = w.listen_at(stack, backlog);
    for mut client in clients.by_ref().take(FLOWS_PER_HOME) {
        w.send(&client.syn());
        w.tcp_with(Flags::SYN | Flags::ACK);
    }
    let other = clients.next().expect("one client more");
    (w, listener, other)
}

#[test]
fn flow_table_full_at_its_home_refuses_a_handshake() {
    let (mut w, _, mut client) = aimed_at_one_bucket(400, |_| {});
    let syn = client.syn();
    assert_eq!(
        w.counted(|w| w.send(&syn)),
        [("syn_received", 1), ("flow_table_full", 1)]
    );
    w.silent();
    assert_eq!(w.stack.usage().half_open, FLOWS_PER_HOME);
}

#[test]
fn flow_table_full_at_its_home_refuses_a_cookie_that_comes_back() {
    let (mut w, listener, mut client) = aimed_at_one_bucket(FLOWS_PER_HOME, |_| {});
    w.begin_handshake(&mut client);
    assert_eq!(
        w.counted(|w| w.send(&client.ack())),
        [("syn_cookies_accepted", 1), ("flow_table_full", 1)]
    );
    w.silent();
    assert!(w.app.accept(listener).is_none());
    assert_eq!(w.stack.usage().sockets, 1);
}

#[test]
fn transmit_slots_few_all_leaves_in_order_nonetheless() {
    for slots in [1, 2, 3] {
        let mut w = World::with(|s| {
            s.wire.slots = slots;
            s.acquainted = false;
        });
        let (mut client, socket) = w.established();
        w.peer.deaf = true;
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n / 3) as u8).collect();
        assert_eq!(w.app.write(socket, &bytes), bytes.len());
        for _ in 0..5 {
            w.turn();
        }
        assert!(w.stack.counters().tx_backpressure > 0);
        assert!(w.stack.has_output());
        w.peer.deaf = false;
        let mut got = Vec::new();
        for _ in 0..200 {
            w.turn();
            for segment in w.peer.take_tcp() {
                got.extend(client.take(&segment));
                w.peer.transmit(&w.peer.frame(&client.ack()));
                w.turn();
            }
            w.now_ns += MILLIS;
        }
        assert_eq!(got.len(), bytes.len());
        assert!(got == bytes);
        assert_eq!(w.stack.tcp_counters().retransmit_timeouts, 0);
    }
}

/// A port may hold frames until it is called again. While input is held nothing is received, so
/// `send` must flush them.
#[test]
fn port_out_of_slots_while_input_is_held_is_flushed() {
    let mut w = World::with(|s| {
        s.wire.slots = 8;
        s.faults = Some(FaultOptions {
            slots: Some(16),
            ..FaultOptions::default()
        });
    });
    w.peer.deaf = true;
    let to = SocketAddr::new(STACK_V4, PORT + 1);
    let mut strangers = 0;
    while w.stack.counters().input_held == 0 {
        let syn = w.client_from(PEER_V4, to).syn();
        w.peer.transmit(&w.peer.frame(&syn));
        w.turn();
        strangers += 1;
    }
    w.peer.deaf = false;
    w.peer.collect();
    for _ in 0..30 {
        w.turn();
    }
    assert_eq!(w.peer.take_tcp().len(), strangers, "no time has passed");
}

/// Frames in a port whose input is held would end each sleep at once.
#[test]
fn port_out_of_slots_while_input_is_held_is_not_slept_on() {
    let host = HostEnd::default();
    let mut w = World::with(|s| {
        s.wire.slots = 8;
        s.host = Some(host.clone());
    });
    w.peer.deaf = true;
    let to = SocketAddr::new(STACK_V4, PORT + 1);
    while w.stack.counters().input_held == 0 {
        let syn = w.client_from(PEER_V4, to).syn();
        w.peer.transmit(&w.peer.frame(&syn));
        w.turn();
    }
    let sleep = |w: &mut World| {
        let before = host.talk().sleeps;
        w.stack.wait(w.now_ns, Some(w.now_ns + 1), &[]).unwrap();
        host.talk().sleeps - before
    };
    assert_eq!(sleep(&mut w), 0);
    w.peer.deaf = false;
    w.peer.collect();
    w.advance(SECOND);
    assert_eq!(sleep(&mut w), 1);
}

#[test]
fn transmit_slot_single_lets_resets_out() {
    let mut w = World::with(|s| {
        s.wire.slots = 1;
        s.acquainted = false;
    });
    let mut client = w.client();
    w.send(&client.syn());
    w.advance(SECOND);
    w.tcp_with(Flags::RST | Flags::ACK);
    assert!(!w.stack.has_output(), "it never leaves");
}

#[test]
fn transmit_slot_taken_by_the_last_segment_still_starts_probing() {
    let mut w = World::with(|s| {
        s.wire.slots = 1;
        s.acquainted = false;
    });
    let (mut client, socket) = w.established();
    client.window = 0;
    w.send(&client.ack());
    // In one turn the window holds back a FIN, and an ACK fills the only slot.
    w.peer.transmit(&w.peer.frame(&client.segment(Flags::SYN)));
    w.app.close(socket);
    w.settle();
    w.tcp_with(Flags::ACK);
    w.advance(10 * SECOND);
    assert!(!w.peer.take_tcp().is_empty(), "no probe");
    client.window = 1_000;
    w.send(&client.ack());
    w.tcp_with(Flags::FIN | Flags::ACK);
}

#[test]
fn transmit_slot_single_is_shared_by_turns() {
    let mut w = World::with(|s| {
        s.wire.slots = 1;
        s.acquainted = false;
    });
    let listener = w.listen();
    let mut reading = w.client();
    w.handshake(&mut reading);
    let reader = w.app.accept(listener).unwrap();
    let mut bulk = w.client();
    w.handshake(&mut bulk);
    let writer = w.app.accept(listener).unwrap();
    let (mut data, mut acks, mut resets) = (0, 0, 0);
    for _ in 0..400 {
        // An ACK, data and a reset are always due, but only one slot is free in three turns.
        w.app.write(writer, &[1; 60_000]);
        let segment = reading.data(&[2; 1_000]);
        let to = SocketAddr::new(STACK_V4, PORT + 1);
        let stranger = w.client_from(PEER_V4, to).syn();
        w.peer.deaf = true;
        for segment in [segment, stranger, bulk.ack()] {
            // The stack may leave input in the port while answers wait.
            if w.peer.has_room() {
                w.peer.transmit(&w.peer.frame(&segment));
            }
            w.turn();
            w.app.read(reader);
        }
        w.peer.deaf = false;
        w.peer.collect();
        for segment in w.peer.take_tcp() {
            if segment.flags.contains(Flags::RST) {
                resets += 1;
            } else if segment.dst_port == reading.peer.port() {
                acks += 1;
            } else if segment.seq == bulk.rcv {
                data += usize::from(!bulk.take(&segment).is_empty());
            }
        }
        w.now_ns += MILLIS;
    }
    assert!(
        data >= 50 && acks >= 50 && resets >= 50,
        "{data} data, {acks} ACK, {resets} RST"
    );
}

#[test]
fn transmit_lists_share_among_connections_and_kinds() {
    let mut w = World::with(|s| s.wire.slots = 16);
    let listener = w.listen();
    let mut bulk = Vec::new();
    for _ in 0..4 {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).unwrap();
        bulk.push((client, socket));
    }
    let mut quiet = w.client();
    w.handshake(&mut quiet);
    let reader = w.app.accept(listener).unwrap();
    for (_, socket) in &bulk {
        w.app.write(*socket, &[1; 60_000]);
    }
    let mut sent = [0usize; 4];
    let mut acks = 0;
    for round in 0..60 {
        // The fifth connection only receives. Data must starve neither its ACKs nor resets.
        w.peer.transmit(&w.peer.frame(&quiet.data(&[2; 100])));
        if round % 4 == 0 {
            let mut stranger = w.client_from(PEER_V4, SocketAddr::new(STACK_V4, PORT + 1));
            w.peer.transmit(&w.peer.frame(&stranger.syn()));
        }
        w.turn();
        w.turn();
        w.app.read(reader);
        let segments = w.peer.take_tcp();
        for segment in &segments {
            acks += usize::from(segment.dst_port == quiet.peer.port());
            for (at, (client, _)) in bulk.iter_mut().enumerate() {
                if segment.dst_port == client.peer.port() && segment.seq == client.rcv {
                    sent[at] += client.take(segment).len();
                }
            }
        }
        for (client, _) in &bulk {
            w.peer.transmit(&w.peer.frame(&client.ack()));
        }
        w.now_ns += 10 * MILLIS;
    }
    assert_eq!(w.stack.counters().resets_sent, 15);
    assert!(acks >= 20, "{acks} acknowledgments");
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(*least > 20_000 && most - least < 40_000, "{sent:?}");
}

/// Sixteen slots for twelve ACKs and a download: ACKs have a quarter for certain, data three
/// eighths. The remaining slots go to ACKs first.
#[test]
fn transmit_lists_have_their_shares_of_a_batch() {
    let mut w = World::with(|s| {
        s.wire.slots = 16;
        s.wire.batch = 16;
    });
    let listener = w.listen();
    let mut accepted = || {
        let mut client = w.client();
        w.handshake(&mut client);
        (client, w.app.accept(listener).unwrap())
    };
    let (download, writer) = accepted();
    let mut others: Vec<_> = (0..12).map(|_| accepted().0).collect();
    w.peer.deaf = true;
    w.app.write(writer, &[1; 30_000]);
    for client in &mut others {
        let segment = client.data(&[2; 100]);
        w.peer.transmit(&w.peer.frame(&segment));
    }
    w.turn();
    w.peer.deaf = false;
    w.peer.collect();
    let left = w.peer.take_tcp();
    let data = left
        .iter()
        .filter(|one| one.dst_port == download.peer.port());
    assert_eq!((data.count(), left.len()), (6, 16));
}

#[test]
fn orphans_beyond_the_limit_are_reset() {
    let mut w = World::with(|s| s.config.limits.orphans_max = 1);
    let listener = w.listen();
    let mut ends: Vec<(Client, SocketId)> = (0..3)
        .map(|_| {
            let mut client = w.client();
            w.handshake(&mut client);
            (client, w.app.accept(listener).unwrap())
        })
        .collect();
    w.peer.forget();
    w.close(ends[0].1);
    ends[0].0.take(&w.tcp_with(Flags::FIN | Flags::ACK));
    // One orphan is not over, so the next one is reset (Linux's tcp_max_orphans).
    w.close(ends[1].1);
    w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!(w.stack.counters().orphans_refused, 1);
    // The first orphan ends, which makes room for another.
    let (first, _) = &mut ends[0];
    w.send(&first.fin());
    w.peer.forget();
    w.close(ends[2].1);
    w.tcp_with(Flags::FIN | Flags::ACK);
    assert_eq!(w.stack.counters().orphans_refused, 1);
}

#[test]
fn accept_queue_full_resets_who_completes_a_handshake_if_asked_to() {
    let mut w = World::with(|s| s.config.tcp.abort_on_overflow = true);
    let listener = w.listen_at(SocketAddr::new(STACK_V4, PORT), 1);
    // Both clients begin while the queue, of two connections, has room.
    let mut clients: Vec<Client> = (0..3).map(|_| w.client()).collect();
    w.begin_handshake(&mut clients[0]);
    w.send(&clients[0].ack());
    w.begin_handshake(&mut clients[1]);
    w.begin_handshake(&mut clients[2]);
    w.send(&clients[1].ack());
    w.peer.forget();
    let refused = w.counted(|w| w.send(&clients[2].ack()));
    assert!(refused.contains(&("accept_queue_full", 1)), "{refused:?}");
    w.tcp_with(Flags::RST);
    assert_eq!(w.stack.usage().half_open, 0);
    assert!(w.app.accept(listener).is_some() && w.app.accept(listener).is_some());
    assert!(w.app.accept(listener).is_none());
}
