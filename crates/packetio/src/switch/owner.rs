//! The owner of a frame, determined from its headers alone.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use wire::FlowKey;
use wire::tcp::Flags;

use super::flows::{FlowOwner, Flows, Rank};
use super::kind::{self, Kind};
use super::member::Drops;
use crate::frame_unsafe::RxFrame;
use crate::limits::SWITCH_FLOWS_MAX;
use crate::port::MacAddr;

/// Number of TCP ports.
const PORTS: usize = 1 << 16;

/// Receivers of a member's frame.
pub enum Addressee {
    Wire,
    /// The members that receive the frame, one bit each.
    Members(u64),
}

/// Header fields of a frame from the wire.
pub struct Head {
    kind: Kind,
    /// Hash of a segment's flow; used only if the flow is looked up.
    hash: u64,
}

/// The present members, the ports that they use, and the flows that they own.
pub struct Owners {
    /// Secret of this process, so that no sender can aim flows at one member.
    hasher: RandomState,
    pub(super) flows: Flows,
    members: Vec<Option<(MacAddr, Arc<Drops>)>>,
    /// Members that are present, one bit each.
    present: u64,
    is_ethernet: bool,
    /// Listening members by port, one bit each. This table and `known` are empty if no owner is
    /// ever looked up: with one member, or without a wire.
    listening: Vec<u64>,
    /// Ports at which a member listens.
    listened: Vec<u16>,
    /// Members that have ever listened at a port or sent a SYN from it, by port, one bit each.
    known: Vec<u64>,
    /// Ports at which a member has ever listened, one bit each.
    served: Vec<u64>,
}

/// True for flags that begin a flow: SYN without ACK.
fn is_syn(flags: Flags) -> bool {
    flags.contains(Flags::SYN) && !flags.contains(Flags::ACK)
}

/// The rank of a known flow after a segment from the wire. Such a segment makes a flow half-open at
/// most, because anybody may have sent it and the owner may drop it silently.
fn after(rank: Rank, flags: Flags) -> Rank {
    if is_syn(flags) {
        return rank.max(Rank::Doubtful);
    }
    match rank {
        // The RST may not be the peer's; then the owner continues.
        Rank::Open if flags.contains(Flags::RST) => Rank::Likely,
        _ => rank,
    }
}

impl Owners {
    pub fn new(members: usize, is_ethernet: bool) -> Self {
        let looks_up = members > 1 && !is_ethernet;
        let ports = if looks_up { PORTS } else { 0 };
        Self {
            hasher: RandomState::new(),
            flows: Flows::new(if looks_up { SWITCH_FLOWS_MAX } else { 0 }),
            members: (0..members).map(|_| None).collect(),
            present: 0,
            is_ethernet,
            listening: vec![0; ports],
            listened: Vec::new(),
            known: vec![0; ports],
            served: vec![0; ports / 64],
        }
    }

    pub fn joined(&mut self, index: usize, mac: MacAddr, drops: Arc<Drops>) {
        self.members[index] = Some((mac, drops));
        self.present |= 1 << index;
    }

    /// Notes that a member has left. Entries of its flows stay until another member receives their
    /// next segments.
    pub fn left(&mut self, index: usize) {
        self.present &= !(1 << index);
        // Most entries are zero pages that were never touched, and must not be written.
        for known in self.known.iter_mut().filter(|known| **known != 0) {
            *known &= !(1 << index);
        }
    }

    pub fn set_listening(&mut self, listening: &[(u16, Vec<u16>)]) {
        if self.listening.is_empty() {
            return;
        }
        for port in self.listened.drain(..) {
            self.listening[usize::from(port)] = 0;
        }
        for (port, counts) in listening {
            let members = counts.iter().take(64).enumerate();
            let mask = members.fold(0, |mask, (index, &count)| {
                mask | u64::from(count > 0) << index
            });
            self.listening[usize::from(*port)] = mask;
            self.known[usize::from(*port)] |= mask;
            self.served[usize::from(*port / 64)] |= 1 << (port % 64);
            self.listened.push(*port);
        }
    }

    /// Reads the headers of a frame from the wire. The caller reads a whole batch first, so that
    /// the table's cache lines arrive meanwhile.
    pub fn read(&self, frame: &RxFrame) -> Head {
        let (mut kind, mut hash) = (Kind::ForAll, 0);
        if self.members.len() > 1 {
            kind = kind::kind(frame);
        }
        if let Kind::Tcp(flow, _) = &kind
            && self.only_user(flow).is_none()
        {
            hash = self.flows.hash(flow);
            self.flows.prefetch(hash);
        }
        Head { kind, hash }
    }

    /// The members that receive the frame, one bit each.
    pub fn of(&mut self, head: &Head) -> u64 {
        match &head.kind {
            Kind::Tcp(flow, flags) => self.owner(flow, *flags, head.hash),
            Kind::ForAll => self.present,
            Kind::ForOne => self.present & self.present.wrapping_neg(),
        }
    }

    /// Present members that have used the flow's port, one bit each.
    fn known_at(&self, flow: &FlowKey) -> u64 {
        self.known[usize::from(flow.local_port)] & self.present
    }

