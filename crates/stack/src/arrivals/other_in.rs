//! Packets that are not TCP: ARP, neighbour discovery, echo, ICMP errors. This is the cold path:
//! the packet is copied to a scratch buffer and parsed there.

use packetio::RxFrame;
use tcp::{Effects, IcmpError};
use wire::ethernet::EtherType;
use wire::{ethernet, ipv4, ipv6, protocol};

use crate::admission::Admission;
use crate::arrivals::demux::OtherPacket;
use crate::arrivals::handed::{hand_copies, is_for_all};
use crate::counters::Counters;
use crate::effects::{apply_effects, lose_segments, notify};
use crate::engine::{Engine, Parts, remove_half_open};
use crate::flows::Flows;
use crate::flows::flow_table::FlowEntry;
use crate::flows::slot::Role;
use crate::limits::SMALL_PACKET_BYTES_MAX;
use crate::network::arp_nd;
use crate::network::destinations::PathWord;
use crate::network::icmp::{ErrorKind, ErrorReport, Incoming, Refusal};
use crate::network::layer::Network;
use crate::network::neighbours::{NeighbourEvent, NeighbourId};
use crate::network::path::headers_of;
use crate::rules::judge::{Judge, Verdict};
use crate::rules::packet::RulePacket;
use crate::schedule::Schedule;

/// Processes a packet that is not TCP. `is_copy`: another context received it too, and answers it.
#[cold]
pub(crate) fn other_in(
    (engine, admission): (&mut Engine, &mut Admission),
    frame: &RxFrame,
    other: &OtherPacket,
    is_copy: bool,
) {
    let Parts {
        env,
        counters,
        network,
        ..
    } = engine.parts();
    let mut scratch = network.take_scratch();
    let len = frame.copy_to(other.network_at, &mut scratch);
    let packet = &scratch[..len];
    if let Some(mesh) = admission.mesh()
        && !is_copy
        && !other.is_local
        && is_for_all(packet, other.ethertype)
    {
        hand_copies(counters, mesh, other.port, frame);
    }
    let (port, rules) = ((other.port, is_copy), admission.rules_mut());
    match other.ethertype {
        EtherType::ARP => arp_in(engine, packet, port),
        _ if is_refused((network, counters), rules, packet, other, env.now_ns) => {}
        EtherType::IPV4 => icmp_v4_in(engine, packet, other),
        _ => icmp_v6_in(engine, packet, other, is_copy),
    }
    let Parts { network, .. } = engine.parts();
    network.put_scratch(scratch);
}

fn arp_in(engine: &mut Engine, packet: &[u8], (port, is_copy): (u8, bool)) {
    let parts = engine.parts();
    match parts.network.on_arp(packet, port, parts.env.now_ns) {
        Ok(handled) => neighbour_handled(engine, (port, is_copy), handled),
        Err(_) => parts.counters.rx_drop_arp += 1,
    }
}

fn neighbour_handled(engine: &mut Engine, (port, is_copy): (u8, bool), handled: arp_nd::Handled) {
    let Parts { network, .. } = engine.parts();
    if let Some(reply) = handled.reply.filter(|_| !is_copy) {
        network.send_cold(port, reply.as_slice());
    }
    if let Some(id) = handled.release {
        release_waiters(engine, id, None);
    }
}

fn icmp_v4_in(engine: &mut Engine, packet: &[u8], other: &OtherPacket) {
    let parts = engine.parts();
    match ipv4::Header::parse(packet, packet.len()) {
        Ok(header) if header.protocol == protocol::ICMP => icmp_in(engine, packet, other, false),
        Ok(header) => refuse_protocol(
            parts.network,
            parts.counters,
            parts.env.now_ns,
            packet,
            other,
            header.protocol,
        ),
        Err(_) => parts.counters.rx_drop_ip_header += 1,
    }
}

