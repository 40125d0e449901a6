//! The window's growth and fall, byte by byte.

use wire::SeqNumber;

use super::Congestion;
use crate::config::Config;

const MSS: u32 = 1000;

/// A window that is used to the full.
fn in_use(cwnd: u32) -> Congestion {
    let mut congestion = Congestion::new(SeqNumber(0));
    congestion.on_flight(SeqNumber(1), SeqNumber(1 + cwnd), cwnd, true);
    congestion
}

#[test]
fn slow_start_crosses_the_threshold_within_one_ack() {
    let mut congestion = in_use(10_000);
    congestion.ssthresh = 12_000;
    let mut cwnd = 10_000;
    congestion.on_ack(&mut cwnd, MSS, 5000);
    // 2000 by slow start; the other 3000 count towards a twelfth of the window.
    assert_eq!(cwnd, 12_000);
    congestion.on_ack(&mut cwnd, MSS, 8999);
    assert_eq!(cwnd, 12_000);
    congestion.on_ack(&mut cwnd, MSS, 1);
    assert_eq!(cwnd, 13_000);
}

#[test]
fn loss_halves_the_flight() {
    let mut congestion = in_use(10_000);
    let mut cwnd = 10_000;
    congestion.on_loss(&mut cwnd, MSS, 9000);
    assert_eq!((cwnd, congestion.ssthresh), (4500, 4500));
    congestion.on_loss(&mut cwnd, MSS, 1000);
    assert_eq!((cwnd, congestion.ssthresh), (2000, 2000));
}

#[test]
fn timeout_starts_with_one_segment() {
    let mut congestion = in_use(10_000);
    let mut cwnd = 10_000;
    congestion.on_timeout(&mut cwnd, MSS, 10_000, true);
    assert_eq!((cwnd, congestion.ssthresh), (1000, 5000));
    congestion.on_timeout(&mut cwnd, MSS, 1000, false);
    assert_eq!((cwnd, congestion.ssthresh), (1000, 5000));
}

#[test]
fn idleness_halves_down_to_the_initial_window() {
    let mut congestion = in_use(80_000);
    let mut cwnd = 80_000;
    congestion.on_idle(&mut cwnd, 10_000, 250, 100);
    assert_eq!(cwnd, 20_000);
    congestion.on_idle(&mut cwnd, 10_000, u64::MAX, 1);
    assert_eq!(cwnd, 10_000);
    let mut small = 3000;
    congestion.on_idle(&mut small, 10_000, 1_000_000, 1);
    assert_eq!(small, 3000);
}

#[test]
fn initial_window() {
    let config = Config::default();
    assert_eq!(Congestion::initial_window(&config, 1460, false), 14_600);
    assert_eq!(Congestion::initial_window(&config, 1460, true), 1460);
}

#[test]
fn segment_size_keeps_the_number_of_segments() {
    let mut cwnd = 14_600;
    Congestion::on_mss(&mut cwnd, 1460, 1000);
    assert_eq!(cwnd, 10_000);
}
