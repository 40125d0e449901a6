//! Every interleaving of the queue, the bells, the lock and the request word.
//! The byte rings are in `loom_byte_ring.rs`, the owners of flows in `loom_flow_owners.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ring --test loom --test loom_byte_ring`
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex, Notify};
use loom::thread;

use ring::chunk;
use ring::doorbell::SleepFlag;
use ring::huge_pages::PageSource;
use ring::memory::ContextLimits;
use ring::published::{Flag, fence_full};
use ring::socket_block::{Requests, SocketState};
use ring::spsc::queue;
use ring::trylock::TryLock;
use ring::waiter::{Reason, Sleep, WaitWord};

fn limits() -> ContextLimits {
    ContextLimits {
        sockets_max: 1,
        small_chunks: 1,
        large_chunks: 1,
    }
}

#[test]
fn queue_hands_over_in_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (mut producer, mut consumer) = queue::<Box<u32>>(2);
        let feeder = thread::spawn(move || {
            for n in 0..4 {
                let mut item = Err(Box::new(n));
                while let Err(again) = item {
                    item = producer.push(again);
                    if item.is_err() {
                        thread::yield_now();
                    }
                }
            }
        });
        let mut expected = 0;
        while expected < 4 {
            match consumer.pop() {
                Some(item) => {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        feeder.join().unwrap();
    });
}

#[test]
fn queue_batches_and_leaves_the_rest_to_drop() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<Box<u32>>(2);
        let feeder = thread::spawn(move || {
            let mut items = (0..3).map(Box::new);
            let mut pushed = producer.push_batch(&mut items);
            pushed += producer.push_batch(&mut items);
            pushed
        });
        let mut got = Vec::new();
        let count = consumer.pop_batch(2, |item| got.push(*item));
        assert!(got.iter().copied().eq(0..count as u32));
        let pushed = feeder.join().unwrap();
        assert!(pushed >= 2 && pushed - count == consumer.len());
    });
}

#[test]
fn consumed_position_means_the_consumer_is_done() {
    loom::model(|| {
        let (mut producer, mut consumer) = queue::<u32>(2);
        let done = Arc::new(AtomicU32::new(0));
        let written = done.clone();
        let position = producer.position();
        producer.push(7).unwrap();
        let taker = thread::spawn(move || {
            written.store(1, Ordering::Relaxed);
            consumer.pop()
        });
        if producer.is_consumed(position) {
            assert_eq!(done.load(Ordering::Relaxed), 1);
        }
        assert_eq!(taker.join().unwrap(), Some(7));
    });
}

#[test]
fn sleeper_is_never_left_asleep() {
    loom::model(|| {
        let flag = Arc::new(SleepFlag::new());
        let work = Arc::new(AtomicU32::new(0));
        let signal = Arc::new(Notify::new());
        let (their_flag, their_work, their_signal) = (flag.clone(), work.clone(), signal.clone());
        let ringer = thread::spawn(move || {
            their_work.store(1, Ordering::Relaxed);
            if their_flag.must_wake() {
                their_signal.notify();
            }
        });
        flag.announce();
        while work.load(Ordering::Relaxed) == 0 {
            // The wait may return early, as any wait may. Loom reports a deadlock if the signal
            // never comes.
            signal.wait();
        }
        flag.retract();
        ringer.join().unwrap();
    });
}

#[test]
fn one_of_two_ringers_makes_the_call() {
    loom::model(|| {
        let flag = Arc::new(SleepFlag::new());
        flag.announce();
        let theirs = flag.clone();
        let other = thread::spawn(move || u32::from(theirs.must_wake()));
        let calls = u32::from(flag.must_wake()) + other.join().unwrap();
        assert_eq!(calls, 1);
        assert!(flag.retract());
    });
}

