//! A DPDK port (driver `net_tap`) with the kernel's end of its TAP: checksums by the driver,
//! interrupts, an MTU. Without DPDK or the privilege the tests are skipped, with the reason
//! printed.
//!
//! EAL starts once per process, so the tests share it and a namespace.

mod dpdk_common;
mod netns;
#[path = "dpdk_common/text.rs"]
mod text;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dpdk_common::{count, plugin, receive, send_all};
use netns::{Namespace, can_run};
use packetio::dpdk::DpdkOptions;
use packetio::packet::{Packet, PacketOptions};
use packetio::{Backend, Port, RxChecksum, WireSpec, wait};
use text::{Text, without_identification};
use wire::tcp::Flags;
use wire::{ethernet, ipv4, tcp};

const PATIENCE: Duration = Duration::from_secs(30);
const TCP_AT: usize = 34;
/// One second, in ns.
const SECOND_NS: u64 = 1_000_000_000;

/// Both ends of a TAP: the driver's, and a raw socket on the kernel's.
struct Ends {
    dpdk: Box<dyn Port + Send>,
    kernel: Packet,
    /// MTU of the interface, which an earlier test may have changed.
    mtu: usize,
    _alone: MutexGuard<'static, ()>,
}

/// The TAP of the shared EAL, opened anew with these options.
fn ends(test: &str, change: impl FnOnce(&mut DpdkOptions) + Send) -> Option<Ends> {
    static ALONE: Mutex<()> = Mutex::new(());
    static PLACE: OnceLock<Namespace> = OnceLock::new();
    if !can_run(test) {
        return None;
    }
    let mut options = DpdkOptions {
        port: "net_tap0".to_owned(),
        plugin: Some(plugin()?),
        eal: "--no-huge -m 128 --no-pci --vdev=net_tap0,iface=dtap".to_owned(),
        ..DpdkOptions::default()
    };
    change(&mut options);
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = PLACE.get_or_init(|| Namespace::new("dtap"));
    let (dpdk, kernel, mtu) = place.inside(|| {
        let spec = WireSpec::from(Backend::Dpdk(options));
        // The driver sets its TAP up, so the kernel must be silenced before.
        place.exec("sysctl -q -w net.ipv6.conf.default.disable_ipv6=1");
        let dpdk = packetio::open(&spec, 0).unwrap();
        place.ip("link set dtap up");
        let options = PacketOptions {
            interface: "dtap".to_owned(),
            ..PacketOptions::default()
        };
        let link = place.ip("-o link show dtap");
        let mut words = link.split(' ').skip_while(|word| *word != "mtu");
        let mtu = words.nth(1).unwrap().parse().unwrap();
        (dpdk, Packet::open(&options, 0).unwrap(), mtu)
    });
    Some(Ends {
        dpdk,
        kernel,
        mtu,
        _alone: alone,
    })
}

/// A TCP segment with `payload` bytes. `checksum` computes its checksum field from the right value
/// and the pseudo-header's sum.
fn segment(payload: usize, checksum: impl FnOnce(u16, u16) -> u16) -> Vec<u8> {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut frame = vec![0x5a; TCP_AT + 20 + payload];
    let link = ethernet::Header {
        dst: packetio::MacAddr([2, 0, 0, 0, 0, 2]),
        src: packetio::MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: None,
        ethertype: ethernet::EtherType::IPV4,
    };
    let at = link.emit(&mut frame);
    let header = ipv4::Header {
        total_len: (20 + 20 + payload) as u16,
        protocol: 6,
        src,
        dst,
        ..ipv4::Header::default()
    };
    header.emit(&mut frame[at..]);
    let mut header = tcp::Header {
        src_port: 7,
        dst_port: 9,
        ..tcp::Header::default()
    };
    header.emit(&mut frame[TCP_AT..]);
    let pseudo = wire::checksum::pseudo_header_v4(src, dst, 6, (20 + payload) as u32);
    let mut whole = pseudo;
    whole.add_bytes(&frame[TCP_AT..]);
    header.checksum = checksum(whole.finish(), pseudo.fold());
    header.emit(&mut frame[TCP_AT..]);
    frame
}

fn send(port: &mut dyn Port, frame: &[u8], offload: bool) {
    let slots = port.reserve(1);
    assert_eq!(slots[0].write(0, frame), frame.len());
    slots[0].set_len(frame.len());
    if offload {
        slots[0].set_checksum_offload(TCP_AT as u16, 16);
    }
    port.send(1).unwrap();
}

/// Receives the next frame with the driver's verdict on its checksum.
fn next(port: &mut dyn Port) -> (Vec<u8>, RxChecksum) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "{:?}", port.counters());
        if let [first, rest @ ..] = port.receive().unwrap() {
            assert!(rest.is_empty());
            let mut bytes = vec![0; first.len()];
            first.copy_to(0, &mut bytes);
            return (bytes, first.checksum());
        }
        wait(&mut [&mut *port], &[], false, Some(SECOND_NS)).unwrap();
    }
}

