//! Both roles of memif as each other's peers, each on its own thread.

#[path = "memif_common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Fnv, connected_pair, fill, options, sleep_until_ready};
use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use packetio::{Port, PortError};

/// Sends `frames` frames with sizes and contents derived from their numbers; returns the hash of
/// all bytes.
fn send_all(port: &mut MemifPort, frames: u64, length_max: usize, sleep: bool) -> u64 {
    let mut hash = Fnv::default();
    let mut bytes = vec![0; length_max];
    let mut number = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while number < frames {
        assert!(Instant::now() < deadline, "sent {number} of {frames}");
        let wanted = (frames - number).min(64) as usize;
        let slots = port.reserve(wanted);
        let count = slots.len();
        for slot in slots {
            let length = fill(&mut bytes, number, length_max);
            assert_eq!(slot.write(0, &bytes[..length]), length);
            slot.set_len(length);
            hash.add(&bytes[..length]);
            number += 1;
        }
        port.send(count).unwrap();
        if count == 0 {
            if sleep {
                sleep_until_ready(port, true);
            }
            // Receiving also serves the control channel.
            let _ = port.receive().unwrap();
        }
    }
    hash.0
}

/// Receives `frames` frames; returns the hash of all bytes.
fn receive_all(port: &mut MemifPort, frames: u64, length_max: usize, sleep: bool) -> u64 {
    let mut hash = Fnv::default();
    let mut bytes = vec![0; length_max];
    let mut count = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while count < frames {
        assert!(Instant::now() < deadline, "received {count} of {frames}");
        let batch = port.receive().unwrap();
        let empty = batch.is_empty();
        for frame in batch {
            let length = frame.copy_to(0, &mut bytes);
            assert_eq!(length, frame.len());
            hash.add(&bytes[..length]);
            count += 1;
        }
        port.release();
        if empty && sleep {
            sleep_until_ready(port, false);
        }
    }
    hash.0
}

fn transfer(
    name: &str,
    frames: u64,
    server: &MemifOptions,
    client: &MemifOptions,
    server_sends: bool,
    sleep: bool,
) {
    let (server, client) = connected_pair(name, server, client);
    let length_max = server.capabilities().mtu.min(client.capabilities().mtu) + 14;
    let (mut sender, mut receiver) = if server_sends {
        (server, client)
    } else {
        (client, server)
    };
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_all(&mut sender, frames, length_max, sleep));
        let receiving = scope.spawn(|| receive_all(&mut receiver, frames, length_max, sleep));
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    assert_eq!(sent, received);
    let (tx, rx) = (sender.counters(), receiver.counters());
    assert_eq!((tx.tx_frames, tx.tx_bytes), (rx.rx_frames, rx.rx_bytes));
    assert_eq!(tx.tx_frames, frames);
    for counters in [tx, rx] {
        for &(name, value) in counters.named() {
            assert!(!name.contains("dropped") || value == 0, "{name}={value}");
        }
    }
    if !sleep {
        assert_eq!(
            tx.value("memif_tx_bells"),
            Some(0),
            "both poll: no system call"
        );
    }
}

/// Sends over a connected pair: from the server, then from the client.
fn each_way(
    name: &str,
    options: &MemifOptions,
    mut play: impl FnMut(&mut MemifPort, &mut MemifPort),
) {
    let (mut server, mut client) = connected_pair(name, options, options);
    play(&mut server, &mut client);
    play(&mut client, &mut server);
}

#[test]
fn client_sends_a_million_frames_to_a_polling_server() {
    transfer("pair-c2s", 1_000_000, &options(), &options(), false, false);
}

#[test]
fn server_sends_a_million_frames_to_a_polling_client() {
    transfer("pair-s2c", 1_000_000, &options(), &options(), true, false);
}

#[test]
fn sleeping_ends_lose_nothing_in_either_direction() {
    transfer("sleep-c2s", 200_000, &options(), &options(), false, true);
    transfer("sleep-s2c", 200_000, &options(), &options(), true, true);
}

