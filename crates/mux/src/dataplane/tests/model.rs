//! Generated frames with one fault or none. The fault alone determines the verdict, which the XDP
//! program and its twin must both give.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::egress::{Bench, changed, v4, v6};
use super::*;

/// The fault of a frame. Random numbers in it are fitted to its range.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Frame(FrameFault),
    Packet(PacketFault),
}

/// Faults of the link layer, and of a frame's lengths and checksums.
#[derive(Clone, Copy, Debug)]
enum FrameFault {
    SourceMac(usize, u8),
    NextHop(usize, u8),
    Ethertype(u16),
    Version(u8),
    Padding(usize),
    Cut(usize),
    Checksum(u16),
    Oversize(usize),
    Runt(usize),
}

/// Faults of the packet's kind, or of its addresses and ports.
#[derive(Clone, Copy, Debug)]
enum PacketFault {
    Fragment(u16),
    Protocol(u8),
    Options(usize),
    Multicast([u8; 4]),
    Broadcast(u8, [u8; 3]),
    Loopback([u8; 3]),
    Local,
    DataOffset(u8),
    SourceAddress(u8),
    Port(u16),
}

fn fault() -> impl Strategy<Value = Fault> {
    let frame = prop_oneof![
        (0usize..6, 1u8..).prop_map(|(at, by)| FrameFault::SourceMac(at, by)),
        (0usize..6, 1u8..).prop_map(|(at, by)| FrameFault::NextHop(at, by)),
        prop_oneof![Just(0x0806), Just(0x8100), Just(0x88a8), any::<u16>()]
            .prop_map(FrameFault::Ethertype),
        (0u8..16).prop_map(FrameFault::Version),
        (7usize..60).prop_map(FrameFault::Padding),
        (1usize..20).prop_map(FrameFault::Cut),
        (1u16..0xffff).prop_map(FrameFault::Checksum),
        (1usize..1000).prop_map(FrameFault::Oversize),
        (14usize..54).prop_map(FrameFault::Runt),
    ];
    let packet = prop_oneof![
        (1u16..).prop_map(PacketFault::Fragment),
        any::<u8>().prop_map(PacketFault::Protocol),
        (1usize..=10).prop_map(PacketFault::Options),
        any::<[u8; 4]>().prop_map(PacketFault::Multicast),
        any::<(u8, [u8; 3])>().prop_map(|(kind, rest)| PacketFault::Broadcast(kind, rest)),
        any::<[u8; 3]>().prop_map(PacketFault::Loopback),
        Just(PacketFault::Local),
        (0u8..5).prop_map(PacketFault::DataOffset),
        (1u8..).prop_map(PacketFault::SourceAddress),
        prop_oneof![Just(81), Just(20_001), any::<u16>()].prop_map(PacketFault::Port),
    ];
    prop_oneof![
        1 => Just(Fault::None),
        9 => frame.prop_map(Fault::Frame),
        10 => packet.prop_map(Fault::Packet),
    ]
}

/// A frame, and its expected verdict.
type Case = (Vec<u8>, Result<(), Reason>);

fn make(mac: MacAddr, is_v4: bool, payload: usize, fault: Fault) -> Case {
    let frame = match is_v4 {
        true => v4(mac, 80, payload),
        false => v6(mac, 443, payload),
    };
    match fault {
        Fault::None => (frame, Ok(())),
        Fault::Frame(fault) => with_frame_fault(frame, is_v4, fault),
        Fault::Packet(fault) => with_packet_fault(frame, is_v4, fault),
    }
}

fn with_frame_fault(mut frame: Vec<u8>, is_v4: bool, fault: FrameFault) -> Case {
    match fault {
        FrameFault::SourceMac(at, by) => {
            frame[6 + at] ^= by;
            (frame, Err(Reason::SourceMac))
        }
        FrameFault::NextHop(at, by) => {
            frame[at] ^= by;
            (frame, Err(Reason::NextHop))
        }
        FrameFault::Ethertype(kind) => {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            let outcome = match kind {
                0x0806 => Err(Reason::Arp),
                0x8100 | 0x88a8 => Err(Reason::Vlan),
                // The IP header contradicts the ethertype.
                0x0800 if !is_v4 => Err(Reason::HeaderLength),
                0x86dd if is_v4 => Err(Reason::HeaderLength),
                0x0800 | 0x86dd => Ok(()),
                _ => Err(Reason::Ethertype),
            };
            (frame, outcome)
        }
        FrameFault::Version(version) => {
            let outcome = match version == if is_v4 { 4 } else { 6 } {
                true => Ok(()),
                false => Err(Reason::HeaderLength),
            };
            let byte = version << 4 | frame[14] & 15;
            (changed(frame, 14, &[byte]), outcome)
        }
        FrameFault::Padding(bytes) => {
            frame.resize((frame.len() + bytes).max(61), 0);
            (frame, Err(Reason::TotalLength))
        }
        FrameFault::Cut(bytes) => {
            frame.truncate(frame.len() - bytes);
            (frame, Err(Reason::TotalLength))
        }
        FrameFault::Checksum(by) if is_v4 => {
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            // Both representations of zero are valid, and no other sum is.
            let wrong = (u32::from(sum) + u32::from(by)) % 0xffff;
            frame[24..26].copy_from_slice(&(wrong as u16).to_be_bytes());
            (frame, Err(Reason::HeaderChecksum))
        }
        FrameFault::Checksum(_) => (frame, Ok(())),
        FrameFault::Oversize(bytes) => {
            frame.resize(14 + 1500 + bytes, 0);
            (frame, Err(Reason::Oversize))
        }
        FrameFault::Runt(bytes) => {
            // Headers that are not whole.
            frame.truncate(if is_v4 { bytes.min(33) } else { bytes.min(53) });
            (frame, Err(Reason::Runt))
        }
    }
}

