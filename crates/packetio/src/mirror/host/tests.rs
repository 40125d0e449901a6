//! Differences between states of an interface.

use std::net::IpAddr;

use super::*;
use crate::MacAddr;

fn host() -> Host {
    Host {
        link: Some(Link {
            index: 2,
            name: "eth0".into(),
            mac: Some(MacAddr([2; 6])),
            mtu: 1500,
            is_up: true,
        }),
        addresses: vec![address(1)],
        routes: vec![route()],
    }
}

fn address(last: u8) -> Address {
    Address {
        index: 2,
        address: IpAddr::from([10, 0, 0, last]),
        prefix: 24,
        broadcast: None,
        is_usable: true,
    }
}

fn route() -> Route {
    Route {
        index: 2,
        table: 254,
        destination: IpAddr::from([10, 0, 0, 0]),
        prefix: 24,
        gateway: None,
        source: None,
        mtu: 0,
        metric: 0,
    }
}

#[test]
fn equal_states_have_no_changes() {
    assert_eq!(host().changes_to(&host()), []);
}

#[test]
fn first_state_is_told_whole_and_in_order() {
    let changes = host().all();
    assert!(matches!(
        changes[..],
        [
            Change::Mac(_),
            Change::Mtu(1500),
            Change::Link { is_up: true },
            Change::AddressAdded { .. },
            Change::RouteAdded(_)
        ]
    ));
}

#[test]
fn address_replaced_goes_before_the_new_one_comes() {
    let mut next = host();
    next.addresses = vec![address(2)];
    let changes = host().changes_to(&next);
    let (old, new) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let prefix = 24;
    assert_eq!(
        changes,
        [
            Change::AddressRemoved {
                address: old,
                prefix
            },
            Change::AddressAdded {
                address: new,
                prefix
            }
        ]
    );
}

#[test]
fn address_that_stays_with_another_prefix_is_not_told_as_gone() {
    let wide = Address {
        prefix: 16,
        ..address(1)
    };
    let with = |addresses: &[&Address]| Host {
        addresses: addresses.iter().map(|&&one| one).collect(),
        ..host()
    };
    let told = |prefix| Change::AddressAdded {
        address: IpAddr::from([10, 0, 0, 1]),
        prefix,
    };
    let narrow = address(1);
    let both = with(&[&narrow, &wide]);
    // The prefix changes at once, or by a second entry that comes before the first one goes.
    assert_eq!(with(&[&narrow]).changes_to(&with(&[&wide])), [told(16)]);
    assert_eq!(with(&[&narrow]).changes_to(&both), []);
    assert_eq!(both.changes_to(&with(&[&wide])), [told(16)]);
    assert_eq!(both.changes_to(&with(&[&narrow])), []);
    // The first state of a service, and the last entry that goes, are told once.
    let of_addresses = |changes: Vec<Change>| {
        let is_address = |change: &Change| {
            let (address, prefix) = (IpAddr::from([10, 0, 0, 1]), 24);
            *change == told(24) || *change == Change::AddressRemoved { address, prefix }
        };
        changes.into_iter().filter(is_address).count()
    };
    assert_eq!(of_addresses(both.all()), 1);
    assert_eq!(of_addresses(both.changes_to(&with(&[]))), 1);
}

#[test]
fn interface_removed_takes_all_with_it_and_comes_back_whole() {
    let gone = Host::default();
    let changes = host().changes_to(&gone);
    assert!(matches!(
        changes[..],
        [
            Change::RouteRemoved(_),
            Change::AddressRemoved { .. },
            Change::Gone
        ]
    ));
    assert_eq!(gone.changes_to(&gone), []);
    assert_eq!(gone.changes_to(&host()), host().all());
}
