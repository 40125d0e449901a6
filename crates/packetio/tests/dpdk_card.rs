//! A DPDK driver that merges received packets (LRO) and frees sent buffers late. No virtual device
//! does that, so the plug-in is built with `dpdk_common/card.h`, which wraps `net_tap`. Without
//! DPDK or the privilege the tests are skipped, with the reason printed.

mod dpdk_common;
mod netns;
#[path = "dpdk_common/text.rs"]
mod text;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dpdk_common::{card_plugin, count, receive, send_all};
use netns::{Namespace, can_run};
use packetio::dpdk::DpdkOptions;
use packetio::packet::{Packet, PacketOptions};
use packetio::{Backend, Port, RxChecksum, WireSpec, wait};
use text::{Text, without_identification};
use wire::tcp::Flags;

const PATIENCE: Duration = Duration::from_secs(30);

struct Ends {
    dpdk: Box<dyn Port + Send>,
    kernel: Packet,
    _alone: MutexGuard<'static, ()>,
}

fn ends(test: &str) -> Option<Ends> {
    static ALONE: Mutex<()> = Mutex::new(());
    static PLACE: OnceLock<Namespace> = OnceLock::new();
    if !can_run(test) {
        return None;
    }
    let options = DpdkOptions {
        port: "net_tap0".to_owned(),
        plugin: Some(card_plugin()?),
        eal: "--no-huge -m 128 --no-pci --vdev=net_tap0,iface=dlro".to_owned(),
        ..DpdkOptions::default()
    };
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = PLACE.get_or_init(|| Namespace::new("dlro"));
    let (dpdk, kernel) = place.inside(|| {
        place.exec("sysctl -q -w net.ipv6.conf.default.disable_ipv6=1");
        let dpdk = packetio::open(&WireSpec::from(Backend::Dpdk(options)), 0).unwrap();
        place.ip("link set dlro up");
        let options = PacketOptions {
            interface: "dlro".to_owned(),
            ..PacketOptions::default()
        };
        (dpdk, Packet::open(&options, 0).unwrap())
    });
    Some(Ends {
        dpdk,
        kernel,
        _alone: alone,
    })
}

/// Sends a text in segments; returns the frames received once its whole payload is there.
fn pass(ends: &mut Ends, text: &Text) -> Vec<(Vec<u8>, u16)> {
    let headers = text.tcp_at() + 20;
    send_all(&mut ends.kernel, &text.segments());
    let (mut came, mut bytes) = (Vec::new(), 0);
    while bytes < text.payload.len() {
        let more = receive(&mut ends.dpdk, 1, PATIENCE);
        assert!(!more.is_empty(), "{:?}", ends.dpdk.counters());
        bytes += more
            .iter()
            .map(|(frame, _)| frame.len() - headers)
            .sum::<usize>();
        came.extend(more);
    }
    came
}

fn texts() -> [Text; 4] {
    let psh = Flags::ACK | Flags::PSH;
    [
        Text::new(false, 1400, 30 * 1400 + 77, psh),
        Text::new(true, 1380, 30 * 1380, Flags::ACK),
        Text::new(false, 100, 3000, psh),
        Text::new(true, 500, 900, psh),
    ]
}

#[test]
fn merged_packet_is_lent_whole_with_the_size_of_its_segments() {
    let Some(mut ends) = ends("whole") else {
        return;
    };
    assert!(ends.dpdk.accept_merged());
    for text in texts() {
        let before = count(&ends.dpdk, "dpdk_rx_merged");
        let headers = text.tcp_at() + 20;
        let came = pass(&mut ends, &text);
        let payload: Vec<u8> = came
            .iter()
            .flat_map(|(frame, _)| frame[headers..].iter().copied())
            .collect();
        assert!(payload == text.payload);
        let merged = came.iter().filter(|(_, size)| *size > 0);
        for (frame, size) in merged.clone() {
            assert_eq!(usize::from(*size), text.size);
            // The device sets the length of the first segment only.
            let len_at = if text.is_v6 { 18 } else { 16 };
            let len = u16::from_be_bytes([frame[len_at], frame[len_at + 1]]);
            let from = if text.is_v6 { 54 } else { 14 };
            assert_eq!(usize::from(len), frame.len() - from);
            let is_right = text.is_v6 || wire::checksum::of(&frame[14..34]).is_valid();
            assert!(is_right, "the IPv4 header's checksum");
        }
        let merged = merged.count() as u64;
        assert!(merged > 0, "{} frames, none merged", came.len());
        assert_eq!(count(&ends.dpdk, "dpdk_rx_merged") - before, merged);
    }
    assert_eq!(count(&ends.dpdk, "dpdk_rx_cut"), 0);
    assert_eq!(count(&ends.dpdk, "dpdk_rx_dropped_chained"), 0);
}

