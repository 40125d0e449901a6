//! The threads that a runtime starts: they take no signal of the program's. The kernel gives a
//! signal of the process to any thread that does not block it, although a thread of the program may
//! wait for the signal.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{CLIENT, config, unique};
use millstream::{Crank, Runtime};

/// Time within which the threads run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Signals that programs wait for: INT, ALRM, TERM, CHLD.
const SIGNALS: [u32; 4] = [2, 14, 15, 17];

fn field(status: &str, field: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.map(|value| value.trim().to_owned())
}

fn mask(status: &str) -> Option<u64> {
    u64::from_str_radix(&field(status, "SigBlk:")?, 16).ok()
}

/// The mask of blocked signals of this thread.
fn own_mask() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("this thread");
    mask(&status).expect("a mask")
}

/// The masks of the process's threads whose names begin so.
fn masks(name: &str) -> Vec<u64> {
    let threads = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let statuses =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let named = statuses
        .filter(|status| field(status, "Name:").is_some_and(|thread| thread.starts_with(name)));
    named.filter_map(|status| mask(&status)).collect()
}

#[test]
fn runtime_open_its_threads_block_signals_and_the_callers_do_not() {
    let before = own_mask();
    let wire = format!("loopback:{}", unique("signals"));
    let dedicated = Runtime::new(config(&wire, "10.9.0.1/24", Crank::Dedicated)).unwrap();
    let inline = Runtime::new(config(&wire, CLIENT, Crank::Inline)).unwrap();
    let _contexts = [dedicated, inline].map(|runtime| runtime.context(0).unwrap());
    // A thread names itself once it runs.
    let limit = Instant::now() + PATIENCE;
    let theirs = loop {
        let theirs = masks("millstream-");
        if theirs.len() >= 2 {
            break theirs;
        }
        assert!(Instant::now() < limit, "{theirs:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let blocks = |mask: &u64, signal: u32| mask & 1 << (signal - 1) != 0;
    for signal in SIGNALS {
        assert!(theirs.iter().all(|mask| blocks(mask, signal)), "{signal}");
    }
    assert_eq!(own_mask(), before);
}
