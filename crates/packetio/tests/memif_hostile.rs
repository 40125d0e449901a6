//! Peers that lie: they lose at most their connection, and the next peer is served.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/hostile.rs"]
mod hostile;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use common::{options, path, until};
use hostile::*;
use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use packetio::{Port, PortError};
use rustix::event::{EventfdFlags, eventfd};

fn server(path: &str) -> MemifPort {
    Memif::connect(&MemifOptions {
        path: path.to_owned(),
        ..options()
    })
    .unwrap()
    .remove(0)
}

fn value(port: &MemifPort, name: &str) -> u64 {
    port.counters().value(name).unwrap()
}

/// Asserts that the victim refuses the peer: it sends DISCONNECT with this reason and closes.
fn assert_refused(peer: &Peer, victim: &mut MemifPort, why: &str) {
    let (kind, bytes, _) = peer.hear(victim);
    let text = String::from_utf8_lossy(&bytes);
    assert_eq!(kind, Some(DISCONNECT), "{text}");
    assert!(text.contains(why), "{text} is not: {why}");
    assert_eq!(peer.hear(victim).0, None);
    assert!(!victim.is_connected());
}

/// Asserts that the victim ends the connection with this reason.
fn assert_ended(peer: &Peer, victim: &mut MemifPort, why: &str) {
    let lies = value(victim, "memif_peer_lies");
    assert_eq!(lies, 1);
    assert_eq!(victim.reserve(1).len(), 0);
    assert_refused(peer, victim, why);
}

