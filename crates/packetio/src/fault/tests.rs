//! Tests of the faulty wire: frames enter at a time and leave as the options say.

use proptest::prelude::*;

use super::*;
use crate::loopback::{self, Loopback, LoopbackOptions};

fn line(options: LineOptions) -> Line {
    Line::new(&options, 7, 64, 1518)
}

fn offer(line: &mut Line, now_ns: u64, bytes: &[u8]) {
    if let Some(mut buf) = line.take_slot() {
        assert!(buf.copy_bytes(bytes));
        line.offer(now_ns, buf);
    }
}

/// The frames that are due.
fn due(line: &mut Line, now_ns: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(buf) = line.pop_due(now_ns) {
        out.push(buf.bytes().to_vec());
        line.give_slot(buf);
    }
    out
}

fn frame(n: u8) -> Vec<u8> {
    vec![n; 60]
}

#[test]
fn line_perfect_passes_at_once_in_order() {
    let mut line = line(LineOptions::default());
    (0..9).for_each(|n| offer(&mut line, 5, &frame(n)));
    assert_eq!(due(&mut line, 5), (0..9).map(frame).collect::<Vec<_>>());
    assert!(line.is_empty());
}

#[test]
fn line_delayed_waits_until_due() {
    let mut line = line(LineOptions {
        delay_ns: 1000,
        ..LineOptions::default()
    });
    offer(&mut line, 50, &frame(1));
    assert_eq!(line.next_due_ns(), Some(1050));
    assert!(due(&mut line, 1049).is_empty());
    assert_eq!(due(&mut line, 1050), [frame(1)]);
}

#[test]
fn line_jittered_keeps_the_order() {
    let mut line = line(LineOptions {
        delay_ns: 1000,
        jitter_ns: 10_000,
        ..LineOptions::default()
    });
    (0..50).for_each(|n| offer(&mut line, u64::from(n), &frame(n)));
    assert_eq!(
        due(&mut line, 20_000),
        (0..50).map(frame).collect::<Vec<_>>()
    );
}

#[test]
fn line_rated_serialises_and_drops_beyond_its_queue() {
    let mut line = line(LineOptions {
        rate_bits: 8_000_000,
        limit_bytes: 200,
        ..LineOptions::default()
    });
    // At one byte per µs a frame of 60 bytes takes 60 µs; three fit into 200 bytes.
    (0..5).for_each(|n| offer(&mut line, 0, &frame(n)));
    assert_eq!(line.counters().queue_full, 2);
    assert!(due(&mut line, 59_999).is_empty());
    assert_eq!(due(&mut line, 60_000), [frame(0)]);
    assert_eq!(due(&mut line, 180_000), [frame(1), frame(2)]);
}

#[test]
fn line_lossy_loses_about_its_share() {
    let mut line = line(LineOptions {
        loss: Ratio::from_ppm(100_000),
        ..LineOptions::default()
    });
    let mut passed = 0;
    for _ in 0..10_000 {
        offer(&mut line, 0, &frame(1));
        passed += due(&mut line, 0).len();
    }
    assert!((8_800..9_200).contains(&passed), "{passed}");
    assert_eq!(line.counters().lost, 10_000 - passed as u64);
}

#[test]
fn line_duplicating_sends_twice_in_a_row() {
    let mut line = line(LineOptions {
        duplicate: Ratio::ONE,
        ..LineOptions::default()
    });
    offer(&mut line, 0, &frame(1));
    offer(&mut line, 0, &frame(2));
    assert_eq!(due(&mut line, 0), [frame(1), frame(1), frame(2), frame(2)]);
}

