//! Departure times, compared with a sorted list.

use super::DepartureTimes;

/// A small generator with a fixed seed.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    *state >> 33
}

#[test]
fn departs_in_order_of_time() {
    let mut queue = DepartureTimes::new(8);
    for (socket, at_ns) in [(3, 30), (1, 10), (2, 20), (7, 25)] {
        queue.set(socket, at_ns);
    }
    assert_eq!(queue.next_ns(), Some(10));
    assert_eq!(queue.poll(9), None);
    assert_eq!(queue.poll(20), Some(1));
    assert_eq!(queue.poll(20), Some(2));
    assert_eq!(queue.poll(20), None);
    assert_eq!(queue.next_ns(), Some(25));
}

#[test]
fn behaves_as_a_sorted_list_does() {
    let mut queue = DepartureTimes::new(64);
    let mut model: Vec<(u64, u32)> = Vec::new();
    let mut seed = 7;
    for _ in 0..20_000 {
        let socket = (random(&mut seed) % 64) as u32;
        let at_ns = random(&mut seed) % 1000;
        match random(&mut seed) % 4 {
            0 | 1 => {
                model.retain(|&(_, other)| other != socket);
                model.push((at_ns, socket));
                queue.set(socket, at_ns);
            }
            2 => {
                model.retain(|&(_, other)| other != socket);
                queue.stop(socket);
            }
            _ => {
                let earliest = model.iter().map(|&(ns, _)| ns).min();
                assert_eq!(queue.next_ns(), earliest);
                match queue.poll(at_ns) {
                    Some(found) => {
                        let place = model.iter().position(|&(_, other)| other == found);
                        let (ns, _) = model.remove(place.expect("it was there"));
                        assert_eq!(Some(ns), earliest);
                        assert!(ns <= at_ns);
                    }
                    None => assert!(earliest.is_none_or(|ns| ns > at_ns)),
                }
            }
        }
    }
}
