//! BBR over a virtual bottleneck: the model's estimates are compared with the true values, and so
//! is what the sender does with them.

mod path;

use path::{FRAME, MS, PAYLOAD, Path, PathSettings, SECOND};
use tcp::CongestionAlgorithm::{Bbr, Cubic};

/// Gains in 1/256, by which a test recognizes the states.
const STARTUP: u32 = 739;
const DRAIN: u32 = 88;
const ONE: u32 = 256;
const PROBE_BW_WINDOW: u32 = 512;

fn bulk(settings: PathSettings) -> Path {
    let mut path = Path::new(settings, Bbr);
    path.bulk = true;
    path
}

/// Asserts that a value is within `percent` of the truth.
#[track_caller]
fn assert_near(value: f64, truth: f64, percent: f64, what: &str) {
    let off = (value - truth).abs() / truth * 100.0;
    assert!(
        off <= percent,
        "{what}: {value} where {truth} is true, {off:.1} % off"
    );
}

#[test]
fn probe_bw_estimates_are_within_five_percent() {
    for (mbit, rtt_ms) in [(1, 40), (10, 10), (10, 100), (100, 1), (100, 50), (400, 20)] {
        let mut path = bulk(PathSettings::new(mbit, rtt_ms));
        let name = format!("{mbit} Mbit/s, {rtt_ms} ms");
        path.run(8 * SECOND);
        let (bbr, truth) = (path.bbr(), path.settings.payload_rate());
        assert_near(
            bbr.bandwidth as f64,
            truth,
            5.0,
            &format!("BtlBw at {name}"),
        );
        assert_near(
            f64::from(bbr.min_rtt_us),
            rtt_ms as f64 * 1e3,
            5.0,
            &format!("RTprop at {name}"),
        );
        let goodput = path.goodput(10 * SECOND);
        assert!(
            goodput >= 0.94 * truth,
            "{name}: goodput {goodput} of {truth}"
        );
    }
}

#[test]
fn startup_leaves_when_the_pipe_is_full() {
    let settings = PathSettings::new(100, 40);
    let bdp = (settings.rate / 25 / u64::from(FRAME)) as f64;
    let mut path = bulk(settings);
    let (mut left_ns, mut drained_ns) = (0, 0);
    let start_ns = path.now_ns;
    // Ten, because the ACK that ends the handshake delivers no data. With 11, the windows of
    // STARTUP are a tenth larger, and the third round without growth comes one round of the full
    // queue earlier (687 ms instead of 819 ms).
    assert_eq!(path.info().snd_cwnd, 10);
    path.run_looking(3 * SECOND, |path| {
        let (gain, elapsed_ns) = (path.bbr().pacing_gain, path.now_ns - start_ns);
        if gain != STARTUP && left_ns == 0 {
            assert_eq!(gain, DRAIN);
            left_ns = elapsed_ns;
        }
        if path.bbr().cwnd_gain == PROBE_BW_WINDOW && drained_ns == 0 {
            drained_ns = elapsed_ns;
            // The queue of STARTUP is gone, except for the bursts that the window has room for.
            assert!(path.queued() < 60_000, "{} queued", path.queued());
        }
    });
    // The window doubles from ten segments to the pipe. Then come rounds without growth, whose
    // queue grows to two pipes, and the round in which the third of them ends.
    let most_ns = ((bdp / 10.0).log2().ceil() + 1.0) * 40e6 + 5.0 * 120e6;
    assert!(
        left_ns > 0 && (left_ns as f64) < most_ns,
        "left after {left_ns} of {most_ns}"
    );
    assert!(
        drained_ns > left_ns && drained_ns < left_ns + 200 * MS,
        "{drained_ns}"
    );
}

#[test]
fn startup_goes_on_while_the_application_is_the_limit() {
    let mut path = Path::new(PathSettings::new(100, 20), Bbr);
    for _ in 0..100 {
        path.write(5 * PAYLOAD);
        path.run(40 * MS);
    }
    assert_eq!(path.bbr().pacing_gain, STARTUP);
}

