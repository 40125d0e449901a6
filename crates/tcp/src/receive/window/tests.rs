//! `roomy_window` gives the same result as the full computation, which changes no state where
//! `roomy_window` applies.

use std::format;

use crate::buffers::{Buffers, InitialWindow, Memory};
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::context::Cx;
use crate::counters::Counters;
use crate::reassembly::RangePool;
use crate::receive::Receiver;
use crate::records::RecordPool;

/// A small, seeded generator (xorshift): a number below `n`.
fn below(state: &mut u64, n: u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % u64::from(n)) as u32
}

#[test]
fn roomy_window_is_the_window() {
    let (config, mut seed, mut answered) = (Config::default(), 0x9e37_79b9_7f4a_7c15, 0);
    let (mut challenge, mut counters) = (ChallengeLimiter::new(0), Counters::default());
    let (mut records, mut ranges) = (RecordPool::new(1, 1), RangePool::new(1));
    let buffers = Buffers::of(&config);
    let cx = Cx {
        now_ns: 0,
        config: &config,
        challenge: &mut challenge,
        counters: &mut counters,
        records: &mut records,
        ranges: &mut ranges,
        memory: Memory::Ample,
    };
    for _ in 0..20_000 {
        let initial = InitialWindow::new(&config, &buffers, 536, false);
        let mut rx = Receiver::new(0, 536, &buffers, &initial);
        let rcv_shift = below(&mut seed, 15) as u8;
        rx.buffer = below(&mut seed, 1 << 23);
        rx.charged = below(&mut seed, 1 << 23) >> below(&mut seed, 24);
        rx.clamp = below(&mut seed, 1 << 23);
        rx.ssthresh = below(&mut seed, 1 << 20);
        rx.wnd = below(&mut seed, 1 << 20);
        rx.ratio = below(&mut seed, 256) as u8;
        rx.peer_segment = below(&mut seed, 9_000) as u16;
        rx.quick_acks = 3;
        let short = rx.roomy_window(rcv_shift, cx.config);
        if let Some(window) = short {
            answered += 1;
            let before = format!("{rx:?}");
            assert_eq!(window, rx.select_scarce_window(rcv_shift, &cx), "{before}");
            assert_eq!(format!("{rx:?}"), before);
        }
    }
    assert!(answered > 2_000, "{answered}");
}