    /// The only member that has ever used a port at which no member listens. It owns all flows
    /// there, so none is looked up. At a port with a listener another member may listen later, so
    /// its open flows must be known.
    fn only_user(&self, flow: &FlowKey) -> Option<u64> {
        let known = self.known_at(flow);
        let listening = self.listening[usize::from(flow.local_port)];
        (listening == 0 && known.is_power_of_two()).then_some(known)
    }

    /// The owner of a segment, as a bit. A SYN goes to a listening member, which then owns the
    /// flow. It goes to the flow's present owner if that one still listens, or if the flow is more
    /// than half-open: only the owner can judge such a SYN. Any other segment goes to the flow's
    /// owner, whatever listens now.
    fn owner(&mut self, flow: &FlowKey, flags: Flags, hash: u64) -> u64 {
        let known = self.known_at(flow);
        if known == 0 {
            // No member has used the port, so any one member may answer.
            return 1 << self.choose(self.present, flow) & self.present;
        }
        if let Some(user) = self.only_user(flow) {
            return user;
        }
        let listening = self.listening[usize::from(flow.local_port)] & known;
        let found = self.flows.find(hash).filter(|found| {
            let owner = 1 << found.member & known;
            let stays = found.rank > Rank::Doubtful || owner & listening != 0;
            owner != 0 && (stays || !is_syn(flags))
        });
        let kept = match found {
            Some(FlowOwner { member, rank }) => FlowOwner {
                member,
                rank: after(rank, flags),
            },
            None => FlowOwner {
                member: self.choose(if listening == 0 { known } else { listening }, flow),
                rank: Rank::Doubtful,
            },
        };
        // Only a SYN adds a flow to the table.
        if found != Some(kept) && (found.is_some() || is_syn(flags)) {
            self.keep(hash, kept);
        }
        1 << kept.member
    }

    fn keep(&mut self, hash: u64, kept: FlowOwner) {
        if let Some(whose) = self.flows.keep(hash, kept)
            && let Some((_, drops)) = &self.members[whose]
        {
            drops.flows_forgotten.add(1);
        }
    }

    /// Rendezvous hashing: the member with the highest hash of member and flow.
    fn choose(&self, members: u64, flow: &FlowKey) -> usize {
        if members.is_power_of_two() {
            return members.trailing_zeros() as usize;
        }
        let each = (0..self.members.len()).filter(|index| members >> index & 1 == 1);
        let best = each.max_by_key(|index| self.hasher.hash_one((flow, index)));
        best.unwrap_or(0)
    }

    /// Notes flows that a member's frame begins or ends; returns the receivers of the frame.
    pub fn sent(&mut self, index: usize, frame: &RxFrame) -> Addressee {
        if self.is_ethernet {
            return Addressee::Members(self.named(frame) & self.present & !(1 << index));
        }
        if self.members.len() > 1
            && let Kind::Tcp(flow, flags) = kind::kind(frame)
        {
            self.follow(index, &flow.reversed(), flags);
        }
        Addressee::Wire
    }

    /// Members that the frame's destination names, one bit each; all if it names none.
    fn named(&self, frame: &RxFrame) -> u64 {
        let to = MacAddr(frame.head());
        let has_it = |member: &Option<(MacAddr, _)>| {
            let mac = member.as_ref().map(|(mac, _)| *mac);
            mac == Some(to)
        };
        let named = self.members.iter().position(has_it);
        named.map_or(u64::MAX, |named| 1 << named)
    }

    /// Updates a flow from its own member's segment. A SYN-ACK tells no more than the SYN before
    /// it. Any other segment, except RST and FIN, claims the flow, unless another member has it and
    /// has not ended it.
    fn follow(&mut self, index: usize, flow: &FlowKey, flags: Flags) {
        let calls = is_syn(flags);
        let ends = flags.intersects(Flags::FIN.union(Flags::RST));
        let is_quiet_port = !self.is_served(flow) && self.only_user(flow) == Some(1 << index);
        if !calls && !ends && (is_quiet_port || flags.contains(Flags::SYN)) {
            return;
        }
        let hash = self.flows.hash(flow);
        let found = self.flows.find(hash);
        let own = found.filter(|kept| kept.member == index);
        let rank = match (own, found) {
            _ if calls => own.map_or(Rank::Likely, |own| own.rank.max(Rank::Likely)),
            (Some(_), _) if ends => Rank::Ended,
            // A flow that its owner has ended stays ended, whatever the owner sends later.
            (Some(own), _) if matches!(own.rank, Rank::Doubtful | Rank::Likely) => Rank::Open,
            (None, found) if !ends && !found.is_some_and(|other| self.is_kept(flow, other)) => {
                Rank::Open
            }
            _ => return,
        };
        self.known[usize::from(flow.local_port)] |= 1 << index;
        let member = index;
        self.keep(hash, FlowOwner { member, rank });
    }

    /// True if a member has ever listened at the flow's port. Flows that open while no member
    /// listens must keep their owner when another one listens later.
    fn is_served(&self, flow: &FlowKey) -> bool {
        let port = flow.local_port;
        self.served[usize::from(port / 64)] >> (port % 64) & 1 == 1
    }

    /// True if the flow's owner is present and has not ended the flow.
    fn is_kept(&self, flow: &FlowKey, kept: FlowOwner) -> bool {
        self.known_at(flow) >> kept.member & 1 == 1 && kept.rank > Rank::Ended
    }
}
