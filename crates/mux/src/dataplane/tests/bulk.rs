//! The bulk lane: its program and the user-space twin agree, and a packet's length is that of the
//! segments it is cut into. A virtio header cannot change what the check has read.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::io::write;

use super::egress::{Bench, changed, v4, v6};
use super::*;

const TC_DROP: u32 = 2;
const TC_REDIRECT: u32 = 7;

impl Bench {
    /// The verdict of the bulk lane's program on a packet that is cut into segments of
    /// `segment_bytes`. Checks that the counter of the reason has moved. `None`: the kernel does
    /// not make a packet of the frame.
    pub(super) fn bulk_program(
        &mut self,
        frame: &[u8],
        segment_bytes: u16,
    ) -> Option<Result<(), Reason>> {
        if !self.plane.has_bulk(0) {
            drop(self.plane.bulk_add(0, 0).unwrap());
            // The TAP and its link ended with its descriptor; the next one is kept open.
            self.lane = Some(self.plane.bulk_add(0, 0).unwrap());
        }
        let before = self.plane.counters(0, 0);
        let program = self.plane.maps.bulk.as_ref().unwrap().as_fd();
        let action = self.plane.namespace.run(|| {
            bpf::dry_run_tc(
                program,
                frame,
                crate::dataplane::bulk::bulk_index(0),
                segment_bytes,
            )
            .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        let action = match action {
            Err(error) if error.errno() == Errno::INVAL => return None,
            action => action.unwrap(),
        };
        let after = self.plane.counters(0, 0);
        let moved =
            |reason: &&Reason| after.drops[**reason as usize] > before.drops[**reason as usize];
        let dropped: Vec<&Reason> = Reason::ALL.iter().filter(moved).collect();
        Some(match (action, dropped.as_slice()) {
            (TC_REDIRECT, []) => Ok(()),
            (TC_DROP, [reason]) => {
                *self.seen_in_bulk.entry(**reason).or_default() += 1;
                Err(**reason)
            }
            outcome => panic!("{outcome:?} for {frame:x?}"),
        })
    }

    /// Checks that program and twin agree about a packet that is cut later.
    fn check_large(&mut self, frame: &[u8], segment_bytes: u16) -> Result<(), Reason> {
        let twin = self.table.check_bulk(frame, segment_bytes, 0, 0);
        let program = self.bulk_program(frame, segment_bytes);
        assert_eq!(program, Some(twin), "{segment_bytes} {frame:x?}");
        twin
    }
}

#[test]
fn packet_that_is_cut_later_is_measured_by_its_segments() {
    let Some(host) = Host::enter("segments") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    assert_eq!(
        bench.check_large(&v4(mac, 80, 2900), 0),
        Err(Reason::Oversize)
    );
    assert_eq!(bench.check_large(&v4(mac, 80, 2900), 1460), Ok(()));
    assert_eq!(
        bench.check_large(&v4(mac, 80, 2900), 1461),
        Err(Reason::Oversize)
    );
    assert_eq!(bench.check_large(&v6(mac, 443, 2900), 1440), Ok(()));
    assert_eq!(
        bench.check_large(&v6(mac, 443, 2900), 1441),
        Err(Reason::Oversize)
    );
    // TCP options count towards the segment's size.
    let options = changed(v4(mac, 80, 2900), 46, &[0x80]);
    assert_eq!(bench.check_large(&options, 1448), Ok(()));
    assert_eq!(bench.check_large(&options, 1449), Err(Reason::Oversize));
    assert_eq!(
        bench.check_large(&v4(mac, 81, 2900), 1460),
        Err(Reason::ForeignPort)
    );
    bench.plane.close();
}

#[test]
fn packet_that_would_be_cut_into_tiny_segments_is_refused() {
    let Some(host) = Host::enter("tiny") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    for segment_bytes in [1, 47] {
        for frame in [v4(mac, 80, 2900), v6(mac, 443, 2900)] {
            let refused = bench.check_large(&frame, segment_bytes);
            assert_eq!(refused, Err(Reason::Offload), "{segment_bytes}");
        }
    }
    assert_eq!(bench.check_large(&v4(mac, 80, 2900), 48), Ok(()));
    // A packet that is not cut may be as short as it likes.
    assert_eq!(bench.check_large(&v4(mac, 80, 47), 47), Ok(()));
    assert_eq!(
        bench.check_large(&v4(mac, 80, 47), 46),
        Err(Reason::Offload)
    );
    // Options count: the payload of a peer's least segment is what they leave.
    let timestamps = changed(v4(mac, 80, 2900), 46, &[0x80]);
    assert_eq!(bench.check_large(&timestamps, 36), Ok(()));
    assert_eq!(bench.check_large(&timestamps, 35), Err(Reason::Offload));
    bench.plane.close();
}

/// A virtual port whose bucket never fills again, and its bulk lane.
fn slow(host: &Host) -> (Dataplane, OwnedFd) {
    let mut options = host.options();
    options.rate_bytes = 1;
    let mut plane = Dataplane::open(options).unwrap();
    plane.address_add(OURS.into(), None).unwrap();
    plane.next_hop_set(GATEWAY, true).unwrap();
    drop(add_port(&mut plane, 0, 0));
    plane.lease_add(80..=80, 0, 0).unwrap();
    let lane = plane.bulk_add(0, 0).unwrap();
    (plane, lane)
}

#[test]
fn rate_counts_the_headers_of_each_segment() {
    let Some(host) = Host::enter("bulk-headers") else {
        return;
    };
    let (plane, lane) = slow(&host);
    let (virtio, _) = unfinished(plane.nic().mac, true);
    let cut = Virtio {
        gso_type: 1,
        header_len: 54,
        gso_size: 100,
        ..virtio
    };
    let bytes = cut.before(&v4(plane.nic().mac, 80, 10_000));
    // A hundred segments of 154 bytes.
    let passes = 128 * 1024 / 15_400;
    for _ in 0..passes {
        assert_eq!(outcome(&plane, &lane, &bytes), (1, vec![]));
    }
    assert_eq!(outcome(&plane, &lane, &bytes), (0, vec!["rate"]));
    plane.close();
}

#[test]
fn packet_that_costs_more_than_a_full_bucket_passes_once() {
    let Some(host) = Host::enter("bulk-debt") else {
        return;
    };
    let (plane, lane) = slow(&host);
    let (virtio, _) = unfinished(plane.nic().mac, true);
    let cut = Virtio {
        gso_type: 1,
        header_len: 66,
        gso_size: 36,
        ..virtio
    };
    // 1,666 segments of 102 bytes each.
    let large = changed(v4(plane.nic().mac, 80, 60_000), 46, &[0x80]);
    let large = cut.before(&large);
    assert_eq!(outcome(&plane, &lane, &large), (1, vec![]));
    let small = Virtio::default().before(&v4(plane.nic().mac, 80, 0));
    assert_eq!(outcome(&plane, &lane, &small), (0, vec!["rate"]));
    plane.close();
}

/// The kernel cuts a packet that a program redirects only if the kind of segments in the virtio
/// header is that of its own protocol. So a header that lies about the protocol has no driver write
/// where another protocol has its checksum.
#[test]
fn segments_of_another_protocol_never_reach_the_wire() {
    let Some(host) = Host::enter("gso-type") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let lane = bench.plane.bulk_add(0, 0).unwrap();
    let (tcp_v4, udp, tcp_v6, udp_l4) = (1, 3, 4, 5);
    for (is_v4, kinds) in [
        (true, [tcp_v4, udp, tcp_v6, udp_l4]),
        (false, [tcp_v6, udp, tcp_v4, udp_l4]),
    ] {
        let (virtio, _) = unfinished(bench.table.mac, is_v4);
        let frame = match is_v4 {
            true => v4(bench.table.mac, 80, 5000),
            false => v6(bench.table.mac, 443, 5000),
        };
        for (at, gso_type) in kinds.into_iter().enumerate() {
            let cut = Virtio {
                gso_type,
                header_len: virtio.start + 20,
                gso_size: 1000,
                ..virtio
            };
            let before = received();
            // UDP's checksum lies elsewhere than TCP's, and the kernel compares.
            let cuts = match gso_type == udp_l4 {
                true => vec![
                    cut,
                    Virtio {
                        start: virtio.start + 10,
                        offset: 6,
                        ..cut
                    },
                ],
                false => vec![cut],
            };
            for cut in cuts {
                let _ = write(&lane, &cut.before(&frame));
            }
            let came = received() - before;
            match at {
                0 => assert!(came > 0, "kind {gso_type}, IPv4 {is_v4}"),
                _ => assert_eq!(came, 0, "kind {gso_type}, IPv4 {is_v4}"),
            }
        }
    }
    bench.plane.close();
}

#[test]
fn program_of_the_bulk_lane_and_twin_agree_on_generated_packets() {
    let Some(host) = Host::enter("bulk-twins") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    let mut runner = TestRunner::new(Config {
        cases: 2000,
        failure_persistence: None,
        ..Config::default()
    });
    let port = prop_oneof![Just(80u16), Just(81), Just(443), Just(20_000), any::<u16>()];
    let change = (0usize..90, any::<u8>());
    let packets = (
        any::<bool>(),
        port,
        0usize..3000,
        proptest::collection::vec(change, 0..2),
        prop_oneof![Just(0u16), 1u16..1600, any::<u16>()],
    );
    let cell = std::cell::RefCell::new(&mut bench);
    runner
        .run(
            &packets,
            |(is_v4, port, payload, changes, segment_bytes)| {
                let mut frame = match is_v4 {
                    true => v4(mac, port, payload),
                    false => v6(mac, port, payload),
                };
                for (at, byte) in changes {
                    if let Some(room) = frame.get_mut(at) {
                        *room = byte;
                    }
                }
                let mut bench = cell.borrow_mut();
                let twin = bench.table.check_bulk(&frame, segment_bytes, 0, 0);
                if let Some(program) = bench.bulk_program(&frame, segment_bytes) {
                    prop_assert_eq!(program, twin);
                }
                Ok(())
            },
        )
        .unwrap();
    assert!(bench.seen_in_bulk.len() > 8, "{:?}", bench.seen_in_bulk);
    bench.plane.close();
}

/// A `struct virtio_net_hdr`.
#[derive(Clone, Copy, Default)]
pub(super) struct Virtio {
    needs_checksum: bool,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    start: u16,
    offset: u16,
}

impl Virtio {
    pub(super) fn before(self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.needs_checksum), self.gso_type];
        for word in [self.header_len, self.gso_size, self.start, self.offset] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(frame);
        bytes
    }
}

