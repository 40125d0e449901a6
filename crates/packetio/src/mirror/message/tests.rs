//! Messages as the kernel writes them, and invalid bytes.

use proptest::prelude::*;

use super::*;

fn message(kind: u16, mut body: Vec<u8>, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    for (kind, value) in attributes {
        attribute(&mut body, *kind, value);
    }
    finish(kind, 0, body)
}

fn only(bytes: &[u8]) -> Notice {
    let mut all = notices(bytes);
    let first = all.next().expect("a notice");
    assert_eq!(all.next(), None);
    first
}

#[test]
fn link_has_its_name_mac_mtu_and_state() {
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&7u32.to_ne_bytes());
    body[8..12].copy_from_slice(&(IFF_UP | IFF_RUNNING).to_ne_bytes());
    let bytes = message(
        RTM_NEWLINK,
        body,
        &[
            (IFLA_IFNAME, b"eth0\0"),
            (IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]),
            (IFLA_MTU, &1500u32.to_ne_bytes()),
        ],
    );
    let link = Link {
        index: 7,
        name: "eth0".into(),
        mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
        mtu: 1500,
        is_up: true,
    };
    assert_eq!(only(&bytes), Notice::Link(link));
}

#[test]
fn address_on_a_point_to_point_link_is_the_local_one() {
    let mut body = vec![AF_INET, 32, 0, 0];
    body.extend(3u32.to_ne_bytes());
    let bytes = message(
        RTM_NEWADDR,
        body,
        &[(IFA_ADDRESS, &[10, 0, 0, 9]), (IFA_LOCAL, &[10, 0, 0, 1])],
    );
    let Notice::Address(address) = only(&bytes) else {
        panic!("no address");
    };
    assert_eq!(address.address, IpAddr::from([10, 0, 0, 1]));
    assert_eq!(address.with_broadcast().broadcast, None);
    let wide = Address {
        prefix: 22,
        ..address
    };
    let broadcast = IpAddr::from([10, 0, 3, 255]);
    assert_eq!(wide.with_broadcast().broadcast, Some(broadcast));
    assert!(address.is_usable);
}

#[test]
fn ipv6_address_under_detection_is_not_usable() {
    let mut body = vec![AF_INET6, 64, 0, 0];
    body.extend(3u32.to_ne_bytes());
    let bytes = message(
        RTM_NEWADDR,
        body,
        &[
            (IFA_ADDRESS, &[0xfd; 16]),
            (IFA_FLAGS, &0x40u32.to_ne_bytes()),
        ],
    );
    let Notice::Address(address) = only(&bytes) else {
        panic!("no address");
    };
    assert!(!address.is_usable);
}

#[test]
fn route_has_gateway_source_mtu_and_metric() {
    let body = vec![AF_INET, 0, 0, 0, 254, 0, 0, RTN_UNICAST, 0, 0, 0, 0];
    let mut metrics = Vec::new();
    attribute(&mut metrics, RTAX_MTU, &1400u32.to_ne_bytes());
    let bytes = message(
        RTM_NEWROUTE,
        body,
        &[
            (RTA_OIF, &3u32.to_ne_bytes()),
            (RTA_GATEWAY, &[10, 0, 0, 254]),
            (RTA_PREFSRC, &[10, 0, 0, 1]),
            (RTA_PRIORITY, &100u32.to_ne_bytes()),
            (RTA_METRICS, &metrics),
        ],
    );
    let route = Route {
        index: 3,
        table: 254,
        destination: IpAddr::from([0, 0, 0, 0]),
        prefix: 0,
        gateway: Some(IpAddr::from([10, 0, 0, 254])),
        source: Some(IpAddr::from([10, 0, 0, 1])),
        mtu: 1400,
        metric: 100,
    };
    assert_eq!(only(&bytes), Notice::Route(route));
}

#[test]
fn neighbour_that_is_being_resolved_has_no_mac() {
    let entry = |state: u16| {
        let mut body = vec![AF_INET, 0, 0, 0];
        body.extend(3u32.to_ne_bytes());
        body.extend(state.to_ne_bytes());
        body.extend([0, 0]);
        let attributes: [(u16, &[u8]); 2] = [(NDA_DST, &[10, 0, 0, 2]), (NDA_LLADDR, &[2; 6])];
        match only(&message(RTM_NEWNEIGH, body, &attributes)) {
            Notice::Neighbour(neighbour) => neighbour.mac,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(entry(0x01), None); // NUD_INCOMPLETE
    assert_eq!(entry(0x20), None); // NUD_FAILED
    assert_eq!(entry(0x02), Some(MacAddr([2; 6]))); // NUD_REACHABLE
}

#[test]
fn answer_is_success_or_an_errno() {
    let answer = |code: i32| only(&finish(NLMSG_ERROR, 0, code.to_ne_bytes().to_vec()));
    assert_eq!(answer(0), Notice::Answer(Ok(())));
    assert_eq!(answer(-17), Notice::Answer(Err(Errno::EXIST)));
    assert_eq!(answer(i32::MIN), Notice::Other);
    assert_eq!(answer(17), Notice::Other);
}

#[test]
fn message_longer_than_its_bytes_ends_the_list() {
    let mut bytes = message(RTM_NEWADDR, vec![0; 8], &[]);
    bytes[0] = 200;
    assert_eq!(notices(&bytes).count(), 0);
    bytes[..4].copy_from_slice(&3u32.to_ne_bytes());
    assert_eq!(notices(&bytes).count(), 0);
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        kind in 0u16..40,
    ) {
        notices(&bytes).for_each(drop);
        notices(&finish(kind, 0, bytes)).for_each(drop);
    }
}
