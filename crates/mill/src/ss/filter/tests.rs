//! The filter language by examples, by iproute2's documentation, and by properties.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::{Comparison, Expression, Filter, Host, Side, parse};
use crate::ss::states;

fn read(text: &str) -> Result<Filter, String> {
    parse(&[text.to_owned()])
}

#[track_caller]
fn matches(text: &str, local: &str, remote: &str) -> bool {
    let filter = read(text).unwrap();
    let end = |text: &str| text.parse::<SocketAddr>().unwrap();
    filter.expression.matches(end(local), end(remote))
}

#[test]
fn manual_page_examples_mean_what_it_says() {
    let (ours, web) = ("10.1.2.3:40000", "93.184.216.34:443");
    let filter = "state established ( dport = :443 or src 10.0.0.0/8 )";
    assert_eq!(read(filter).unwrap().states, Some(1 << 1));
    assert!(matches(filter, ours, "192.0.2.1:80"));
    assert!(matches(filter, "192.0.2.9:5", web));
    assert!(!matches(filter, "192.0.2.9:5", "192.0.2.1:80"));
    assert!(matches("dst 93.184.216.34:443", ours, web));
    assert!(!matches("dst 93.184.216.34:80", ours, web));
    assert!(matches("sport gt 1024 dport le 443", ours, web));
    assert!(matches("dport = :https", ours, web));
    assert!(matches("! src 10.0.0.0/24", ours, web));
    assert!(matches("dst = 93.184.216.34 && sport >= :40000", ours, web));
    assert!(matches("dst != 93.184.216.35", ours, web));
    assert!(matches("autobound", ours, web));
    assert!(matches("( sport = :ssh or sport = :40000 )", ours, web));
}

#[test]
fn addresses_of_both_families_are_read() {
    let (ours, peer) = ("[fd00::1]:80", "[fd00::2]:9");
    for text in [
        "src fd00::1",
        "src [fd00::1]:80",
        "src [fd00::]/64:80",
        "src fd00::/64",
        "src inet6:[fd00::1]",
        "src :80",
        "src *:80",
        "src any",
    ] {
        assert!(matches(text, ours, peer), "{text}");
    }
    assert!(matches("src 10.0.0.0/8", "[::ffff:10.1.1.1]:1", peer));
    assert!(!matches("src ::/0", "10.0.0.1:1", "10.0.0.2:2"));
    assert!(matches("src 0.0.0.0/0", "10.0.0.1:1", "10.0.0.2:2"));
}

#[test]
fn name_stands_for_all_its_addresses() {
    let (ours, peer) = ("127.0.0.1:80", "10.0.0.1:9");
    assert!(matches("src localhost", ours, peer));
    assert!(matches("src localhost:80", ours, peer));
    assert!(!matches("src localhost:81", ours, peer));
    assert!(!matches("dst localhost", ours, peer));
    assert!(matches(
        "src inet:localhost and src != 10.0.0.1",
        ours,
        peer
    ));
}

#[test]
fn states_have_other_names_and_any_case() {
    for (name, usual) in [
        ("SYN-RCV", "syn-recv"),
        ("close", "unconnected"),
        ("Established", "established"),
    ] {
        assert_eq!(states::named(name), states::named(usual), "{name}");
    }
}

#[test]
fn states_add_up_and_are_taken_off() {
    let bits = |text: &str| read(text).unwrap().states;
    assert_eq!(bits(""), None);
    assert_eq!(
        bits("state all exclude listening"),
        Some(states::ALL & !states::LISTEN)
    );
    assert_eq!(
        bits("state syn-recv state time-wait"),
        states::named("bucket")
    );
    assert_eq!(bits("excl established").map(|bits| bits & 2), Some(0));
}

#[test]
fn states_and_exclusions_count_in_their_order() {
    let bits = |text: &str| read(text).unwrap().states;
    let listening = states::LISTEN;
    assert_eq!(bits("state listening exclude listening"), Some(0));
    assert_eq!(
        bits("exclude listening state listening"),
        Some(states::ALL),
        "named again"
    );
    assert_eq!(
        bits("exclude established state listening"),
        Some(states::ALL & !2),
        "what is left of all states stays"
    );
    assert_eq!(
        bits("state established state listening exclude established"),
        Some(listening)
    );
}

