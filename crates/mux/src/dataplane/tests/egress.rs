//! The egress check: each frame is judged by the XDP program, by its user-space twin, and by what
//! the frame was made for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::bulk::{Virtio, outcome};
use super::*;
use crate::egress::{AddressKind, EgressTable, HEAD_BYTES, Owner};

/// The peer's address. The application of slot 0 may send from port 80 of any IPv4 address, from
/// port 443 of fd00::1, and from lease 20000.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn owner_of(slot: u16) -> Owner {
    let tracks = false;
    Owner { slot, tracks }
}

pub(super) struct Bench {
    pub(super) plane: Dataplane,
    pub(super) table: EgressTable,
    pub(super) seen: HashMap<Reason, u64>,
    /// Like `seen`, for the bulk lane once it exists.
    pub(super) seen_in_bulk: HashMap<Reason, u64>,
    pub(super) lane: Option<OwnedFd>,
}

impl Bench {
    pub(super) fn new(host: &Host) -> Self {
        Self::over(host.open())
    }

    pub(super) fn over(mut plane: Dataplane) -> Self {
        drop(add_port(&mut plane, 0, 0));
        drop(add_port(&mut plane, 1, 0));
        let endpoints: [(SocketAddr, u16); 3] = [
            ("0.0.0.0:80".parse().unwrap(), 0),
            ("[fd00::1]:443".parse().unwrap(), 0),
            ("10.0.0.1:81".parse().unwrap(), 1),
        ];
        for (endpoint, slot) in endpoints {
            plane.claim_set(endpoint, slot, &[0]).unwrap();
        }
        plane.lease_add(20_000..=20_000, 0, 0).unwrap();
        plane.lease_add(20_001..=20_001, 1, 0).unwrap();
        let mut table = EgressTable::new(plane.nic().mac, 1500);
        table.next_hops.insert(GATEWAY);
        table.addresses = [
            (OURS.into(), AddressKind::Local),
            ("10.0.0.255".parse().unwrap(), AddressKind::Broadcast),
            ("fd00::1".parse().unwrap(), AddressKind::Local),
        ]
        .into_iter()
        .collect();
        table.claims = endpoints
            .into_iter()
            .map(|(endpoint, slot)| (endpoint, owner_of(slot)))
            .collect();
        table.leases = [(20_000, 0), (20_001, 1)].into_iter().collect();
        Self {
            plane,
            table,
            seen: HashMap::new(),
            seen_in_bulk: HashMap::new(),
            lane: None,
        }
    }