fn icmp_v6_in(engine: &mut Engine, packet: &[u8], other: &OtherPacket, is_copy: bool) {
    let parts = engine.parts();
    let upper = ipv6::Header::parse(packet, packet.len())
        .and_then(|header| ipv6::upper_layer(&header, packet));
    match upper {
        Ok((protocol::ICMPV6, _)) => icmp_in(engine, packet, other, is_copy),
        // No protocol follows this header, so there is nothing to refuse (RFC 8200 4.7).
        Ok((protocol::IPV6_NO_NEXT_HEADER, _)) => parts.counters.rx_drop_protocol += 1,
        Ok((upper, _)) => refuse_protocol(
            parts.network,
            parts.counters,
            parts.env.now_ns,
            packet,
            other,
            upper,
        ),
        Err(_) => parts.counters.rx_drop_ip_header += 1,
    }
}

fn icmp_in(engine: &mut Engine, packet: &[u8], other: &OtherPacket, is_copy: bool) {
    let parts = engine.parts();
    let mut answer = [0; SMALL_PACKET_BYTES_MAX];
    let mut icmp = parts.network.icmp(parts.env.now_ns);
    let incoming = match other.ethertype {
        EtherType::IPV4 => icmp.on_v4(packet, &mut answer),
        _ => icmp.on_v6(packet, &mut answer),
    };
    match incoming {
        Incoming::EchoReply { len } => {
            parts.counters.echo_replies += 1;
            answer_out(parts.network, &answer[..len], other);
        }
        Incoming::Error(report) => error_in(engine, &report, packet),
        Incoming::Neighbour { message, source } => {
            let now_ns = parts.env.now_ns;
            match parts.network.on_nd(&message, source, other.port, now_ns) {
                Ok(handled) => neighbour_handled(engine, (other.port, is_copy), handled),
                Err(_) => parts.counters.rx_drop_icmp += 1,
            }
        }
        Incoming::Dropped(_) => parts.counters.rx_drop_icmp += 1,
    }
}

/// True if the packet rules refuse the packet. A rule that rejects also tells the sender.
#[inline]
fn is_refused(
    (network, counters): (&mut Network, &mut Counters),
    rules: &mut Option<Box<Judge>>,
    packet: &[u8],
    other: &OtherPacket,
    now_ns: u64,
) -> bool {
    let (Some(judge), false) = (rules, other.is_local) else {
        return false;
    };
    let ruled = match other.ethertype {
        EtherType::IPV4 => RulePacket::other_v4(packet, other.port),
        _ => RulePacket::other_v6(packet, other.port),
    };
    let Some(ruled) = ruled else {
        return false;
    };
    let verdict = judge.judge(&ruled, now_ns, counters);
    if verdict == Verdict::Reject && other.is_to_us_alone {
        refuse_packet(network, now_ns, packet, other, Refusal::Prohibited);
    }
    verdict != Verdict::Pass
}

/// Refuses UDP or an unknown protocol by an ICMP error, within the rate limit (RFC 1122 section
/// 3.2.2.1).
fn refuse_protocol(
    network: &mut Network,
    counters: &mut Counters,
    now_ns: u64,
    packet: &[u8],
    other: &OtherPacket,
    upper: u8,
) {
    counters.rx_drop_protocol += 1;
    if !other.is_to_us_alone {
        // No ICMP error answers a packet that the link delivered as broadcast or multicast (RFC
        // 1122 section 3.2.2).
        return;
    }
    let refusal = if upper == protocol::UDP {
        Refusal::Port
    } else {
        Refusal::Protocol
    };
    refuse_packet(network, now_ns, packet, other, refusal);
}

/// Sends an ICMP error that refuses a packet, within the rate limit.
fn refuse_packet(
    network: &mut Network,
    now_ns: u64,
    packet: &[u8],
    other: &OtherPacket,
    refusal: Refusal,
) {
    let mut answer = [0; SMALL_PACKET_BYTES_MAX];
    let mut icmp = network.icmp(now_ns);
    if let Some(len) = icmp.refuse(packet, refusal, &mut answer) {
        answer_out(network, &answer[..len], other);
    }
}

