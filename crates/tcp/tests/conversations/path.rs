//! The path's MTU: routers' reports and their age (RFC 1191), and the search where routers are
//! silent (RFC 4821).

use tcp::path_mtu::MtuProbing;

use crate::peer::{Peer, Setup, Variant, conversation};

/// A peer with an MSS of 1460 bytes, over a path that is probed as `probing` says.
fn searched(probing: MtuProbing) -> impl Fn(Variant) -> Peer {
    move |variant| {
        let mut setup = Setup {
            peer_mss: 1460,
            ..Setup::default()
        };
        setup.config.path_mtu.probing = probing;
        setup.config.initial_window_segments = 20;
        let mut p = Peer::accepted(&setup, variant);
        p.inject(". 1:1(0) ack 1");
        p
    }
}

/// Acknowledges everything sent, up to `end`.
fn acknowledge(p: &mut Peer, end: u32) {
    p.skip_sent();
    p.inject(&format!(". 1:1(0) ack {end}"));
}

#[test]
fn established_narrowed_path_is_tried_wide_again_after_ten_minutes() {
    conversation(searched(MtuProbing::Never), |p| {
        p.call(|conn, cx, _| conn.on_mtu(cx, 1000, true));
        assert_eq!(p.conn.send_mss(), 1000);
        p.wait_ms(590_000);
        p.write(10);
        p.skip_sent();
        assert_eq!(p.conn.send_mss(), 1000);
        p.inject(". 1:1(0) ack 11");
        p.wait_ms(20_000);
        p.write(10);
        assert_eq!(p.conn.send_mss(), 1460);
    });
}

#[test]
fn established_narrowed_path_that_takes_what_is_in_flight_loses_nothing() {
    conversation(searched(MtuProbing::Never), |p| {
        p.write(1000);
        p.skip_sent();
        p.call(|conn, cx, _| conn.on_mtu(cx, 1000, true));
        p.expect_nothing();
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.lost), (0, 0));
        // One byte less does not fit.
        p.call(|conn, cx, _| conn.on_mtu(cx, 999, true));
        assert_eq!(p.skip_sent(), 2);
    });
}

#[test]
fn established_narrowed_path_is_never_widened_by_another_word() {
    conversation(searched(MtuProbing::Never), |p| {
        p.call(|conn, cx, _| conn.on_mtu(cx, 1000, true));
        p.call(|conn, cx, _| conn.on_mtu(cx, 1200, true));
        assert_eq!(p.conn.send_mss(), 1000);
    });
}

#[test]
fn established_segments_too_long_for_the_path_are_counted_as_sent_again_by_the_path() {
    conversation(searched(MtuProbing::Never), |p| {
        p.write(1460);
        p.expect("P. 1:1461(1460) ack 1");
        p.call(|conn, cx, _| conn.on_mtu(cx, 1000, true));
        assert!(p.skip_sent() > 0);
        assert!(p.counters.retransmitted_by_path > 0);
        let again = p.counters.retransmitted_by_path;
        assert_eq!(p.counters.segments_retransmitted, again);
        // A later timeout is counted as a timeout.
        p.wait_ms(2000);
        assert!(p.counters.retransmitted_by_timeout > 0);
        assert_eq!(p.counters.retransmitted_by_path, again);
    });
}

#[test]
fn established_search_begins_no_higher_than_a_router_said() {
    conversation(searched(MtuProbing::Always), |p| {
        p.call(|conn, cx, _| conn.on_mtu(cx, 800, true));
        assert_eq!(p.conn.send_mss(), 800);
        p.wait_ms(620_000);
        // The report is outdated. Only 800 bytes are known to pass, and probes search beyond that.
        p.write(10);
        assert_eq!(p.conn.send_mss(), 800);
    });
}

#[test]
fn established_search_begins_low_and_goes_up_by_probes_that_arrive() {
    conversation(searched(MtuProbing::Always), |p| {
        // The accepting end sends full segments until the first probe has passed, as in Linux.
        assert_eq!(p.conn.send_mss(), 1460);
        p.write(1242 + 7 * 1460);
        assert_eq!(p.counters.path_probes_out, 1, "one probe at a time");
        acknowledge(p, 11_463);
        assert_eq!(p.counters.path_probes_acked, 1);
        assert_eq!(p.conn.send_mss(), 1242, "half of the way to 1460");
        p.write(1351 + 15 * 1242);
        acknowledge(p, 31_444);
        assert_eq!(p.conn.send_mss(), 1351);
    });
}