#[test]
fn checksum_left_to_the_driver_arrives_right() {
    let Some(mut ends) = ends("checksum", |_| ()) else {
        return;
    };
    assert!(ends.dpdk.capabilities().tx_checksum_offload);
    for payload in [0, 1, 1000] {
        let right = segment(payload, |right, _| right);
        let partial = segment(payload, |_, pseudo| pseudo);
        assert_ne!(right, partial);
        send(&mut ends.dpdk, &partial, true);
        assert_eq!(next(&mut ends.kernel).0, right);
        // Without a request the driver does not change the frame.
        send(&mut ends.dpdk, &partial, false);
        assert_eq!(next(&mut ends.kernel).0, partial);
    }
    // A checksum field beyond the frame is refused.
    let short = &segment(0, |_, pseudo| pseudo)[..TCP_AT + 10];
    send(&mut ends.dpdk, short, true);
    assert_eq!(count(&ends.dpdk, "dpdk_tx_dropped_refused"), 1);
}

#[test]
fn checksum_that_arrives_is_judged_by_the_driver() {
    let Some(mut ends) = ends("verdict", |_| ()) else {
        return;
    };
    let right = segment(100, |right, _| right);
    send(&mut ends.kernel, &right, false);
    assert_eq!(next(&mut ends.dpdk), (right, RxChecksum::Verified));
    let wrong = segment(100, |right, _| right ^ 0x1000);
    send(&mut ends.kernel, &wrong, false);
    assert_eq!(next(&mut ends.dpdk), (wrong, RxChecksum::Bad));
}

#[test]
fn sleeper_with_an_interrupt_sleeps_long_and_wakes_at_once() {
    let Some(mut ends) = ends("interrupt", |_| ()) else {
        return;
    };
    // The last of sixteen idle sleeps: eleven double it from 50 µs to 100 ms.
    let idle = |port: &mut Box<dyn Port + Send>| {
        let mut last = Duration::ZERO;
        for _ in 0..16 {
            let begin = Instant::now();
            wait(&mut [&mut *port], &[], false, None).unwrap();
            last = begin.elapsed();
            assert!(port.receive().unwrap().is_empty());
        }
        last
    };
    let mut waits = Vec::new();
    let mut sleeps = Vec::new();
    for _ in 0..9 {
        sleeps.push(idle(&mut ends.dpdk));
        // The port is in a long sleep that will not end soon.
        let frame = segment(10, |right, _| right);
        let mut kernel = ends.kernel;
        let sent = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            send(&mut kernel, &frame, false);
            (kernel, Instant::now())
        });
        next(&mut ends.dpdk);
        let came = Instant::now();
        let (kernel, sent) = sent.join().unwrap();
        ends.kernel = kernel;
        waits.push(came.saturating_duration_since(sent));
    }
    waits.sort();
    sleeps.sort();
    assert!(sleeps[4] > Duration::from_millis(50), "{sleeps:?}");
    // Without the interrupt the sleeper would wake only at the end of its sleep.
    assert!(waits[4] < sleeps[4] / 2, "{waits:?} of {sleeps:?}");
}

#[test]
fn mtu_asked_for_is_the_device_s() {
    let Some(mut ends) = ends("mtu", |options| options.mtu = Some(1400)) else {
        return;
    };
    assert_eq!(ends.dpdk.capabilities().mtu, 1400);
    assert_eq!(ends.dpdk.reserve(1)[0].capacity(), 1418);
    let long = segment(1360, |right, _| right);
    send(&mut ends.kernel, &long, false);
    assert_eq!(next(&mut ends.dpdk), (long.clone(), RxChecksum::Verified));
    send(&mut ends.dpdk, &long, false);
    assert_eq!(next(&mut ends.kernel).0, long);
}

/// Sends a text as one packet that must be cut.
fn send_large(port: &mut dyn Port, text: &Text) {
    let bytes = text.large();
    let slots = port.reserve(1);
    assert!(slots[0].capacity_max() >= bytes.len());
    assert!(slots[0].take_bulk_lane());
    assert_eq!(slots[0].write(0, &bytes), bytes.len());
    slots[0].set_len(bytes.len());
    slots[0].set_checksum_offload(text.tcp_at() as u16, 16);
    slots[0].set_segment_bytes(text.size as u16);
    port.send(1).unwrap();
}

/// Receives frames at the kernel's end, without the kernel's own.
fn heard(kernel: &mut Packet, count: usize) -> Vec<Vec<u8>> {
    let got = receive(kernel, count, PATIENCE).into_iter();
    got.map(|(bytes, _)| bytes).collect()
}

