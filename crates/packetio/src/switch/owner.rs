//! The owner of a frame, by its headers alone.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use wire::FlowKey;
use wire::tcp::Flags;

use super::flows::{Flows, Kept, Rank};
use super::kind::{self, Kind};
use super::member::Drops;
use crate::frame_unsafe::RxFrame;
use crate::limits::SWITCH_FLOWS_MAX;
use crate::port::MacAddr;

/// TCP's ports.
const PORTS: usize = 1 << 16;

/// Whom a member's frame is for.
pub enum Addressee {
    Wire,
    /// A bit each.
    Members(u64),
}

/// Header fields that were read of a frame of the wire.
pub struct Head {
    kind: Kind,
    /// Hash of a segment's flow, if the flow is to be looked up.
    hash: u64,
}

/// See the module's documentation.
pub struct Owners {
    /// Of this process's own: nobody outside can aim flows at one member.
    hasher: RandomState,
    pub(super) flows: Flows,
    members: Vec<Option<(MacAddr, Arc<Drops>)>>,
    /// A bit for each member that is there.
    present: u64,
    is_ethernet: bool,
    /// By port: who listens there, a bit each. Empty, as the others, where nobody is looked for:
    /// with one member, or without a wire.
    listening: Vec<u64>,
    /// The ports where anybody listens.
    listened: Vec<u16>,
    /// By port: who has ever listened there or sent a SYN from there, a bit each.
    known: Vec<u64>,
    /// By port, a bit each: somebody has listened there, and may again.
    served: Vec<u64>,
}

/// Begins a flow.
fn is_call(flags: Flags) -> bool {
    flags.contains(Flags::SYN) && !flags.contains(Flags::ACK)
}

/// What a segment of the wire's makes of a flow that it finds: nothing more than half-open, since
/// anybody may have sent it, and its owner may drop it without a word.
fn after(rank: Rank, flags: Flags) -> Rank {
    if is_call(flags) {
        return rank.max(Rank::Doubtful);
    }
    match rank {
        // Perhaps not the peer's, and then the owner goes on.
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

    /// Its flows are left as they are: nobody knows more of them than whoever gets their next
    /// segment.
    pub fn left(&mut self, index: usize) {
        self.present &= !(1 << index);
        // Most are zero, in memory that nobody has touched yet.
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

    /// Reads a frame of the wire's. All of a batch first: what is known of one flow comes from
    /// memory while the next frame is read.
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

    /// Who gets it, a bit each.
    pub fn of(&mut self, head: &Head) -> u64 {
        match &head.kind {
            Kind::Tcp(flow, flags) => self.owner(flow, *flags, head.hash),
            Kind::ForAll => self.present,
            Kind::ForOne => self.present & self.present.wrapping_neg(),
        }
    }

    /// Who is there of those who have used the flow's port.
    fn known_at(&self, flow: &FlowKey) -> u64 {
        self.known[usize::from(flow.local_port)] & self.present
    }

    /// The one member that has ever used a port where nobody listens: all flows there are its own,
    /// and none is looked up. (Where one listens, others may later, and what was open by then must
    /// be known.)
    fn only_user(&self, flow: &FlowKey) -> Option<u64> {
        let known = self.known_at(flow);
        let listening = self.listening[usize::from(flow.local_port)];
        (listening == 0 && known.is_power_of_two()).then_some(known)
    }

    /// A SYN is for one of those who listen, who then has the flow. It is for who has it already,
    /// if that one still listens or may know it as more than a SYN: what it means there only its
    /// owner can say. All else is for who has the flow, whoever listens by now.
    fn owner(&mut self, flow: &FlowKey, flags: Flags, hash: u64) -> u64 {
        let known = self.known_at(flow);
        if known == 0 {
            // Nobody's: one says so.
            return 1 << self.choose(self.present, flow) & self.present;
        }
        if let Some(user) = self.only_user(flow) {
            return user;
        }
        let listening = self.listening[usize::from(flow.local_port)] & known;
        let found = self.flows.find(hash).filter(|found| {
            let owner = 1 << found.member & known;
            let stays = found.rank > Rank::Doubtful || owner & listening != 0;
            owner != 0 && (stays || !is_call(flags))
        });
        let kept = match found {
            Some(Kept { member, rank }) => Kept {
                member,
                rank: after(rank, flags),
            },
            None => Kept {
                member: self.choose(if listening == 0 { known } else { listening }, flow),
                rank: Rank::Doubtful,
            },
        };
        // Of what is not known only a SYN begins anything.
        if found != Some(kept) && (found.is_some() || is_call(flags)) {
            self.keep(hash, kept);
        }
        1 << kept.member
    }

    fn keep(&mut self, hash: u64, kept: Kept) {
        if let Some(whose) = self.flows.keep(hash, kept)
            && let Some((_, drops)) = &self.members[whose]
        {
            drops.flows_forgotten.add(1);
        }
    }

    /// Rendezvous hashing: the member with the highest hash of its own of the flow.
    fn choose(&self, members: u64, flow: &FlowKey) -> usize {
        if members.is_power_of_two() {
            return members.trailing_zeros() as usize;
        }
        let each = (0..self.members.len()).filter(|index| members >> index & 1 == 1);
        let best = each.max_by_key(|index| self.hasher.hash_one((flow, index)));
        best.unwrap_or(0)
    }

    /// A member sends a frame: remembers what it calls and what it ends, and says whom it is for.
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

    /// Whom a frame names, a bit each; all if it is nobody that we know.
    fn named(&self, frame: &RxFrame) -> u64 {
        let to = MacAddr(frame.head());
        let has_it = |member: &Option<(MacAddr, _)>| {
            let mac = member.as_ref().map(|(mac, _)| *mac);
            mac == Some(to)
        };
        let named = self.members.iter().position(has_it);
        named.map_or(u64::MAX, |named| 1 << named)
    }

    /// What a member says of a flow. A SYN-ACK says no more than the SYN before it; what else
    /// neither calls nor ends is said by who knows the flow, and is believed unless another has it
    /// that has not ended it.
    fn follow(&mut self, index: usize, flow: &FlowKey, flags: Flags) {
        let calls = is_call(flags);
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
            // Ended by its owner it stays, whatever that one still has to say.
            (Some(own), _) if matches!(own.rank, Rank::Doubtful | Rank::Likely) => Rank::Open,
            (None, found) if !ends && !found.is_some_and(|other| self.is_kept(flow, other)) => {
                Rank::Open
            }
            _ => return,
        };
        self.known[usize::from(flow.local_port)] |= 1 << index;
        let member = index;
        self.keep(hash, Kept { member, rank });
    }

    /// Somebody has listened at its port: what opens while nobody does is to stay with its owner
    /// when another listens.
    fn is_served(&self, flow: &FlowKey) -> bool {
        let port = flow.local_port;
        self.served[usize::from(port / 64)] >> (port % 64) & 1 == 1
    }

    /// Whether somebody who is there has it, and has not ended it.
    fn is_kept(&self, flow: &FlowKey, kept: Kept) -> bool {
        self.known_at(flow) >> kept.member & 1 == 1 && kept.rank > Rank::Ended
    }
}