#[test]
fn handshake_with_a_bad_first_word_is_refused() {
    let path = path("first-word");
    let options = MemifOptions {
        path: path.clone(),
        id: 7,
        secret: Some("open sesame".to_owned()),
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let long = [init(0x0200, 7, 0, b"open sesame"), vec![0]].concat();
    let cases: [(&[u8], &str); 12] = [
        (&[3, 0], "Invalid message size"),
        (
            &init(0x0200, 7, 0, b"open sesame")[..127],
            "Invalid message size",
        ),
        (&long, "Invalid message size"),
        (&message(0, &[]), "Unknown message type"),
        (&message(9, &[]), "Unknown message type"),
        (&message(CONNECT, &[]), "Unexpected message"),
        (&hello(0x0200), "Unexpected message"),
        (&init(0x0100, 7, 0, b"open sesame"), "version"),
        (&init(0x0200, 8, 0, b"open sesame"), "ID not found"),
        (&init(0x0200, 7, 1, b"open sesame"), "ethernet"),
        (&init(0x0200, 7, 0, b""), "Secret required"),
        (&init(0x0200, 7, 0, b"open sesamf"), "Incorrect secret"),
    ];
    for (bytes, why) in cases {
        let peer = Peer::connect(&path);
        assert_eq!(peer.hear(&mut victim).0, Some(HELLO));
        peer.say(bytes, &[]);
        assert_refused(&peer, &mut victim, why);
    }
    let good = MemifOptions {
        role: MemifRole::Client,
        ..options
    };
    common::connect_both(&mut victim, &mut Memif::connect(&good).unwrap().remove(0));
}

/// Descriptors that tests of announcements send.
struct Kit {
    victim: MemifPort,
    path: String,
    memory: Memory,
    unsealed: Memory,
    /// Memory of huge pages; `None` if the kernel has none.
    huge: Option<OwnedFd>,
    bell: OwnedFd,
    semaphore: OwnedFd,
    pipe: (OwnedFd, OwnedFd),
}

impl Kit {
    fn new(name: &str) -> Self {
        let path = path(name);
        let memory = Memory::new(REGION_BYTES, true);
        memory.lay_out();
        Self {
            victim: server(&path),
            path,
            memory,
            unsealed: Memory::new(REGION_BYTES, false),
            huge: huge_memory(),
            bell: eventfd(0, EventfdFlags::empty()).unwrap(),
            semaphore: eventfd(0, EventfdFlags::SEMAPHORE).unwrap(),
            pipe: rustix::pipe::pipe().unwrap(),
        }
    }

    fn greet(&mut self) -> Peer {
        let peer = Peer::connect(&self.path);
        assert_eq!(peer.hear(&mut self.victim).0, Some(HELLO));
        peer.ask(&mut self.victim, &init(0x0200, 0, 0, &[]), &[], ACK);
        peer
    }

    fn descriptor(&self, what: char) -> Option<BorrowedFd<'_>> {
        Some(match what {
            'm' => self.memory.0.as_fd(),
            'u' => self.unsealed.0.as_fd(),
            'h' => self.huge.as_ref()?.as_fd(),
            'b' => self.bell.as_fd(),
            's' => self.semaphore.as_fd(),
            'p' => self.pipe.0.as_fd(),
            _ => return None,
        })
    }

    /// Asserts that all messages are accepted except the last. A letter tells the descriptor of
    /// each: memory, unsealed memory, huge memory, a bell, a semaphore, a pipe, or none.
    fn assert_refuses(&mut self, messages: &[(Vec<u8>, char)], why: &str) {
        let peer = self.greet();
        let Some(((last, what), first)) = messages.split_last() else {
            return;
        };
        for (bytes, what) in first {
            peer.say(bytes, self.descriptor(*what).as_slice());
            assert_eq!(peer.hear(&mut self.victim).0, Some(ACK));
        }
        peer.say(last, self.descriptor(*what).as_slice());
        assert_refused(&peer, &mut self.victim, why);
    }
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let mut kit = Kit::new("regions");
    let good = (add_region(0, REGION_BYTES), 'm');
    kit.assert_refuses(&[(good.0.clone(), '-')], "Missing region fd");
    kit.assert_refuses(
        &[(add_region(1, REGION_BYTES), 'm')],
        "Invalid region index",
    );
    kit.assert_refuses(&[good.clone(), good.clone()], "Invalid region index");
    kit.assert_refuses(&[(good.0.clone(), 'u')], "not sealed");
    kit.assert_refuses(&[(good.0.clone(), 'p')], "not sealed");
    if kit.huge.is_some() {
        kit.assert_refuses(&[(good.0.clone(), 'h')], "not of ordinary pages");
    }
    for size in [REGION_BYTES + 1, 0] {
        kit.assert_refuses(&[(add_region(0, size), 'm')], "larger than its file");
    }
    kit.assert_refuses(&[(add_region(0, u64::MAX), 'm')], "Too much memory");
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let mut kit = Kit::new("rings");
    let ring = |flags, index, slots_log2| add_ring(flags, index, 0, RING_C2S as u32, slots_log2);
    let good = (ring(1, 0, 6), 'b');
    kit.assert_refuses(&[(good.0.clone(), '-')], "Missing interrupt fd");
    kit.assert_refuses(&[(good.0.clone(), 'm')], "not an eventfd");
    kit.assert_refuses(&[(good.0.clone(), 'p')], "not an eventfd");
    kit.assert_refuses(&[(good.0.clone(), 's')], "is a semaphore");
    kit.assert_refuses(&[(ring(1, 1, 6), 'b')], "Invalid ring index");
    kit.assert_refuses(&[(ring(0, u16::MAX, 6), 'b')], "Invalid ring index");
    kit.assert_refuses(&[(ring(1, 0, 15), 'b')], "Ring too large");
    kit.assert_refuses(&[(ring(1, 0, 255), 'b')], "Ring too large");
    kit.assert_refuses(&[good.clone(), good.clone()], "announced twice");

    let region = (add_region(0, REGION_BYTES), 'm');
    let connect = (message(CONNECT, &[]), '-');
    kit.assert_refuses(&[good, connect.clone()], "Ring in no region");
    let places = [
        (1, RING_C2S as u32, 6, "Ring in no region"),
        (0, REGION_BYTES as u32, 6, "outside its region"),
        (0, u32::MAX - 15, 14, "outside its region"),
        (0, 8, 6, "outside its region"),
        (0, 64, 6, "cookie"),
    ];
    for (index, offset, slots_log2, why) in places {
        let ring = (add_ring(1, 0, index, offset, slots_log2), 'b');
        kit.assert_refuses(&[region.clone(), ring, connect.clone()], why);
    }
}

#[test]
fn client_without_rings_is_connected_and_no_link() {
    let mut kit = Kit::new("no-rings");
    let peer = kit.greet();
    peer.ask(&mut kit.victim, &message(CONNECT, &[]), &[], CONNECTED);
    assert!(kit.victim.receive().unwrap().is_empty());
    assert!(!kit.victim.is_connected() && kit.victim.reserve(1).is_empty());
    drop(peer);
    drop(Client::connect(&kit.path, &mut kit.victim));
}

