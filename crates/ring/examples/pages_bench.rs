//! CPU time of a visit to one of a million connections, by the kind of pages under their table. The
//! visits follow links from entry to entry in random order, and each touches one cache line.
//!
//! ```text
//! cargo run --release -p ring --example pages_bench -- off auto [require]
//! ```
//!
//! The rules take turns in each of three rounds, each on a new table. `auto` means transparent huge
//! pages as long as no reserved ones are free.

use ring::huge_pages::{HugePages, PageSource, PagesHeld};
use ring::tables::Table;

const ENTRIES: usize = 1_000_000;
const VISITS: usize = 2_000_000;
const ROUNDS: usize = 3;

/// A table entry as large as a connection's slot.
#[derive(Clone)]
#[repr(align(64))]
struct Entry {
    next: u32,
    _rest: [u8; 1_020],
}

/// CPU time of this thread so far, in ns. Other programs on the machine do not lengthen it.
fn run_ns() -> u64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc");
    let first = spent.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).expect("a number")
}

/// CPU time of a visit, in ns.
fn visit_ns(rule: HugePages) -> (f64, PagesHeld) {
    let mut source = PageSource::new(rule);
    let entry = Entry {
        next: 0,
        _rest: [0; 1_020],
    };
    let mut table = Table::filled(entry, ENTRIES, &mut source);
    // A random cycle through all entries (Sattolo's algorithm).
    let mut order: Vec<u32> = (0..ENTRIES as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..ENTRIES).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, random as usize % at);
    }
    for (at, next) in order.iter().enumerate() {
        table[at].next = *next;
    }
    let start_ns = run_ns();
    let mut at = 0;
    for _ in 0..VISITS {
        at = table[at].next as usize;
    }
    let ns = (run_ns() - start_ns) as f64 / VISITS as f64;
    assert!(std::hint::black_box(at) < ENTRIES);
    (ns, source.held())
}

fn main() {
    let rules: Result<Vec<HugePages>, _> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect();
    let rules = rules.unwrap_or_else(|error| panic!("{error}"));
    let mut all = vec![Vec::new(); rules.len()];
    for _ in 0..ROUNDS {
        for (times, rule) in all.iter_mut().zip(&rules) {
            times.push(visit_ns(*rule));
        }
    }
    for (mut times, rule) in all.into_iter().zip(rules) {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (held, ns) = (times[0].1, |at: usize| times[at].0);
        let (least, median, most) = (ns(0), ns(ROUNDS / 2), ns(ROUNDS - 1));
        println!("{rule:8} {median:6.1} ns a visit ({least:.1} to {most:.1}), {held:?}");
    }
}
