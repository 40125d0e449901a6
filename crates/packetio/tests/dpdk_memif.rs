//! A DPDK port (driver `net_memif`, as client) with our own memif as its peer, in one process: no
//! NIC, huge pages or root needed. Without DPDK the tests are skipped, with the reason printed.
//!
//! EAL starts once per process, so all tests share it, with one device each.

mod dpdk_common;
#[path = "memif_common/mod.rs"]
mod memif_common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dpdk_common::{count, open, plugin};
use memif_common::{fill, until};
use packetio::dpdk::DpdkOptions;
use packetio::memif::{Memif, MemifOptions, MemifPort};
use packetio::{Port, PortError, wait};

const PATIENCE: Duration = Duration::from_secs(60);
/// Number of devices of the shared EAL.
const DEVICES: usize = 8;
const FRAME_BYTES_MAX: usize = 1514;
/// Frame length of the only device that is not a memif, whose driver generates frames.
const LARGE: usize = 9014;

fn socket(device: usize) -> String {
    memif_common::path(&format!("dpdk{device}"))
}

/// Options for device `device` of the shared EAL.
fn options(device: usize) -> Option<DpdkOptions> {
    let devices = (0..DEVICES).map(|device| {
        let socket = socket(device);
        format!(" --vdev=net_memif{device},role=client,socket={socket},socket-abstract=no")
    });
    Some(DpdkOptions {
        port: format!("net_memif{device}"),
        plugin: Some(plugin()?),
        eal: format!(
            "--no-huge -m 256 --no-pci --vdev=net_null0,size={LARGE}{}",
            devices.collect::<String>()
        ),
        ..DpdkOptions::default()
    })
}

/// Lets one test run at a time, because they share cores.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Queues of a native memif that listens for `device`.
fn native(device: usize, queues: usize) -> Vec<MemifPort> {
    let options = MemifOptions {
        path: socket(device),
        queues,
        ..MemifOptions::default()
    };
    Memif::connect(&options).unwrap()
}

/// A native memif and the device connected to it, in this order: the device must be dropped first.
/// The driver's own thread takes the connection down when the peer leaves. Stopping the port at
/// that moment does the same without a lock between them, which crashes (`EAL: Error: Invalid
/// memory`).
fn connected(device: usize) -> Option<(MemifPort, Box<dyn Port + Send>)> {
    let options = options(device)?;
    // The driver's client looks for its server only once, when it starts.
    let mut native = native(device, 1).remove(0);
    let dpdk = open(&options, 0).unwrap();
    meet(&mut native);
    Some((native, dpdk))
}

fn meet(native: &mut MemifPort) {
    let connected = until(PATIENCE, || {
        if !native.is_connected() {
            let _ = native.receive().map(<[_]>::len);
        }
        native.is_connected()
    });
    assert!(connected, "{}", native.last_reason());
}

/// Sends frames numbered from `number` on, as many as fit; returns how many.
fn send_some(port: &mut dyn Port, number: u64, end: u64) -> u64 {
    let mut bytes = [0; FRAME_BYTES_MAX];
    let slots = port.reserve((end - number).min(64) as usize);
    let sent = slots.len();
    for (i, slot) in slots.iter().enumerate() {
        let length = fill(&mut bytes, number + i as u64, FRAME_BYTES_MAX);
        assert_eq!(slot.write(0, &bytes[..length]), length);
        slot.set_len(length);
    }
    port.send(sent).unwrap();
    sent as u64
}

/// Receives a batch of frames that must be numbered from `number` on; returns how many.
fn receive_some(port: &mut dyn Port, number: u64) -> u64 {
    let (mut bytes, mut came) = ([0; FRAME_BYTES_MAX], [0; 2048]);
    let mut next = number;
    for frame in port.receive().unwrap() {
        let length = fill(&mut bytes, next, FRAME_BYTES_MAX);
        assert_eq!(frame.copy_to(0, &mut came), length, "frame {next}");
        assert!(came[..length] == bytes[..length], "frame {next}");
        next += 1;
    }
    port.release();
    next - number
}

/// Exchanges `frames` numbered frames each way at the same time, complete and in order. Both ends
/// sleep when nothing moves.
fn exchange(a: &mut dyn Port, b: &mut dyn Port, frames: u64) {
    let (mut sent, mut came) = ([0; 2], [0; 2]);
    let deadline = Instant::now() + PATIENCE;
    while came.iter().any(|&came| came < frames) {
        assert!(
            Instant::now() < deadline,
            "sent {sent:?}, came {came:?}: {:?} {:?}",
            a.counters(),
            b.counters()
        );
        let before = (sent, came);
        sent[0] += send_some(a, sent[0], frames);
        sent[1] += send_some(b, sent[1], frames);
        came[1] += receive_some(a, came[1]);
        came[0] += receive_some(b, came[0]);
        if before == (sent, came) {
            wait(&mut [&mut *a, &mut *b], &[], false, Some(100_000_000)).unwrap();
        }
    }
}