/// Sends an answer to the MAC address that the question came from, so no neighbour needs to be
/// resolved.
fn answer_out(network: &mut Network, packet: &[u8], question: &OtherPacket) {
    let header = ethernet::Header {
        dst: question.source_mac,
        src: network.mac(question.port),
        vlan: None,
        ethertype: question.ethertype,
    };
    network.link_mut(question.port).out.push_with(|out| {
        let at = header.emit(out);
        match out.get_mut(at..at + packet.len()) {
            Some(place) => {
                place.copy_from_slice(packet);
                at + packet.len()
            }
            None => 0,
        }
    });
}

/// Processes an ICMP error about one of our flows. The connection checks the quoted sequence number
/// (RFC 5927).
fn error_in(engine: &mut Engine, report: &ErrorReport, packet: &[u8]) {
    let parts = engine.parts();
    let hash = parts.flows.hash(&report.flow);
    match parts.flows.find(&report.flow, hash) {
        Some(FlowEntry::Connection(socket)) => connection_error_in(engine, socket, report, packet),
        Some(FlowEntry::HalfOpen(index)) => {
            half_open_error_in(parts.flows, parts.schedule, parts.counters, index, report)
        }
        _ => parts.counters.rx_drop_icmp += 1,
    }
}

fn connection_error_in(engine: &mut Engine, socket: u32, report: &ErrorReport, packet: &[u8]) {
    let parts = engine.parts();
    parts.counters.icmp_errors += 1;
    if let Some(listener) = parts.flows.slot(socket).fast_opened_by {
        let is_accepted = !parts.flows.listeners_mut().has_waiting(listener, socket);
        if let Some(conn) = parts.flows.slot(socket).conn.as_mut()
            && is_accepted
        {
            conn.note_accepted();
        }
    }
    let slot = parts.flows.slot(socket);
    let is_v6 = !report.flow.remote.is_v4();
    let retransmits = slot.header.retransmits_for_mtu || is_v6;
    let heeds_mtu = slot.header.heeds_mtu_v6 || !is_v6;
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let effects = match report.kind {
        ErrorKind::Failed(kind) => {
            let effects = conn.on_icmp_error(&mut parts.env.cx(), kind, report.seq);
            if conn.has_soft_error() {
                let lost = &mut parts.counters.icmp_notes_lost;
                if parts.flows.note_soft_error(socket, report, lost) {
                    notify(parts.flows, parts.events, socket);
                }
            } else if effects.contains(Effects::FAILED) {
                apply_effects(engine, socket, effects);
                let parts = engine.parts();
                if parts.flows.role(socket) == Role::Ended {
                    let lost = &mut parts.counters.icmp_notes_lost;
                    parts.flows.note_refusal(socket, report, packet, lost);
                }
                return;
            }
            effects
        }
        ErrorKind::PacketTooBig { .. } if !conn.is_quoted_in_flight(report.seq) => {
            parts.env.tcp_counters.drop_icmp_outside_window += 1;
            Effects::NONE
        }
        ErrorKind::PacketTooBig { .. } if !heeds_mtu => Effects::NONE,
        ErrorKind::PacketTooBig { mtu } => {
            let remote = report.flow.remote;
            let settings = &parts.env.config.tcp.path_mtu;
            let least = if is_v6 { 0 } else { settings.mtu_min_v4 };
            let named = mtu.min(u32::from(u16::MAX)) as u16;
            let word = PathWord {
                mtu: named.max(least),
                too_narrow: named < least,
                until_ns: parts.env.now_ns.saturating_add(settings.age_ns_max),
            };
            let word =
                (parts.network.destinations_mut()).learn_path(remote, word, parts.env.now_ns);
            if word.too_narrow {
                slot.header.narrow_too_far(word.until_ns);
            }
            let mss = word.mtu.saturating_sub(headers_of(remote));
            conn.on_mtu(&mut parts.env.cx(), mss, retransmits)
        }
    };
    apply_effects(engine, socket, effects);
}

