//! The bulk lane of an `xdp` wire: a packet socket beside the AF_XDP socket, by which large packets
//! leave.

mod xdp_support;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use packetio::xdp::{self, Bulk, TSO, XdpOptions};
use packetio::{MacAddr, Port, TxFrame, wait};
use wire::{ethernet, ipv4, ipv6, tcp};
use xdp_support::denied_unsafe::deny_packet_sockets;
use xdp_support::{
    FAR, Lab, NEAR, OURS, PATIENCE, PEER, SILENCE, assert_nothing_lost, frame, receive, send_all,
};

const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const SIZE: usize = 1440;
const ETHERNET: usize = 14;
const TCP: usize = 20;

fn open(bulk: Bulk) -> Box<dyn Port + Send> {
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        addresses: vec![OURS.into()],
        bulk,
        ..XdpOptions::default()
    };
    xdp::open(&options, 0).unwrap()
}

/// How the transport checksum of a packet is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Whole,
    Offloaded,
}

/// A frame with `payload` as TCP from `ours` at `seq`, and the offset of its TCP header.
fn segment(ours: IpAddr, seq: u32, payload: &[u8], flags: tcp::Flags, sum: Sum) -> (Vec<u8>, u16) {
    let is_v4 = ours.is_ipv4();
    let ip_len = if is_v4 {
        ipv4::HEADER_LEN
    } else {
        ipv6::HEADER_LEN
    };
    let mut out = vec![0; ETHERNET + ip_len + TCP + payload.len()];
    let link = ethernet::Header {
        dst: MacAddr([0xff; 6]),
        src: MacAddr([2, 0, 0, 0, 0, 9]),
        vlan: None,
        ethertype: match is_v4 {
            true => ethernet::EtherType::IPV4,
            false => ethernet::EtherType::IPV6,
        },
    };
    link.emit(&mut out);
    let len = TCP + payload.len();
    let pseudo = match is_v4 {
        true => {
            let header = ipv4::Header {
                total_len: (ip_len + len) as u16,
                protocol: 6,
                src: OURS,
                dst: PEER,
                ..ipv4::Header::default()
            };
            header.emit(&mut out[ETHERNET..]);
            wire::checksum::pseudo_header_v4(OURS, PEER, 6, len as u32)
        }
        false => {
            let header = ipv6::Header {
                payload_len: len as u16,
                next_header: 6,
                src: OURS_V6,
                dst: PEER_V6,
                ..ipv6::Header::default()
            };
            header.emit(&mut out[ETHERNET..]);
            wire::checksum::pseudo_header_v6(OURS_V6, PEER_V6, 6, len as u32)
        }
    };
    let at = ETHERNET + ip_len;
    out[at + TCP..].copy_from_slice(payload);
    let mut header = tcp::Header {
        src_port: 80,
        dst_port: 4000,
        seq: wire::SeqNumber(seq),
        ack: wire::SeqNumber(77),
        flags,
        window: 500,
        ..tcp::Header::default()
    };
    header.emit(&mut out[at..]);
    header.checksum = match sum {
        Sum::Offloaded => pseudo.fold(),
        Sum::Whole => {
            let mut sum = pseudo;
            sum.add_bytes(&out[at..]);
            sum.finish()
        }
    };
    header.emit(&mut out[at..]);
    (out, at as u16)
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i / 1000) as u8).collect()
}

/// Writes `payload` as one large packet into a slot's bulk buffer.
fn write_large(slot: &TxFrame, ours: IpAddr, seq: u32, payload: &[u8], flags: tcp::Flags) {
    let (bytes, start) = segment(ours, seq, payload, flags, Sum::Offloaded);
    assert!(slot.take_bulk_lane());
    assert_eq!(slot.write(0, &bytes), bytes.len());
    slot.set_len(bytes.len());
    slot.set_checksum_offload(start, 16);
    slot.set_segment_bytes(SIZE as u16);
}

