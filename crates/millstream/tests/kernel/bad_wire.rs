//! The scenarios over a wire that loses, duplicates, reorders and damages frames in both directions
//! (our own `fault`).

use millstream::Crank;

use crate::common::lab::{Lab, Link, turn_as_root};
use crate::common::meet::{
    BOTH_ROLES, Family, Role, counter, expect_all_returned, plain, play, with_ours,
};
use crate::common::scenarios::{BULK_1, BULK_100K, BULK_300K, ECHO, SHORT_30, Scenario};

fn meet(name: &str, link: Link, keys: &str, scenarios: &[Scenario], family: Family) {
    let Some(_turn) = turn_as_root(name) else {
        return;
    };
    let lab = Lab::new(link);
    println!("  {link:?}, {keys}");
    with_ours(&lab, plain(&lab.wire(keys), Crank::Inline), |context| {
        for role in BOTH_ROLES {
            for scenario in scenarios {
                play(&lab, context, scenario, role, family);
            }
        }
        let report = expect_all_returned(context);
        for (name, value) in report.port.named().iter().filter(|row| row.1 > 0) {
            println!("    {name} {value}");
        }
    });
}

#[test]
fn loss_alone() {
    for (link, family) in [(Link::Native, Family::V4), (Link::Tap, Family::V6)] {
        let name = format!("loss_alone over {link:?}");
        meet(&name, link, "loss=1%,seed=1", &[BULK_1, SHORT_30], family);
        meet(&name, link, "loss=5%,seed=2", &[BULK_300K, ECHO], family);
    }
}

#[test]
fn duplicates_alone() {
    for keys in ["dup=1%,seed=3", "dup=5%,seed=4"] {
        meet(
            "duplicates_alone",
            Link::Native,
            keys,
            &[BULK_1, SHORT_30],
            Family::V4,
        );
    }
}

#[test]
fn reordering_alone() {
    for keys in ["reorder=1%,seed=5", "reorder=5%,seed=6"] {
        meet(
            "reordering_alone",
            Link::Native,
            keys,
            &[BULK_1, SHORT_30],
            Family::V6,
        );
    }
}

/// The kernel leaves checksums to hardware that does not exist. The wire must complete them before
/// it damages a frame.
#[test]
fn corruption_alone() {
    for link in [Link::Native, Link::Generic, Link::Tap] {
        let name = format!("corruption_alone over {link:?}");
        meet(
            &name,
            link,
            "corrupt=5%,seed=7",
            &[BULK_300K, ECHO],
            Family::V4,
        );
    }
    meet(
        "corruption_alone",
        Link::Native,
        "corrupt=1%,seed=8",
        &[BULK_1],
        Family::V6,
    );
}

#[test]
fn all_at_once() {
    let all = |rate: &str| format!("loss={rate},dup={rate},reorder={rate},corrupt={rate},seed=9");
    for (link, family) in [
        (Link::Native, Family::V6),
        (Link::Generic, Family::V4),
        (Link::Tap, Family::V4),
    ] {
        let name = format!("all_at_once over {link:?}");
        meet(&name, link, &all("1%"), &[BULK_1, ECHO], family);
    }
    meet(
        "all_at_once",
        Link::Native,
        &all("5%"),
        &[BULK_100K, ECHO],
        Family::V4,
    );
}

/// Delay and a rate limit: a full long pipe, and a queue that overflows.
#[test]
fn long_thin_pipe() {
    let keys = "delay=5ms,jitter=1ms,rate=100mbit,limit=64kb,seed=10";
    meet(
        "long_thin_pipe",
        Link::Native,
        keys,
        &[BULK_300K, ECHO],
        Family::V4,
    );
}

/// The faults do happen: TCP has repaired what the wire counted.
#[test]
fn faults_are_seen_and_mended() {
    let Some(_turn) = turn_as_root("faults_are_seen_and_mended") else {
        return;
    };
    let lab = Lab::new(Link::Native);
    let keys = "loss=2%,corrupt=2%,seed=11";
    with_ours(&lab, plain(&lab.wire(keys), Crank::Inline), |context| {
        play(&lab, context, &BULK_1, Role::Server, Family::V4);
        let report = expect_all_returned(context);
        let lost = counter(&report, "fault_rx_lost") + counter(&report, "fault_tx_lost");
        assert!(lost > 0, "{:?}", report.port.named());
        assert!(counter(&report, "rx_drop_tcp_checksum") > 0);
    });
}