/// Sends frames back and forth, one to three at a time, with both ends sleeping in between. A lost
/// ring would leave both asleep.
fn bounce(port: &mut MemifPort, begins: bool, rounds: u32) {
    let mut number = u32::from(begins);
    let mut to_send = usize::from(begins);
    let mut received = 0;
    while received < rounds {
        if to_send > 0 {
            let slots = port.reserve(to_send);
            assert_eq!(slots.len(), to_send);
            slots.iter().for_each(|slot| slot.set_len(60));
            port.send(to_send).unwrap();
        }
        let begin = Instant::now();
        while port.receive().unwrap().is_empty() {
            sleep_until_ready(port, false);
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "slept on: {received} of {rounds}"
            );
        }
        received += 1;
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Work of varying length, so that a frame meets every moment of the other end's falling
        // asleep.
        for _ in 0..(number >> 16) % 4_000 {
            std::hint::spin_loop();
        }
        to_send = 1 + (number >> 28) as usize % 3;
    }
    let slots = port.reserve(1);
    slots.iter().for_each(|slot| slot.set_len(60));
    let _ = port.send(1);
}

#[test]
fn sleepers_who_answer_each_other_are_always_woken() {
    let (mut server, mut client) = connected_pair("bounce", &options(), &options());
    std::thread::scope(|scope| {
        scope.spawn(|| bounce(&mut server, false, 100_000));
        scope.spawn(|| bounce(&mut client, true, 100_000));
    });
}

#[test]
fn smallest_rings_and_largest_buffers_lose_nothing() {
    let tight = MemifOptions {
        ring_slots: Some(8),
        buffer_bytes: 65_536,
        ..options()
    };
    transfer("tight-c2s", 2_000, &tight, &tight, false, false);
    transfer("tight-s2c", 2_000, &tight, &tight, true, false);
}

#[test]
fn large_rings_lose_nothing() {
    let large = MemifOptions {
        ring_slots: Some(16_384),
        buffer_bytes: 256,
        ..options()
    };
    transfer("large-c2s", 300_000, &large, &large, false, false);
    transfer("large-s2c", 300_000, &large, &large, true, false);
}

#[test]
fn server_with_larger_frames_than_the_clients_buffers_chains_them() {
    let server = MemifOptions {
        buffer_bytes: 9_216,
        ..options()
    };
    let (server, client) = connected_pair("chained", &server, &options());
    let (mut server, mut client) = (server, client);
    let length_max = server.capabilities().mtu + 14;
    let frames = 20_000;
    let (sent, received) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_all(&mut server, frames, length_max, false));
        let receiving = scope.spawn(|| receive_all(&mut client, frames, length_max, false));
        (sending.join().unwrap(), receiving.join().unwrap())
    });
    assert_eq!(sent, received);
    assert_eq!(server.counters().value("memif_tx_staged"), Some(frames));
    assert!(client.counters().value("memif_rx_chained").unwrap() > frames / 2);
}

#[test]
fn several_queues_are_independent() {
    let many = MemifOptions {
        queues: 3,
        ring_slots: Some(64),
        ..options()
    };
    let path = common::path("queues");
    let server = Memif::connect(&MemifOptions {
        path: path.clone(),
        ..many.clone()
    })
    .unwrap();
    let client = Memif::connect(&MemifOptions {
        path,
        role: MemifRole::Client,
        ..many
    })
    .unwrap();
    std::thread::scope(|scope| {
        for (index, (mut server, mut client)) in server.into_iter().zip(client).enumerate() {
            let frames = 20_000 + 1_000 * index as u64;
            let sending = scope.spawn(move || {
                common::wait_connected(&mut client);
                (send_all(&mut client, frames, 500, true), client)
            });
            let receiving =
                scope.spawn(move || (receive_all(&mut server, frames, 500, true), server));
            scope.spawn(move || {
                let (sent, received) = (sending.join().unwrap(), receiving.join().unwrap());
                assert_eq!(sent.0, received.0);
                assert_eq!(received.1.counters().rx_frames, frames);
            });
        }
    });
}

#[test]
fn slots_left_empty_are_skipped_and_those_not_sent_return() {
    each_way("skip", &options(), |a, b| {
        let slots = a.reserve(8);
        assert_eq!(slots.len(), 8);
        for (i, slot) in slots.iter().enumerate().filter(|(i, _)| i % 3 == 1) {
            slot.write(0, &[i as u8; 60]);
            slot.set_len(60);
        }
        a.send(6).unwrap();
        assert_eq!(a.counters().tx_frames, 2);
        let batch = b.receive().unwrap();
        let first: Vec<u8> = batch
            .iter()
            .map(|frame| {
                let mut byte = [0];
                frame.copy_to(59, &mut byte);
                byte[0]
            })
            .collect();
        assert_eq!(first, [1, 4]);
        b.release();
        assert!(b.receive().unwrap().is_empty());
    });
}