/// The segments into which `payload` is cut, as separate frames. CWR is on the first only (RFC 3168
/// section 6.1.2) and PSH on the last only.
fn alone(ours: IpAddr, seq: u32, payload: &[u8], flags: tcp::Flags) -> Vec<Vec<u8>> {
    let parts = payload.chunks(SIZE);
    let last = parts.len() - 1;
    let one = |(n, part): (usize, &[u8])| {
        let is_left_out = |flag| match flag {
            tcp::Flags::CWR => n > 0,
            _ => n < last,
        };
        let mut flags = flags;
        for flag in [tcp::Flags::CWR, tcp::Flags::PSH, tcp::Flags::FIN] {
            if is_left_out(flag) {
                flags = flags.without(flag);
            }
        }
        segment(ours, seq + (n * SIZE) as u32, part, flags, Sum::Whole).0
    };
    parts.enumerate().map(one).collect()
}

/// The frames with identification zero: the kernel counts it up in what it cuts, and it has no
/// meaning with DF (RFC 6864).
fn without_identification(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for frame in &mut frames {
        if frame[12..14] == [8, 0] {
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
    }
    frames
}

#[test]
fn large_packet_arrives_as_the_segments_that_leave_alone() {
    let Some(lab) = Lab::new("bulk-cut", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Auto);
    assert_eq!(port.capabilities().segment_bytes_max, 65_535);
    assert!(!port.capabilities().tx_checksum_offload);
    let (ack, psh, fin) = (tcp::Flags::ACK, tcp::Flags::PSH, tcp::Flags::FIN);
    let mut frames = 0;
    // With the interface's TSO the far side gets the packet whole and cuts it; without, the kernel
    // cuts it.
    for has_tso in [true, false] {
        xdp::set_offload(NEAR, TSO, has_tso).unwrap();
        for (ours, len, flags) in [
            (IpAddr::V4(OURS), 44 * SIZE + 1, ack | psh),
            (IpAddr::V4(OURS), 2 * SIZE, ack | psh | fin),
            (IpAddr::V6(OURS_V6), 44 * SIZE, ack),
            (
                IpAddr::V6(OURS_V6),
                2 * SIZE + 7,
                ack | psh | tcp::Flags::CWR,
            ),
        ] {
            let payload = text(len);
            let alone = alone(ours, 1_000, &payload, flags);
            send_all(&mut *port, &alone);
            let by_ring = receive(&mut far, alone.len(), PATIENCE);
            assert_eq!(by_ring, alone);
            write_large(&port.reserve(1)[0], ours, 1_000, &payload, flags);
            port.send(1).unwrap();
            let by_lane = receive(&mut far, alone.len(), PATIENCE);
            let same = without_identification(by_lane) == without_identification(by_ring);
            assert!(same, "{ours}, {len} bytes, TSO {has_tso}");
            frames += 1;
        }
    }
    assert!(receive(&mut far, 1, SILENCE).is_empty());
    let counters = port.counters();
    assert_eq!(counters.value("xdp_bulk_frames"), Some(frames));
    assert_eq!(counters.value("xdp_bulk_dropped_refused"), Some(0));
    assert_eq!(counters.value("xdp_bulk_dropped_gone"), Some(0));
}

#[test]
fn batch_of_both_lanes_leaves_whole_and_each_lane_in_its_order() {
    let Some(lab) = Lab::new("bulk-mix", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Auto);
    let mut sent = (Vec::new(), Vec::new());
    for batch in 0..20 {
        let slots = port.reserve(8);
        assert_eq!(slots.len(), 8);
        for (n, slot) in slots.iter().enumerate() {
            let tag = batch * 8 + n as u32;
            match n % 3 {
                0 => {
                    let payload = text(3 * SIZE);
                    let seq = tag * 10_000;
                    write_large(slot, OURS.into(), seq, &payload, tcp::Flags::ACK);
                    sent.1
                        .extend(alone(OURS.into(), seq, &payload, tcp::Flags::ACK));
                }
                1 => {
                    let bytes = frame(PEER, tag, 300);
                    slot.write(0, &bytes);
                    slot.set_len(bytes.len());
                    sent.0.push(bytes);
                }
                // Slots of either lane that nothing was written to.
                _ => drop(tag.is_multiple_of(2) && slot.take_bulk_lane()),
            }
        }
        // The last slot is not sent.
        port.send(7).unwrap();
        sent.0.truncate(sent.0.len() - 1);
    }
    let got = receive(&mut far, sent.0.len() + sent.1.len(), PATIENCE);
    let (small, large): (Vec<_>, Vec<_>) = got.into_iter().partition(|frame| frame.len() == 300);
    assert!(small == sent.0, "the TX ring's order");
    let large = without_identification(large);
    assert!(large == without_identification(sent.1), "the lane's order");
    assert!(receive(&mut far, 1, SILENCE).is_empty());
    // The packet socket of the lane receives nothing, because it is bound to no protocol.
    let sockets = fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    let lines: Vec<Vec<&str>> = sockets
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 1, "{sockets}");
    assert_eq!(lines[0][3], "0000", "{sockets}");
}

