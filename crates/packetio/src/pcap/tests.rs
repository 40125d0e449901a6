//! The file's bytes, and failures to write it. `tests/pcap_tools.rs` reads a file with tcpdump and
//! tshark.

use super::*;
use crate::loopback::{self, LoopbackOptions};

/// The blocks of a file as (type, body), with both lengths checked.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let total = word(&file[4..]) as usize;
        assert_eq!(total % 4, 0);
        assert_eq!(word(&file[total - 4..]) as usize, total);
        blocks.push((word(file), &file[8..total - 4]));
        file = &file[total..];
    }
    blocks
}

#[test]
fn pcap_file_has_a_section_an_interface_and_packets() -> io::Result<()> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file, "tap:mill0")?;
    for len in 0..9 {
        writer.frame(0x1_0000_0002, Direction::Outbound, &[7; 9][..len], 100)?;
    }
    let blocks = blocks(&file);
    let kinds: Vec<_> = blocks.iter().map(|b| b.0).collect();
    assert_eq!(kinds[..3], [0x0a0d_0d0a, 1, 6]);
    assert_eq!(kinds.len(), 11);
    let packet = blocks[4].1;
    assert_eq!(packet[4..12], [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(packet[12..20], [2, 0, 0, 0, 100, 0, 0, 0]);
    assert_eq!(packet[20..24], [7, 7, 0, 0]);
    assert_eq!(packet[24..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    Ok(())
}

#[test]
fn pcap_file_tells_of_interfaces_drops_and_what_was_missed() -> io::Result<()> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::section(&mut file)?;
    assert_eq!(writer.interface("7/0 xdp:eth0", "mill", 96)?, 0);
    assert_eq!(writer.interface("7/1 xdp:eth0", "mill", 96)?, 1);
    writer.packet(&Packet {
        interface: 1,
        at_ns: 5,
        direction: Direction::Inbound,
        bytes: &[7; 4],
        len: 60,
        missed: 3,
        comment: "why",
    })?;
    writer.statistics(1, 6, 10, 3)?;
    let blocks = blocks(&file);
    let kinds: Vec<_> = blocks.iter().map(|b| b.0).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 5]);
    assert_eq!(blocks[1].1[4..8], [96, 0, 0, 0], "the snap length");
    let packet = blocks[3].1;
    assert_eq!(packet[..4], [1, 0, 0, 0]);
    let options = [1, 0, 3, 0, b'w', b'h', b'y', 0, 2, 0, 4, 0, 1, 0, 0, 0];
    assert_eq!(packet[24..40], options);
    assert_eq!(packet[40..52], [4, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let statistics = blocks[4].1;
    assert_eq!(statistics[..12], [1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0]);
    assert_eq!(statistics[12..20], [4, 0, 8, 0, 10, 0, 0, 0]);
    assert_eq!(statistics[24..32], [5, 0, 8, 0, 3, 0, 0, 0]);
    Ok(())
}

#[test]
fn pcap_of_a_full_disk_is_refused_at_open() {
    let port = loopback::echo(&LoopbackOptions::default()).expect("eventfds");
    assert!(Pcap::new(port, Path::new("/dev/full")).is_err());
}

#[test]
fn pcap_passes_frames_on_and_pushes_back() {
    let options = LoopbackOptions {
        slots: 2,
        ..LoopbackOptions::default()
    };
    let (a, mut b) = loopback::pair(&options).expect("eventfds");
    let mut a = Pcap::new(a, Path::new("/dev/null")).expect("opened");
    assert_eq!(a.reserve(5).len(), 2);
    for slot in a.reserve(5) {
        slot.set_len(slot.write(0, b"an ethernet frame"));
    }
    a.send(2).expect("sent");
    assert!(a.reserve(1).is_empty());
    assert_eq!(b.receive().expect("received").len(), 2);
    b.release();
    assert_eq!(a.reserve(5).len(), 2);
    a.send(0).expect("sent");
    assert_eq!(a.counters().value("pcap_written"), Some(2));
    assert_eq!(a.counters().value("pcap_tx_dropped_no_room"), Some(0));
}
