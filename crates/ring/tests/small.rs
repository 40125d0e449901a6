//! Raw slices, published words, the lock, the bells.
#![cfg(not(loom))]

use std::thread;

use ring::doorbell::StackBell;
use ring::published::{Flag, Published32, Published64};
use ring::raw::{RawSlice, RawSliceMut};
use ring::trylock::TryLock;
use rustix::event::{PollFd, PollFlags, poll};

#[test]
fn raw_slices_stay_in_bounds() {
    let bytes: Vec<u8> = (0..10).collect();
    let raw = RawSlice::from(&bytes[..]);
    assert_eq!((raw.len(), raw.is_empty()), (10, false));
    for (offset, len, inside) in [(0, 10, true), (10, 0, true), (3, 8, false), (11, 0, false)] {
        assert_eq!(raw.sub(offset, len).is_some(), inside, "{offset} {len}");
    }
    assert!(raw.sub(usize::MAX, 2).is_none() && raw.sub(2, usize::MAX).is_none());
    let mut out = [0; 3];
    assert_eq!(raw.sub(4, 5).unwrap().copy_to(&mut out), 3);
    assert_eq!(out, [4, 5, 6]);
    let (first, rest) = raw.split_at(99);
    assert_eq!((first.len(), rest.len()), (10, 0));
}

#[test]
fn raw_slices_write_in_bounds() {
    let mut bytes = [0u8; 8];
    let mut raw = RawSliceMut::from(&mut bytes[..]);
    assert!(raw.write(6, &[1, 2]) && !raw.write(7, &[3, 4]) && !raw.write(usize::MAX, &[5]));
    assert!(raw.sub(2, 3).unwrap().write(0, &[9]));
    assert!(raw.sub(2, 7).is_none());
    let (mut first, rest) = raw.split_at(2);
    assert_eq!(first.copy_from(RawSlice::from(&[7u8, 7, 7][..])), 2);
    assert_eq!(rest.len(), 6);
    assert_eq!(bytes, [7, 7, 9, 0, 0, 0, 1, 2]);
}

#[test]
fn published_words_count() {
    let (wide, word, flag) = (Published64::new(1), Published32::new(1), Flag::new());
    wide.add(2);
    word.add(u32::MAX);
    assert_eq!((wide.load(), word.load()), (3, 0));
    assert_eq!((wide.add_shared(4), wide.load()), (3, 7));
    flag.raise();
    assert!(flag.is_raised() && flag.take() && !flag.take());
}

#[test]
fn lock_is_only_tried() {
    let lock = TryLock::new(vec![1]);
    let mut guard = lock.try_lock().expect("free");
    guard.push(2);
    assert!(lock.try_lock().is_none() && lock.is_taken());
    drop(guard);
    assert_eq!(lock.try_lock().expect("free again").len(), 2);
}

#[test]
fn lock_keeps_count_across_threads() {
    let lock = TryLock::new(0u64);
    let each = if cfg!(miri) { 30 } else { 100_000 };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut done = 0;
                while done < each {
                    match lock.try_lock() {
                        Some(mut count) => {
                            *count += 1;
                            done += 1;
                        }
                        None => thread::yield_now(),
                    }
                }
            });
        }
    });
    assert_eq!(*lock.try_lock().expect("free"), 2 * each);
}

fn is_readable(fd: impl rustix::fd::AsFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let zero = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&zero)).expect("poll") == 1
}

#[test]
#[cfg_attr(miri, ignore = "system calls")]
fn stack_bell_calls_only_a_sleeper() {
    let bell = StackBell::new().expect("eventfd");
    assert!(!bell.ring() && !is_readable(bell.fd()));
    bell.prepare_sleep();
    assert!(bell.ring() && !bell.ring() && is_readable(bell.fd()));
    bell.cancel_sleep();
    assert!(!is_readable(bell.fd()) && !bell.ring());
}

#[test]
#[cfg_attr(miri, ignore = "system calls")]
fn ping_pong_over_bells_loses_no_wake_up() {
    let (ping, pong) = (
        StackBell::new().expect("eventfd"),
        StackBell::new().expect("eventfd"),
    );
    let (mut to, mut from_there) = ring::spsc::queue::<u32>(2);
    let (mut back, mut from_here) = ring::spsc::queue::<u32>(2);
    let rounds = 20_000;
    let (their_ping, their_pong) = (ping.clone(), pong.clone());
    let take = |bell: &StackBell, queue: &mut ring::spsc::Consumer<u32>| loop {
        if let Some(item) = queue.pop() {
            return item;
        }
        bell.prepare_sleep();
        if queue.is_empty() {
            let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
            poll(&mut fds, None).expect("poll");
        }
        bell.cancel_sleep();
    };
    let thread = thread::spawn(move || {
        for _ in 0..rounds {
            let item = take(&their_ping, &mut from_there);
            back.push(item + 1).expect("room");
            their_pong.ring();
        }
    });
    for n in 0..rounds {
        to.push(n).expect("room");
        ping.ring();
        assert_eq!(take(&pong, &mut from_here), n + 1);
    }
    thread.join().expect("other end");
}
