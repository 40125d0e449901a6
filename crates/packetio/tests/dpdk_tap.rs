//! A DPDK port (driver `net_tap`) against the kernel's end of its TAP: checksums by the driver,
//! interrupts, an MTU. Each test is skipped, with the reason printed, where DPDK or the privilege
//! is missing.
//!
//! EAL starts once in a process, so the tests share one, and a namespace.

mod dpdk_common;
mod netns;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dpdk_common::{count, plugin};
use netns::{Namespace, can_run};
use packetio::dpdk::DpdkOptions;
use packetio::packet::{Packet, PacketOptions};
use packetio::{Backend, Port, RxChecksum, WireSpec, wait};
use wire::{ethernet, ipv4, tcp};

const PATIENCE: Duration = Duration::from_secs(30);
const TCP_AT: usize = 34;
/// A second.
const SECOND_NS: u64 = 1_000_000_000;

/// The two ends of a TAP: the driver's, and a raw socket on the kernel's.
struct Ends {
    dpdk: Box<dyn Port + Send>,
    kernel: Packet,
    _alone: MutexGuard<'static, ()>,
}

/// The TAP of the process' EAL, opened anew with these options.
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
    let (dpdk, kernel) = place.inside(|| {
        let spec = WireSpec::from(Backend::Dpdk(options));
        // The kernel is to say nothing of its own, from the start: the driver sets its TAP up.
        place.exec("sysctl -q -w net.ipv6.conf.default.disable_ipv6=1");
        let dpdk = packetio::open(&spec, 0).unwrap();
        place.ip("link set dtap up");
        let options = PacketOptions {
            interface: "dtap".to_owned(),
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

/// A TCP segment with `payload` bytes whose checksum field holds `checksum` of the right one and
/// the pseudo-header's sum.
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

/// The next frame and what the driver says of its checksum.
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
        // Not asked for, it leaves the frame alone.
        send(&mut ends.dpdk, &partial, false);
        assert_eq!(next(&mut ends.kernel).0, partial);
    }
    // An offload beyond the frame is refused, not done.
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
    // How long the last of so many idle sleeps was: 11 double it from 50 us to 100 ms.
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
        // Asleep for long by now, and not about to wake.
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
    // A sleeper without the interrupt would wake when its sleep is over.
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