#[test]
fn connected_frames_both_ways_are_whole_and_in_order() {
    let _alone = alone();
    let Some((mut native, mut dpdk)) = connected(0) else {
        return;
    };
    let is = dpdk.capabilities();
    assert_eq!((is.name.as_str(), is.queue), ("dpdk:net_memif0", 0));
    assert_eq!(is.mtu, 1500);
    // This driver cuts no packets.
    assert_eq!(is.segment_bytes_max, 0);
    assert!(!dpdk.reserve(1)[0].take_bulk_lane());
    dpdk.send(0).unwrap();
    exchange(&mut dpdk, &mut native, 200_000);
    for name in [
        "dpdk_rx_dropped_runt",
        "dpdk_rx_dropped_too_long",
        "dpdk_rx_dropped_chained",
        "dpdk_tx_dropped_runt",
        "dpdk_tx_dropped_refused",
    ] {
        assert_eq!(count(&dpdk, name), 0, "{name}");
    }
    let counters = dpdk.counters();
    assert_eq!((counters.rx_frames, counters.tx_frames), (200_000, 200_000));
    assert_eq!(counters.rx_bytes, counters.tx_bytes);
}

#[test]
fn connected_frames_of_odd_lengths_are_dropped_and_counted() {
    let _alone = alone();
    let Some((mut native, mut dpdk)) = connected(1) else {
        return;
    };
    let lengths = [1, 13, 14, 60, 1518, 1519, 2048];
    // The driver supplies its buffers when it is asked for frames.
    assert!(until(PATIENCE, || {
        dpdk.receive().unwrap().is_empty() && native.reserve(lengths.len()).len() == lengths.len()
    }));
    let slots = native.reserve(lengths.len());
    for (slot, &length) in slots.iter().zip(&lengths) {
        slot.write(0, &[length as u8; 2048]);
        slot.set_len(length);
    }
    native.send(lengths.len()).unwrap();
    let mut came = Vec::new();
    let all = until(PATIENCE, || {
        came.extend(dpdk.receive().unwrap().iter().map(|frame| frame.len()));
        came.len() >= 3 && count(&dpdk, "dpdk_rx_dropped_too_long") >= 2
    });
    assert!(all, "{came:?} {:?}", dpdk.counters());
    assert_eq!(came, [14, 60, 1518]);
    assert_eq!(count(&dpdk, "dpdk_rx_dropped_runt"), 2);
    assert_eq!(count(&dpdk, "dpdk_rx_dropped_too_long"), 2);

    // In the other direction, bytes that are not a frame are not sent.
    let slots = dpdk.reserve(3);
    for (slot, length) in slots.iter().zip([13, 14, 1518]) {
        assert_eq!(slot.capacity(), 1518);
        slot.write(0, &[length as u8; 1518]);
        slot.set_len(length);
    }
    dpdk.send(3).unwrap();
    let mut came = Vec::new();
    assert!(until(PATIENCE, || {
        came.extend(native.receive().unwrap().iter().map(|frame| frame.len()));
        came.len() >= 2
    }));
    assert_eq!(came, [14, 1518]);
    assert_eq!(count(&dpdk, "dpdk_tx_dropped_runt"), 1);
}

#[test]
fn peer_that_does_not_read_pushes_back_and_loses_nothing() {
    let _alone = alone();
    let Some((mut native, mut dpdk)) = connected(2) else {
        return;
    };
    let mut sent = 0;
    let full = until(PATIENCE, || {
        let n = send_some(&mut dpdk, sent, u64::MAX);
        sent += n;
        // The driver may learn a little later than the peer that they are connected.
        n == 0 && sent >= 1024
    });
    assert!(full, "{sent}");
    assert!(count(&dpdk, "dpdk_tx_pushed_back") > 0);
    // There is no room, so a sleep for room must end by itself.
    let woken = wait(&mut [&mut dpdk], &[], true, Some(5_000_000_000)).unwrap();
    assert!(woken.port(0));
    let mut came = 0;
    let all = until(PATIENCE, || {
        came += receive_some(&mut native, came);
        dpdk.send(0).unwrap();
        came == sent
    });
    assert!(all, "{came} of {sent}");
    assert_eq!(dpdk.reserve(64).len(), 64);
}

#[test]
fn port_closed_and_opened_again_carries_frames_and_keeps_no_buffers() {
    let _alone = alone();
    let Some(options) = options(3) else {
        return;
    };
    let mut free = Vec::new();
    for round in 0..4 {
        let mut native = native(3, 1).remove(0);
        let mut dpdk = open(&options, 0).unwrap();
        meet(&mut native);
        free.push(count(&dpdk, "dpdk_buffers_free"));
        exchange(&mut dpdk, &mut native, 5_000);
        // The port is closed with a batch lent, slots granted, and unread frames.
        send_some(&mut native, 0, 32);
        assert!(until(PATIENCE, || !dpdk.receive().unwrap().is_empty()));
        while send_some(&mut dpdk, 0, u64::MAX) > 0 {}
        assert!(dpdk.reserve(64).is_empty(), "round {round}");
        drop(dpdk);
        let gone = until(PATIENCE, || {
            native.receive().map(<[_]>::len) == Err(PortError::Disconnected)
        });
        assert!(gone, "round {round}");
    }
    assert!(free.iter().all(|&n| n == free[0]), "{free:?}");
}