/// The effect of bytes that an application writes into its lane: packets that left, and drops.
pub(super) fn outcome(plane: &Dataplane, lane: &OwnedFd, bytes: &[u8]) -> (u64, Vec<&'static str>) {
    let before = plane.counters(0, 0);
    // The kernel itself refuses some headers.
    let _ = write(lane, bytes);
    let after = plane.counters(0, 0);
    let dropped = Reason::ALL.iter().filter(|reason| {
        let number = **reason as usize;
        after.drops[number] > before.drops[number]
    });
    let dropped = dropped.map(|reason| reason.name()).collect();
    (after.bulk_frames - before.bulk_frames, dropped)
}

/// A frame whose TCP checksum is left to the device, as correct applications do.
fn unfinished(mac: MacAddr, is_v4: bool) -> (Virtio, Vec<u8>) {
    let virtio = Virtio {
        needs_checksum: true,
        start: if is_v4 { 34 } else { 54 },
        offset: 16,
        ..Virtio::default()
    };
    let frame = match is_v4 {
        true => v4(mac, 80, 1000),
        false => v6(mac, 443, 1000),
    };
    (virtio, frame)
}

#[test]
fn checksum_that_would_change_what_was_checked_is_refused() {
    let Some(host) = Host::enter("virtio") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let lane = bench.plane.bulk_add(0, 0).unwrap();
    let plane = &bench.plane;
    for is_v4 in [true, false] {
        let (virtio, frame) = unfinished(bench.table.mac, is_v4);
        assert_eq!(outcome(plane, &lane, &virtio.before(&frame)), (1, vec![]));
        // Try every field before the checksum's: MAC addresses, IP addresses, ports, flags.
        for at in 0..virtio.start + 16 {
            let hostile = Virtio {
                start: at,
                offset: 0,
                ..virtio
            };
            let (left, dropped) = outcome(plane, &lane, &hostile.before(&frame));
            // The kernel itself may refuse a checksum that begins before the transport header.
            let is_refused = at < virtio.start && dropped.is_empty();
            assert!(
                is_refused || dropped == ["offload"],
                "field at {at}: {dropped:?}"
            );
            assert_eq!(left, 0, "field at {at}");
        }
    }
    bench.plane.close();
}

