//! The threads that a runtime starts: they take no signal of the program's. The kernel gives a
//! signal of the process to any thread that does not block it, although a thread of the program may
//! wait for the signal.

mod common;

use std::fs;

use common::{CLIENT, config, unique};
use millstream::{Crank, Runtime};

/// Signals that programs wait for: INT, ALRM, TERM, CHLD.
const SIGNALS: [u32; 4] = [2, 14, 15, 17];

/// The masks of blocked signals of the process's threads whose names begin so.
fn masks(name: &str) -> Vec<u64> {
    let threads = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let statuses =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let field = |status: &str, field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.map(|value| value.trim().to_owned())
    };
    let named = statuses
        .filter(|status| field(status, "Name:").is_some_and(|thread| thread.starts_with(name)));
    let mask = |status: String| u64::from_str_radix(&field(&status, "SigBlk:")?, 16).ok();
    named.filter_map(mask).collect()
}

#[test]
fn runtime_open_its_threads_block_signals_and_the_callers_do_not() {
    let wire = format!("loopback:{}", unique("signals"));
    let dedicated = Runtime::new(config(&wire, "10.9.0.1/24", Crank::Dedicated)).unwrap();
    let inline = Runtime::new(config(&wire, CLIENT, Crank::Inline)).unwrap();
    let _contexts = [dedicated, inline].map(|runtime| runtime.context(0).unwrap());
    let theirs = masks("millstream-");
    assert!(theirs.len() >= 2, "{theirs:?}");
    let blocks = |mask: &u64, signal: u32| mask & 1 << (signal - 1) != 0;
    for signal in SIGNALS {
        assert!(theirs.iter().all(|mask| blocks(mask, signal)), "{signal}");
    }
    // The name of the test's thread, cut to fifteen bytes.
    let ours = masks("runtime_open_it");
    assert!(!ours.is_empty() && ours.iter().all(|mask| !blocks(mask, SIGNALS[0])));
}
