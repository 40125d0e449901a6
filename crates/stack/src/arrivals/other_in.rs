//! Packets that are not TCP: ARP, neighbour discovery, echo, ICMP errors. This is the cold path:
//! the packet is copied to a scratch buffer and parsed there.

use packetio::RxFrame;
use tcp::{Effects, IcmpError};
use wire::ethernet::EtherType;
use wire::{ethernet, ipv4, ipv6, protocol};

use crate::arrivals::demux::OtherPacket;
use crate::core::Core;
use crate::flows::flow_table::FlowEntry;
use crate::flows::slot::Role;
use crate::limits::SMALL_PACKET_BYTES_MAX;
use crate::network::arp_nd;
use crate::network::destinations::PathWord;
use crate::network::icmp::{ErrorKind, ErrorReport, Icmp, Incoming, Refusal};
use crate::network::neighbours::{NeighbourEvent, NeighbourId, Waiter};
use crate::network::path::headers_of;

impl Core {
    /// Deals with a packet that is not TCP.
    #[cold]
    pub(crate) fn other_in(&mut self, frame: &RxFrame, other: &OtherPacket) {
        let mut scratch = std::mem::take(&mut self.network.scratch);
        let len = frame.copy_to(other.network_at, &mut scratch);
        let packet = &scratch[..len];
        match other.ethertype {
            EtherType::ARP => self.arp_in(packet),
            EtherType::IPV4 => self.icmp_v4_in(packet, other),
            _ => self.icmp_v6_in(packet, other),
        }
        self.network.scratch = scratch;
    }

    fn arp_in(&mut self, packet: &[u8]) {
        let network = &mut self.network;
        let identity = network.identity();
        match arp_nd::on_arp(
            packet,
            identity,
            &network.addresses,
            &mut network.neighbours,
            self.env.now_ns,
        ) {
            Ok(handled) => self.neighbour_handled(handled),
            Err(_) => self.counters.rx_drop_arp += 1,
        }
    }

    fn neighbour_handled(&mut self, handled: arp_nd::Handled) {
        if let Some(reply) = handled.reply {
            self.cold_frame_out(reply.as_slice());
        }
        if let Some(id) = handled.release {
            self.release_waiters(id, None);
        }
    }

    fn cold_frame_out(&mut self, frame: &[u8]) {
        if !self.network.out.push(frame) {
            self.counters.control_queue_full += 1;
        }
    }

    fn icmp_v4_in(&mut self, packet: &[u8], other: &OtherPacket) {
        match ipv4::Header::parse(packet, packet.len()) {
            Ok(header) if header.protocol == protocol::ICMP => self.icmp_in(packet, other),
            Ok(header) => self.refuse_protocol(packet, other, header.protocol),
            Err(_) => self.counters.rx_drop_ip_header += 1,
        }
    }

    fn icmp_v6_in(&mut self, packet: &[u8], other: &OtherPacket) {
        let upper = ipv6::Header::parse(packet, packet.len())
            .and_then(|header| ipv6::upper_layer(&header, packet));
        match upper {
            Ok((protocol::ICMPV6, _)) => self.icmp_in(packet, other),
            // No protocol follows this header, so there is nothing to refuse (RFC 8200 4.7).
            Ok((protocol::IPV6_NO_NEXT_HEADER, _)) => self.counters.rx_drop_protocol += 1,
            Ok((upper, _)) => self.refuse_protocol(packet, other, upper),
            Err(_) => self.counters.rx_drop_ip_header += 1,
        }
    }

    fn icmp_in(&mut self, packet: &[u8], other: &OtherPacket) {
        let mut answer = [0; SMALL_PACKET_BYTES_MAX];
        let network = &mut self.network;
        let mut icmp = Icmp {
            addresses: &network.addresses,
            limiter: &mut network.limiter,
            echo: network.echo,
            now_ns: self.env.now_ns,
        };
        let incoming = match other.ethertype {
            EtherType::IPV4 => icmp.on_v4(packet, &mut answer),
            _ => icmp.on_v6(packet, &mut answer),
        };
        match incoming {
            Incoming::EchoReply { len } => {
                self.counters.echo_replies += 1;
                self.answer_out(&answer[..len], other);
            }
            Incoming::Error(report) => self.error_in(&report, packet),
            Incoming::Neighbour { message, source } => {
                let network = &mut self.network;
                let identity = network.identity();
                let (addresses, neighbours) = (&network.addresses, &mut network.neighbours);
                match arp_nd::on_nd(
                    &message,
                    source,
                    identity,
                    addresses,
                    neighbours,
                    self.env.now_ns,
                ) {
                    Ok(handled) => self.neighbour_handled(handled),
                    Err(_) => self.counters.rx_drop_icmp += 1,
                }
            }
            Incoming::Dropped(_) => self.counters.rx_drop_icmp += 1,
        }
    }