#[test]
fn second_client_in_its_handshake_does_not_take_the_first_ones_place() {
    let mut kit = Kit::new("second");
    let second = kit.greet();
    let first = Client::connect(&kit.path, &mut kit.victim);
    second.say(&message(CONNECT, &[]), &[]);
    let (kind, bytes, _) = second.hear(&mut kit.victim);
    assert_eq!(kind, Some(DISCONNECT));
    assert!(String::from_utf8_lossy(&bytes).contains("Already connected"));
    let mut head = 0;
    first.publish(&mut head, 0, 0, 60, buffer(0));
    assert_eq!(kit.victim.receive().unwrap().len(), 1);
    assert!(kit.victim.is_connected());
}

#[test]
fn client_whose_descriptors_are_slow_to_close_is_refused_and_holds_nobody_up() {
    let mut kit = Kit::new("slow");
    let region = add_region(0, REGION_BYTES);
    let ring = add_ring(1, 0, 0, RING_C2S as u32, 6);
    let cases: [(bool, Vec<u8>, usize); 11] = [
        (false, init(0x0200, 0, 0, &[]), 1),
        (false, region.clone(), 1),
        (true, region.clone(), 1),
        (true, region.clone(), 2),
        (true, region.clone(), 8),
        (true, ring.clone(), 1),
        (true, ring, 3),
        (true, message(CONNECT, &[]), 1),
        (true, message(DISCONNECT, &[]), 1),
        (true, message(99, &[]), 1),
        (true, vec![], 1),
    ];
    for (greeted, bytes, count) in cases {
        let peer = match greeted {
            true => kit.greet(),
            false => {
                let peer = Peer::connect(&kit.path);
                assert_eq!(peer.hear(&mut kit.victim).0, Some(HELLO));
                peer
            }
        };
        let (slow, far) = slow_to_close();
        // The second message follows one that ends the connection.
        peer.say(&bytes, &vec![slow.as_fd(); count]);
        peer.say(&region, &[slow.as_fd()]);
        drop(slow);
        let start = Instant::now();
        while peer.hear(&mut kit.victim).0.is_some() {}
        drop(Client::connect(&kit.path, &mut kit.victim));
        assert!(start.elapsed() < SLOW / 2, "{:?}", &bytes[..2]);
        drop(far);
    }
    // The victim has not even accepted this peer.
    let peer = Peer::connect(&kit.path);
    let (slow, _far) = slow_to_close();
    peer.say(&region, &[slow.as_fd()]);
    drop(slow);
    let start = Instant::now();
    drop(kit);
    assert!(start.elapsed() < SLOW / 2);
}

#[test]
fn server_with_too_much_to_close_keeps_its_client_and_greets_others_later() {
    let mut kit = Kit::new("deaf");
    let first = Client::connect(&kit.path, &mut kit.victim);
    let (slow, far) = slow_to_close();
    let mut slow = Some(slow);
    let mut hears = |kit: &mut Kit| {
        let peer = Peer::connect(&kit.path);
        let greeted = until(Duration::from_secs(3), || {
            let _ = kit.victim.receive().map(|_| ());
            peer.has_word()
        });
        let sent = slow.take();
        let sent = sent
            .as_ref()
            .map_or(kit.pipe.0.as_fd(), |slow| slow.as_fd());
        peer.say(&init(0x0200, 0, 0, &[]), &[sent]);
        greeted
    };
    let heard = (0..40).take_while(|_| hears(&mut kit)).count();
    // Some clients are in their handshake when the server notices.
    assert!((16..=20).contains(&heard), "{heard}");
    assert!(!kit.victim.prepare_wait(false));
    assert!(!common::poll(&kit.victim, Duration::from_millis(50)));
    kit.victim.finish_wait();
    let mut head = 0;
    first.publish(&mut head, 0, 0, 60, buffer(0));
    assert_eq!(kit.victim.receive().unwrap().len(), 1);
    drop(far);
    assert!(until(SLOW, || hears(&mut kit)));
}