#[test]
fn probe_rtt_comes_every_ten_seconds_and_lasts_for_200_ms() {
    let mut path = bulk(PathSettings::new(20, 30));
    let mut probes: Vec<(u64, u64)> = Vec::new();
    let mut begun = None;
    path.run_looking(45 * SECOND, |path| {
        let bbr = path.bbr();
        let probing = bbr.cwnd_gain == ONE;
        match (probing, begun) {
            (true, None) => begun = Some(path.now_ns),
            (false, Some(since_ns)) => {
                probes.push((since_ns, path.now_ns));
                begun = None;
            }
            _ => {}
        }
        if probing {
            assert!(path.info().snd_cwnd <= 4);
        }
    });
    assert_eq!(probes.len(), 4, "{probes:?}");
    for pair in probes.windows(2) {
        assert_near((pair[1].0 - pair[0].1) as f64, 10e9, 4.0, "time between");
    }
    for (since_ns, until_ns) in probes {
        let took_ms = (until_ns - since_ns) / MS;
        // The queue leaves first, and the last round must end.
        assert!((200..330).contains(&took_ms), "{took_ms} ms");
    }
}

#[test]
fn probe_rtt_finds_a_longer_path() {
    let mut path = bulk(PathSettings::new(20, 20));
    path.run(5 * SECOND);
    path.settings.rtt_ns = 60 * MS;
    path.run(25 * SECOND);
    assert_near(f64::from(path.bbr().min_rtt_us), 60_600.0, 5.0, "RTprop");
    assert!(path.goodput(5 * SECOND) > 0.93 * path.settings.payload_rate());
}

#[test]
fn probe_bw_follows_the_bottleneck() {
    let mut path = bulk(PathSettings::new(40, 20));
    path.run(5 * SECOND);
    for mbit in [10, 80] {
        path.settings.rate = mbit * 125_000;
        path.run(4 * SECOND);
        let truth = path.settings.payload_rate();
        assert_near(path.bbr().bandwidth as f64, truth, 5.0, "BtlBw");
    }
}

#[test]
fn recovery_random_loss_does_not_collapse_the_rate() {
    for (loss, rtt_ms) in [(100, 10), (100, 50), (300, 50), (500, 10), (500, 50)] {
        let mut settings = PathSettings::new(50, rtt_ms);
        settings.loss = loss;
        let mut path = bulk(settings);
        path.run(3 * SECOND);
        let possible = path.settings.payload_rate() * (10_000 - loss) as f64 / 1e4;
        let goodput = path.goodput(9 * SECOND);
        assert!(
            goodput > 0.9 * possible,
            "{loss}, {rtt_ms} ms: {goodput} of {possible}"
        );
        assert_near(
            path.bbr().bandwidth as f64,
            path.settings.payload_rate(),
            6.0,
            "BtlBw",
        );
    }
}

#[test]
fn probe_bw_recognizes_a_policer() {
    let mut settings = PathSettings::new(100, 40);
    settings.policer = Some((1_250_000, 200_000));
    let mut path = bulk(settings);
    path.run(6 * SECOND);
    let truth = 1_250_000.0 * f64::from(PAYLOAD) / f64::from(FRAME);
    let mut policed = 0;
    let (dropped, received) = (path.dropped, path.received());
    path.run_looking(4 * SECOND, |path| {
        let bbr = path.bbr();
        let near = (bbr.bandwidth as f64 - truth).abs() < 0.1 * truth;
        policed += u32::from(near && bbr.pacing_gain == ONE);
    });
    assert!(
        policed > 100,
        "the policer's rate is in use: {:?}",
        path.bbr()
    );
    let arrived = (path.received() - received) / u64::from(PAYLOAD);
    let dropped = path.dropped - dropped;
    assert!(
        dropped * 7 < arrived,
        "{dropped} dropped, {arrived} arrived"
    );
}

#[test]
fn probe_bw_application_limit_does_not_lower_the_estimate() {
    let mut path = bulk(PathSettings::new(50, 20));
    path.run(4 * SECOND);
    let before = path.bbr().bandwidth;
    path.bulk = false;
    path.run(SECOND);
    for _ in 0..40 {
        path.write(10 * PAYLOAD);
        path.run(100 * MS);
    }
    assert_eq!(path.bbr().bandwidth, before);
}

