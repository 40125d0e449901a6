//! Tests of the routing table, alone and against a simple model.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(prefix: &str, gateway: Option<&str>, port: u8) -> Route {
    Route {
        prefix: prefix.parse().unwrap(),
        gateway: gateway.map(ip),
        port,
    }
}

#[test]
fn empty_reaches_nothing() {
    let mut routes = Routes::new();
    assert_eq!(routes.lookup(ip("10.0.0.1")), None);
    assert_eq!(routes.lookup(ip("::1")), None);
}

#[test]
fn longest_prefix_wins_and_on_link_is_its_own_hop() {
    let mut routes = Routes::new();
    routes
        .add(route("0.0.0.0/0", Some("10.0.0.254"), 0))
        .unwrap();
    routes.add(route("10.0.0.0/24", None, 0)).unwrap();
    routes
        .add(route("10.0.0.128/25", Some("10.0.0.7"), 1))
        .unwrap();
    routes.add(route("2001:db8::/32", None, 2)).unwrap();
    let mut hop = |to: &str| {
        routes
            .lookup(ip(to))
            .map(|hop| (hop.address.to_string(), hop.port))
    };
    assert_eq!(hop("10.0.0.5"), Some(("10.0.0.5".into(), 0)));
    assert_eq!(hop("10.0.0.200"), Some(("10.0.0.7".into(), 1)));
    assert_eq!(hop("8.8.8.8"), Some(("10.0.0.254".into(), 0)));
    assert_eq!(hop("2001:db8::9"), Some(("2001:db8::9".into(), 2)));
    assert_eq!(hop("2001:db9::9"), None);
}

#[test]
fn cached_answer_goes_when_a_route_changes() {
    let mut routes = Routes::new();
    routes
        .add(route("0.0.0.0/0", Some("10.0.0.254"), 0))
        .unwrap();
    let to = ip("192.0.2.1");
    assert_eq!(routes.lookup(to).unwrap().address, ip("10.0.0.254"));
    routes
        .add(route("192.0.2.9/24", Some("10.0.0.253"), 0))
        .unwrap();
    assert_eq!(routes.lookup(to).unwrap().address, ip("10.0.0.253"));
    assert!(routes.remove("192.0.2.0/24".parse().unwrap(), 0).is_some());
    assert_eq!(routes.lookup(to).unwrap().address, ip("10.0.0.254"));
    assert!(routes.remove("192.0.2.0/24".parse().unwrap(), 0).is_none());
}

#[test]
fn refusals_name_their_cause() {
    let mut routes = Routes::new();
    routes.add(route("10.0.0.0/8", None, 0)).unwrap();
    assert_eq!(
        routes.add(route("10.9.9.9/8", None, 0)),
        Err(RouteError::Duplicate)
    );
    assert_eq!(
        routes.add(route("::/0", Some("10.0.0.1"), 0)),
        Err(RouteError::GatewayFamily)
    );
    assert_eq!(
        routes.add(route("::/0", Some("ff02::2"), 0)),
        Err(RouteError::GatewayNotUnicast)
    );
}

#[test]
fn same_prefix_on_two_ports_prefers_the_first_and_falls_back_to_the_second() {
    let mut routes = Routes::new();
    routes.add(route("::/0", Some("fd01::1"), 1)).unwrap();
    routes.add(route("::/0", Some("fd00::1"), 0)).unwrap();
    let to = ip("2001:db8::9");
    let hops: Vec<_> = routes.hops(to).map(|hop| (hop.address, hop.port)).collect();
    assert_eq!(hops, [(ip("fd00::1"), 0), (ip("fd01::1"), 1)]);
    routes.remove_port(0);
    assert_eq!(routes.lookup(to).map(|hop| hop.port), Some(1));
    routes.remove_port(1);
    assert_eq!(routes.lookup(to), None);
}

