//! The test of every hop (`mill mux check`): each hop that is broken is named, and no other one.

use super::*;

/// Names of the hops that are wrong.
fn wrong(plane: &mut Dataplane) -> Vec<String> {
    let hops = plane.check_hops();
    let wrong = hops.into_iter().filter(|(_, outcome)| outcome.is_err());
    wrong.map(|(name, _)| name).collect()
}

/// A data path with a port for all addresses of both versions of IP, whose peer takes frames.
fn served(host: &Host) -> (Dataplane, NewPort) {
    let mut plane = host.open();
    assert!(run("ethtool", &["-K", "peer0", "gro", "on"]));
    let port = add_port(&mut plane, 0, 0);
    for endpoint in ["0.0.0.0:80", "[::]:80"] {
        plane.claim_set(endpoint.parse().unwrap(), 0, &[0]).unwrap();
    }
    assert_eq!(wrong(&mut plane), [""; 0]);
    (plane, port)
}

/// `ip` in the private namespace.
fn ip(plane: &Dataplane, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    assert!(plane.namespace.run(|| Ok(run("ip", &words))).unwrap());
}

#[test]
fn end_of_a_virtual_port_that_is_down_is_named() {
    let Some(host) = Host::enter("hop-down") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    for end in ["near0", "far0"] {
        ip(&plane, &format!("link set {end} down"));
        assert_eq!(wrong(&mut plane), ["application 0 context 0: ends are up"]);
        ip(&plane, &format!("link set {end} up"));
    }
    assert_eq!(wrong(&mut plane), [""; 0]);
    plane.close();
}

#[test]
fn socket_that_is_closed_is_named() {
    let Some(host) = Host::enter("hop-socket") else {
        return;
    };
    let (mut plane, port) = served(&host);
    drop(port);
    assert_eq!(wrong(&mut plane), ["application 0 context 0: socket"]);
    plane.close();
}

#[test]
fn pair_that_is_gone_is_named_although_its_links_are_pinned() {
    let Some(host) = Host::enter("hop-pair") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    ip(&plane, "link del near0");
    let hops = [
        "ends are up",
        "program on the near end",
        "program on the far end",
        "socket",
        "redirect to it",
    ];
    let hops = hops.map(|hop| format!("application 0 context 0: {hop}"));
    assert_eq!(wrong(&mut plane), hops);
    plane.close();
}

#[test]
fn claim_for_all_addresses_that_the_program_does_not_know_is_named() {
    let Some(host) = Host::enter("hop-claim") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    for endpoint in ["0.0.0.0:80", "[::]:80"] {
        let key = layout::endpoint(endpoint.parse().unwrap());
        let mut value = [0; 40];
        let claims = plane.maps.map("claims").unwrap();
        claims.lookup(&key, &mut value).unwrap();
        plane.maps.remove("claims", &key).unwrap();
        assert_eq!(
            wrong(&mut plane),
            ["application 0 context 0: redirect to it"]
        );
        plane.maps.set("claims", &key, &value).unwrap();
    }
    assert_eq!(wrong(&mut plane), [""; 0]);
    plane.close();
}

#[test]
fn way_out_that_is_missing_is_named() {
    let Some(host) = Host::enter("hop-way") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    let way = layout::WAY_NIC.to_ne_bytes();
    plane.maps.remove("nic", &way).unwrap();
    let named = wrong(&mut plane);
    assert!(
        named.contains(&"applications send to it".to_owned()),
        "{named:?}"
    );
    plane.close();
}

#[test]
fn interface_that_is_gone_is_named_although_its_link_is_pinned() {
    let Some(host) = Host::enter("hop-nic") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    assert!(run("ip", &["link", "del", "nic0"]));
    let named = wrong(&mut plane);
    for hop in [
        "nic0 is there",
        "its program is attached",
        "applications send to it",
    ] {
        assert!(named.contains(&hop.to_owned()), "{hop}: {named:?}");
    }
    plane.close();
}

#[test]
fn end_of_a_bulk_lane_that_is_down_is_named() {
    let Some(host) = Host::enter("hop-bulk") else {
        return;
    };
    let (mut plane, _port) = served(&host);
    let _lane = plane.bulk_add(0, 0).unwrap();
    assert_eq!(wrong(&mut plane), [""; 0]);
    for end in ["bulk0", "hop"] {
        ip(&plane, &format!("link set {end} down"));
        assert_eq!(wrong(&mut plane), ["application 0 context 0: bulk lane"]);
        ip(&plane, &format!("link set {end} up"));
    }
    plane.close();
}

#[test]
fn end_of_the_pair_of_the_same_host_that_is_down_is_named() {
    let Some(host) = Host::enter("hop-local") else {
        return;
    };
    let mut options = host.options();
    options.is_local = true;
    let mut plane = Dataplane::open(options).unwrap();
    let local = |plane: &mut Dataplane| {
        let mut wrong = wrong(plane);
        wrong.retain(|hop| hop.starts_with("same host"));
        wrong
    };
    assert_eq!(local(&mut plane), [""; 0]);
    ip(&plane, "link set local down");
    assert_eq!(local(&mut plane), ["same host: both ends of its pair"]);
    ip(&plane, "link set local up");
    // An endpoint for all addresses is tried with one of the interface's.
    drop(add_port(&mut plane, 0, 0));
    plane.address_add("fd00::1".parse().unwrap(), None).unwrap();
    let endpoint = "[::]:80".parse().unwrap();
    plane.claim_set(endpoint, 0, &[0]).unwrap();
    assert_eq!(local(&mut plane), [""; 0]);
    let key = layout::endpoint(endpoint);
    plane.maps.remove("claims", &key).unwrap();
    assert_eq!(
        local(&mut plane),
        ["same host: redirect off the loopback interface"]
    );
    plane.close();
}
