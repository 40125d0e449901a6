//! Frames that move between contexts: those that belong to another context, and those that other
//! contexts hand to this one ([`packetio::mesh`]).
//!
//! Only a segment whose flow this stack does not have is checked for another owner. A frame at the
//! right context therefore costs nothing extra.

use packetio::RxFrame;
use packetio::limits::MESH_HOPS_MAX;
use packetio::mesh::{Claim, HandOver, HandedBatch, MeshSender};
use wire::ethernet::EtherType;
use wire::{ipv4, ipv6, protocol};

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::core::Core;
use crate::counters::Counters;
use crate::flows::Flows;

const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO: u8 = 8;
/// ICMPv6 types from here on are informational, not errors (RFC 4443 section 2.1).
const ICMPV6_ECHO: u8 = 128;
const ICMPV6_ECHO_REPLY: u8 = 129;

impl Arrivals {
    /// Hands a segment to the context that owns its flow. If no context does and nothing listens
    /// here, the segment goes to a context that listens at its port. False: this context answers
    /// the segment.
    #[cold]
    pub(super) fn hand_over(
        &self,
        (flows, counters): (&Flows, &mut Counters),
        mesh: &mut MeshSender,
        arrival: &Arrival,
        frame: &RxFrame,
    ) -> bool {
        // A merged frame was checked as a whole by `hand_merged_over`.
        frame.segment_bytes() == 0 && self.hand_whole_over((flows, counters), mesh, arrival, frame)
    }

    /// Hands over a whole merged frame, as [`hand_over`](Self::hand_over) does a single segment.
    #[cold]
    pub(super) fn hand_merged_over(
        &self,
        (flows, counters): (&Flows, &mut Counters),
        mesh: &mut MeshSender,
        arrival: &Arrival,
        frame: &RxFrame,
    ) -> bool {
        flows.find(&arrival.key, arrival.hash).is_none()
            && self.hand_whole_over((flows, counters), mesh, arrival, frame)
    }

    fn hand_whole_over(
        &self,
        (flows, counters): (&Flows, &mut Counters),
        mesh: &mut MeshSender,
        arrival: &Arrival,
        frame: &RxFrame,
    ) -> bool {
        if !self.may_hand_over() {
            return false;
        }
        let (key, hash) = (&arrival.key, arrival.hash);
        let listeners = flows.listeners();
        let to = match mesh.directory().owner(hash) {
            Some(owner) => Some(owner),
            None if listeners.find(key.local, key.local_port, hash).is_some() => None,
            None => mesh.directory().listener(key.local_port, hash),
        };
        to.is_some_and(|to| self.hand_to(counters, mesh, to, frame))
    }

    /// Hands over a SYN that may reuse an entry in TIME_WAIT, if nothing listens here but another
    /// context listens. The entry is then removed. False: no context listens.
    #[cold]
    pub(super) fn hand_reuse_over(
        &self,
        (flows, counters): (&mut Flows, &mut Counters),
        mesh: &mut MeshSender,
        index: u32,
        arrival: &Arrival,
        frame: &RxFrame,
    ) -> bool {
        let (port, hash) = (arrival.key.local_port, arrival.hash);
        if !self.may_hand_over() {
            return false;
        }
        let Some(to) = mesh.directory().listener(port, hash) else {
            return false;
        };
        flows.remove_time_wait(index);
        self.hand_to(counters, mesh, to, frame)
    }

    fn may_hand_over(&self) -> bool {
        self.hops < MESH_HOPS_MAX && !self.takes_local
    }

    /// Hands a frame to another context, or drops and counts it.
    fn hand_to(
        &self,
        counters: &mut Counters,
        mesh: &mut MeshSender,
        to: usize,
        frame: &RxFrame,
    ) -> bool {
        match mesh.hand_over(to, (self.port, self.hops + 1), frame, Claim::Any) {
            HandOver::Done => counters.handed_over += 1,
            HandOver::Full => counters.hand_over_full += 1,
            HandOver::TooLong => counters.hand_over_too_long += 1,
        }
        true
    }

    /// Processes frames that other contexts handed over and that arrived on the wire of this port.
    pub(crate) fn handed_in(&mut self, core: &mut Core, batch: &HandedBatch<'_>) {
        let mut looked = std::mem::take(&mut self.looked);
        self.hops = batch.hops;
        core.engine_mut().parts().counters.handed_in += batch.frames.len() as u64;
        self.take_batch(core, batch.frames, &mut looked);
        self.end_run(core.engine_mut());
        self.hops = 0;
        self.looked = looked;
    }
}

/// True if every context must see the packet: ARP, neighbour discovery, ICMP errors. An echo
/// request is not one: the context that it reaches answers.
pub(super) fn is_for_all(packet: &[u8], ethertype: u16) -> bool {
    let (kind, is_v4) = match ethertype {
        EtherType::ARP => return true,
        EtherType::IPV4 => {
            let header = ipv4::Header::parse(packet, packet.len());
            let header = header.ok().filter(|one| one.protocol == protocol::ICMP);
            (header.map(|one| usize::from(one.header_len)), true)
        }
        _ => {
            let upper = ipv6::Header::parse(packet, packet.len())
                .and_then(|header| ipv6::upper_layer(&header, packet));
            let upper = upper.ok().filter(|(upper, _)| *upper == protocol::ICMPV6);
            (upper.map(|(_, at)| at), false)
        }
    };
    let Some(&kind) = kind.and_then(|at| packet.get(at)) else {
        return false;
    };
    match is_v4 {
        true => kind != ICMP_ECHO && kind != ICMP_ECHO_REPLY,
        false => kind != ICMPV6_ECHO && kind != ICMPV6_ECHO_REPLY,
    }
}

/// Hands a copy to every other context that has room for it.
#[cold]
pub(super) fn hand_copies(
    counters: &mut Counters,
    mesh: &mut MeshSender,
    port: u8,
    frame: &RxFrame,
) {
    let mut left = mesh.directory().others();
    while left != 0 {
        let to = left.trailing_zeros() as usize;
        left &= left - 1;
        match mesh.hand_over(to, (port, MESH_HOPS_MAX), frame, Claim::Spare) {
            HandOver::Done => counters.handed_copies += 1,
            HandOver::Full => counters.hand_over_full += 1,
            HandOver::TooLong => counters.hand_over_too_long += 1,
        }
    }
}