    /// Refuses a packet of a protocol that we do not speak, or of UDP, as RFC 1122 3.2.2.1 asks,
    /// within the rate limit.
    fn refuse_protocol(&mut self, packet: &[u8], other: &OtherPacket, upper: u8) {
        self.counters.rx_drop_protocol += 1;
        if !other.is_to_us_alone {
            // A packet that the link carried to many is not complained of (RFC 1122 3.2.2).
            return;
        }
        let refusal = if upper == protocol::UDP {
            Refusal::Port
        } else {
            Refusal::Protocol
        };
        let mut answer = [0; SMALL_PACKET_BYTES_MAX];
        let network = &mut self.network;
        let mut icmp = Icmp {
            addresses: &network.addresses,
            limiter: &mut network.limiter,
            echo: network.echo,
            now_ns: self.env.now_ns,
        };
        if let Some(len) = icmp.refuse(packet, refusal, &mut answer) {
            self.answer_out(&answer[..len], other);
        }
    }

    /// Sends an answer back to the link address that the question came from: no neighbour needs to
    /// be known for it.
    fn answer_out(&mut self, packet: &[u8], question: &OtherPacket) {
        let header = ethernet::Header {
            dst: question.source_mac,
            src: self.network.mac,
            vlan: None,
            ethertype: question.ethertype,
        };
        let queued = self.network.out.push_with(|out| {
            let at = header.emit(out);
            match out.get_mut(at..at + packet.len()) {
                Some(place) => {
                    place.copy_from_slice(packet);
                    at + packet.len()
                }
                None => 0,
            }
        });
        self.counters.control_queue_full += u64::from(!queued);
    }

    /// Takes an ICMP error about one of our flows. The connection checks the quoted sequence number
    /// (RFC 5927).
    fn error_in(&mut self, report: &ErrorReport, packet: &[u8]) {
        let hash = self.flows.hasher.hash(&report.flow);
        match self.flows.find(&report.flow, hash) {
            Some(FlowEntry::Connection(socket)) => self.connection_error_in(socket, report, packet),
            Some(FlowEntry::HalfOpen(index)) => self.half_open_error_in(index, report),
            _ => self.counters.rx_drop_icmp += 1,
        }
    }

    fn connection_error_in(&mut self, socket: u32, report: &ErrorReport, packet: &[u8]) {
        self.counters.icmp_errors += 1;
        if let Some(listener) = self.flows.sockets.slot(socket).fast_opened_by {
            let is_accepted = !self.flows.listeners.has_waiting(listener, socket);
            if let Some(conn) = self.flows.sockets.slot(socket).conn.as_mut()
                && is_accepted
            {
                conn.note_accepted();
            }
        }
        let slot = self.flows.sockets.slot(socket);
        let is_v6 = !report.flow.remote.is_v4();
        let resends = slot.header.resends_for_mtu || is_v6;
        let heeds_mtu = slot.header.heeds_mtu_v6 || !is_v6;
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let effects = match report.kind {
            ErrorKind::Failed(kind) => {
                let effects = conn.on_icmp_error(&mut self.env.cx(), kind, report.seq);
                if conn.has_soft_error() {
                    let (slot, _, block) = self.flows.sockets.parts(socket);
                    let lost = &mut self.counters.icmp_notes_lost;
                    if (self.flows.icmp_notes).note_soft_error((socket, slot, block), report, lost)
                    {
                        self.tell(socket);
                    }
                } else if effects.contains(Effects::FAILED) {
                    self.settle(socket, effects);
                    if self.flows.sockets.role(socket) == Role::Ended {
                        let block = self.flows.sockets.block(socket);
                        let lost = &mut self.counters.icmp_notes_lost;
                        (self.flows.icmp_notes).note_refusal((socket, block), report, packet, lost);
                    }
                    return;
                }
                effects
            }
            ErrorKind::PacketTooBig { .. } if !conn.is_quoted_in_flight(report.seq) => {
                self.env.tcp_counters.drop_icmp_outside_window += 1;
                Effects::NONE
            }
            ErrorKind::PacketTooBig { .. } if !heeds_mtu => Effects::NONE,
            ErrorKind::PacketTooBig { mtu } => {
                let remote = report.flow.remote;
                let settings = &self.env.config.tcp.path_mtu;
                let least = if is_v6 { 0 } else { settings.mtu_min_v4 };
                let named = mtu.min(u32::from(u16::MAX)) as u16;
                let word = PathWord {
                    mtu: named.max(least),
                    too_narrow: named < least,
                    until_ns: self.env.now_ns.saturating_add(settings.age_ns_max),
                };
                let word = self
                    .network
                    .destinations
                    .learn_path(remote, word, self.env.now_ns);
                if word.too_narrow {
                    slot.header.narrow_too_far(word.until_ns);
                }
                let mss = word.mtu.saturating_sub(headers_of(remote));
                conn.on_mtu(&mut self.env.cx(), mss, resends)
            }
        };
        self.settle(socket, effects);
    }