#[test]
fn full_ring_is_back_pressure_and_frames_stay_lent_until_release() {
    let small = MemifOptions {
        ring_slots: Some(8),
        ..options()
    };
    each_way("full", &small, |a, b| {
        let slots = a.reserve(20);
        assert_eq!(slots.len(), 8);
        for slot in slots {
            slot.set_len(64);
        }
        a.send(8).unwrap();
        assert_eq!(a.reserve(1).len(), 0);
        assert!(!a.prepare_wait(true));
        assert!(
            a.deadline_ns().is_some(),
            "there is no bell for room, so there is a deadline"
        );
        a.finish_wait();
        assert_eq!(b.receive().unwrap().len(), 8);
        assert_eq!(a.reserve(1).len(), 0, "lent frames are not given back");
        b.release();
        assert_eq!(a.reserve(20).len(), 8);
        assert!(a.prepare_wait(true));
        a.finish_wait();
    });
}

#[test]
fn large_frames_come_in_batches_that_fit_a_cache_and_small_ones_together() {
    let large = MemifOptions {
        buffer_bytes: 65_536,
        ..options()
    };
    each_way("bytes", &large, |a, b| {
        for (length, batches) in [(60_000, [3, 3, 3, 1]), (64, [10, 0, 0, 0])] {
            let slots = a.reserve(10);
            assert_eq!(slots.len(), 10);
            slots.iter().for_each(|slot| slot.set_len(length));
            a.send(10).unwrap();
            for count in batches {
                assert_eq!(b.receive().unwrap().len(), count);
                b.release();
            }
            assert!(b.receive().unwrap().is_empty());
        }
    });
}

#[test]
fn sleeper_is_woken_by_a_frame() {
    each_way("wake", &options(), |a, b| {
        let _ = b.receive().unwrap();
        assert!(!b.prepare_wait(false));
        assert!(
            !common::poll(b, Duration::from_millis(20)),
            "nothing there: sleeps"
        );
        a.reserve(1)[0].set_len(60);
        a.send(1).unwrap();
        assert_eq!(a.counters().value("memif_tx_bells"), Some(1));
        assert!(common::poll(b, Duration::from_secs(30)));
        b.finish_wait();
        assert_eq!(b.receive().unwrap().len(), 1);
        b.release();
        assert!(!b.prepare_wait(false), "the bell is silent again");
        assert!(!common::poll(b, Duration::from_millis(20)));
        b.finish_wait();
        a.reserve(1)[0].set_len(60);
        a.send(1).unwrap();
        assert_eq!(
            a.counters().value("memif_tx_bells"),
            Some(1),
            "it polls again: no bell"
        );
        assert_eq!(b.receive().unwrap().len(), 1);
        b.release();
    });
}

#[test]
fn sleeper_is_rung_for_once_until_it_takes_what_came() {
    each_way("once", &options(), |a, b| {
        let _ = b.receive().unwrap();
        for nap in 1..=3 {
            assert!(!b.prepare_wait(false));
            for _ in 0..4 {
                a.reserve(1)[0].set_len(60);
                a.send(1).unwrap();
                assert_eq!(a.counters().value("memif_tx_bells"), Some(nap));
            }
            assert!(common::poll(b, Duration::from_secs(30)));
            b.finish_wait();
            assert_eq!(b.receive().unwrap().len(), 4);
            b.release();
        }
    });
}

#[test]
fn client_that_left_is_drained_and_a_new_one_is_served() {
    let path = common::path("again");
    let server = MemifOptions {
        path: path.clone(),
        ..options()
    };
    let client = MemifOptions {
        path,
        role: MemifRole::Client,
        ..options()
    };
    let mut server = Memif::connect(&server).unwrap().remove(0);
    for round in 1..=3u64 {
        let mut client = Memif::connect(&client).unwrap().remove(0);
        common::connect_both(&mut server, &mut client);
        client.reserve(5).iter().for_each(|slot| slot.set_len(60));
        client.send(5).unwrap();
        drop(client);
        let mut frames = 0;
        let lost = common::until(Duration::from_secs(30), || match server.receive() {
            Ok(batch) => {
                frames += batch.len();
                false
            }
            Err(error) => {
                assert_eq!(error, PortError::Disconnected);
                true
            }
        });
        assert!(lost);
        assert_eq!(frames, 5, "what it sent before it left");
        assert_eq!(server.reserve(1).len(), 0);
        assert_eq!(server.counters().value("memif_disconnects"), Some(round));
        assert!(
            server.last_reason().contains("client closed"),
            "{}",
            server.last_reason()
        );
    }
}