#[test]
fn lock_admits_one_at_a_time() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0));
        let turn = |lock: &TryLock<u32>| match lock.try_lock() {
            Some(mut count) => {
                *count += 1;
                1
            }
            None => 0,
        };
        let theirs = lock.clone();
        let other = thread::spawn(move || turn(&theirs) + turn(&theirs));
        let turns = turn(&lock) + other.join().unwrap();
        assert_eq!(*lock.try_lock().unwrap(), turns);
        assert!(turns >= 1);
    });
}

#[test]
fn request_is_seen_and_queued_once() {
    loom::model(|| {
        let (memory, _pool) = chunk::create_memory(&limits(), &mut PageSource::default()).unwrap();
        let (mut jobs, mut taken) = queue::<u32>(2);
        let wrote = Arc::new(AtomicU32::new(0));
        let (their_memory, their_wrote) = (memory.clone(), wrote.clone());
        let application = thread::spawn(move || {
            let block = their_memory.block(0).unwrap();
            for n in 1..=2 {
                their_wrote.store(n, Ordering::Relaxed);
                if block.request(Requests::WROTE) {
                    jobs.push(0).unwrap();
                }
            }
        });
        let block = memory.block(0).unwrap();
        let mut seen = 0;
        let mut serve = |taken: &mut ring::spsc::Consumer<u32>| {
            while taken.pop().is_some() {
                assert_eq!(block.take_requests(), Requests::WROTE);
                seen = wrote.load(Ordering::Relaxed);
            }
        };
        serve(&mut taken);
        application.join().unwrap();
        serve(&mut taken);
        assert_eq!(seen, 2, "the last write was missed");
    });
}

#[test]
fn wish_to_write_is_not_lost() {
    loom::model(|| {
        let (memory, _pool) = chunk::create_memory(&limits(), &mut PageSource::default()).unwrap();
        memory.block(0).unwrap().open(0);
        let theirs = memory.clone();
        let stack = thread::spawn(move || {
            let block = theirs.block(0).unwrap();
            block.set_tx_limit(10);
            fence_full();
            block.take_want_writable()
        });
        let block = memory.block(0).unwrap();
        let room = block.look_or_want(|| Some(block.tx_limit()).filter(|limit| *limit != 0));
        assert!(stack.join().unwrap() || room.is_some());
    });
}

#[test]
fn names_are_whole_once_connected_is_seen() {
    loom::model(|| {
        let (memory, _pool) = chunk::create_memory(&limits(), &mut PageSource::default()).unwrap();
        let name = |n: u8| ring::socket_block::Name {
            address: [n; 16],
            port: u16::from(n),
        };
        let theirs = memory.clone();
        let stack = thread::spawn(move || {
            let block = theirs.block(0).unwrap();
            block.set_names(name(1), name(2));
            block.add_state(SocketState::CONNECTED);
        });
        let block = memory.block(0).unwrap();
        if block.state().contains(SocketState::CONNECTED) {
            assert_eq!(block.names(), (name(1), name(2)));
        }
        stack.join().unwrap();
    });
}

/// A sleeper that looks at a flag, and the ringers that raise it. Modelled after an owner that
/// leaves its stack to the watchdog, a program that interrupts a wait, and a stack thread that
/// ends.
#[test]
fn flag_that_is_raised_is_seen_or_wakes_the_sleeper() {
    loom::model(|| {
        let (raised, sleeping) = (Arc::new(Flag::new()), Arc::new(SleepFlag::new()));
        let signal = Arc::new(Notify::new());
        let ringers = [(); 2].map(|()| {
            let (raised, sleeping) = (raised.clone(), sleeping.clone());
            let signal = signal.clone();
            thread::spawn(move || {
                raised.raise();
                if sleeping.must_wake() {
                    signal.notify();
                }
            })
        });
        while !raised.is_raised() {
            // Loom reports a deadlock if the signal never comes.
            sleeping.sleep_unless(|| (!raised.is_raised()).then_some(()), |()| signal.wait());
        }
        ringers.map(|ringer| ringer.join().unwrap());
    });
}

