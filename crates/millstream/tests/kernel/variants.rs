//! Kernels with other settings, and other kinds of traffic: ping, small windows, reused ports.

use millstream::Crank;

use crate::common::lab::{Lab, Link, OURS_V4, OURS_V6, turn_as_root};
use crate::common::meet::{
    BOTH_ROLES, Family, Role, counter, expect_all_returned, expect_nothing_dropped, places, plain,
    play, play_with, with_ours,
};
use crate::common::scenarios::{BULK_3, ECHO, SHORT_200, SLOW_CLIENT, SLOW_SERVER};

/// Keys below `net/ipv4`, which IPv6's TCP shares.
const SYSCTLS: [&[(&str, &str)]; 5] = [
    &[("tcp_timestamps", "0")],
    &[("tcp_window_scaling", "0")],
    &[("tcp_sack", "0")],
    &[
        ("tcp_timestamps", "0"),
        ("tcp_window_scaling", "0"),
        ("tcp_sack", "0"),
    ],
    &[("tcp_ecn", "1")],
];

#[test]
fn kernel_without_an_option() {
    let Some(_turn) = turn_as_root("kernel_without_an_option") else {
        return;
    };
    for keys in SYSCTLS {
        println!("  {keys:?}");
        let lab = Lab::new(Link::Native);
        for (key, value) in keys {
            lab.far().sysctl(&format!("ipv4/{key}"), value);
        }
        with_ours(&lab, plain(&lab.wire(""), Crank::Inline), |context| {
            for (role, family) in BOTH_ROLES.into_iter().zip([Family::V4, Family::V6]) {
                for scenario in [ECHO, BULK_3, SHORT_200] {
                    play(&lab, context, &scenario, role, family);
                }
            }
            expect_nothing_dropped(&expect_all_returned(context));
        });
    }
}

#[test]
fn ours_without_an_option() {
    let Some(_turn) = turn_as_root("ours_without_an_option") else {
        return;
    };
    for (timestamps, window_scaling) in [(false, true), (true, false), (false, false)] {
        let lab = Lab::new(Link::Native);
        let mut config = plain(&lab.wire(""), Crank::Inline);
        config.tcp.timestamps = timestamps;
        config.tcp.window_scaling = window_scaling;
        with_ours(&lab, config, |context| {
            for role in BOTH_ROLES {
                play(&lab, context, &BULK_3, role, Family::V4);
                play(&lab, context, &SHORT_200, role, Family::V6);
            }
            expect_all_returned(context);
        });
    }
}

#[test]
fn small_windows_close_and_open() {
    let Some(_turn) = turn_as_root("small_windows_close_and_open") else {
        return;
    };
    let lab = Lab::new(Link::Native);
    let mut config = plain(&lab.wire(""), Crank::Inline);
    config.tcp.recv_buffer.bytes_default = 40_000;
    config.tcp.recv_buffer.bytes_max = 40_000;
    with_ours(&lab, config, |context| {
        for role in BOTH_ROLES {
            for scenario in [SLOW_SERVER, SLOW_CLIENT] {
                let (ours, mut kernels) = places(Family::V4);
                kernels.kernel_receive_buffer = Some(16_384);
                play_with(&lab, context, &scenario, role, (ours, kernels));
            }
        }
        expect_all_returned(context);
    });
}

#[test]
fn kernel_pings() {
    let Some(_turn) = turn_as_root("kernel_pings") else {
        return;
    };
    for link in [Link::Native, Link::Generic, Link::Tap] {
        for crank in [Crank::Inline, Crank::Dedicated] {
            let lab = Lab::new(link);
            with_ours(&lab, plain(&lab.wire(""), crank), |context| {
                for (address, bytes) in [(OURS_V4, 56), (OURS_V4, 1_472), (OURS_V6, 1_452)] {
                    // The owner is away, so the watchdog or the stack's thread has to answer.
                    lab.far()
                        .exec(&format!("ping -q -c 3 -i 0.1 -W 2 -s {bytes} {address}"));
                }
                let report = context.report().expect("report");
                assert_eq!(counter(&report, "echo_replies"), 9);
            });
        }
    }
}

/// RFC 6191 in both roles: 400 connections from 50 ports, which the peer holds in TIME_WAIT, follow
/// each other without a pause.
#[test]
fn ports_in_time_wait_are_used_again() {
    let Some(_turn) = turn_as_root("ports_in_time_wait_are_used_again") else {
        return;
    };
    let lab = Lab::new(Link::Native);
    lab.far().sysctl("ipv4/ip_local_port_range", "40000 40049");
    let mut config = plain(&lab.wire(""), Crank::Inline);
    config.local_ports = (50_000, 50_049);
    with_ours(&lab, config, |context| {
        for role in BOTH_ROLES {
            play(&lab, context, &SHORT_200, role, Family::V4);
            play(&lab, context, &SHORT_200, role, Family::V6);
        }
        let report = expect_all_returned(context);
        assert!(counter(&report, "time_wait_reused") > 200);
    });
}

/// The TIME_WAIT table is full: the oldest entry is replaced, and no connection is refused.
#[test]
fn time_wait_table_full_serves_on() {
    let Some(_turn) = turn_as_root("time_wait_table_full_serves_on") else {
        return;
    };
    let lab = Lab::new(Link::Native);
    let mut config = plain(&lab.wire(""), Crank::Inline);
    config.limits.time_wait_max = 20;
    with_ours(&lab, config, |context| {
        play(&lab, context, &SHORT_200, Role::Server, Family::V4);
        let report = expect_all_returned(context);
        assert_eq!(report.usage.time_wait, 20);
        assert_eq!(counter(&report, "time_wait_evicted"), 180);
    });
}