/// Ends a handshake in progress if the ICMP error is a hard one. The application does not know of
/// the handshake yet.
fn half_open_error_in(
    flows: &mut Flows,
    schedule: &mut Schedule,
    counters: &mut Counters,
    index: u32,
    report: &ErrorReport,
) {
    counters.icmp_errors += 1;
    let ErrorKind::Failed(kind) = report.kind else {
        // A "packet too big" error does not end a handshake: a SYN-ACK fits every path (Linux
        // ignores it too).
        return;
    };
    let is_v4 = report.flow.local.is_v4();
    let ends = (flows.half_opens().at(index))
        .is_some_and(|slot| slot.entry.ends_by_icmp(kind, report.seq, is_v4));
    if ends {
        counters.half_open_icmp += 1;
        remove_half_open(flows, schedule, index);
    }
}

/// Releases everything that waited for a neighbour: connections return to their lists, frames go to
/// the driver. With `failure`, the connections are told of it.
pub(crate) fn release_waiters(engine: &mut Engine, id: NeighbourId, failure: Option<IcmpError>) {
    let parts = engine.parts();
    let (mut sockets, frames_dropped) = parts.network.release(id);
    parts.counters.neighbour_drop += frames_dropped;
    for socket in sockets.drain(..) {
        neighbour_settled(engine, socket, id, failure);
    }
    engine.parts().network.put_released(sockets);
}

/// Lets a connection that waited for neighbour `id` continue. By now the socket index may serve
/// another connection, or the connection may use another neighbour.
fn neighbour_settled(
    engine: &mut Engine,
    socket: u32,
    id: NeighbourId,
    failure: Option<IcmpError>,
) {
    let Parts { env, flows, .. } = engine.parts();
    let Some((slot, _)) = flows.sockets_mut().remembered(socket) else {
        return;
    };
    if !slot.awaits_neighbour || slot.neighbour != Some(id) {
        return;
    }
    slot.awaits_neighbour = false;
    match failure {
        Some(kind) => lose_segments(engine, socket, Some(kind)),
        None => {
            if let Some(conn) = slot.conn.as_mut() {
                // Deadlines may have passed while the connection waited.
                let _ = conn.refresh_due(&env.cx());
            }
            apply_effects(engine, socket, Effects::TRANSMIT);
        }
    }
}

/// Discards the output of a connection whose neighbour entry was displaced.
fn neighbour_displaced(engine: &mut Engine, socket: u32) {
    let Parts { flows, network, .. } = engine.parts();
    let Some((slot, _)) = flows.sockets_mut().remembered(socket) else {
        return;
    };
    let neighbours = network.neighbours();
    let is_gone = slot
        .neighbour
        .is_some_and(|id| neighbours.state(id).is_none());
    if slot.awaits_neighbour && is_gone {
        slot.awaits_neighbour = false;
        lose_segments(engine, socket, None);
    }
}

/// Runs the neighbour cache's timers: sends requests that are due, and gives up neighbours that did
/// not answer.
pub(crate) fn neighbour_timers(engine: &mut Engine) {
    let now_ns = engine.now_ns();
    while let Some(event) = engine.parts().network.neighbours_mut().poll(now_ns) {
        match event {
            NeighbourEvent::Request(request) => {
                let parts = engine.parts();
                parts.counters.neighbour_requests += 1;
                if parts.network.has_host() {
                    parts.network.ask_host(request.target);
                    continue;
                }
                let identity = parts.network.identity(request.port);
                if let Some(frame) =
                    arp_nd::request_frame(&request, identity, parts.network.addresses())
                {
                    parts.network.send_cold(request.port, frame.as_slice());
                }
            }
            NeighbourEvent::Failed(id) => {
                // With several gateways, a connection looks up its next hop again. If none is left,
                // it is told then.
                let is_last = !engine.parts().network.has_choices();
                let failure = is_last.then_some(IcmpError::NeighbourUnreachable);
                release_waiters(engine, id, failure);
            }
            NeighbourEvent::Displaced(socket) => neighbour_displaced(engine, socket),
        }
    }
}