#[test]
fn prefix_may_be_written_as_a_mask_and_any_port_as_a_star() {
    let (ours, web) = ("10.1.2.3:40000", "93.184.216.34:443");
    assert!(matches("src 10.1.0.0/255.255.0.0", ours, web));
    assert!(!matches("src 10.2.0.0/255.255.0.0", ours, web));
    assert!(matches(
        "src 0.0.0.0/0.0.0.0 and src 10.1.2.3/255.255.255.255",
        ours,
        web
    ));
    assert!(matches("src :* and dst 93.184.216.34:*", ours, web));
    for wrong in [
        "src 10.1.0.0/255.0.255.0",
        "src ::1/255.0.0.0",
        "src 1.2.3.4/1.2",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn wrong_filter_is_one_line_that_says_what() {
    for (text, part) in [
        ("state asleep", "no state `asleep`"),
        ("state", "a state is missing"),
        ("( dport = :1", "`)` is missing"),
        ("dport = :1 )", "`)` is not expected"),
        ("dport = :70000", "is no port"),
        ("src 10.0.0.0/33", "0 to 32 bits"),
        ("src 10.0.0.0.0", "is no address"),
        ("src > 10.0.0.1", "compared by = and !="),
        ("port = 1", "none of src"),
        ("dport = :1 or", "missing at the end"),
    ] {
        let error = read(text).unwrap_err();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
    let deep = "( ".repeat(100_000);
    assert!(read(&deep).unwrap_err().contains("nested deeper"));
}

fn host() -> impl Strategy<Value = Host> {
    let address = prop_oneof![
        (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(octets, bits)| (IpAddr::from(octets), bits)),
        (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(octets, bits)| (IpAddr::from(octets), bits)),
    ];
    (
        proptest::option::of(address),
        proptest::option::of(any::<u16>()),
    )
        .prop_map(|(address, port)| Host { address, port })
}

fn comparison() -> impl Strategy<Value = Comparison> {
    prop_oneof![
        Just(Comparison::Equal),
        Just(Comparison::NotEqual),
        Just(Comparison::Less),
        Just(Comparison::LessOrEqual),
        Just(Comparison::Greater),
        Just(Comparison::GreaterOrEqual),
    ]
}

fn expression() -> impl Strategy<Value = Expression> {
    let side = || prop_oneof![Just(Side::Local), Just(Side::Remote)];
    let leaf = prop_oneof![
        (side(), host()).prop_map(|(side, host)| Expression::Host(side, host)),
        (side(), comparison(), any::<u16>())
            .prop_map(|(side, how, port)| Expression::Port(side, how, port)),
        Just(Expression::AutoBound),
    ];
    leaf.prop_recursive(5, 32, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Expression::Not(Box::new(one))),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| Expression::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| Expression::Or(Box::new(a), Box::new(b))),
        ]
    })
}

#[test]
fn short_prefix_has_zeros_behind_it() {
    let (ours, web) = ("10.1.2.3:40000", "93.184.216.34:443");
    assert!(matches("src 10/8", ours, web));
    assert!(matches("src 10.1/16 and dst 93.184.216/24", ours, web));
    assert!(!matches("src 10.2/16", ours, web));
    assert!(!matches("src 10.1", ours, web), "one address");
    for wrong in ["src 10.1.2.3.4", "src 10./8", "src 256/8", "src ./8"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn port_with_an_address_is_refused_in_place_of_matching_every_address() {
    let (ours, web) = ("10.1.2.3:40000", "93.184.216.34:443");
    assert!(matches("dport = *:443", ours, web));
    assert!(matches("dport = :443", ours, web));
    for wrong in ["dport 192.0.2.1:443", "dport = [::1]:443", "sport a:1"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn printed_expression_is_read_as_itself(wanted in expression()) {
        let filter = read(&wanted.to_string());
        prop_assert_eq!(filter.map(|filter| filter.expression), Ok(wanted));
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "[ ()!&|=<>:/.*a-z0-9\\[\\]]{0,60}|\\PC{0,40}") {
        if let Err(error) = read(&text) {
            prop_assert!(error.starts_with("filter: "));
        }
    }

    #[test]
    fn words_apart_mean_what_they_mean_together(wanted in expression()) {
        let text = wanted.to_string();
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        prop_assert_eq!(parse(&words), read(&text));
    }
}