#[test]
fn queues_each_carry_their_own_frames() {
    let _alone = alone();
    let Some(options) = options(4) else {
        return;
    };
    let options = DpdkOptions {
        queues: 2,
        ..options
    };
    let mut native = native(4, 2);
    let mut dpdk: Vec<_> = (0..2).map(|q| open(&options, q).unwrap()).collect();
    meet(&mut native[0]);
    meet(&mut native[1]);
    for (dpdk, native) in dpdk.iter_mut().zip(&mut native) {
        exchange(dpdk, native, 20_000);
        assert_eq!(dpdk.counters().rx_frames, 20_000);
    }
    // A queue is closed and opened alone, while the port runs on with the other one.
    let taken = open(&options, 1).map(|_| ()).unwrap_err();
    assert_eq!(taken, "dpdk:net_memif4: queue 1 is open already");
    dpdk.truncate(1);
    dpdk.push(open(&options, 1).unwrap());
    for (dpdk, native) in dpdk.iter_mut().zip(&mut native) {
        exchange(dpdk, native, 1_000);
    }
}

#[test]
fn port_that_cannot_be_is_refused_in_one_line() {
    let _alone = alone();
    let Some(good) = options(5) else {
        return;
    };
    let _native = native(5, 1);
    let refused = |change: fn(&mut DpdkOptions), queue| {
        let mut options = good.clone();
        change(&mut options);
        let error = open(&options, queue).map(|_| ()).unwrap_err();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let error = refused(|o| o.port = "net_none".to_owned(), 0);
    assert!(
        error.starts_with(
            "dpdk:net_none: DPDK has no port of this name; it has: 0 net_null0, 1 net_memif0"
        ),
        "{error}"
    );
    let error = refused(|o| o.port = "31".to_owned(), 0);
    assert!(error.starts_with("dpdk:31: DPDK has no port"), "{error}");
    let error = refused(|_| (), 1);
    assert!(error.ends_with("queue 1 of 1 (say queues=N)"), "{error}");
    let _port = open(&good, 0).unwrap();
    let error = refused(|o| o.mtu = Some(1400), 0);
    assert!(error.contains("open already, with other options"));
    let error = refused(|o| o.port = "6".to_owned(), 0);
    assert!(
        error.contains("port 6 is open already, by another name"),
        "{error}"
    );
    let error = refused(
        |o| {
            o.port = "7".to_owned();
            o.eal = "--no-huge".to_owned();
        },
        0,
    );
    assert!(error.contains("EAL runs already, with other arguments: --no-telemetry"));
    let error = refused(
        |o| {
            o.port = "7".to_owned();
            o.plugin = Some("/nosuch".into());
        },
        0,
    );
    assert!(error.contains("another plug-in is loaded already"));
}

#[test]
fn large_mtu_makes_room_for_large_frames() {
    let _alone = alone();
    let Some(options) = options(0) else {
        return;
    };
    let options = DpdkOptions {
        port: "net_null0".to_owned(),
        mtu: Some(9000),
        ..options
    };
    let mut dpdk = open(&options, 0).unwrap();
    assert_eq!(dpdk.capabilities().mtu, 9000);
    for _ in 0..100 {
        for frame in dpdk.receive().unwrap() {
            assert_eq!(frame.len(), LARGE);
        }
    }
    assert_eq!(dpdk.counters().rx_frames, 6_400);
    assert_eq!(count(&dpdk, "dpdk_rx_dropped_chained"), 0);
    assert_eq!(dpdk.reserve(1)[0].capacity(), 9018);
}

#[test]
fn idle_sleeper_is_woken_by_a_frame_within_its_longest_sleep() {
    let _alone = alone();
    let Some((mut native, mut dpdk)) = connected(6) else {
        return;
    };
    // After a long idle time the sleeps have their full length, because this driver has no
    // interrupts.
    let begin = Instant::now();
    let mut sleeps = 0;
    while begin.elapsed() < Duration::from_millis(100) {
        wait(&mut [&mut dpdk], &[], false, None).unwrap();
        assert!(dpdk.receive().unwrap().is_empty());
        sleeps += 1;
    }
    assert!(sleeps < 200, "{sleeps} sleeps in a tenth of a second");
    assert_eq!(send_some(&mut native, 0, 1), 1);
    let mut came = 0;
    while came == 0 {
        wait(&mut [&mut dpdk], &[], false, None).unwrap();
        came = receive_some(&mut dpdk, 0);
    }
    assert!(begin.elapsed() < PATIENCE);
}
