//! Tests of the loopback wire, on one thread and on two.

use std::thread;

use proptest::prelude::*;

use super::*;
use crate::wait::wait;

fn ends(slots: usize) -> (Loopback, Loopback) {
    let options = LoopbackOptions {
        slots,
        ..LoopbackOptions::default()
    };
    pair(&options).expect("eventfds")
}

fn say(port: &mut Loopback, numbers: impl ExactSizeIterator<Item = u32>) -> usize {
    let slots = port.reserve(numbers.len());
    for (slot, n) in slots.iter().zip(numbers) {
        slot.write(0, &n.to_be_bytes());
        slot.set_len(60);
    }
    let n = slots.len();
    port.send(n).expect("sent");
    n
}

fn hear(port: &mut Loopback) -> Vec<u32> {
    let frames = port.receive().expect("received");
    let number = |f: &RxFrame| {
        let mut bytes = [0; 4];
        assert_eq!((f.copy_to(0, &mut bytes), f.len()), (4, 60));
        u32::from_be_bytes(bytes)
    };
    frames.iter().map(number).collect()
}

#[test]
fn loopback_in_lock_step_delivers_both_ways() {
    let (mut a, mut b) = ends(8);
    assert_eq!(say(&mut a, 0..3), 3);
    assert_eq!(hear(&mut b), [0, 1, 2]);
    assert_eq!(say(&mut b, 7..8), 1);
    assert_eq!(hear(&mut a), [7]);
    assert!(hear(&mut b).is_empty() && hear(&mut a).is_empty());
    assert_ne!(a.capabilities().mac, b.capabilities().mac);
    assert_eq!((a.counters().tx_frames, b.counters().rx_bytes), (3, 180));
}

#[test]
fn loopback_full_pushes_back_until_released() {
    let (mut a, mut b) = ends(4);
    assert_eq!(say(&mut a, 0..6), 4);
    assert_eq!(say(&mut a, 4..6), 0);
    assert_eq!(hear(&mut b), [0, 1, 2, 3]);
    assert_eq!(say(&mut a, 4..6), 0, "still lent");
    b.release();
    assert_eq!(say(&mut a, 4..6), 2);
    assert_eq!(hear(&mut b), [4, 5]);
}

#[test]
fn loopback_reserved_and_not_sent_returns() {
    let (mut a, mut b) = ends(4);
    assert_eq!(a.reserve(4).len(), 4);
    a.send(0).expect("sent");
    let slots = a.reserve(4);
    slots[0].set_len(60);
    slots[3].set_len(60);
    a.send(2).expect("sent");
    assert_eq!(
        b.receive().expect("received").len(),
        1,
        "an empty slot is skipped"
    );
    b.release();
    assert_eq!(a.reserve(9).len(), 4);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn loopback_sleeper_is_woken_by_a_frame() {
    let (mut a, mut b) = ends(4);
    let sleeper = thread::spawn(move || {
        let woken = wait(&mut [&mut b], &[], false, Some(10_000_000_000)).expect("slept");
        (woken.port(0), hear(&mut b))
    });
    thread::sleep(std::time::Duration::from_millis(20));
    say(&mut a, 5..6);
    assert_eq!(sleeper.join().expect("joined"), (true, vec![5]));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn loopback_sleeper_without_room_is_woken_by_a_release() {
    let (mut a, mut b) = ends(4);
    say(&mut a, 0..4);
    let idle = wait(&mut [&mut a], &[], true, Some(1_000_000)).expect("slept");
    assert!(idle.timed_out());
    let releaser = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(20));
        hear(&mut b);
        b.release();
        b
    });
    let woken = wait(&mut [&mut a], &[], true, Some(10_000_000_000)).expect("slept");
    assert!(woken.port(0) && !woken.timed_out());
    assert_eq!(a.reserve(9).len(), 4);
    drop(releaser.join());
}

#[test]
fn loopback_with_work_does_not_sleep() {
    let (mut a, mut b) = ends(4);
    say(&mut a, 0..1);
    assert!(b.prepare_wait(false));
    b.finish_wait();
    assert!(a.prepare_wait(true), "there is room");
    a.finish_wait();
    assert!(!a.prepare_wait(false));
    a.finish_wait();
}

#[test]
fn loopback_peer_gone_is_disconnected_after_the_last_frame() {
    let (mut a, mut b) = ends(4);
    say(&mut a, 0..2);
    drop(a);
    assert_eq!(hear(&mut b), [0, 1]);
    assert_eq!(b.receive().err(), Some(PortError::Disconnected));
}

/// The peer rings its last time before the sleep is announced, so no later ring would end the
/// sleep.
#[test]
fn loopback_peer_gone_is_work_until_it_was_told() {
    let (a, mut b) = ends(4);
    assert!(hear(&mut b).is_empty());
    drop(a);
    assert!(b.prepare_wait(false));
    b.finish_wait();
    assert_eq!(b.receive().err(), Some(PortError::Disconnected));
    assert!(!b.prepare_wait(false));
    b.finish_wait();
}

#[test]
fn loopback_without_a_name_hears_itself() {
    let mut port = open(&LoopbackOptions::default(), 3).expect("open");
    say(&mut port, 1..3);
    assert_eq!(hear(&mut port), [1, 2]);
    assert_eq!(port.capabilities().queue, 3);
}

#[test]
fn loopback_opened_twice_by_name_is_one_wire() {
    let options = LoopbackOptions {
        name: "test-by-name".to_owned(),
        ..LoopbackOptions::default()
    };
    let mut ends: Vec<_> = [0, 1, 0, 1]
        .map(|queue| open(&options, queue).expect("open"))
        .into();
    say(&mut ends[0], 1..2);
    assert_eq!(hear(&mut ends[2]), [1]);
    say(&mut ends[3], 2..3);
    assert_eq!(hear(&mut ends[1]), [2]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn loopback_over_two_threads_delivers_all_in_order() {
    const COUNT: u32 = 20_000;
    let (mut a, mut b) = ends(16);
    let sender = thread::spawn(move || {
        let mut next = 0;
        while next < COUNT {
            let sent = say(&mut a, next..COUNT.min(next + 8)) as u32;
            next += sent;
            if sent == 0 {
                wait(&mut [&mut a], &[], true, Some(1_000_000_000)).expect("slept");
            }
        }
        a
    });
    let mut expected = 0;
    while expected < COUNT {
        let heard = hear(&mut b);
        for n in &heard {
            assert_eq!(*n, expected);
            expected += 1;
        }
        b.release();
        if heard.is_empty() {
            let woken = wait(&mut [&mut b], &[], false, Some(10_000_000_000)).expect("slept");
            assert!(!woken.timed_out(), "lost wake-up at {expected}");
        }
    }
    drop(sender.join());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }) })]

    /// Any interleaving of batches delivers all frames in order.
    #[test]
    fn loopback_delivers_in_order(steps in prop::collection::vec((0u32..10, any::<bool>()), 0..100)) {
        let (mut a, mut b) = ends(8);
        let (mut sent, mut heard) = (0, Vec::new());
        for (n, listen) in steps {
            sent += say(&mut a, sent..sent + n) as u32;
            if listen {
                heard.extend(hear(&mut b));
            }
        }
        loop {
            let more = hear(&mut b);
            if more.is_empty() {
                break;
            }
            heard.extend(more);
        }
        prop_assert_eq!(heard, (0..sent).collect::<Vec<_>>());
    }
}