#[test]
fn established_probe_leaves_while_the_window_takes_two_more() {
    for (in_flight, probes) in [(17, 1), (18, 1), (19, 0)] {
        conversation(searched(MtuProbing::Always), |p| {
            // Data written a segment at a time is too little for a probe and the segments that must
            // follow it.
            for _ in 0..in_flight {
                p.write(1460);
            }
            assert_eq!(p.skip_sent(), in_flight);
            assert_eq!(p.counters.path_probes_out, 0);
            p.write(8000);
            assert_eq!(p.counters.path_probes_out, probes, "{in_flight} of 20");
        });
    }
}

#[test]
fn established_probe_that_is_lost_lowers_the_bound_and_not_the_window() {
    conversation(searched(MtuProbing::Always), |p| {
        let cwnd = p.cwnd();
        p.write(12_000);
        p.skip_sent();
        for _ in 0..4 {
            p.inject(". 1:1(0) ack 1");
        }
        assert_eq!(p.counters.path_probes_lost, 1);
        assert!(p.cwnd() >= cwnd, "no congestion: {} of {cwnd}", p.cwnd());
        p.expect(". 1:1243(1242) ack 1");
        assert_eq!(p.conn.send_mss(), 1460);
    });
}

#[test]
fn established_timeouts_in_a_row_begin_the_search() {
    conversation(searched(MtuProbing::AfterBlackHole), |p| {
        assert_eq!(p.conn.send_mss(), 1460);
        p.write(3_000);
        p.skip_sent();
        p.wait_ms(5_500);
        assert_eq!(p.conn.send_mss(), 1024, "the path is suspected");
        p.wait_ms(5_500);
        assert_eq!(p.conn.send_mss(), 512, "and more so");
    });
}

/// A peer whose SYN-ACK announces an MSS of one byte, over a path that is probed and that a router
/// has narrowed.
fn connecting_to_a_peer_of_one_byte(probing: MtuProbing) -> impl Fn(Variant) -> Peer {
    move |variant| {
        let mut setup = Setup::default();
        setup.config.path_mtu.probing = probing;
        let mut p = Peer::connecting(&setup, variant);
        p.call(|conn, cx, _| conn.on_mtu(cx, 560, true));
        p.inject("S. 0:0(0) ack 1 <mss 1>");
        p
    }
}

#[test]
fn syn_sent_mss_of_one_byte_has_a_floor_when_the_path_is_tried_wide_again() {
    for probing in [MtuProbing::Always, MtuProbing::AfterBlackHole] {
        conversation(connecting_to_a_peer_of_one_byte(probing), |p| {
            assert_eq!(p.conn.send_mss(), 48);
            p.wait_ms(610_000);
            p.write(400);
            p.skip_sent();
            p.wait_ms(60_000);
            assert_eq!(p.conn.send_mss(), 48, "after many timeouts");
            assert_eq!(p.counters.path_probes_out, 0, "nothing is left to find");
        });
    }
}

#[test]
fn established_probe_that_passed_counts_no_higher_than_a_router_said_since() {
    conversation(searched(MtuProbing::Always), |p| {
        p.write(1242 + 7 * 1460);
        assert_eq!(p.counters.path_probes_out, 1);
        p.call(|conn, cx, _| conn.on_mtu(cx, 1000, false));
        acknowledge(p, 11_463);
        assert_eq!(p.conn.send_mss(), 1000);
        p.write(20_000);
        assert_eq!(p.conn.send_mss(), 1000);
    });
}

#[test]
fn established_probe_that_was_lost_leaves_the_bound_that_a_router_set_since() {
    conversation(searched(MtuProbing::Always), |p| {
        p.write(12_000);
        assert_eq!(p.counters.path_probes_out, 1);
        p.call(|conn, cx, _| conn.on_mtu(cx, 1100, false));
        p.skip_sent();
        for _ in 0..4 {
            p.inject(". 1:1(0) ack 1");
        }
        assert_eq!(p.counters.path_probes_lost, 1);
        acknowledge(p, 12_001);
        p.write(30_000);
        assert!(p.conn.send_mss() <= 1100, "{}", p.conn.send_mss());
        assert!(
            p.take_sent()
                .iter()
                .all(|line| !line.contains("(11") && !line.contains("(12")),
            "no probe beyond what the router said"
        );
    });
}