#[test]
fn large_packet_arrives_as_the_segments_that_leave_alone() {
    let Some(mut ends) = ends("large", |_| ()) else {
        return;
    };
    let capabilities = ends.dpdk.capabilities();
    assert!(capabilities.segment_bytes_max > 60_000, "{capabilities:?}");
    // This driver counts the Ethernet header into the segments that it cuts.
    assert_eq!(capabilities.mtu, ends.mtu - 14);
    let full = capabilities.mtu - 40;
    let (ack, end) = (Flags::ACK, Flags::ACK | Flags::PSH | Flags::FIN);
    // Whether the driver can cut the packet: only IPv4, segments shorter than the MTU, and at most
    // 64.
    for (text, by_driver) in [
        (Text::new(false, full, 45 * full - 1, ack), true),
        (Text::new(false, full, full + 1, end), true),
        (Text::new(false, 1000, 64_000, end), true),
        (Text::new(false, 1000, 64_001, end), false),
        (Text::new(false, full + 1, 3 * full, end), false),
        (Text::new(false, 88, 200 * 88, ack), false),
        (Text::new(true, full - 20, 44 * full, end), false),
        (Text::new(true, 512, 513, ack), false),
    ] {
        let before = ["dpdk_tx_large", "dpdk_tx_cut"].map(|name| count(&ends.dpdk, name));
        let alone = text.segments();
        send_all(&mut ends.dpdk, &alone);
        assert!(heard(&mut ends.kernel, alone.len()) == alone);
        send_large(&mut ends.dpdk, &text);
        let cut = without_identification(heard(&mut ends.kernel, alone.len()));
        let is_same = cut == without_identification(alone);
        let (size, len) = (text.size, text.payload.len());
        assert!(is_same, "{len} bytes by {size}, IPv6 {}", text.is_v6);
        let after = ["dpdk_tx_large", "dpdk_tx_cut"].map(|name| count(&ends.dpdk, name));
        let by = [u64::from(by_driver), u64::from(!by_driver)];
        assert_eq!([after[0] - before[0], after[1] - before[1]], by, "{size}");
    }
    assert_eq!(count(&ends.dpdk, "dpdk_tx_dropped_refused"), 0);
}

#[test]
fn large_packet_that_makes_no_sense_is_refused_and_counted() {
    let Some(mut ends) = ends("nonsense", |_| ()) else {
        return;
    };
    let good = Text::new(false, 1000, 3000, Flags::ACK);
    let mut wide = good.clone();
    wide.size = 1600;
    send_large(&mut ends.dpdk, &wide);
    let mut empty = good.clone();
    empty.payload.clear();
    send_large(&mut ends.dpdk, &empty);
    // A packet longer than the MTU without a segment size.
    let slots = ends.dpdk.reserve(1);
    assert!(slots[0].take_bulk_lane());
    slots[0].write(0, &good.large());
    slots[0].set_len(good.large().len());
    ends.dpdk.send(1).unwrap();
    assert_eq!(count(&ends.dpdk, "dpdk_tx_dropped_refused"), 3);
    send_large(&mut ends.dpdk, &good);
    let cut = without_identification(heard(&mut ends.kernel, 3));
    assert!(cut == without_identification(good.segments()));
}

#[test]
fn packets_of_both_kinds_in_a_batch_leave_in_their_order() {
    let Some(mut ends) = ends("order", |_| ()) else {
        return;
    };
    let free = count(&ends.dpdk, "dpdk_buffers_free");
    for _ in 0..20 {
        let mut wanted = Vec::new();
        let slots = ends.dpdk.reserve(9);
        assert_eq!(slots.len(), 9);
        for (n, slot) in slots.iter().enumerate() {
            // In turn: a packet that the driver cuts, one that it cannot cut, and a small frame.
            let text = Text::new(n % 3 == 1, 1300, 5 * 1300 + n, Flags::ACK);
            let alone = text.segments();
            let bytes = match n % 3 {
                2 => alone[n % 2].clone(),
                _ => text.large(),
            };
            if n % 3 < 2 {
                assert!(slot.take_bulk_lane());
                slot.set_checksum_offload(text.tcp_at() as u16, 16);
                slot.set_segment_bytes(text.size as u16);
                wanted.extend(alone);
            } else {
                wanted.push(bytes.clone());
            }
            assert_eq!(slot.write(0, &bytes), bytes.len());
            slot.set_len(bytes.len());
        }
        ends.dpdk.send(9).unwrap();
        let heard = without_identification(heard(&mut ends.kernel, wanted.len()));
        assert!(heard == without_identification(wanted));
    }
    assert!(ends.dpdk.reserve(1)[0].take_bulk_lane());
    ends.dpdk.send(0).unwrap();
    assert_eq!(count(&ends.dpdk, "dpdk_buffers_free"), free);
}

#[test]
fn wire_without_offload_takes_no_large_packet_and_no_checksum() {
    let Some(mut ends) = ends("off", |options| options.offload = false) else {
        return;
    };
    let capabilities = ends.dpdk.capabilities();
    assert_eq!(capabilities.segment_bytes_max, 0);
    assert!(!capabilities.tx_checksum_offload);
    assert_eq!(capabilities.mtu, ends.mtu);
    assert!(!ends.dpdk.reserve(1)[0].take_bulk_lane());
    let wrong = segment(100, |right, _| right ^ 0x1000);
    send(&mut ends.kernel, &wrong, false);
    assert_eq!(next(&mut ends.dpdk), (wrong, RxChecksum::Unknown));
}