#[test]
fn line_corrupting_flips_one_bit_behind_the_ethernet_header() {
    let mut line = line(LineOptions {
        corrupt: Ratio::ONE,
        ..LineOptions::default()
    });
    for _ in 0..100 {
        offer(&mut line, 0, &frame(0));
        let got = due(&mut line, 0).remove(0);
        assert_eq!(got.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
        assert_eq!(got[..14], [0; 14]);
    }
}

#[test]
fn line_reordering_lets_up_to_three_overtake() {
    let mut line = line(LineOptions {
        reorder: Ratio::from_ppm(200_000),
        ..LineOptions::default()
    });
    let mut got = Vec::new();
    for n in 0..200 {
        offer(&mut line, 0, &frame(n));
        got.extend(due(&mut line, 0).iter().map(|f| i32::from(f[0])));
    }
    // The last held frames leave when their time is over.
    got.extend(due(&mut line, u64::MAX).iter().map(|f| i32::from(f[0])));
    assert!(line.counters().reordered > 10);
    assert!(!got.is_sorted());
    let mut sorted = got.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..200).collect::<Vec<_>>());
}

#[test]
fn line_reordered_last_frame_leaves_in_time() {
    let mut line = line(LineOptions {
        reorder: Ratio::ONE,
        ..LineOptions::default()
    });
    offer(&mut line, 100, &frame(1));
    let Some(at) = line.next_due_ns() else {
        panic!("held for ever")
    };
    assert!(at > 100 && due(&mut line, at - 1).is_empty());
    assert_eq!(due(&mut line, at), [frame(1)]);
}

#[test]
fn ratio_parses_and_prints() {
    for (text, shown) in [
        ("0.01", "0.01"),
        ("1%", "0.01"),
        ("1", "1"),
        ("0.000001", "0.000001"),
        ("0", "0"),
    ] {
        assert_eq!(
            text.parse::<Ratio>().map(|r| r.to_string()),
            Ok(shown.to_owned())
        );
    }
    for text in ["1.1", "-0.1", "x", "", "101%", "nan"] {
        assert!(text.parse::<Ratio>().is_err(), "{text}");
    }
    assert!(Ratio::ONE.hit(u64::MAX) && !Ratio::ZERO.hit(0));
}

/// A loopback with a faulty wire at one end.
fn wire(options: &FaultOptions) -> (Fault<Loopback>, Loopback) {
    let (a, b) = loopback::pair(&LoopbackOptions::default()).expect("eventfds");
    (Fault::with_clock(a, options, Clock::Manual(0)), b)
}

fn send(port: &mut impl Port, frames: &[Vec<u8>]) -> usize {
    let slots = port.reserve(frames.len());
    for (slot, frame) in slots.iter().zip(frames) {
        slot.write(0, frame);
        slot.set_len(frame.len());
    }
    let n = slots.len();
    port.send(n).expect("sent");
    n
}

fn receive_all(port: &mut impl Port) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let frames = port.receive().expect("received");
        if frames.is_empty() {
            return all;
        }
        for frame in frames {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            all.push(bytes);
        }
    }
}

#[test]
fn fault_directions_are_separate() {
    let mut options = FaultOptions::default();
    options.tx.loss = Ratio::ONE;
    options.rx.delay_ns = 10;
    let (mut a, mut b) = wire(&options);
    assert_eq!(send(&mut a, &[frame(1), frame(2)]), 2);
    assert!(receive_all(&mut b).is_empty());
    assert_eq!(send(&mut b, &[frame(3)]), 1);
    assert!(receive_all(&mut a).is_empty());
    assert_eq!(a.deadline_ns(), Some(10));
    a.set_now_ns(10);
    assert_eq!(receive_all(&mut a), [frame(3)]);
    let counters = a.counters();
    assert_eq!(counters.value("fault_tx_lost"), Some(2));
    assert_eq!((counters.rx_frames, counters.tx_frames), (1, 0));
}

#[test]
fn fault_delayed_frames_leave_on_any_later_call() {
    let mut options = FaultOptions::default();
    options.tx.delay_ns = 100;
    let (mut a, mut b) = wire(&options);
    send(&mut a, &[frame(1)]);
    assert!(receive_all(&mut b).is_empty());
    a.set_now_ns(100);
    assert!(!a.prepare_wait(false));
    a.finish_wait();
    assert_eq!(receive_all(&mut b), [frame(1)]);
}