#[test]
fn silent_clients_do_not_keep_a_good_one_out() {
    let path = path("silent");
    let mut victim = server(&path);
    let silent: Vec<Peer> = (0..6).map(|_| Peer::connect(&path)).collect();
    let client = Client::connect(&path, &mut victim);
    // A second client is refused, because the interface is taken.
    let peer = Peer::connect(&path);
    assert_eq!(peer.hear(&mut victim).0, Some(HELLO));
    peer.say(&init(0x0200, 0, 0, &[]), &[]);
    let (kind, bytes, _) = peer.hear(&mut victim);
    assert_eq!(kind, Some(DISCONNECT));
    assert!(String::from_utf8_lossy(&bytes).contains("Already connected"));
    assert!(victim.is_connected());
    drop((silent, client));
}

#[test]
fn descriptors_that_lead_nowhere_are_dropped_and_counted() {
    let path = path("descriptors");
    let mut victim = server(&path);
    let client = Client::connect(&path, &mut victim);
    let end = REGION_BYTES as u32;
    let bad = [
        (1, 64, buffer(0)),
        (u16::MAX, 64, buffer(0)),
        (0, 0, buffer(0)),
        (0, 65_537, BUFFERS as u32),
        (0, u32::MAX, 0),
        (0, u32::MAX, u32::MAX),
        (0, 64, end - 63),
        (0, 1, end),
        (0, 64, u32::MAX - 32),
    ];
    let mut head = 0;
    for (count, &(region, length, offset)) in bad.iter().enumerate() {
        client.publish(&mut head, 0, region, length, offset);
        client.memory.put(u64::from(buffer(3)), &[count as u8; 60]);
        client.publish(&mut head, 0, 0, 60, buffer(3));
        let batch = victim.receive().unwrap();
        assert_eq!(batch.len(), 1);
        let mut bytes = [0; 60];
        assert_eq!(batch[0].copy_to(0, &mut bytes), 60);
        assert_eq!(bytes, [count as u8; 60]);
        victim.release();
        assert_eq!(
            client.memory.tail(RING_C2S),
            head,
            "the bad one is given back too"
        );
    }
    assert_eq!(
        value(&victim, "memif_rx_dropped_descriptor"),
        bad.len() as u64
    );
    // A frame that ends exactly at the region's end is valid.
    client.publish(&mut head, 0, 0, 64, end - 64);
    assert_eq!(victim.receive().unwrap().len(), 1);
    assert!(victim.is_connected());
}

#[test]
fn chains_without_end_or_sense_are_dropped_and_counted() {
    let path = path("chains");
    let mut victim = server(&path);
    let client = Client::connect(&path, &mut victim);
    let mut head = 0;
    // A chain that is cut short.
    client.publish(&mut head, 1, 0, 100, buffer(0));
    assert!(victim.receive().unwrap().is_empty());
    assert_eq!(value(&victim, "memif_rx_dropped_chain"), 1);
    // A ring full of descriptors with NEXT.
    for _ in 0..SLOTS {
        client
            .memory
            .set_descriptor(RING_C2S, head % SLOTS, 1, 0, 10, buffer(0));
        head = head.wrapping_add(1);
    }
    client.memory.set_head(RING_C2S, head);
    assert!(victim.receive().unwrap().is_empty());
    assert_eq!(value(&victim, "memif_rx_dropped_chain"), 2);
    // Chains that are too long, have a part outside of all regions, or have no bytes.
    let chains: [&[(u16, u32)]; 3] = [
        &[(0, 60_000), (0, 60_000)],
        &[(0, 10), (5, 10)],
        &[(0, 0), (0, 0)],
    ];
    for parts in chains {
        for (i, &(region, length)) in parts.iter().enumerate() {
            let next = u16::from(i + 1 < parts.len());
            client
                .memory
                .set_descriptor(RING_C2S, head % SLOTS, next, region, length, buffer(0));
            head = head.wrapping_add(1);
        }
        client.memory.set_head(RING_C2S, head);
        assert!(victim.receive().unwrap().is_empty());
    }
    assert_eq!(value(&victim, "memif_rx_dropped_chain"), 5);
    // A valid chain still arrives, and more than fit a batch take several.
    for _ in 0..6 {
        client
            .memory
            .set_descriptor(RING_C2S, head % SLOTS, 1, 0, 30_000, buffer(0));
        client
            .memory
            .set_descriptor(RING_C2S, (head + 1) % SLOTS, 0, 0, 30_000, buffer(1));
        head += 2;
    }
    client.memory.set_head(RING_C2S, head);
    let batches: Vec<usize> = (0..3)
        .map(|_| {
            victim
                .receive()
                .unwrap()
                .iter()
                .map(|frame| frame.len() / 60_000)
                .sum()
        })
        .collect();
    assert_eq!(batches, [3, 3, 0]);
    assert_eq!(value(&victim, "memif_rx_chained"), 6);
}

