//! Initial window and idleness.

use wire::SeqNumber;

use super::Congestion;
use crate::config::Config;
use crate::congestion::Moment;

fn moment(config: &Config) -> Moment<'_> {
    Moment {
        config,
        now_ns: 0,
        una: SeqNumber(0),
        nxt: SeqNumber(0),
        mss: 1000,
        in_flight: 0,
        srtt_ns: 0,
        min_rtt_ns: u64::MAX,
    }
}

#[test]
fn idleness_halves_down_to_the_initial_window() {
    let config = Config::default();
    let mut congestion = Congestion::new(&config, 80, SeqNumber(0), 0);
    congestion.on_idle(&moment(&config), 250, 100);
    assert_eq!(congestion.window.cwnd, 20);
    congestion.on_idle(&moment(&config), u64::MAX, 1);
    assert_eq!(congestion.window.cwnd, 10);
    let mut small = Congestion::new(&config, 3, SeqNumber(0), 0);
    small.on_idle(&moment(&config), 1_000_000, 1);
    assert_eq!(small.window.cwnd, 3);
}

#[test]
fn idleness_remembers_three_quarters() {
    let config = Config::default();
    let mut congestion = Congestion::new(&config, 80, SeqNumber(0), 0);
    congestion.window.ssthresh = 30;
    congestion.on_idle(&moment(&config), 250, 100);
    assert_eq!(congestion.window.ssthresh, 60);
}

#[test]
fn initial_window() {
    let config = Config::default();
    assert_eq!(Congestion::initial_window(&config, false), 10);
    assert_eq!(Congestion::initial_window(&config, true), 1);
}
