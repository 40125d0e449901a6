//! The bridge between two loopbacks: A's far end sends, B's far end receives.

use std::thread;
use std::time::Duration;

use super::*;
use crate::fault::{LineOptions, Ratio};
use crate::loopback::{self, Loopback, LoopbackOptions};
use crate::mortal::mortal;
use crate::wait::wait;

struct World {
    near: Loopback,
    bridge: Bridge<Loopback, Loopback>,
    far: Loopback,
}

fn world(faults: &FaultOptions, slots: usize) -> World {
    let options = LoopbackOptions {
        slots,
        ..LoopbackOptions::default()
    };
    let (near, a) = loopback::pair(&options).expect("eventfds");
    let (b, far) = loopback::pair(&options).expect("eventfds");
    World {
        near,
        bridge: Bridge::new(a, b, faults),
        far,
    }
}

fn say(port: &mut Loopback, numbers: std::ops::Range<u8>) {
    let slots = port.reserve(numbers.len());
    for (slot, n) in slots.iter().zip(numbers) {
        slot.set_len(slot.write(0, &[n; 60]));
    }
    let n = slots.len();
    port.send(n).expect("sent");
}

fn hear(port: &mut Loopback) -> Vec<u8> {
    let first = |f: &crate::RxFrame| {
        let mut byte = [0];
        f.copy_to(0, &mut byte);
        byte[0]
    };
    let heard = port
        .receive()
        .expect("received")
        .iter()
        .map(first)
        .collect();
    port.release();
    heard
}

#[test]
fn bridge_passes_frames_both_ways() {
    let mut w = world(&FaultOptions::default(), 8);
    say(&mut w.near, 0..3);
    say(&mut w.far, 9..10);
    assert_eq!(w.bridge.turn(0).expect("turned"), 8);
    assert_eq!(hear(&mut w.far), [0, 1, 2]);
    assert_eq!(hear(&mut w.near), [9]);
    assert_eq!(w.bridge.turn(0).expect("turned"), 0);
    let stats = w.bridge.stats();
    assert_eq!((stats.a_to_b.rx_frames, stats.a_to_b.tx_bytes), (3, 180));
    assert_eq!(
        stats.b_to_a.to_string(),
        "in 1 frames 60 bytes, out 1 frames 60 bytes"
    );
}

#[test]
fn bridge_faults_differ_by_direction() {
    let faults = FaultOptions {
        tx: LineOptions {
            loss: Ratio::ONE,
            ..LineOptions::default()
        },
        rx: LineOptions {
            delay_ns: 10,
            ..LineOptions::default()
        },
        ..FaultOptions::default()
    };
    let mut w = world(&faults, 8);
    say(&mut w.near, 0..3);
    say(&mut w.far, 9..10);
    w.bridge.turn(0).expect("turned");
    assert!(hear(&mut w.far).is_empty() && hear(&mut w.near).is_empty());
    w.bridge.turn(10).expect("turned");
    assert_eq!(hear(&mut w.near), [9]);
    assert_eq!(w.bridge.stats().a_to_b.line.lost, 3);
    assert!(w.bridge.stats().a_to_b.to_string().ends_with("lost 3"));
}

#[test]
fn bridge_to_a_full_port_keeps_frames_until_there_is_room() {
    let mut w = world(&FaultOptions::default(), 2);
    let mut heard = Vec::new();
    for start in [0, 2, 4] {
        say(&mut w.near, start..start + 2);
        w.bridge.turn(0).expect("turned");
    }
    for _ in 0..3 {
        heard.extend(hear(&mut w.far));
        w.bridge.turn(0).expect("turned");
    }
    assert_eq!(heard, [0, 1, 2, 3, 4, 5]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn bridge_running_sleeps_wakes_and_stops() {
    let faults = FaultOptions {
        tx: LineOptions {
            delay_ns: 20_000_000,
            ..LineOptions::default()
        },
        ..FaultOptions::default()
    };
    let World {
        mut near,
        mut bridge,
        mut far,
    } = world(&faults, 8);
    let stop = StopFlag::new().expect("eventfd");
    let handle = stop.clone();
    let runner = thread::spawn(move || {
        let ended = bridge.run(handle.as_fd());
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        (
            ended.is_ok(),
            cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec,
            bridge,
        )
    });
    let started = monotonic_ns();
    say(&mut near, 1..2);
    wait(&mut [&mut far], &[], false, Some(10_000_000_000)).expect("slept");
    assert_eq!(hear(&mut far), [1]);
    assert!(monotonic_ns() - started >= 20_000_000);
    thread::sleep(Duration::from_millis(300));
    stop.raise();
    let (ended, cpu_ns, bridge) = runner.join().expect("joined");
    assert!(ended);
    assert!(
        cpu_ns < 100_000_000,
        "an idle bridge took {cpu_ns} ns of CPU"
    );
    assert_eq!(bridge.stats().a_to_b.tx_frames, 1);
}

#[test]
fn bridge_with_a_disconnected_peer_goes_on() {
    let mut w = world(&FaultOptions::default(), 8);
    drop(w.near);
    say(&mut w.far, 1..2);
    w.bridge.turn(0).expect("turned");
    w.bridge.turn(0).expect("turned");
    assert_eq!(w.bridge.stats().b_to_a.rx_frames, 1);
}

#[test]
fn bridge_to_a_port_that_fails_counts_nothing_as_sent() {
    let (near, mut peer, _) = mortal();
    let (far, _peer, is_gone) = mortal();
    let mut bridge = Bridge::new(near, far, &FaultOptions::default());
    say(&mut peer, 0..1);
    bridge.turn(0).expect("turned");
    say(&mut peer, 1..2);
    let taken = bridge.a_to_b.take(&mut bridge.a, 0).expect("taken");
    is_gone.raise();
    assert!(bridge.a_to_b.give(&mut bridge.b, 0).is_err());
    let stats = bridge.stats().a_to_b;
    assert_eq!((taken, stats.rx_frames, stats.tx_frames), (1, 2, 1));
}