#[test]
fn wild_head_of_the_receive_ring_ends_the_connection() {
    for head in [SLOTS + 1, 0x8000, u16::MAX] {
        let path = path(&format!("wild-head-{head}"));
        let mut victim = server(&path);
        let client = Client::connect(&path, &mut victim);
        client.memory.set_head(RING_C2S, head);
        assert_eq!(victim.receive().map(|_| ()), Err(PortError::Disconnected));
        assert_ended(&client.peer, &mut victim, "Invalid ring cursor");
        drop(client);
        drop(Client::connect(&path, &mut victim));
    }
}

#[test]
fn wild_head_of_the_transmit_ring_ends_the_connection() {
    let path = path("wild-lend");
    let mut victim = server(&path);
    let client = Client::connect(&path, &mut victim);
    client.memory.set_head(RING_S2C, SLOTS);
    assert_eq!(victim.reserve(256).len(), usize::from(SLOTS));
    victim.send(0).unwrap();
    client.memory.set_head(RING_S2C, SLOTS + 1);
    assert_eq!(victim.reserve(256).len(), 0);
    assert_ended(&client.peer, &mut victim, "Invalid ring cursor");
}

#[test]
fn lent_buffer_that_is_nowhere_ends_the_connection() {
    for (number, (region, offset)) in [(1, 0), (0, REGION_BYTES as u32 - 2047), (0, u32::MAX)]
        .into_iter()
        .enumerate()
    {
        let path = path(&format!("lent-{number}"));
        let mut victim = server(&path);
        let client = Client::connect(&path, &mut victim);
        client
            .memory
            .set_descriptor(RING_S2C, 2, 0, region, 2048, offset);
        client.memory.set_head(RING_S2C, 4);
        assert_eq!(victim.reserve(4).len(), 0);
        assert_ended(&client.peer, &mut victim, "Invalid buffer descriptor");
    }
}

#[test]
fn lent_buffers_that_shrink_are_back_pressure_or_the_end() {
    let path = path("shrink");
    let mut victim = server(&path);
    let client = Client::connect(&path, &mut victim);
    for slot in 0..SLOTS {
        client
            .memory
            .set_descriptor(RING_S2C, slot, 0, 0, 1, buffer(slot));
    }
    client.memory.set_head(RING_S2C, SLOTS);
    assert_eq!(
        victim.reserve(8).len(),
        0,
        "64 buffers of one byte hold no frame"
    );
    for slot in 0..SLOTS {
        client
            .memory
            .set_descriptor(RING_S2C, slot, 0, 0, 512, buffer(slot));
    }
    let slots = victim.reserve(64);
    assert_eq!(slots.len(), 16, "four buffers of 512 bytes for each");
    slots[0].set_len(2000);
    slots[1].set_len(100);
    // Between reserve and send the buffers become empty.
    client
        .memory
        .set_descriptor(RING_S2C, 1, 0, 0, 0, buffer(1));
    assert_eq!(victim.send(2), Err(PortError::Disconnected));
    assert_ended(&client.peer, &mut victim, "Invalid buffer descriptor");
}

#[test]
fn frames_reserved_before_the_connection_ended_are_dropped_and_counted() {
    let path = path("late-send");
    let mut victim = server(&path);
    let client = Client::connect(&path, &mut victim);
    client.memory.set_head(RING_S2C, SLOTS);
    assert_eq!(victim.reserve(3).len(), 3);
    drop(client);
    assert!(until(Duration::from_secs(30), || {
        let _ = victim.receive().map(|_| ());
        !victim.is_connected()
    }));
    victim.send(3).unwrap();
    assert_eq!(value(&victim, "memif_tx_dropped_disconnected"), 3);
}

