//! The bell, with ringers stopped half-way.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&zero)).expect("poll") > 0
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn signal_that_comes_after_the_sleeper_woke_is_taken_the_next_time() {
    let bell = StackBell::new().expect("eventfd");
    bell.prepare_sleep();
    assert!(bell.inner.flag.must_wake(), "the ringer takes the flag");
    bell.cancel_sleep();
    signal(&bell.inner.fd);
    bell.prepare_sleep();
    bell.cancel_sleep();
    assert!(!is_readable(bell.fd()), "the stack would never sleep again");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn insisting_is_heard_by_a_sleeper_who_was_not_yet_asleep() {
    let bell = StackBell::new().expect("eventfd");
    bell.insist();
    bell.prepare_sleep();
    assert!(is_readable(bell.fd()));
    bell.cancel_sleep();
    assert!(!is_readable(bell.fd()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn ring_between_two_announcements_is_taken() {
    let bell = StackBell::new().expect("eventfd");
    bell.prepare_sleep();
    assert!(bell.ring());
    bell.prepare_sleep();
    bell.cancel_sleep();
    assert!(!is_readable(bell.fd()));
    bell.cancel_sleep();
    assert_eq!(bell.inner.owed.0.load(Ordering::Relaxed), 0);
}

#[test]
fn signal_of_who_insists_while_another_is_taken_is_not_owed_for_ever() {
    let bell = StackBell::new().expect("eventfd");
    bell.prepare_sleep();
    assert!(bell.ring());
    let rung = bell.inner.flag.retract();
    bell.inner.owed.collect(rung, || {
        bell.insist();
        drain(&bell.inner.fd)
    });
    assert_eq!(bell.inner.owed.0.load(Ordering::Relaxed), 0);
}