#[test]
fn lane_without_room_holds_its_frames_and_loses_none() {
    let Some(lab) = Lab::new("bulk-full", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Auto);
    // A slow queueing discipline before the interface that holds more than the socket's buffer.
    let slow = "tc qdisc add dev mx0 root tbf rate 1mbit burst 100kb limit 100mb";
    let status = lab.command_near().args(slow.split(' ')).status();
    if !status.is_ok_and(|status| status.success()) {
        return; // no tc, or no such queue
    }
    let payload = text(40 * SIZE);
    let mut sent = 0u32;
    loop {
        let slots = port.reserve(8);
        let n = slots.len();
        if n == 0 {
            break;
        }
        for slot in slots {
            write_large(slot, OURS.into(), sent * 100_000, &payload, tcp::Flags::ACK);
            sent += 1;
        }
        port.send(n).unwrap();
        assert!(sent < 1_000, "the lane takes all");
    }
    assert!(port.counters().value("xdp_bulk_held") > Some(0));
    assert!(port.counters().value("xdp_bulk_frames") < Some(u64::from(sent)));
    // The port wants to try again soon; otherwise this call would sleep for a minute.
    let asleep = Instant::now();
    wait(&mut [&mut *port], &[], true, Some(60_000_000_000)).unwrap();
    assert!(asleep.elapsed() < Duration::from_secs(30));
    let fast = slow.replace("add", "change").replace("1mbit", "10gbit");
    assert!(
        lab.command_near()
            .args(fast.split(' '))
            .status()
            .unwrap()
            .success()
    );

    let mut got = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while got.len() < sent as usize * 40 && Instant::now() < deadline {
        got.extend(receive(&mut far, 40, Duration::from_millis(200)));
        port.receive().unwrap(); // any call tries again
    }
    let seq_of = |frame: &Vec<u8>| u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
    let expected = (0..sent).flat_map(|n| (0..40).map(move |at| n * 100_000 + at * SIZE as u32));
    assert!(got.iter().map(seq_of).eq(expected), "{} frames", got.len());
    assert_eq!(port.reserve(8).len(), 8, "there is room again");
    assert_eq!(
        port.counters().value("xdp_bulk_frames"),
        Some(u64::from(sent))
    );
    assert_eq!(port.counters().value("xdp_bulk_dropped_refused"), Some(0));
}

#[test]
fn queue_that_refuses_frames_drops_and_counts_them_and_later_ones_leave() {
    let Some(lab) = Lab::new("bulk-refused", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Auto);
    let tc = |words: &str| {
        let status = lab.command_near().arg("tc").args(words.split(' ')).status();
        status.is_ok_and(|status| status.success())
    };
    // A queue of one packet, which the kernel answers with ENOBUFS when it is full. One packet of
    // those below leaves at once, and the next after a quarter of a minute.
    let slow = "qdisc add dev mx0 root handle 1: tbf rate 30kbit burst 64kb limit 1mb";
    let short = "qdisc add dev mx0 parent 1:1 pfifo limit 1";
    if !tc(slow) || !tc(short) {
        return; // no tc, or no such queue
    }
    let payload = text(40 * SIZE);
    let slots = port.reserve(8);
    assert_eq!(slots.len(), 8);
    for (slot, seq) in slots.iter().zip(0..) {
        write_large(slot, OURS.into(), seq * 100_000, &payload, tcp::Flags::ACK);
    }
    port.send(8).unwrap();
    assert_eq!(port.counters().value("xdp_bulk_frames"), Some(2));
    assert_eq!(port.counters().value("xdp_bulk_dropped_refused"), Some(6));
    assert_eq!(port.counters().value("xdp_bulk_held"), Some(0));
    let first = receive(&mut far, 40, PATIENCE);
    let wanted = alone(OURS.into(), 0, &payload, tcp::Flags::ACK);
    assert!(without_identification(first) == without_identification(wanted));
    // Frames that wait in the queue go with it.
    assert!(tc("qdisc del dev mx0 root"));
    write_large(
        &port.reserve(1)[0],
        OURS.into(),
        7,
        &payload,
        tcp::Flags::ACK,
    );
    port.send(1).unwrap();
    let later = receive(&mut far, 40, PATIENCE);
    let wanted = alone(OURS.into(), 7, &payload, tcp::Flags::ACK);
    assert!(without_identification(later) == without_identification(wanted));
    assert_eq!(port.counters().value("xdp_bulk_frames"), Some(3));
    assert_eq!(port.counters().value("xdp_bulk_dropped_refused"), Some(6));
}