/// The watchdog takes turns under the lock, and each may bring an event. The owner takes the lock,
/// looks, and sleeps with the lock held, so an event comes before the look or not at all.
#[test]
fn event_of_the_watchdogs_turn_is_found_before_the_owner_sleeps() {
    loom::model(|| {
        let (mut events, mut taken) = queue::<u32>(1);
        let stack = Arc::new(TryLock::new(false));
        let theirs = stack.clone();
        let watchdog = thread::spawn(move || {
            if let Some(mut turned) = theirs.try_lock() {
                *turned = true;
                events.push(7).unwrap();
            }
        });
        if let Some(turned) = stack.try_lock() {
            assert_eq!(
                taken.pop().is_some(),
                *turned,
                "the owner sleeps on an event"
            );
        }
        watchdog.join().unwrap();
    });
}

/// A context that goes removes its stack from the watchdog's list and waits until the watchdog
/// holds no copies of the port's descriptors. The watchdog drops them at its next look, so it must
/// not sleep.
#[test]
fn watchdog_lets_go_of_a_stack_that_goes() {
    loom::model(|| {
        let (awaited, sleeping) = (Arc::new(Mutex::new(false)), Arc::new(SleepFlag::new()));
        let signal = Arc::new(Notify::new());
        let (their_wish, their_sleep, their_signal) =
            (awaited.clone(), sleeping.clone(), signal.clone());
        let context = thread::spawn(move || {
            *their_wish.lock().unwrap() = true;
            if their_sleep.must_wake() {
                their_signal.notify();
            }
        });
        let mut lets_go = false;
        while !lets_go {
            let look = || {
                lets_go = std::mem::take(&mut *awaited.lock().unwrap());
                (!lets_go).then_some(())
            };
            sleeping.sleep_unless(look, |()| signal.wait());
        }
        context.join().unwrap();
    });
}

/// A model of the kernel's futex: the comparison and the start of the sleep are one step.
#[derive(Default)]
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, value: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_one();
    }
}

/// A thread that waits for work under a lock, and another that brings work. The sleeper releases
/// the lock between its last look and its sleep.
#[test]
fn waiter_who_lets_go_of_the_lock_before_it_sleeps_is_woken() {
    loom::model(|| {
        let shared = Arc::new((WaitWord::new(), Futex::default(), Mutex::new(false)));
        let bringer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (word, futex, work) = &*shared;
                *work.lock().unwrap() = true;
                if word.leave(Reason::Called) == Some(Sleep::Futex) {
                    futex.wake();
                }
            })
        };
        let (word, futex, work) = &*shared;
        while !*work.lock().unwrap() {
            if word.announce(Sleep::Futex) {
                futex.wait(word.word(), Sleep::Futex as u32);
            }
            assert!(word.retract().has(Reason::Called));
        }
        bringer.join().unwrap();
    });
}

/// Two callers of one sleeper: its sleep ends, and it finds both reasons.
#[test]
fn waiter_called_by_a_thread_and_a_signal_hears_of_both() {
    loom::model(|| {
        let shared = Arc::new((WaitWord::new(), Futex::default()));
        let caller = |reason| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (word, futex) = &*shared;
                if word.leave(reason) == Some(Sleep::Futex) {
                    futex.wake();
                }
            })
        };
        let callers = [caller(Reason::Called), caller(Reason::Signal)];
        let (word, futex) = &*shared;
        let (mut called, mut signalled) = (false, false);
        while !(called && signalled) {
            if word.announce(Sleep::Futex) {
                futex.wait(word.word(), Sleep::Futex as u32);
            }
            let reasons = word.retract();
            called |= reasons.has(Reason::Called);
            signalled |= reasons.has(Reason::Signal);
        }
        for caller in callers {
            caller.join().unwrap();
        }
    });
}
