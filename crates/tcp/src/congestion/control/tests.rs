//! Initial window, and the window after idle time.

use wire::SeqNumber;

use super::Congestion;
use crate::config::Config;
use crate::congestion::Moment;

fn moment(config: &Config) -> Moment<'_> {
    Moment::at_start(config, 0, SeqNumber(0), 0)
}

fn with_cwnd(config: &Config, cwnd: u32) -> Congestion {
    Congestion::new(&moment(config), config.congestion, cwnd)
}

#[test]
fn idleness_halves_down_to_the_initial_window() {
    let config = Config::default();
    let mut congestion = with_cwnd(&config, 80);
    congestion.on_idle(&moment(&config), 250, 100);
    assert_eq!(congestion.window.cwnd, 20);
    congestion.on_idle(&moment(&config), u64::MAX, 1);
    assert_eq!(congestion.window.cwnd, 10);
    let mut small = with_cwnd(&config, 3);
    small.on_idle(&moment(&config), 1_000_000, 1);
    assert_eq!(small.window.cwnd, 3);
}

#[test]
fn idleness_remembers_three_quarters() {
    let config = Config::default();
    let mut congestion = with_cwnd(&config, 80);
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