#[test]
fn interface_down_drops_large_packets_and_counts_them() {
    let Some(lab) = Lab::new("bulk-down", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Auto);
    let payload = text(3 * SIZE);
    let send = |port: &mut dyn Port| {
        write_large(
            &port.reserve(1)[0],
            OURS.into(),
            5,
            &payload,
            tcp::Flags::ACK,
        );
        port.send(1)
    };
    lab.ip_near(&["link", "set", NEAR, "down"]);
    send(&mut *port).unwrap();
    assert_eq!(port.counters().value("xdp_bulk_dropped_gone"), Some(1));
    lab.ip_near(&["link", "set", NEAR, "up"]);
    send(&mut *port).unwrap();
    assert_eq!(receive(&mut far, 3, PATIENCE).len(), 3);
    assert_eq!(port.counters().value("xdp_bulk_frames"), Some(1));
    drop(far);
    lab.ip_far(&["link", "del", FAR]);
    send(&mut *port).unwrap();
    assert_eq!(port.counters().value("xdp_bulk_dropped_gone"), Some(2));
}

/// Readers in other processes learn the names once, and identify values by their position.
#[test]
fn port_that_has_asked_the_kernel_has_the_counters_of_before() {
    let Some(_lab) = Lab::new("bulk-names", 1) else {
        return;
    };
    let mut port = open(Bulk::Auto);
    let names = |port: &dyn Port| -> Vec<&str> {
        let counters = port.counters();
        counters.named().iter().map(|(name, _)| *name).collect()
    };
    let before = names(&*port);
    assert!(before.contains(&"xdp_rx_ring_full") && before.contains(&"xdp_bulk_frames"));
    port.prepare_wait(false);
    port.finish_wait();
    assert_eq!(names(&*port), before);
}

#[test]
fn wire_without_the_lane_takes_no_large_packet() {
    let Some(lab) = Lab::new("bulk-off", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = open(Bulk::Off);
    assert_without_lane(&mut *port, &mut far);
}

/// The port has one lane, which works.
fn assert_without_lane(port: &mut dyn Port, far: &mut dyn Port) {
    assert_eq!(port.capabilities().segment_bytes_max, 0);
    let slots = port.reserve(1);
    assert!(!slots[0].take_bulk_lane());
    port.send(0).unwrap();
    let sent = vec![frame(Ipv4Addr::new(10, 77, 0, 3), 1, 200)];
    send_all(port, &sent);
    assert_eq!(receive(far, 1, PATIENCE), sent);
    let counters = port.counters();
    assert_eq!(counters.value("xdp_bulk_frames"), None);
    assert_nothing_lost(&counters);
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn wire_that_gets_no_packet_socket_says_so_and_goes_on() {
    let Some(lab) = Lab::new("bulk-denied", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    packetio::notice::on_notice(|line| TOLD.lock().unwrap().push(line.to_owned()));
    let opened = thread::spawn(|| deny_packet_sockets().is_ok().then(|| open(Bulk::Auto)));
    let Some(mut port) = opened.join().unwrap() else {
        return; // no filters of system calls
    };
    assert_without_lane(&mut *port, &mut far);
    let told = TOLD.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("xdp:mx0: goes on without the bulk lane"),
        "{told:?}"
    );
}