    /// Ends a handshake in progress by an ICMP error, if the error is of the kind that does. No
    /// application knows of the handshake yet.
    fn half_open_error_in(&mut self, index: u32, report: &ErrorReport) {
        self.counters.icmp_errors += 1;
        let ErrorKind::Failed(kind) = report.kind else {
            // A SYN-ACK is small enough for every path (Linux).
            return;
        };
        let is_v4 = report.flow.local.is_v4();
        let ends = self
            .flows
            .half_opens
            .at(index)
            .is_some_and(|slot| slot.entry.ends_by_icmp(kind, report.seq, is_v4));
        if ends {
            self.counters.half_open_icmp += 1;
            self.remove_half_open(index);
        }
    }

    /// Releases everything that waited for a neighbour: connections to their lists, frames to the
    /// driver. With `failure`, the connections are told.
    pub(crate) fn release_waiters(&mut self, id: NeighbourId, failure: Option<IcmpError>) {
        let mut sockets = std::mem::take(&mut self.network.released_sockets);
        let out = &mut self.network.released;
        let mut dropped = 0;
        self.network.neighbours.release(id, |waiter| match waiter {
            Waiter::Token(socket) => sockets.push(socket),
            Waiter::Frame(frame) => dropped += u64::from(!out.push(frame)),
        });
        self.counters.neighbour_drop += dropped;
        for socket in sockets.drain(..) {
            self.neighbour_settled(socket, id, failure);
        }
        self.network.released_sockets = sockets;
    }

    /// Lets a connection that waited for `id` go on. The index may have come to serve another
    /// meanwhile, or the connection another neighbour.
    fn neighbour_settled(&mut self, socket: u32, id: NeighbourId, failure: Option<IcmpError>) {
        let Some((slot, _)) = self.flows.sockets.remembered(socket) else {
            return;
        };
        if !slot.awaits_neighbour || slot.neighbour != Some(id) {
            return;
        }
        slot.awaits_neighbour = false;
        match failure {
            Some(kind) => self.lose_segments(socket, Some(kind)),
            None => {
                if let Some(conn) = slot.conn.as_mut() {
                    // Time has passed since the connection was last asked.
                    let _ = conn.refresh_due(&self.env.cx());
                }
                self.settle(socket, Effects::TRANSMIT);
            }
        }
    }

    /// Loses the output of a connection whose neighbour's entry is gone.
    fn neighbour_displaced(&mut self, socket: u32) {
        let Some((slot, _)) = self.flows.sockets.remembered(socket) else {
            return;
        };
        let neighbours = &self.network.neighbours;
        let is_gone = slot
            .neighbour
            .is_some_and(|id| neighbours.state(id).is_none());
        if slot.awaits_neighbour && is_gone {
            slot.awaits_neighbour = false;
            self.lose_segments(socket, None);
        }
    }

    /// Fires the neighbour cache's own timers: requests to send, neighbours that did not answer.
    pub(crate) fn neighbour_timers(&mut self) {
        while let Some(event) = self.network.neighbours.poll(self.env.now_ns) {
            match event {
                NeighbourEvent::Request(request) => {
                    self.counters.neighbour_requests += 1;
                    let network = &mut self.network;
                    if network.has_host {
                        network.wanted.push(request.target);
                        continue;
                    }
                    let identity = network.identity();
                    if let Some(frame) =
                        arp_nd::request_frame(&request, identity, &network.addresses)
                    {
                        self.cold_frame_out(frame.as_slice());
                    }
                }
                NeighbourEvent::Failed(id) => {
                    self.release_waiters(id, Some(IcmpError::NeighbourUnreachable))
                }
                NeighbourEvent::Displaced(socket) => self.neighbour_displaced(socket),
            }
        }
    }
}