#[test]
fn virtio_header_that_lies_about_lengths_and_tags_passes_no_check() {
    let Some(host) = Host::enter("virtio-lengths") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let lane = bench.plane.bulk_add(0, 0).unwrap();
    let (plane, mac) = (&bench.plane, bench.table.mac);
    let (virtio, frame) = unfinished(mac, true);
    // The fields that programs can read do not depend on the sender.
    let short = Virtio {
        header_len: 14,
        ..Virtio::default()
    };
    assert_eq!(outcome(plane, &lane, &short.before(&frame)), (1, vec![]));
    let plain = Virtio::default();
    let runt = plain.before(&frame[..33]);
    assert_eq!(outcome(plane, &lane, &runt), (0, vec!["runt"]));
    let mut tagged = frame;
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let tagged = plain.before(&tagged);
    assert_eq!(outcome(plane, &lane, &tagged), (0, vec!["vlan"]));
    let large = Virtio {
        gso_type: 1,
        header_len: 54,
        gso_size: 1460,
        ..virtio
    };
    let frame = v4(mac, 80, 60_000);
    assert_eq!(outcome(plane, &lane, &large.before(&frame)), (1, vec![]));
    let hostile = Virtio { start: 18, ..large };
    assert_eq!(outcome(plane, &lane, &hostile.before(&frame)).0, 0);
    let long = Virtio {
        gso_size: 1461,
        ..large
    };
    let long = long.before(&frame);
    assert_eq!(outcome(plane, &lane, &long), (0, vec!["oversize"]));
    bench.plane.close();
}

