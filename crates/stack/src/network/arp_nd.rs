//! ARP and neighbour discovery: from messages to the neighbour cache, and from its requests to
//! frames.
//!
//! The cold path of `packet_in` hands over ARP packets and, by way of
//! [`icmp`](crate::network::icmp), neighbour solicitations and advertisements. Answers leave from
//! here as complete frames; learnt addresses go to [`Neighbours`]. The timer stage turns
//! [`Request`]s into frames here too.
//!
//! Rules for unknown senders: a neighbour that asks for one of our addresses is learned, and one
//! that merely announces itself only updates an existing entry. An address that is not on the link
//! is never learned.

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

/// A small frame, complete from its Ethernet header on.
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
    /// The frame's bytes.
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

/// The consequences of a message.
#[derive(Debug)]
pub struct Handled {
    /// A frame to send.
    pub reply: Option<ControlFrame>,
    /// A neighbour that became usable and has things waiting: [`Neighbours::release`] it.
    pub release: Option<NeighbourId>,
}

impl Handled {
    const NOTHING: Handled = Handled {
        reply: None,
        release: None,
    };
}

/// An ARP packet arrived (RFC 826, RFC 5227 section 2.4 for the announcements). `packet` is what
/// follows the Ethernet header.
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
        // RFC 5227 2.1.1: a probe by a host that wants an address. Ours is defended, and nothing is
        // learned.
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

/// A neighbour solicitation or advertisement arrived (RFC 4861 section 7.2), parsed and verified by
/// [`icmp`](crate::network::icmp); `source` is that of its IPv6 header. Other messages are ignored.
///
/// # Errors
/// [`WireError::BadAddress`] for a sender that claims one of our addresses, or a target that is
/// ours.
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
                // Somebody else claims our address (RFC 4862 5.4.4).
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

/// The frame that asks for `request.target`; `None` without an address of ours to ask from.
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

/// The frame that tells the link of an address of ours that is new or has moved. It is a gratuitous
/// ARP request (RFC 5227 2.3) or an unsolicited neighbour advertisement (RFC 4861 7.2.6).
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

/// True if we listen to an IPv6 group: all nodes, and the solicited-node groups of our addresses.
pub fn is_own_group(group: Ipv6Addr, addresses: &LocalAddresses) -> bool {
    group == ALL_NODES
        || addresses.iter().any(|own| match own.cidr.address() {
            IpAddr::V6(own) => solicited_node(own) == group,
            IpAddr::V4(_) => false,
        })
}

/// `ff02::1`.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// RFC 4861 7.2.3 and 7.2.4: `target` is ours.
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
        // Somebody probes whether the address is free (RFC 4862 5.4.3): it is not, and everybody
        // shall know.
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
        // A probe by unicast need not say where it comes from (RFC 4861 4.3): the cache knows, or
        // finds out.
        let frame = nd_frame(&told, target, source, identity.mac, MacAddr::UNSPECIFIED);
        return Ok(send_or_hold(frame, sender, identity, neighbours, now_ns));
    };
    let create = source.is_unicast_link_local() || addresses.is_on_link(sender, identity.port);
    Ok(Handled {
        reply: Some(nd_frame(&told, target, source, identity.mac, mac)),
        release: neighbours.on_solicitation(identity.port, sender, mac, create, now_ns),
    })
}

/// Addresses `frame` to the neighbour `to`, or has it wait until that is known.
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
            // Counted by the cache if it cannot be held.
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
        // RFC 4861 7.1: proves that no router forwarded it.
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