#[test]
fn clients_memory_cannot_be_cut_off() {
    let (_victim, _peer, memory) = hostile_server("seal");
    assert!(rustix::fs::ftruncate(&memory.0, 0).is_err());
}

#[test]
fn wild_tails_end_the_connection() {
    let (mut victim, peer, memory) = hostile_server("wild-tail-rx");
    memory.set_tail(RING_S2C, SLOTS + 1);
    assert_eq!(victim.receive().map(|_| ()), Err(PortError::Disconnected));
    assert_ended(&peer, &mut victim, "Invalid ring cursor");

    let (mut victim, peer, memory) = hostile_server("wild-tail-tx");
    memory.set_tail(RING_C2S, 1);
    // The whole ring is free, so the victim reads the cursor only for more slots than that.
    assert_eq!(victim.reserve(100).len(), 0);
    assert_ended(&peer, &mut victim, "Invalid ring cursor");
}

#[test]
fn server_that_scribbles_on_descriptors_moves_no_frame_elsewhere() {
    let (mut victim, _peer, memory) = hostile_server("scribble");
    let lengths = [60, 2048, 2049, 0, u32::MAX, 61];
    for (slot, &length) in lengths.iter().enumerate() {
        memory.set_descriptor(RING_S2C, slot as u16, 0, 77, length, u32::MAX);
    }
    memory.set_tail(RING_S2C, lengths.len() as u16);
    let received: Vec<usize> = victim
        .receive()
        .unwrap()
        .iter()
        .map(|frame| frame.len())
        .collect();
    assert_eq!(received, [60, 2048, 61]);
    assert_eq!(value(&victim, "memif_rx_dropped_descriptor"), 3);
    victim.release();
    assert_eq!(
        memory.u16(RING_S2C + 6),
        SLOTS + lengths.len() as u16,
        "all were lent again"
    );
}

#[test]
fn servers_that_talk_nonsense_are_left_and_tried_again() {
    let path = path("nonsense");
    let listener = Peer::listen(&path);
    let options = MemifOptions {
        path,
        role: MemifRole::Client,
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let cases: [&[Vec<u8>]; 8] = [
        &[hello(0x0300)],
        &[message(ACK, &[])],
        &[message(CONNECTED, &[])],
        &[vec![2, 0]],
        &[message(99, &[])],
        &[hello(0x0200), hello(0x0200)],
        &[hello(0x0200), message(CONNECTED, &[])],
        &[message(DISCONNECT, &[&[0; 4], b"go \xff\n away"])],
    ];
    for messages in cases {
        let peer = Peer::accept(&listener, &mut victim);
        messages.iter().for_each(|bytes| peer.say(bytes, &[]));
        assert!(until(Duration::from_secs(30), || peer
            .hear(&mut victim)
            .0
            .is_none()));
        assert!(!victim.is_connected());
    }
    assert_eq!(victim.last_reason(), "go ?? away");
    let _ = std::fs::remove_file(common::path("nonsense"));
}

#[test]
fn server_whose_descriptors_are_slow_to_close_holds_nobody_up() {
    let path = path("slow-server");
    let listener = Peer::listen(&path);
    let options = MemifOptions {
        path: path.clone(),
        role: MemifRole::Client,
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    for bytes in [hello(0x0200), add_region(0, REGION_BYTES)] {
        let peer = Peer::accept(&listener, &mut victim);
        let (slow, _far) = slow_to_close();
        peer.say(&bytes, &[slow.as_fd()]);
        peer.say(&bytes, &[slow.as_fd()]);
        drop(slow);
        let start = Instant::now();
        while peer.hear(&mut victim).0.is_some() {}
        assert!(start.elapsed() < SLOW / 2);
    }
    let _ = std::fs::remove_file(path);
}

#[test]
fn server_that_never_answers_holds_nobody_up() {
    let path = path("mute");
    let listener = Peer::listen(&path);
    let options = MemifOptions {
        path,
        role: MemifRole::Client,
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let _peer = Peer::accept(&listener, &mut victim);
    let start = Instant::now();
    for _ in 0..100 {
        assert!(victim.receive().unwrap().is_empty());
        assert!(!victim.prepare_wait(true));
        assert!(victim.deadline_ns().is_some());
        victim.finish_wait();
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    let _ = std::fs::remove_file(common::path("mute"));
}