    /// The program's verdict on a frame. Checks that the counter of the reason has moved by one.
    fn program(&mut self, frame: &[u8]) -> Result<(), Reason> {
        let before = self.plane.counters(0, 0);
        let program = self.plane.maps.egress.as_fd();
        let action = self.plane.namespace.run(|| {
            bpf::dry_run(program, frame, near_index(0))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        let after = self.plane.counters(0, 0);
        let moved = |reason: &Reason| {
            let number = *reason as usize;
            after.drops[number] - before.drops[number]
        };
        let dropped: Vec<Reason> = Reason::ALL
            .iter()
            .copied()
            .filter(|reason| moved(reason) > 0)
            .collect();
        match (action.unwrap(), dropped.as_slice()) {
            (REDIRECT, []) => {
                assert_eq!(after.tx_frames, before.tx_frames + 1);
                assert_eq!(after.tx_bytes, before.tx_bytes + frame.len() as u64);
                Ok(())
            }
            (DROP, [reason]) => {
                *self.seen.entry(*reason).or_default() += 1;
                Err(*reason)
            }
            outcome => panic!("{outcome:?} for {frame:x?}"),
        }
    }

    /// Checks that the programs of both lanes and the twin agree. Returns the virtual port's
    /// verdict.
    pub(super) fn check(&mut self, frame: &[u8]) -> Result<(), Reason> {
        let twin = self.table.check(frame, 0, 0);
        let program = match frame.len() {
            // The kernel runs no program on less than an Ethernet header or on more than a page.
            14..=3000 => self.program(frame),
            _ => twin,
        };
        assert_eq!(program, twin, "{frame:x?}");
        // The switch sees only the head of a frame.
        let head = &frame[..frame.len().min(HEAD_BYTES)];
        let by_head = self.table.check_head(head, frame.len(), 0, 0);
        assert_eq!(by_head.map(drop), twin, "{frame:x?}");
        if let Some(bulk) = self.bulk_program(frame, 0) {
            assert_eq!(bulk, self.table.check_bulk(frame, 0, 0, 0), "{frame:x?}");
        }
        twin
    }
}

/// A valid TCP segment from 10.0.0.1:`port`.
pub(super) fn v4(mac: MacAddr, port: u16, payload: usize) -> Vec<u8> {
    let mut frame = GATEWAY.0.to_vec();
    frame.extend(mac.0);
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(OURS.octets());
    frame.extend(PEER.octets());
    frame.extend(port.to_be_bytes());
    frame.extend([
        0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    frame.resize(54 + payload, 0xaa);
    mend(&mut frame);
    frame
}

/// A valid TCP segment over IPv6, from fd00::1 to fd00::2.
pub(super) fn v6(mac: MacAddr, port: u16, payload: usize) -> Vec<u8> {
    let mut frame = GATEWAY.0.to_vec();
    frame.extend(mac.0);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((20 + payload as u16).to_be_bytes());
    frame.extend([6, 64]);
    for last in [1, 2] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(port.to_be_bytes());
    frame.extend([
        0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    frame.resize(74 + payload, 0xaa);
    frame
}

/// Corrects the IPv4 header checksum.
pub(super) fn mend(frame: &mut [u8]) {
    let header_len = usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let Some(header) = frame.get(14..14 + header_len) else {
        return;
    };
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A valid frame with bytes replaced, and with a correct IPv4 header checksum.
pub(super) fn changed(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    if frame[12..14] == [8, 0] {
        mend(&mut frame);
    }
    frame
}

/// Frames, each made for one reason.
pub(super) fn frames_for_reasons(mac: MacAddr) -> Vec<(Vec<u8>, Reason)> {
    let v4 = |payload| v4(mac, 80, payload);
    let v6 = |payload| v6(mac, 443, payload);
    let with_options = {
        let mut frame = v4(0);
        frame.splice(34..34, [1, 1, 1, 0]);
        changed(frame, 14, &[0x46, 0, 0, 44])
    };
    let mut vlan = v4(0);
    vlan.splice(12..12, [0x81, 0, 0, 5]);
    let mut wrong_sum = v4(0);
    wrong_sum[24] ^= 0x55;
    let mut cut = v4(0);
    cut.truncate(50);
    let port = |port: u16| changed(v4(0), 34, &port.to_be_bytes());
    vec![
        (v4(1461), Reason::Oversize),
        (v4(0)[..33].to_vec(), Reason::Runt),
        (v6(0)[..53].to_vec(), Reason::Runt),
        (changed(v4(0), 12, &[8, 6]), Reason::Arp),
        (vlan, Reason::Vlan),
        (changed(v4(0), 12, &[0x88, 0xcc]), Reason::Ethertype),
        (changed(v4(0), 11, &[!mac.0[5]]), Reason::SourceMac),
        (changed(v4(0), 0, &[0xff; 6]), Reason::NextHop),
        (changed(v4(0), 14, &[0x44]), Reason::HeaderLength),
        (changed(v4(0), 14, &[0x65]), Reason::HeaderLength),
        (changed(v6(0), 14, &[0x45]), Reason::HeaderLength),
        (cut, Reason::TotalLength),
        (changed(v4(100), 16, &[0, 100]), Reason::TotalLength),
        (changed(v6(0), 18, &[0, 21]), Reason::TotalLength),
        (wrong_sum, Reason::HeaderChecksum),
        (changed(v4(0), 20, &[0x20, 0]), Reason::Fragment),
        (changed(v4(0), 20, &[0, 1]), Reason::Fragment),
        (changed(v6(0), 20, &[44]), Reason::Fragment),
        (with_options, Reason::Options),
        (changed(v6(0), 20, &[0]), Reason::Options),
        (changed(v4(0), 23, &[17]), Reason::Protocol),
        (changed(v6(0), 20, &[17]), Reason::Protocol),
        (changed(v4(0), 30, &[224, 0, 0, 1]), Reason::Multicast),
        (changed(v6(0), 38, &[0xff, 2]), Reason::Multicast),
        (changed(v4(0), 30, &[255; 4]), Reason::Broadcast),
        (changed(v4(0), 30, &[10, 0, 0, 255]), Reason::Broadcast),
        (changed(v4(0), 30, &[0; 4]), Reason::Broadcast),
        (changed(v4(0), 30, &[127, 0, 0, 1]), Reason::Loopback),
        (changed(v6(0), 38, &[0]), Reason::Loopback),
        (changed(v4(0), 30, &OURS.octets()), Reason::Local),
        (changed(v6(0), 53, &[1]), Reason::Local),
        (changed(v4(0), 46, &[0x40]), Reason::DataOffset),
        (changed(v4(0), 46, &[0x60]), Reason::DataOffset),
        (changed(v4(0), 16, &[0, 39]), Reason::DataOffset),
        (changed(v6(0), 66, &[0xf0]), Reason::DataOffset),
        (changed(v4(0), 26, &[10, 0, 0, 3]), Reason::SourceAddress),
        (changed(v6(0), 22, &[0xfc]), Reason::SourceAddress),
        (port(82), Reason::SourcePort),
        (changed(v6(0), 54, &[0, 80]), Reason::SourcePort),
        (port(81), Reason::ForeignPort),
        (port(20_001), Reason::ForeignPort),
    ]
}

#[test]
fn each_reason_to_drop_has_its_counter() {
    let Some(host) = Host::enter("reasons") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    for (frame, reason) in frames_for_reasons(mac) {
        // The padded frame of 54 bytes may be cut to its packet's length (see `check_total`).
        assert_eq!(bench.check(&frame), Err(reason), "{frame:x?}");
    }
    for right in [
        v4(mac, 80, 0),
        v4(mac, 80, 1460),
        v4(mac, 20_000, 10),
        v6(mac, 443, 1440),
    ] {
        assert_eq!(bench.check(&right), Ok(()));
    }
    let mut padded = v4(mac, 80, 0);
    padded.resize(60, 0);
    assert_eq!(bench.check(&padded), Ok(()));
    let silent: Vec<&Reason> = Reason::ALL
        .iter()
        .filter(|reason| !bench.seen.contains_key(reason))
        .collect();
    // These depend on more than the frame, and have tests of their own.
    assert_eq!(silent, [&Reason::Offload, &Reason::Rate, &Reason::NoNic]);
    let silent = Reason::ALL
        .iter()
        .filter(|reason| !bench.seen_in_bulk.contains_key(reason));
    let silent: Vec<&Reason> = silent.collect();
    // In a test run of a tc program the kernel makes no packet of a runt.
    assert_eq!(
        silent,
        [
            &Reason::Runt,
            &Reason::Offload,
            &Reason::Rate,
            &Reason::NoNic
        ]
    );
    bench.plane.close();
}

#[test]
fn program_and_twin_agree_on_generated_frames() {
    let Some(host) = Host::enter("twins") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    let mut runner = TestRunner::new(Config {
        cases: 3000,
        failure_persistence: None,
        ..Config::default()
    });
    let port = prop_oneof![
        Just(80u16),
        Just(81),
        Just(443),
        Just(20_000),
        Just(20_001),
        any::<u16>()
    ];
    let change = (0usize..90, any::<u8>());
    let frames = (
        any::<bool>(),
        port,
        0usize..200,
        proptest::collection::vec(change, 0..3),
        any::<bool>(),
        0usize..20,
    )
        .prop_map(move |(is_v4, port, payload, changes, mends, cut)| {
            let mut frame = match is_v4 {
                true => v4(mac, port, payload),
                false => v6(mac, port, payload),
            };
            for (at, byte) in changes {
                if let Some(room) = frame.get_mut(at) {
                    *room = byte;
                }
            }
            if mends {
                mend(&mut frame);
            }
            if cut < 3 {
                frame.truncate(frame.len() - cut * 7);
            }
            frame
        });
    let bench_cell = std::cell::RefCell::new(&mut bench);
    runner
        .run(&frames, |frame| {
            let _ = bench_cell.borrow_mut().check(&frame);
            Ok(())
        })
        .unwrap();
    assert!(bench.seen.len() > 10, "{:?}", bench.seen);
    bench.plane.close();
}

#[test]
fn sender_above_its_rate_is_held_back() {
    let Some(host) = Host::enter("rate") else {
        return;
    };
    let mut options = host.options();
    options.rate_bytes = 1;
    let mut plane = Dataplane::open(options).unwrap();
    plane.address_add(OURS.into(), None).unwrap();
    plane.next_hop_set(GATEWAY, true).unwrap();
    drop(add_port(&mut plane, 0, 0));
    plane.lease_add(80..=80, 0, 0).unwrap();
    let frame = v4(plane.nic().mac, 80, 1000);
    for _ in 0..200 {
        let program = plane.maps.egress.as_fd();
        let action = plane.namespace.run(|| {
            bpf::dry_run(program, &frame, near_index(0))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        assert!([DROP, REDIRECT].contains(&action.unwrap()));
    }
    let counters = plane.counters(0, 0);
    // A full bucket of 128 KiB.
    assert_eq!(counters.tx_frames, 131_072 / frame.len() as u64);
    assert_eq!(
        counters.tx_frames + counters.drops[Reason::Rate as usize],
        200
    );
    plane.close();
}

#[test]
fn sender_that_always_has_more_gets_its_rate() {
    const RATE: u64 = 100_000;
    let Some(host) = Host::enter("full-rate") else {
        return;
    };
    let mut options = host.options();
    options.rate_bytes = RATE;
    let mut plane = Dataplane::open(options).unwrap();
    plane.address_add(OURS.into(), None).unwrap();
    plane.next_hop_set(GATEWAY, true).unwrap();
    drop(add_port(&mut plane, 0, 0));
    plane.lease_add(80..=80, 0, 0).unwrap();
    let frame = v4(plane.nic().mac, 80, 500);
    let send = |plane: &Dataplane| {
        let program = plane.maps.egress.as_fd();
        let action = plane.namespace.run(|| {
            bpf::dry_run(program, &frame, near_index(0))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        action.unwrap()
    };
    // From one moment in which the bucket is empty to another one. This process may stand still
    // before and after each call.
    let empty = |plane: &Dataplane| loop {
        let before = Instant::now();
        if send(plane) == DROP {
            return (before, Instant::now(), plane.counters(0, 0).tx_bytes);
        }
    };
    let (early, begin, sent_before) = empty(&plane);
    while begin.elapsed() < Duration::from_secs(2) {
        send(&plane);
    }
    let (end, late, sent) = empty(&plane);
    let sent = (sent - sent_before) as f64;
    let earned = |time: Duration| RATE as f64 * time.as_secs_f64();
    let (least, most) = (earned(end - begin), earned(late - early));
    assert!(sent > least * 0.98, "{sent} of {least}");
    assert!(sent < most * 1.01, "{sent} of {most}");
    plane.close();
}

#[test]
fn frame_for_a_nic_that_is_gone_is_dropped_and_counted() {
    let Some(host) = Host::enter("gone") else {
        return;
    };
    let mut plane = host.open();
    drop(add_port(&mut plane, 0, 0));
    plane.lease_add(80..=80, 0, 0).unwrap();
    let frame = v4(plane.nic().mac, 80, 0);
    assert!(run("ip", &["link", "del", "nic0"]));
    let program = plane.maps.egress.as_fd();
    let action = plane.namespace.run(|| {
        bpf::dry_run(program, &frame, near_index(0))
            .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
    });
    assert_eq!(action, Ok(DROP));
    assert_eq!(plane.counters(0, 0).drops[Reason::NoNic as usize], 1);
    let lane = plane.bulk_add(0, 0).unwrap();
    let virtio = Virtio::default().before(&frame);
    assert_eq!(outcome(&plane, &lane, &virtio), (0, vec!["no_nic"]));
    let veth = "link add name nic0 type veth peer name peer0";
    assert!(run("ip", &veth.split(' ').collect::<Vec<_>>()));
    plane.nic_attach().unwrap();
    let frame = v4(plane.nic().mac, 80, 0);
    let program = plane.maps.egress.as_fd();
    let action = plane.namespace.run(|| {
        bpf::dry_run(program, &frame, near_index(0))
            .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
    });
    assert_eq!(action, Ok(REDIRECT));
    assert!(run("ip", &["link", "set", "nic0", "up"]));
    let virtio = Virtio::default().before(&frame);
    assert_eq!(outcome(&plane, &lane, &virtio), (1, vec![]));
    plane.close();
}