#[test]
fn fault_out_of_slots_pushes_back() {
    let options = FaultOptions {
        slots: Some(3),
        tx: LineOptions {
            delay_ns: 50,
            ..LineOptions::default()
        },
        ..FaultOptions::default()
    };
    let (mut a, mut b) = wire(&options);
    let frames: Vec<_> = (0..5).map(frame).collect();
    assert_eq!(send(&mut a, &frames), 3);
    assert_eq!(send(&mut a, &frames), 0);
    a.set_now_ns(50);
    assert!(a.prepare_wait(true), "room again");
    a.finish_wait();
    assert_eq!(receive_all(&mut b), frames[..3]);
}

#[test]
fn fault_with_a_full_inner_port_waits_for_its_room() {
    let small = LoopbackOptions {
        slots: 2,
        ..LoopbackOptions::default()
    };
    let (a, mut b) = loopback::pair(&small).expect("eventfds");
    let mut a = Fault::with_clock(a, &FaultOptions::default(), Clock::Manual(0));
    let frames: Vec<_> = (0..5).map(frame).collect();
    assert_eq!(send(&mut a, &frames), 5);
    assert_eq!(a.deadline_ns(), None, "no spinning on what cannot leave");
    let mut got = receive_all(&mut b);
    for _ in 0..2 {
        a.prepare_wait(false);
        a.finish_wait();
        got.extend(receive_all(&mut b));
    }
    assert_eq!(got, frames);
}

/// Every fault, each with some probability.
fn storm(seed: u64) -> FaultOptions {
    let line = LineOptions {
        loss: Ratio::from_ppm(100_000),
        duplicate: Ratio::from_ppm(100_000),
        reorder: Ratio::from_ppm(100_000),
        corrupt: Ratio::from_ppm(100_000),
        delay_ns: 1000,
        jitter_ns: 5000,
        rate_bits: 1_000_000_000,
        limit_bytes: 4000,
    };
    FaultOptions {
        seed,
        rx: line,
        tx: line,
        slots: None,
    }
}

/// Sends frames from `a`; returns those that reach `b`, with their times.
fn trace(options: &FaultOptions, frames: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let (mut a, mut b) = wire(options);
    let mut heard = Vec::new();
    for (i, chunk) in frames.chunks(4).enumerate() {
        let now_ns = i as u64 * 700;
        a.set_now_ns(now_ns);
        send(&mut a, chunk);
        heard.extend(receive_all(&mut b).into_iter().map(|f| (now_ns, f)));
    }
    a.set_now_ns(u64::MAX / 2);
    a.prepare_wait(false);
    a.finish_wait();
    heard.extend(receive_all(&mut b).into_iter().map(|f| (u64::MAX, f)));
    heard
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 14..200), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }) })]

    #[test]
    fn fault_without_faults_is_the_identity(frames in frames(), seed: u64) {
        let options = FaultOptions { seed, ..FaultOptions::default() };
        let heard: Vec<_> = trace(&options, &frames).into_iter().map(|(_, f)| f).collect();
        prop_assert_eq!(heard, frames);
    }

    #[test]
    fn fault_with_the_same_seed_gives_the_same_trace(frames in frames(), seed: u64) {
        prop_assert_eq!(trace(&storm(seed), &frames), trace(&storm(seed), &frames));
    }

    #[test]
    fn line_loses_no_slot(frames in frames(), seed: u64) {
        let mut line = Line::new(&storm(seed).tx, seed, 16, 256);
        for (i, frame) in frames.iter().enumerate() {
            offer(&mut line, i as u64 * 300, frame);
            due(&mut line, i as u64 * 300);
        }
        due(&mut line, u64::MAX);
        prop_assert!(line.is_empty());
        prop_assert_eq!((0..).map_while(|_: u32| line.take_slot()).count(), 16);
    }
}

#[test]
fn fault_before_a_port_that_fails_counts_nothing_as_sent() {
    let (inner, _peer, is_gone) = crate::mortal::mortal();
    let mut port = Fault::new(inner, &FaultOptions::default());
    assert_eq!(send(&mut port, &[frame(1)]), 1);
    is_gone.raise();
    let slots = port.reserve(1);
    slots[0].set_len(slots[0].write(0, &frame(2)));
    assert_eq!(port.send(1), Err(PortError::Gone));
    let counters = port.counters();
    assert_eq!((counters.tx_frames, counters.tx_bytes), (1, 60));
}
