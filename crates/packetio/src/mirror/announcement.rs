//! Frames that announce an interface's addresses after its MAC address has changed.
//!
//! Neighbours would keep using the old MAC address, and transfers would stall meanwhile. Linux
//! announces such a change only with `arp_notify`. `mirror` calls the module.

use std::net::{IpAddr, Ipv6Addr};

use wire::arp::{Operation, Repr};
use wire::ethernet::{EtherType, Header, MacAddr};
use wire::icmpv6::{Message, NEIGHBOR_LEN_MAX, NeighborFlags};
use wire::{ipv6, protocol};

/// The group of all nodes, `ff02::1`.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Bytes of the longest announcement.
const FRAME_BYTES: usize = wire::ethernet::HEADER_LEN + ipv6::HEADER_LEN + NEIGHBOR_LEN_MAX;

/// Makes a gratuitous ARP request (RFC 5227 section 2.3) or an unsolicited neighbour advertisement
/// (RFC 4861 section 7.2.6).
pub(super) fn frame(address: IpAddr, mac: MacAddr) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    let length = match address {
        IpAddr::V4(own) => {
            let at = header(MacAddr::BROADCAST, mac, EtherType::ARP).emit(&mut frame);
            let told = Repr {
                op: Operation::Request,
                sha: mac,
                spa: own,
                tha: MacAddr::UNSPECIFIED,
                tpa: own,
            };
            at + told.emit(&mut frame[at..])
        }
        IpAddr::V6(own) => {
            let group = MacAddr::multicast_v6(ALL_NODES);
            let at = header(group, mac, EtherType::IPV6).emit(&mut frame);
            let told = Message::NeighborAdvertisement {
                flags: NeighborFlags {
                    router: false,
                    solicited: false,
                    overrides: true,
                },
                target: own,
                target_lladdr: Some(mac),
            };
            let ip = ipv6::Header {
                payload_len: told.emit_len() as u16,
                next_header: protocol::ICMPV6,
                // RFC 4861 section 7.1: shows that no router forwarded the packet.
                hop_limit: 255,
                src: own,
                dst: ALL_NODES,
                ..ipv6::Header::default()
            };
            let at = at + ip.emit(&mut frame[at..]);
            at + told.emit(&mut frame[at..], own, ALL_NODES)
        }
    };
    frame.truncate(length);
    frame
}

fn header(dst: MacAddr, src: MacAddr, ethertype: u16) -> Header {
    Header {
        dst,
        src,
        vlan: None,
        ethertype,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    #[test]
    fn announcement_names_the_address_and_its_new_mac() {
        let arp = frame("10.0.0.1".parse().unwrap(), MAC);
        assert_eq!(
            arp[..14],
            [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6]
        );
        let told = Repr::parse(&arp[14..]).unwrap();
        assert_eq!(
            (told.sha, told.spa, told.tpa),
            (MAC, told.tpa, [10, 0, 0, 1].into())
        );
        let own: Ipv6Addr = "fd00::1".parse().unwrap();
        let nd = frame(own.into(), MAC);
        assert_eq!(nd[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let ip = ipv6::Header::parse(&nd[14..], nd.len() - 14).unwrap();
        assert_eq!((ip.src, ip.dst, ip.hop_limit), (own, ALL_NODES, 255));
        let told = Message::parse(&nd[14 + ipv6::HEADER_LEN..], ip.src, ip.dst, 255);
        let Ok(Message::NeighborAdvertisement {
            target,
            target_lladdr,
            flags,
        }) = told
        else {
            panic!("{told:?}");
        };
        assert_eq!(
            (target, target_lladdr, flags.overrides),
            (own, Some(MAC), true)
        );
    }
}
