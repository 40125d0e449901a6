//! ARP and neighbour discovery: messages into the neighbour cache, and its requests into frames.
//!
//! The cold path of `packet_in` passes ARP packets here, and by way of
//! [`icmp`](crate::network::icmp) neighbour solicitations and advertisements. Answers leave as
//! complete frames; learned addresses go to [`Neighbours`]. The timer stage uses this module to
//! turn a [`Request`] into a frame.
//!
//! A neighbour that asks for one of our addresses is learned. One that merely announces itself only
//! updates an existing entry. An address that is not on the link is never learned.

use core::net::{IpAddr, Ipv6Addr};

use wire::arp::{Operation, Repr};
use wire::ethernet::{EtherType, Header};
use wire::icmpv6::{Message, NeighborFlags, solicited_node};
use wire::{MacAddr, WireError, arp, ipv6, protocol};

use crate::limits::CONTROL_FRAME_BYTES_MAX;
use crate::network::addresses::LocalAddresses;
use crate::network::neighbours::{Advertisement, Link, NeighbourId, Neighbours, Request};

#[cfg(test)]
mod tests;

/// A small frame, complete with Ethernet header.
#[derive(Clone, Debug)]
pub struct ControlFrame {
    bytes: [u8; CONTROL_FRAME_BYTES_MAX],
    len: u8,
}

