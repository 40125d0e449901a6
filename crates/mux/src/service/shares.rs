//! Shares: how much of what all applications use one user may have.
//!
//! Owns nothing. A user that is not root gets a part of each thing that there is once for all, so
//! that others find some. Limits of one application would not do, since a user may run any number
//! of them. Called before a request is granted.

use std::collections::BTreeSet;

use super::Service;
use crate::limits::{
    CLAIMS_PER_UID_MAX, LEDGER_BYTES_MAX, MOVES_MAX, NEXT_HOPS_PER_UID_MAX, SHARE_EIGHTHS,
};
use crate::plane::Plane;

/// A thing that users share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    /// Contexts, each with a virtual port.
    Contexts,
    /// Bytes of memory files, which the kernel pins.
    Memory,
    /// Bytes of ledgers.
    Ledgers,
    /// Endpoints.
    Claims,
    /// Local ports.
    LocalPorts,
    /// Next hops, which are entries of the host's table of neighbours.
    NextHops,
    /// Connections that wait for another process to take them.
    Moves,
}

impl<P: Plane> Service<P> {
    /// Whether a user may have so many `more` of a thing.
    pub(super) fn may_have(&self, uid: u32, thing: Thing, more: u64) -> bool {
        uid == 0 || self.taken(uid, thing).saturating_add(more) <= self.share(thing)
    }

    /// The most that one user that is not root may have.
    fn share(&self, thing: Thing) -> u64 {
        let part = |whole: u64| (whole * SHARE_EIGHTHS / 8).max(1);
        match thing {
            Thing::Contexts => part(self.options.ports.into()),
            Thing::Memory => self.options.memory_per_user,
            Thing::Ledgers => part(LEDGER_BYTES_MAX),
            Thing::Claims => CLAIMS_PER_UID_MAX as u64,
            Thing::LocalPorts => part(self.options.leases.len() as u64),
            Thing::NextHops => NEXT_HOPS_PER_UID_MAX as u64,
            Thing::Moves => part(MOVES_MAX as u64),
        }
    }

    fn taken(&self, uid: u32, thing: Thing) -> u64 {
        let own = || self.applications.values().filter(|one| one.peer.uid == uid);
        let is_own = |application: u16| self.uid_of(application) == Some(uid);
        match thing {
            Thing::Contexts => {
                let living = own().map(|one| u64::from(one.contexts)).sum::<u64>();
                living + self.dying.of_user(uid)
            }
            Thing::Memory => own()
                .flat_map(|one| one.costs.values())
                .map(|cost| cost.memory)
                .sum(),
            Thing::Ledgers => {
                let living = own().flat_map(|one| one.costs.values());
                let dead = self.resets.ledgers().filter(|size| size.uid == uid);
                living
                    .map(|cost| cost.ledger)
                    .chain(dead.map(|size| size.bytes))
                    .sum()
            }
            Thing::Claims => {
                let claims = self.ownership.claims();
                claims
                    .filter(|(_, claim)| is_own(claim.application))
                    .count() as u64
            }
            Thing::LocalPorts => {
                let leases = self.ownership.leases();
                let leases = leases.filter(|lease| is_own(lease.application));
                leases.map(|lease| lease.ports.len() as u64).sum()
            }
            Thing::NextHops => {
                let hops = own().flat_map(|one| &one.next_hops);
                hops.collect::<BTreeSet<_>>().len() as u64
            }
            Thing::Moves => {
                let moves = self.moves.values().map(|one| one.from);
                let all = moves.chain(self.seeks.values().map(|one| one.from));
                let clients = all.filter_map(|from| self.clients.get(&from));
                clients.filter(|client| client.peer.uid == uid).count() as u64
            }
        }
    }

    /// Contexts of all applications, with those whose virtual ports are yet to be removed.
    pub(super) fn contexts_taken(&self) -> u64 {
        let all = self.applications.values();
        let living = all.map(|one| u64::from(one.contexts)).sum::<u64>();
        living + self.dying.len() as u64
    }

    /// Whether all ledgers together leave room for `bytes` more. A ledger of the dead stays until
    /// their peers are reset.
    pub(super) fn has_ledger_room(&self, bytes: u64) -> bool {
        let costs = self
            .applications
            .values()
            .flat_map(|one| one.costs.values());
        let living = costs.map(|cost| cost.ledger).sum::<u64>();
        let dead = self.resets.ledgers().map(|size| size.bytes).sum::<u64>();
        living + dead + bytes <= LEDGER_BYTES_MAX
    }
}
