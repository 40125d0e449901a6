//! The wire between frames of a stack and raw packets.

use std::net::Ipv4Addr;

use super::*;
use crate::VirtualClock;

fn transmit(port: &mut IpWirePort, frame: &[u8]) {
    let slots = port.reserve(1);
    slots[0].write(0, frame);
    slots[0].set_len(frame.len());
    port.send(1).unwrap();
}

fn arrived(port: &mut IpWirePort) -> Vec<Vec<u8>> {
    let copied = |frame: &RxFrame| {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(0, &mut bytes);
        bytes
    };
    port.receive().unwrap().iter().map(copied).collect()
}

#[test]
fn packets_leave_in_order_with_the_time() {
    let clock = VirtualClock::new(7);
    let (mut port, end) = pair(1500, Clock::Virtual(clock.clone())).unwrap();
    let (us, them) = (port.capabilities().mac, MacAddr([2; 6]));
    transmit(&mut port, &framed(them, us, EtherType::IPV4, &[0x45, 1]));
    clock.advance_ns(3);
    transmit(&mut port, &framed(them, us, EtherType::IPV4, &[0x45, 2]));
    assert_eq!(end.waiting(), 2);
    let left: Vec<_> = std::iter::from_fn(|| end.next()).collect();
    assert_eq!(left[0].packet, [0x45, 1]);
    assert_eq!((left[0].at_ns, left[1].at_ns), (7, 10));
}

#[test]
fn packet_of_64_kib_arrives_whole() {
    let (mut port, end) = pair(1500, Clock::System).unwrap();
    let mut packet = vec![0x45; 65_535];
    packet[65_534] = 9;
    end.inject(&packet).unwrap();
    let frames = arrived(&mut port);
    assert_eq!(frames.len(), 1);
    let (header, at) = Header::parse(&frames[0]).unwrap();
    assert_eq!(header.dst, port.capabilities().mac);
    assert_eq!(frames[0][at..], packet);
}

#[test]
fn what_is_no_packet_is_refused() {
    let (_port, end) = pair(1500, Clock::System).unwrap();
    assert_eq!(end.inject(&[]), Err(InjectError::NotIp));
    assert_eq!(end.inject(&[0x15]), Err(InjectError::NotIp));
    let long = vec![0x60; IP_WIRE_PACKET_BYTES_MAX + 1];
    assert_eq!(end.inject(&long), Err(InjectError::TooLong));
}

#[test]
fn arp_request_for_anybody_is_answered() {
    let (mut port, end) = pair(1500, Clock::System).unwrap();
    let us = port.capabilities().mac;
    let asked = arp::Repr {
        op: arp::Operation::Request,
        sha: us,
        spa: Ipv4Addr::new(10, 0, 0, 1),
        tha: MacAddr::UNSPECIFIED,
        tpa: Ipv4Addr::new(192, 0, 2, 77),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    asked.emit(&mut bytes);
    transmit(
        &mut port,
        &framed(MacAddr::BROADCAST, us, EtherType::ARP, &bytes),
    );
    let frames = arrived(&mut port);
    let (_, at) = Header::parse(&frames[0]).unwrap();
    let reply = arp::Repr::parse(&frames[0][at..]).unwrap();
    assert_eq!((reply.op, reply.spa), (arp::Operation::Reply, asked.tpa));
    assert!(end.next().is_none(), "the far end knows nothing of it");
}