const _: () = assert!(CONTROL_FRAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(
    wire::ethernet::HEADER_LEN + ipv6::HEADER_LEN + wire::icmpv6::NEIGHBOR_LEN_MAX
        <= CONTROL_FRAME_BYTES_MAX
);

impl ControlFrame {
    /// The bytes of the frame.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Our identity on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkIdentity {
    /// Index of the port.
    pub port: u8,
    /// The neighbour's MAC address.
    pub mac: MacAddr,
}

/// The result of an ARP or ND message.
#[derive(Debug)]
pub struct Handled {
    /// A frame to send.
    pub reply: Option<ControlFrame>,
    /// A neighbour that became usable while something waits for it: call [`Neighbours::release`].
    pub release: Option<NeighbourId>,
}

impl Handled {
    const NOTHING: Handled = Handled {
        reply: None,
        release: None,
    };
}

/// Processes an ARP packet (RFC 826; announcements by RFC 5227 section 2.4). `packet` begins behind
/// the Ethernet header.
///
/// # Errors
/// Errors of [`Repr::parse`]; [`WireError::BadAddress`] for a sender that claims one of our
/// addresses or a group.
pub fn on_arp(
    packet: &[u8],
    identity: LinkIdentity,
    addresses: &LocalAddresses,
    neighbours: &mut Neighbours,
    now_ns: u64,
) -> Result<Handled, WireError> {
    let arp = Repr::parse(packet)?;
    let is_for_us = addresses.is_local(IpAddr::V4(arp.tpa));
    if arp.spa.is_unspecified() {
        // RFC 5227 section 2.1.1: a probe by a host that wants an address. If the address is ours
        // it is defended; nothing is learned.
        return Ok(answer_arp(&arp, is_for_us, identity));
    }
    let sender = IpAddr::V4(arp.spa);
    if !addresses.is_valid_source(sender) || !arp.sha.is_unicast() {
        return Err(WireError::BadAddress);
    }
    let release = match arp.op {
        Operation::Request => {
            let create = is_for_us && addresses.is_on_link(sender, identity.port);
            neighbours.on_solicitation(identity.port, sender, arp.sha, create, now_ns)
        }
        Operation::Reply => {
            let said = Advertisement {
                mac: Some(arp.sha),
                solicited: is_for_us && arp.tha == identity.mac,
                overrides: true,
            };
            neighbours.on_advertisement(identity.port, sender, said, now_ns)
        }
    };
    let answered = answer_arp(&arp, is_for_us, identity);
    Ok(Handled {
        release,
        ..answered
    })
}

/// Processes a neighbour solicitation or advertisement (RFC 4861 section 7.2) that
/// [`icmp`](crate::network::icmp) has verified. `source` is its IPv6 source. Other messages are
/// ignored.
///
/// # Errors
/// [`WireError::BadAddress`] for a sender with one of our addresses, and for an advertisement of
/// one.
pub fn on_nd(
    message: &Message<'_>,
    source: Ipv6Addr,
    identity: LinkIdentity,
    addresses: &LocalAddresses,
    neighbours: &mut Neighbours,
    now_ns: u64,
) -> Result<Handled, WireError> {
    match *message {
        Message::NeighborSolicitation {
            target,
            source_lladdr,
        } => {
            if !addresses.is_local(IpAddr::V6(target)) {
                return Ok(Handled::NOTHING);
            }
            on_solicitation(
                target,
                source,
                source_lladdr,
                identity,
                addresses,
                neighbours,
                now_ns,
            )
        }
        Message::NeighborAdvertisement {
            flags,
            target,
            target_lladdr,
        } => {
            if addresses.is_local(IpAddr::V6(target)) {
                // Another host claims our address (RFC 4862 section 5.4.4).
                return Err(WireError::BadAddress);
            }
            let said = Advertisement {
                mac: target_lladdr.filter(|mac| mac.is_unicast()),
                solicited: flags.solicited,
                overrides: flags.overrides,
            };
            let target = IpAddr::V6(target);
            Ok(Handled {
                reply: None,
                release: neighbours.on_advertisement(identity.port, target, said, now_ns),
            })
        }
        _ => Ok(Handled::NOTHING),
    }
}

/// Makes the frame that asks for `request.target`. `None`: no address of ours can be its source.
pub fn request_frame(
    request: &Request,
    identity: LinkIdentity,
    addresses: &LocalAddresses,
) -> Option<ControlFrame> {
    let source = addresses.source_for(request.target, Some(request.port))?;
    match (request.target, source) {
        (IpAddr::V4(target), IpAddr::V4(source)) => {
            let asked = Repr {
                op: Operation::Request,
                sha: identity.mac,
                spa: source,
                tha: MacAddr::UNSPECIFIED,
                tpa: target,
            };
            let destination = request.unicast.unwrap_or(MacAddr::BROADCAST);
            Some(arp_frame(&asked, destination))
        }
        (IpAddr::V6(target), IpAddr::V6(source)) => {
            let group = solicited_node(target);
            let (to, to_mac) = match request.unicast {
                Some(mac) => (target, mac),
                None => (group, MacAddr::multicast_v6(group)),
            };
            let asked = Message::NeighborSolicitation {
                target,
                source_lladdr: Some(identity.mac),
            };
            Some(nd_frame(&asked, source, to, identity.mac, to_mac))
        }
        _ => None,
    }
}

/// Makes the frame that announces a new or moved address of ours: a gratuitous ARP request (RFC
/// 5227 section 2.3) or an unsolicited neighbour advertisement (RFC 4861 section 7.2.6).
pub fn announcement_frame(address: IpAddr, identity: LinkIdentity) -> ControlFrame {
    match address {
        IpAddr::V4(own) => {
            let told = Repr {
                op: Operation::Request,
                sha: identity.mac,
                spa: own,
                tha: MacAddr::UNSPECIFIED,
                tpa: own,
            };
            arp_frame(&told, MacAddr::BROADCAST)
        }
        IpAddr::V6(own) => {
            let to_mac = MacAddr::multicast_v6(ALL_NODES);
            let told = advertisement(own, identity, false);
            nd_frame(&told, own, ALL_NODES, identity.mac, to_mac)
        }
    }
}

/// True if we listen to an IPv6 group: all nodes, or a solicited-node group of our addresses.
pub fn is_own_group(group: Ipv6Addr, addresses: &LocalAddresses) -> bool {
    group == ALL_NODES
        || addresses.iter().any(|own| match own.cidr.address() {
            IpAddr::V6(own) => solicited_node(own) == group,
            IpAddr::V4(_) => false,
        })
}

/// The group of all nodes, `ff02::1`.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Answers a solicitation for `target`, an address of ours (RFC 4861 sections 7.2.3 and 7.2.4).
fn on_solicitation(
    target: Ipv6Addr,
    source: Ipv6Addr,
    source_lladdr: Option<MacAddr>,
    identity: LinkIdentity,
    addresses: &LocalAddresses,
    neighbours: &mut Neighbours,
    now_ns: u64,
) -> Result<Handled, WireError> {
    if source.is_unspecified() {
        // A host probes whether the address is free (RFC 4862 section 5.4.3). The answer that it is
        // taken goes to all nodes.
        let told = advertisement(target, identity, false);
        let to_mac = MacAddr::multicast_v6(ALL_NODES);
        return Ok(Handled {
            reply: Some(nd_frame(&told, target, ALL_NODES, identity.mac, to_mac)),
            release: None,
        });
    }
    let sender = IpAddr::V6(source);
    if !addresses.is_valid_source(sender) {
        return Err(WireError::BadAddress);
    }
    let told = advertisement(target, identity, true);
    let Some(mac) = source_lladdr.filter(|mac| mac.is_unicast()) else {
        // A unicast probe may omit the sender's link address (RFC 4861 section 4.3): the cache
        // knows it or asks.
        let frame = nd_frame(&told, target, source, identity.mac, MacAddr::UNSPECIFIED);
        return Ok(send_or_hold(frame, sender, identity, neighbours, now_ns));
    };
    let create = source.is_unicast_link_local() || addresses.is_on_link(sender, identity.port);
    Ok(Handled {
        reply: Some(nd_frame(&told, target, source, identity.mac, mac)),
        release: neighbours.on_solicitation(identity.port, sender, mac, create, now_ns),
    })
}

/// Sends `frame` to the neighbour `to`, or holds it until the neighbour is resolved.
fn send_or_hold(
    mut frame: ControlFrame,
    to: IpAddr,
    identity: LinkIdentity,
    neighbours: &mut Neighbours,
    now_ns: u64,
) -> Handled {
    let Ok(id) = neighbours.resolve(identity.port, to, now_ns) else {
        return Handled::NOTHING;
    };
    match neighbours.link(id, now_ns) {
        Link::Ready(mac) => {
            frame.bytes[..mac.0.len()].copy_from_slice(&mac.0);
            Handled {
                reply: Some(frame),
                release: None,
            }
        }
        Link::Waiting => {
            // The cache counts a frame that it cannot hold.
            neighbours.hold_frame(id, frame.as_slice());
            Handled::NOTHING
        }
        Link::Unreachable | Link::Gone => Handled::NOTHING,
    }
}

fn answer_arp(asked: &Repr, is_for_us: bool, identity: LinkIdentity) -> Handled {
    if asked.op != Operation::Request || !is_for_us {
        return Handled::NOTHING;
    }
    let told = Repr {
        op: Operation::Reply,
        sha: identity.mac,
        spa: asked.tpa,
        tha: asked.sha,
        tpa: asked.spa,
    };
    Handled {
        reply: Some(arp_frame(&told, asked.sha)),
        release: None,
    }
}

fn advertisement(target: Ipv6Addr, identity: LinkIdentity, solicited: bool) -> Message<'static> {
    Message::NeighborAdvertisement {
        flags: NeighborFlags {
            router: false,
            solicited,
            overrides: true,
        },
        target,
        target_lladdr: Some(identity.mac),
    }
}

