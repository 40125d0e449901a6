//! Clients of the same host: the programs' decisions, and the remains of the pair after the end.

use super::egress::{Bench, v4};
use super::*;
use crate::dataplane::check::segment;
use crate::reason::Reason;

/// `TCX_NEXT`
const NEXT: u32 = u32::MAX;
/// `TC_ACT_REDIRECT`
const TC_REDIRECT: u32 = 7;

fn open(host: &Host) -> Dataplane {
    let mut options = host.options();
    options.is_local = true;
    let mut plane = Dataplane::open(options).expect("a data path");
    plane.address_add(OURS.into(), None).unwrap();
    plane.address_add("fd00::1".parse().unwrap(), None).unwrap();
    plane.next_hop_set(GATEWAY, true).unwrap();
    plane
}

fn has_pair() -> bool {
    let shown = Command::new("ip").arg("link").output().unwrap();
    String::from_utf8_lossy(&shown.stdout).contains("mill-lo")
}

/// An IPv4 segment.
fn from_to(from: [u8; 4], to: [u8; 4], port: u16) -> Vec<u8> {
    segment(from.into(), SocketAddr::from((to, port)))
}

#[test]
fn packet_of_the_same_host_leaves_the_loopback_interface_if_its_place_is_owned() {
    let Some(host) = Host::enter("lo") else {
        return;
    };
    let mut plane = open(&host);
    drop(add_port(&mut plane, 0, 0));
    plane
        .claim_set("0.0.0.0:80".parse().unwrap(), 0, &[0])
        .unwrap();
    plane.lease_add(20_000..=20_003, 0, 0).unwrap();
    let program = plane.maps.local.as_ref().unwrap().lo.try_clone().unwrap();
    let lo = |frame: &[u8]| bpf::dry_run(program.as_fd(), frame, 0).unwrap();
    let ours = OURS.octets();
    assert_eq!(lo(&from_to(ours, ours, 80)), TC_REDIRECT);
    assert_eq!(lo(&from_to(ours, ours, 20_001)), TC_REDIRECT);
    assert_eq!(lo(&from_to(ours, ours, 81)), NEXT, "nobody's port");
    assert_eq!(lo(&from_to([127, 0, 0, 1], ours, 80)), NEXT, "loopback");
    assert_eq!(lo(&from_to(ours, [127, 0, 0, 1], 80)), NEXT, "loopback");
    assert_eq!(lo(&from_to([10, 9, 9, 9], ours, 80)), NEXT, "other source");
    assert_eq!(lo(&[0; 60]), NEXT, "no packet");
    let link: IpAddr = "fe80::1".parse().unwrap();
    let global: IpAddr = "fd00::1".parse().unwrap();
    plane.address_add(link, None).unwrap();
    plane
        .claim_set("[::]:80".parse().unwrap(), 0, &[0])
        .unwrap();
    for (address, action) in [(global, TC_REDIRECT), (link, NEXT)] {
        assert_eq!(lo(&v6_to_itself(address, 80)), action, "{address}");
    }
    plane.close();
    assert!(!has_pair());
}

/// An IPv6 segment from an address to itself.
fn v6_to_itself(address: IpAddr, port: u16) -> Vec<u8> {
    let IpAddr::V6(v6) = address else {
        panic!("{address}")
    };
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend([v6.octets(), v6.octets()].concat());
    frame.extend([0, 9]);
    frame.extend(port.to_be_bytes());
    frame.resize(14 + 40 + 20, 0);
    frame
}

#[test]
fn wire_that_names_an_address_of_ours_as_source_is_not_heard() {
    let Some(host) = Host::enter("forged") else {
        return;
    };
    let decide = |plane: &mut Dataplane, frame: &[u8]| {
        let pair = plane.maps.local.as_ref().map(|local| local.pair.as_fd());
        let near = bpf::dry_run(plane.maps.ingress.as_fd(), frame, 0).unwrap();
        (near, pair.map(|pair| bpf::dry_run(pair, frame, 0).unwrap()))
    };
    let claimed = |plane: &mut Dataplane| {
        drop(add_port(plane, 0, 0));
        plane
            .claim_set("0.0.0.0:80".parse().unwrap(), 0, &[0])
            .unwrap();
    };
    let ours = from_to(OURS.octets(), OURS.octets(), 80);
    let other = from_to([10, 0, 0, 2], OURS.octets(), 80);
    let nobodys = from_to(OURS.octets(), OURS.octets(), 81);
    let mut plane = open(&host);
    claimed(&mut plane);
    assert_eq!(decide(&mut plane, &ours), (DROP, Some(REDIRECT)));
    assert_eq!(plane.ingress_counters().forged, 1);
    assert_eq!(decide(&mut plane, &other), (REDIRECT, Some(REDIRECT)));
    assert_eq!(decide(&mut plane, &nobodys), (PASS, Some(PASS)));
    assert_eq!(plane.counters(0, 0).rx_frames, 3);
    plane.close();
    // Without the pair, the application's stack drops such a segment itself.
    let mut plane = host.open();
    claimed(&mut plane);
    assert_eq!(decide(&mut plane, &ours), (REDIRECT, None));
    plane.close();
}

#[test]
fn frame_for_an_address_of_ours_passes_while_there_is_a_pair() {
    let Some(host) = Host::enter("own") else {
        return;
    };
    let mut bench = Bench::over(open(&host));
    bench.table.is_local = true;
    bench
        .table
        .addresses
        .remove(&"10.0.0.255".parse::<IpAddr>().unwrap());
    let mut frame = v4(bench.plane.nic().mac, 80, 10);
    frame[30..34].copy_from_slice(&OURS.octets());
    super::egress::mend(&mut frame);
    assert_eq!(bench.check(&frame), Ok(()));
    let hop = bench.plane.own_hop().unwrap();
    frame[..6].copy_from_slice(&hop.0);
    bench.table.next_hops.insert(hop);
    assert_eq!(bench.check(&frame), Ok(()));
    bench.plane.local_close();
    bench.table.is_local = false;
    bench.table.next_hops.remove(&hop);
    assert_eq!(bench.check(&frame), Err(Reason::NextHop));
    frame[..6].copy_from_slice(&GATEWAY.0);
    assert_eq!(bench.check(&frame), Err(Reason::Local));
    assert!(!has_pair());
    bench.plane.close();
}

#[test]
fn new_service_takes_the_pair_over_or_removes_it() {
    let Some(host) = Host::enter("pair") else {
        return;
    };
    let plane = open(&host);
    let hop = plane.own_hop();
    assert!(hop.is_some());
    drop(plane);
    let mut plane = open(&host);
    assert_eq!(plane.own_hop(), hop);
    let wrong = |plane: &mut Dataplane| {
        let hops = plane.check_hops();
        let mut wrong = hops.into_iter().filter(|(_, outcome)| outcome.is_err());
        wrong.find(|(name, _)| name.starts_with("same host"))
    };
    assert_eq!(wrong(&mut plane), None);
    fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
    let (name, outcome) = wrong(&mut plane).unwrap();
    assert!(outcome.unwrap_err().contains("all.rp_filter"), "{name}");
    drop(plane);
    let plane = host.open();
    assert_eq!(plane.own_hop(), None);
    assert!(!has_pair());
    plane.close();
}