#[test]
fn both_lanes_share_one_rate() {
    let Some(host) = Host::enter("bulk-rate") else {
        return;
    };
    let (plane, lane) = slow(&host);
    let frame = v4(plane.nic().mac, 80, 1000);
    let virtio = Virtio::default().before(&frame);
    let bucket = 128 * 1024 / frame.len() as u64;
    for _ in 0..bucket / 2 {
        assert_eq!(outcome(&plane, &lane, &virtio), (1, vec![]));
    }
    let program = plane.maps.egress.as_fd();
    for _ in 0..bucket {
        let action = plane.namespace.run(|| {
            bpf::dry_run(program, &frame, near_index(0))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        assert!([DROP, REDIRECT].contains(&action.unwrap()));
    }
    assert_eq!(plane.counters(0, 0).tx_frames, bucket);
    assert_eq!(outcome(&plane, &lane, &virtio), (0, vec!["rate"]));
    plane.close();
}

/// Number of packets that the NIC's peer has received.
fn received() -> u64 {
    let shown = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = shown.lines().find(|line| line.contains("peer0:")).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn lane_leads_to_the_nic_and_outlives_the_service() {
    let Some(host) = Host::enter("bulk-path") else {
        return;
    };
    let mut plane = host.open();
    drop(add_port(&mut plane, 3, 1));
    assert_eq!(plane.bulk_add(3, 0).unwrap_err().errno(), Errno::NOENT);
    plane.lease_add(80..=80, 3, 1).unwrap();
    let lane = plane.bulk_add(3, 1).unwrap();
    let frame = Virtio::default().before(&v4(plane.nic().mac, 80, 1400));
    let send = |wanted: u64| {
        let before = received();
        write(&lane, &frame).unwrap();
        while received() < before + wanted {}
        received() - before
    };
    assert_eq!(send(1), 1);
    drop(plane);
    assert_eq!(send(1), 1, "the service is away");
    let mut plane = host.open();
    assert_eq!(send(1), 1, "the service is back");
    let shown = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert_eq!(
        shown.matches("mill-bulk").count(),
        1,
        "one pair for all lanes"
    );
    let device = plane.devices[&(3, 1)];
    assert_eq!(plane.bulk_check(device), Ok(()));
    let counters = plane.counters(3, 1);
    assert_eq!((counters.tx_frames, counters.bulk_frames), (3, 3));
    assert_eq!(counters.bulk_bytes, 3 * (frame.len() as u64 - 10));
    plane.host_set(plane.mac, 1400).unwrap();
    assert_eq!(send(0), 0, "longer than the new MTU");
    plane.port_remove(3, 1);
    assert!(write(&lane, &frame).is_err(), "the lane went with the port");
    plane.close();
    let shown = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(!shown.contains("mill-bulk"), "{shown}");
}

#[test]
fn lane_that_its_application_made_persistent_goes_with_the_port() {
    let Some(host) = Host::enter("bulk-persist") else {
        return;
    };
    let mut plane = host.open();
    drop(add_port(&mut plane, 0, 0));
    let lane = plane.bulk_add(0, 0).unwrap();
    packetio::tap::make_persistent(&lane).unwrap();
    drop(lane);
    let device = plane.devices[&(0, 0)];
    assert_eq!(plane.bulk_check(device), Ok(()));
    plane.port_remove(0, 0);
    let left = plane
        .namespace
        .run(|| Device::find("bulk0").map_err(|(step, errno)| DataplaneError::io(step, errno)));
    assert!(left.is_err());
    plane.close();
}