fn arp_frame(packet: &Repr, destination: MacAddr) -> ControlFrame {
    let ethernet = Header {
        dst: destination,
        src: packet.sha,
        vlan: None,
        ethertype: EtherType::ARP,
    };
    let mut bytes = [0; CONTROL_FRAME_BYTES_MAX];
    let at = ethernet.emit(&mut bytes);
    let len = at + packet.emit(&mut bytes[at..]);
    debug_assert_eq!(len, at + arp::PACKET_LEN);
    ControlFrame {
        bytes,
        len: len as u8,
    }
}

fn nd_frame(
    message: &Message<'_>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    source_mac: MacAddr,
    destination_mac: MacAddr,
) -> ControlFrame {
    let ethernet = Header {
        dst: destination_mac,
        src: source_mac,
        vlan: None,
        ethertype: EtherType::IPV6,
    };
    let ip = ipv6::Header {
        payload_len: message.emit_len() as u16,
        next_header: protocol::ICMPV6,
        // RFC 4861 section 7.1: shows that no router forwarded the packet.
        hop_limit: 255,
        src: source,
        dst: destination,
        ..ipv6::Header::default()
    };
    let mut bytes = [0; CONTROL_FRAME_BYTES_MAX];
    let at = ethernet.emit(&mut bytes);
    let at = at + ip.emit(&mut bytes[at..]);
    let len = at + message.emit(&mut bytes[at..], source, destination);
    ControlFrame {
        bytes,
        len: len as u8,
    }
}