#[test]
fn gateways_for_one_prefix_and_port_are_kept_in_the_order_of_their_addition() {
    let mut routes = Routes::new();
    let to = ip("192.0.2.1");
    let add = |routes: &mut Routes, gateway, port| {
        routes.add(route("0.0.0.0/0", gateway, port)).map(|()| {
            let hops = routes.choices(to, None).map(|hop| hop.address.to_string());
            hops.collect::<Vec<_>>()
        })
    };
    assert_eq!(add(&mut routes, Some("10.0.0.9"), 0).unwrap(), ["10.0.0.9"]);
    assert!(!routes.has_choices());
    let both = ["10.0.0.9", "10.0.0.2"];
    assert_eq!(add(&mut routes, Some("10.0.0.2"), 0).unwrap(), both);
    assert_eq!(add(&mut routes, Some("10.0.1.2"), 1).unwrap(), both);
    assert!(routes.has_choices());
    assert_eq!(routes.lookup(to).unwrap().address, ip("10.0.0.9"));
    let behind = |port| routes.choices(to, Some(port)).count();
    assert_eq!((behind(0), behind(1), behind(2)), (2, 1, 0));
    for again in [Some("10.0.0.9"), Some("10.0.0.2"), None] {
        assert_eq!(add(&mut routes, again, 0), Err(RouteError::Duplicate));
    }
    routes
        .add(route("192.0.2.0/24", Some("10.0.0.7"), 0))
        .unwrap();
    let near: Vec<_> = routes.choices(to, None).map(|hop| hop.address).collect();
    assert_eq!(near, [ip("10.0.0.7")]);
    assert!(routes.remove("0.0.0.0/0".parse().unwrap(), 0).is_some());
    assert!(!routes.has_choices());
    assert_eq!(routes.len(), 2);
}

#[test]
fn table_stops_at_its_limit() {
    let mut routes = Routes::new();
    for n in 0..ROUTES_MAX as u32 {
        let prefix = IpCidr::host(IpAddr::V4(Ipv4Addr::from_bits(n)));
        routes
            .add(Route {
                prefix,
                gateway: None,
                port: 0,
            })
            .unwrap();
    }
    assert_eq!(routes.add(route("::/0", None, 0)), Err(RouteError::Full));
}

fn arbitrary_address() -> impl Strategy<Value = IpAddr> {
    // Few distinct high and low bits, so that prefixes overlap and addresses hit them.
    prop_oneof![
        (0u32..4, 0u32..64)
            .prop_map(|(high, low)| IpAddr::V4(Ipv4Addr::from_bits(high << 30 | low))),
        (0u128..4, 0u128..64)
            .prop_map(|(high, low)| IpAddr::V6(Ipv6Addr::from_bits(high << 126 | low))),
    ]
}

fn arbitrary_route() -> impl Strategy<Value = Route> {
    (arbitrary_address(), 0u8..=128, 0u8..3).prop_map(|(address, length, port)| Route {
        prefix: IpCidr::new(
            address,
            length.min(if address.is_ipv4() { 32 } else { 128 }),
        )
        .unwrap(),
        gateway: None,
        port,
    })
}

proptest! {
    #[test]
    fn lookup_agrees_with_a_naive_oracle(
        steps in prop::collection::vec((arbitrary_route(), any::<bool>()), 0..60),
        destinations in prop::collection::vec(arbitrary_address(), 1..40),
    ) {
        let mut routes = Routes::new();
        let mut oracle: Vec<Route> = Vec::new();
        for (route, add) in steps {
            let prefix = route.prefix.network();
            let held = oracle.iter().position(|known| known.prefix == prefix && known.port == route.port);
            if add {
                prop_assert_eq!(routes.add(route).is_ok(), held.is_none());
                if held.is_none() {
                    oracle.push(Route { prefix, ..route });
                }
            } else {
                let expected = held.map(|at| oracle.swap_remove(at));
                prop_assert_eq!(routes.remove(route.prefix, route.port), expected);
            }
        }
        prop_assert_eq!(routes.len(), oracle.len());
        for destination in destinations {
            let expected = oracle
                .iter()
                .filter(|route| route.prefix.contains(destination))
                .max_by_key(|route| (route.prefix.prefix_len(), u8::MAX - route.port))
                .map(|route| NextHop { address: destination, port: route.port });
            prop_assert_eq!(routes.lookup(destination), expected);
            prop_assert_eq!(routes.lookup(destination), expected);
        }
    }
}