#[test]
fn client_finds_a_server_that_comes_later_and_comes_back() {
    let path = common::path("later");
    let server = MemifOptions {
        path: path.clone(),
        ..options()
    };
    let mut client = Memif::connect(&MemifOptions {
        path,
        role: MemifRole::Client,
        ..options()
    })
    .unwrap()
    .remove(0);
    for _ in 0..3 {
        assert!(client.receive().unwrap().is_empty());
        assert_eq!(client.reserve(1).len(), 0);
    }
    assert!(!client.prepare_wait(false));
    assert!(
        client.deadline_ns().is_some(),
        "it will try again by itself"
    );
    client.finish_wait();
    for _ in 0..2 {
        let mut server = Memif::connect(&server).unwrap().remove(0);
        common::connect_both(&mut server, &mut client);
        server.reserve(1)[0].set_len(99);
        server.send(1).unwrap();
        assert!(common::until(Duration::from_secs(30), || client
            .receive()
            .unwrap()
            .len()
            == 1));
        drop(server);
        assert!(common::until(Duration::from_secs(30), || client
            .receive()
            .is_err()));
    }
}

/// Options and connected ports of a server and a client with two queues each.
fn two_queues(name: &str, server_buffer_bytes: usize) -> ([MemifOptions; 2], [Vec<MemifPort>; 2]) {
    let client_options = MemifOptions {
        path: common::path(name),
        role: MemifRole::Client,
        queues: 2,
        ring_slots: Some(16),
        ..options()
    };
    let server_options = MemifOptions {
        role: MemifRole::Server,
        buffer_bytes: server_buffer_bytes,
        ..client_options.clone()
    };
    let mut server = Memif::connect(&server_options).unwrap();
    let mut client = Memif::connect(&client_options).unwrap();
    for (server, client) in server.iter_mut().zip(&mut client) {
        common::connect_both(server, client);
    }
    ([server_options, client_options], [server, client])
}

#[test]
fn port_closed_and_opened_again_goes_on_where_it_was() {
    let ([server_options, _], [mut server, mut client]) = two_queues("reopen", 2048);
    let mut exchange = |server: &mut dyn Port, frames: usize| {
        let client = &mut client[0];
        server
            .reserve(frames)
            .iter()
            .for_each(|slot| slot.set_len(60));
        server.send(frames).unwrap();
        assert_eq!(client.receive().unwrap().len(), frames);
        client.release();
        client
            .reserve(frames)
            .iter()
            .for_each(|slot| slot.set_len(60));
        client.send(frames).unwrap();
        assert_eq!(server.receive().unwrap().len(), frames);
        server.release();
    };
    exchange(&mut server[0], 5);
    drop(server.remove(0));
    let mut server = packetio::memif::open(&server_options, 0).unwrap();
    assert!(server.receive().unwrap().is_empty());
    exchange(&mut *server, 7);
    exchange(&mut *server, 16);
}

/// The other queue keeps the connection up and the server keeps sending: slots that it has filled
/// must not be lent again.
#[test]
fn client_port_closed_and_opened_again_finds_the_frames_that_came_meanwhile() {
    let ([_, client_options], [mut server, mut client]) = two_queues("reopen-client", 4096);
    let server = &mut server[0];
    let send = |server: &mut MemifPort, lengths: &[usize]| {
        let bytes = vec![7; 3_000];
        let slots = server.reserve(lengths.len());
        assert_eq!(slots.len(), lengths.len());
        for (slot, &length) in slots.iter().zip(lengths) {
            assert_eq!(slot.write(0, &bytes[..length]), length);
            slot.set_len(length);
        }
        server.send(lengths.len()).unwrap();
    };
    let lengths = |client: &mut dyn Port| -> Vec<usize> {
        let frames = client.receive().unwrap();
        frames.iter().map(|frame| frame.len()).collect()
    };
    send(server, &[60; 3]);
    assert_eq!(lengths(&mut client[0]), [60; 3]);
    drop(client.remove(0));
    // The long frame takes two of the client's buffers as a chain.
    send(server, &[61, 3_000, 62]);
    let mut client = packetio::memif::open(&client_options, 0).unwrap();
    assert_eq!(lengths(&mut *client), [61, 3_000, 62]);
    // More frames than the ring has slots.
    for _ in 0..6 {
        client.release();
        send(server, &[63; 8]);
        assert_eq!(lengths(&mut *client), [63; 8]);
    }
}
