//! Every scenario over a wire that loses nothing, with either end as the server, over IPv4 and
//! IPv6.

use millstream::Crank;

use crate::common::lab::{Lab, Link, turn_as_root};
use crate::common::meet::{
    BOTH_FAMILIES, BOTH_ROLES, Family, Role, expect_all_returned, expect_nothing_dropped, plain,
    play, with_ours,
};
use crate::common::scenarios::{ALL, BULK_3, ECHO, REFUSED, SHORT_200, SHORT_2000, Scenario};

fn meet(
    name: &str,
    link: Link,
    crank: Crank,
    scenarios: &[Scenario],
    roles: &[Role],
    families: &[Family],
) {
    let Some(_turn) = turn_as_root(name) else {
        return;
    };
    let lab = Lab::new(link);
    with_ours(&lab, plain(&lab.wire(""), crank), |context| {
        for &role in roles {
            for &family in families {
                for scenario in scenarios {
                    play(&lab, context, scenario, role, family);
                }
            }
        }
        expect_nothing_dropped(&expect_all_returned(context));
    });
}

#[test]
fn native_xdp_inline() {
    meet(
        "native_xdp_inline",
        Link::Native,
        Crank::Inline,
        &ALL,
        &BOTH_ROLES,
        &BOTH_FAMILIES,
    );
}

#[test]
fn native_xdp_dedicated() {
    meet(
        "native_xdp_dedicated",
        Link::Native,
        Crank::Dedicated,
        &ALL,
        &BOTH_ROLES,
        &[Family::V4],
    );
}

#[test]
fn generic_xdp() {
    let scenarios = [ECHO, BULK_3, SHORT_200, REFUSED];
    meet(
        "generic_xdp",
        Link::Generic,
        Crank::Inline,
        &scenarios,
        &BOTH_ROLES,
        &BOTH_FAMILIES,
    );
}

#[test]
fn tap() {
    meet(
        "tap",
        Link::Tap,
        Crank::Inline,
        &ALL,
        &BOTH_ROLES,
        &BOTH_FAMILIES,
    );
}

#[test]
fn many_short_connections() {
    for link in [Link::Native, Link::Tap] {
        meet(
            &format!("many_short_connections over {link:?}"),
            link,
            Crank::Inline,
            &[SHORT_2000],
            &BOTH_ROLES,
            &[Family::V4],
        );
    }
}
