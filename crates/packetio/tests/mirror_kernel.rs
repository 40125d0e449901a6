//! The mirror of the kernel's control plane, in network namespaces. Needs root.

mod netns;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netns::{Namespace, can_run};
use packetio::mirror::Mirror;
use packetio::mux::message::Change;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

struct Hosts {
    near: Namespace,
    far: Namespace,
}

fn hosts() -> Hosts {
    let (near, far) = (Namespace::new("near"), Namespace::new("far"));
    near.ip(&format!(
        "link add eth0 type veth peer name eth0 netns {}",
        far.name
    ));
    near.ip("address add 10.9.0.1/24 dev eth0");
    near.ip("link set eth0 up");
    far.ip("address add 10.9.0.2/24 dev eth0");
    far.ip("link set eth0 up");
    Hosts { near, far }
}

/// Calls the mirror until `found` accepts a change; fails after ten seconds.
fn until(mirror: &mut Mirror, found: impl Fn(&Change) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let changes = mirror.changes().unwrap();
        if changes.iter().any(&found) {
            return;
        }
        assert!(Instant::now() < end, "the change was not told");
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let _ = poll(
            &mut [PollFd::new(&mirror.fd(), PollFlags::IN)],
            Some(&second),
        );
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn interface_changed_by_ip_is_told() {
    if !can_run("interface_changed_by_ip_is_told") {
        return;
    }
    let hosts = hosts();
    let mut mirror = hosts.near.inside(|| Mirror::open("eth0")).unwrap();
    assert!(mirror.host().has(ip("10.9.0.1")));
    hosts.near.ip("address add 10.9.1.1/24 dev eth0");
    until(&mut mirror, |change| {
        *change
            == Change::AddressAdded {
                address: ip("10.9.1.1"),
                prefix: 24,
            }
    });
    hosts.near.ip("route add 10.8.0.0/16 via 10.9.0.2 mtu 1300");
    until(
        &mut mirror,
        |change| matches!(change, Change::RouteAdded(route) if route.gateway == Some(ip("10.9.0.2")) && route.mtu == 1300),
    );
    hosts.near.ip("link set eth0 mtu 1400");
    until(&mut mirror, |change| *change == Change::Mtu(1400));
    hosts.near.ip("link set eth0 address 02:00:00:00:00:77");
    until(&mut mirror, |change| matches!(change, Change::Mac(_)));
    hosts.near.ip("address del 10.9.1.1/24 dev eth0");
    until(
        &mut mirror,
        |change| matches!(change, Change::AddressRemoved { address, .. } if *address == ip("10.9.1.1")),
    );
    hosts.far.ip("link set eth0 down");
    until(&mut mirror, |change| {
        *change == Change::Link { is_up: false }
    });
}

#[test]
fn next_hop_asked_for_is_resolved_without_traffic() {
    if !can_run("next_hop_asked_for_is_resolved_without_traffic") {
        return;
    }
    let hosts = hosts();
    let mut mirror = hosts.near.inside(|| Mirror::open("eth0")).unwrap();
    let hop = ip("10.9.0.2");
    if mirror.resolve(hop).unwrap().is_none() {
        until(
            &mut mirror,
            |change| matches!(change, Change::NextHop { address, mac: Some(_) } if *address == hop),
        );
    }
    let known = mirror.resolve(hop).unwrap().expect("resolved");
    hosts.far.ip("link set eth0 address 02:00:00:00:00:99");
    hosts.far.exec("ip neigh flush all");
    hosts
        .near
        .ip("neigh replace 10.9.0.2 dev eth0 lladdr 02:00:00:00:00:99 nud reachable");
    until(
        &mut mirror,
        |change| matches!(change, Change::NextHop { mac: Some(mac), .. } if *mac != known),
    );
}

#[test]
fn interface_removed_and_made_again_is_told_whole() {
    if !can_run("interface_removed_and_made_again_is_told_whole") {
        return;
    }
    let hosts = hosts();
    let mut mirror = hosts.near.inside(|| Mirror::open("eth0")).unwrap();
    hosts.near.ip("link del eth0");
    until(&mut mirror, |change| *change == Change::Gone);
    hosts.near.ip(&format!(
        "link add eth0 type veth peer name eth0 netns {}",
        hosts.far.name
    ));
    until(&mut mirror, |change| *change == Change::Complete);
    hosts.near.ip("address add 10.9.0.1/24 dev eth0");
    until(&mut mirror, |change| {
        matches!(change, Change::AddressAdded { .. })
    });
}

#[test]
fn interface_that_does_not_exist_is_refused() {
    let error = Mirror::open("nosuch0").unwrap_err();
    assert_eq!(error, rustix::io::Errno::NODEV);
}

/// A process may give up its capabilities once it has opened its wires.
#[test]
fn new_mac_is_announced_without_the_capability_of_the_start() {
    if !can_run("new_mac_is_announced_without_the_capability_of_the_start") {
        return;
    }
    let hosts = hosts();
    let mut mirror = hosts.near.inside(|| Mirror::open("eth0")).unwrap();
    hosts.near.ip("link set eth0 address 02:00:00:00:00:78");
    until(&mut mirror, |change| matches!(change, Change::Mac(_)));
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread alone, which ends with the call.
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, none).unwrap();
            mirror.announce()
        });
        thread.join().unwrap()
    });
    assert_eq!(outcome, Ok(()));
}