fn with_packet_fault(frame: Vec<u8>, is_v4: bool, fault: PacketFault) -> Case {
    match fault {
        PacketFault::Fragment(_) | PacketFault::Protocol(_) | PacketFault::Options(_) => {
            with_header_fault(frame, is_v4, fault)
        }
        _ => with_end_fault(frame, is_v4, fault),
    }
}

/// A fault of the network header, ends apart.
fn with_header_fault(frame: Vec<u8>, is_v4: bool, fault: PacketFault) -> Case {
    let at = |v4: usize, v6: usize| if is_v4 { v4 } else { v6 };
    match fault {
        PacketFault::Fragment(bits) if is_v4 => {
            let outcome = match bits & !0x4000 {
                0 => Ok(()),
                _ => Err(Reason::Fragment),
            };
            (changed(frame, 20, &bits.to_be_bytes()), outcome)
        }
        PacketFault::Fragment(_) => (changed(frame, 20, &[44]), Err(Reason::Fragment)),
        PacketFault::Protocol(protocol) => {
            let outcome = match protocol {
                6 => Ok(()),
                44 if !is_v4 => Err(Reason::Fragment),
                0 | 43 | 51 | 60 | 135 if !is_v4 => Err(Reason::Options),
                _ => Err(Reason::Protocol),
            };
            (changed(frame, at(23, 20), &[protocol]), outcome)
        }
        PacketFault::Options(words) if is_v4 => {
            let mut frame = frame;
            frame.splice(34..34, vec![1; words * 4]);
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            let first = 0x45 + words as u8;
            (changed(frame, 14, &[first]), Err(Reason::Options))
        }
        PacketFault::Options(_) => (changed(frame, 20, &[60]), Err(Reason::Options)),
        _ => (frame, Ok(())),
    }
}

/// A fault of the addresses, the ports or the data offset.
fn with_end_fault(frame: Vec<u8>, is_v4: bool, fault: PacketFault) -> Case {
    // Offsets of a field depend on the version.
    let at = |v4: usize, v6: usize| if is_v4 { v4 } else { v6 };
    match fault {
        PacketFault::Broadcast(kind, [a, b, c]) if is_v4 => {
            let to = match kind % 4 {
                0 => [0, a, b, c],
                1 => [240 + a % 16, a, b, c],
                2 => [255; 4],
                _ => [10, 0, 0, 255],
            };
            (changed(frame, 30, &to), Err(Reason::Broadcast))
        }
        // IPv6 has none.
        PacketFault::Broadcast(..) => (frame, Ok(())),
        PacketFault::Multicast([a, b, c, d]) => {
            let to = [if is_v4 { 224 + a % 16 } else { 0xff }, b, c, d];
            (changed(frame, at(30, 38), &to), Err(Reason::Multicast))
        }
        PacketFault::Loopback([a, b, c]) if is_v4 => {
            (changed(frame, 30, &[127, a, b, c]), Err(Reason::Loopback))
        }
        PacketFault::Loopback(rest) => {
            // An address that embeds an IPv4 address.
            let mut to = [0; 16];
            to[10..12].fill(0xff);
            to[13..].copy_from_slice(&rest);
            (changed(frame, 38, &to), Err(Reason::Loopback))
        }
        PacketFault::Local => (changed(frame, at(33, 53), &[1]), Err(Reason::Local)),
        PacketFault::DataOffset(words) => {
            let byte = words << 4;
            (changed(frame, at(46, 66), &[byte]), Err(Reason::DataOffset))
        }
        PacketFault::SourceAddress(by) => {
            let last = at(29, 37);
            let byte = frame[last] ^ by;
            (changed(frame, last, &[byte]), Err(Reason::SourceAddress))
        }
        PacketFault::Port(port) => {
            let outcome = match (port, is_v4) {
                (80, true) | (443, false) | (20_000, _) => Ok(()),
                (81, true) | (20_001, _) => Err(Reason::ForeignPort),
                _ => Err(Reason::SourcePort),
            };
            (changed(frame, at(34, 54), &port.to_be_bytes()), outcome)
        }
        _ => (frame, Ok(())),
    }
}

#[test]
fn program_and_twin_do_what_the_fault_of_a_frame_asks_for() {
    let Some(host) = Host::enter("model") else {
        return;
    };
    let mut bench = Bench::new(&host);
    let mac = bench.table.mac;
    let mut runner = TestRunner::new(Config {
        cases: 3000,
        failure_persistence: None,
        ..Config::default()
    });
    let cell = std::cell::RefCell::new(&mut bench);
    runner
        .run(
            &(any::<bool>(), 0usize..1200, fault()),
            |(is_v4, payload, fault)| {
                let (frame, expected) = make(mac, is_v4, payload, fault);
                prop_assert_eq!(cell.borrow_mut().check(&frame), expected);
                Ok(())
            },
        )
        .unwrap();
    // All but those that depend on more than the frame.
    let silent = Reason::ALL.iter();
    let silent: Vec<&Reason> = silent.filter(|one| !bench.seen.contains_key(one)).collect();
    assert_eq!(silent, [&Reason::Offload, &Reason::Rate, &Reason::NoNic]);
    bench.plane.close();
}