#[test]
fn merged_packet_is_trusted_and_a_wrong_segment_stays_alone() {
    let Some(mut ends) = ends("verdict") else {
        return;
    };
    ends.dpdk.accept_merged();
    let text = Text::new(false, 1000, 3000, Flags::ACK);
    let mut segments = text.segments();
    segments[2][60] ^= 1;
    send_all(&mut ends.kernel, &segments);
    let mut came = Vec::new();
    let mut bytes = 0;
    while bytes < 3000 {
        for frame in ends.dpdk.receive().unwrap() {
            bytes += frame.len() - 54;
            came.push((frame.segment_bytes(), frame.checksum()));
        }
        wait(&mut [&mut ends.dpdk], &[], false, Some(1_000_000)).unwrap();
    }
    assert_eq!(came.pop(), Some((0, RxChecksum::Bad)));
    assert!(came.iter().all(|(_, sum)| *sum == RxChecksum::Verified));
}

#[test]
fn merged_packet_is_cut_for_a_caller_who_takes_none() {
    let Some(mut ends) = ends("cut") else {
        return;
    };
    let free = count(&ends.dpdk, "dpdk_buffers_free");
    let mut cut = 0;
    for text in texts() {
        let came = pass(&mut ends, &text);
        assert!(came.iter().all(|(_, size)| *size == 0));
        let frames: Vec<_> = came.into_iter().map(|(frame, _)| frame).collect();
        let frames = without_identification(frames);
        assert!(frames == without_identification(text.segments()));
        let before = cut;
        cut = count(&ends.dpdk, "dpdk_rx_cut");
        assert!(cut > before, "none was merged");
    }
    assert_eq!(count(&ends.dpdk, "dpdk_rx_merged"), 0);
    ends.dpdk.release();
    assert_eq!(count(&ends.dpdk, "dpdk_buffers_free"), free);
}

/// Sends up to eight packets of two segments each, by large buffers if there are any. Returns how
/// many, and whether by large buffers.
fn send_some(port: &mut dyn Port, text: &Text) -> (usize, bool) {
    let (bytes, small) = (text.large(), text.segments().remove(0));
    let slots = port.reserve(8);
    let n = slots.len();
    let is_large = n > 0 && slots[0].capacity_max() >= bytes.len();
    for slot in slots {
        assert_eq!(slot.capacity_max() >= bytes.len(), is_large, "all or none");
        let frame = if is_large { &bytes } else { &small };
        if is_large {
            assert!(slot.take_bulk_lane());
            slot.set_checksum_offload(text.tcp_at() as u16, 16);
            slot.set_segment_bytes(text.size as u16);
        }
        assert_eq!(slot.write(0, frame), frame.len());
        slot.set_len(frame.len());
    }
    port.send(n).unwrap();
    (n, is_large)
}

#[test]
fn driver_that_holds_all_large_buffers_gets_small_frames_until_it_frees_some() {
    let Some(mut ends) = ends("lazy") else {
        return;
    };
    let text = Text::new(false, 1200, 2400, Flags::ACK);
    let (mut large, mut small, mut is_large_again) = (0, 0, false);
    let mut heard = 0;
    for _ in 0..200 {
        let (n, is_large) = send_some(&mut ends.dpdk, &text);
        assert!(n > 0, "{:?}", ends.dpdk.counters());
        is_large_again |= is_large && small > 0;
        *(if is_large { &mut large } else { &mut small }) += n;
        let wanted = if is_large { 2 * n } else { n };
        heard += receive(&mut ends.kernel, wanted, PATIENCE).len();
    }
    assert_eq!(heard, 2 * large + small);
    assert!(
        large > 256 && is_large_again,
        "{large} large, {small} small"
    );
    assert!(small > 0);
    assert!(count(&ends.dpdk, "dpdk_tx_no_large") > 0);
}
