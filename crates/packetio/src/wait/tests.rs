//! Sleeps that end, for each possible reason.

use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::fault::{Fault, FaultOptions};
use crate::loopback::{self, LoopbackOptions};

const MS: u64 = 1_000_000;

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn wait_without_anything_times_out_in_ns() {
    let started = monotonic_ns();
    let woken = wait(&mut [], &[], false, Some(2 * MS)).expect("slept");
    let took = monotonic_ns() - started;
    assert!(woken.timed_out());
    assert!((2 * MS..500 * MS).contains(&took), "{took}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn wait_names_the_extra_that_fired() {
    let quiet = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    let ready = eventfd(1, EventfdFlags::CLOEXEC).expect("eventfd");
    let extra = [quiet.as_fd(), ready.as_fd()];
    let woken = wait(&mut [], &extra, false, None).expect("slept");
    assert_eq!((woken.extra, woken.ports), (2, 0));
    assert!(woken.extra(1) && !woken.extra(0) && !woken.extra(64));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn wait_ends_when_a_delayed_frame_is_due() {
    let (a, mut b) = loopback::pair(&LoopbackOptions::default()).expect("eventfds");
    let mut options = FaultOptions::default();
    options.rx.delay_ns = 20 * MS;
    let mut a = Fault::new(a, &options);
    b.reserve(1)[0].set_len(60);
    b.send(1).expect("sent");
    assert!(a.receive().expect("received").is_empty());
    let started = monotonic_ns();
    let woken = wait(&mut [&mut b, &mut a], &[], false, None).expect("slept");
    assert_eq!(woken.ports, 2);
    assert!(monotonic_ns() - started < 500 * MS);
    assert_eq!(a.receive().expect("received").len(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn wait_on_too_much_is_refused() {
    let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    let error = wait(&mut [], &[fd.as_fd(); 65], false, Some(0)).err();
    assert_eq!(error.map(|e| e.kind()), Some(io::ErrorKind::InvalidInput));
}