#[test]
fn probe_bw_restart_after_a_pause_is_paced_at_the_estimate() {
    let mut path = bulk(PathSettings::new(50, 20));
    path.run(4 * SECOND);
    let bandwidth = path.bbr().bandwidth;
    path.bulk = false;
    path.run(3 * SECOND);
    // With a write that finds the pipe empty, the application counts as the limit.
    path.write(100);
    path.run(SECOND);
    let cwnd = path.info().snd_cwnd;
    path.write(200 * PAYLOAD);
    assert_near(
        path.info().pacing_rate as f64,
        bandwidth as f64,
        2.0,
        "rate",
    );
    assert!(path.info().snd_cwnd >= cwnd, "no window is given up");
    let mut queued = 0;
    path.run_looking(60 * MS, |path| queued = queued.max(path.queued()));
    // A burst would be the whole window, twice the pipe of 125,000 bytes. A probing round adds a
    // quarter of the pipe.
    assert!(queued < 50_000, "{queued} queued: no burst");
}

#[test]
fn probe_bw_acks_in_bunches_do_not_starve_the_pipe() {
    let mut settings = PathSettings::new(50, 10);
    settings.ack_grid_ns = 15 * MS;
    let mut path = bulk(settings);
    path.run(4 * SECOND);
    let goodput = path.goodput(6 * SECOND);
    let truth = path.settings.payload_rate();
    assert!(goodput > 0.9 * truth, "{goodput} of {truth}");
}

#[test]
fn probe_bw_a_caller_that_is_late_keeps_the_rate() {
    let mut settings = PathSettings::new(50, 40);
    settings.late_ns = 4 * MS;
    let mut path = bulk(settings);
    path.run(4 * SECOND);
    let goodput = path.goodput(5 * SECOND);
    let truth = path.settings.payload_rate();
    assert!(goodput > 0.93 * truth, "{goodput} of {truth}");
}

#[test]
fn pacing_rate_keeps_to_the_applications_limit() {
    let mut path = Path::new(PathSettings::new(50, 20), Bbr);
    path.sender_mut(|conn, cx| conn.set_max_pacing_rate(cx, 1_000_000));
    path.bulk = true;
    path.run(2 * SECOND);
    assert!(path.info().pacing_rate <= 1_000_000);
    assert_near(path.goodput(3 * SECOND), 1_000_000.0, 5.0, "goodput");
    path.sender_mut(|conn, cx| conn.set_max_pacing_rate(cx, u64::MAX));
    path.run(4 * SECOND);
    assert!(path.goodput(3 * SECOND) > 0.9 * path.settings.payload_rate());
}

#[test]
fn established_another_algorithm_may_take_over_and_hand_back() {
    let mut path = Path::new(PathSettings::new(20, 20), Cubic);
    path.bulk = true;
    path.run(2 * SECOND);
    assert_eq!(path.sender().bbr_info(), None);
    path.sender_mut(|conn, cx| conn.set_congestion(cx, Bbr));
    assert_eq!(path.bbr().pacing_gain, STARTUP);
    path.run(5 * SECOND);
    let truth = path.settings.payload_rate();
    assert_near(path.bbr().bandwidth as f64, truth, 5.0, "BtlBw");
    path.sender_mut(|conn, cx| conn.set_congestion(cx, Cubic));
    assert_eq!(path.sender().bbr_info(), None);
    assert!(path.goodput(5 * SECOND) > 0.85 * truth);
}

#[test]
fn loss_a_timeout_is_survived() {
    let mut path = bulk(PathSettings::new(20, 20));
    path.run(3 * SECOND);
    let rate = path.settings.rate;
    // For two seconds no segment passes.
    path.settings.queue_bytes = 0;
    path.run(2 * SECOND);
    path.settings.queue_bytes = rate / 20;
    path.run(4 * SECOND);
    assert!(path.goodput(4 * SECOND) > 0.9 * path.settings.payload_rate());
}
