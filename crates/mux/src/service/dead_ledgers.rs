//! Ledgers of the dead: the list of connections whose peers are yet to be reset.
//!
//! A ledger is a part of the virtual port, which goes in a moment, while the resets take a second or
//! more (`--rate`). So the data plane keeps the ledger, and the notes name it before the virtual
//! port goes: if the service dies meanwhile, the next one goes on. Called by `lives` and once in
//! each turn.

use std::time::Instant;

use super::Service;
use crate::plane::Plane;
use crate::reset::{LedgerSize, Owned};
use crate::state::DeadNote;

impl<P: Plane> Service<P> {
    /// Begins to reset the peers of a context that dies now, if it has a ledger.
    pub(super) fn reset_peers_of(
        &mut self,
        (number, context): (u16, u16),
        size: LedgerSize,
        owned: Owned,
    ) {
        if let Some(ledger) = self.plane.ledger(number, context) {
            let kept = self.plane.ledger_keep(number, context);
            self.resets.add(ledger, kept, size, owned);
            self.are_notes_old = true;
        }
    }

    /// Resets the next peers, and removes ledgers that were read to their end.
    pub(super) fn reset_on(&mut self, now: Instant) {
        self.resets.turn(now);
        for number in self.resets.take_finished() {
            self.plane.ledger_drop(number);
            self.are_notes_old = true;
        }
    }

    /// The kept ledgers, for the next service.
    pub(super) fn dead_notes(&self) -> Vec<DeadNote> {
        let note = |(ledger, size, owned): (u32, LedgerSize, &Owned)| {
            let leases = owned.leases.iter();
            DeadNote {
                ledger,
                uid: size.uid,
                bytes: size.bytes,
                endpoints: owned.endpoints.clone(),
                leases: leases.map(|one| (*one.start(), *one.end())).collect(),
            }
        };
        self.resets.kept().map(note).collect()
    }

    /// Goes on with the ledgers of the service before this one. Those that no note names are of
    /// applications that the notes still have among the living.
    pub(super) fn recover_dead(&mut self, notes: Vec<DeadNote>) {
        let mut unknown = self.plane.ledgers_kept();
        for note in notes {
            unknown.retain(|number| *number != note.ledger);
            let Some(ledger) = self.plane.ledger_kept(note.ledger) else {
                continue;
            };
            let size = LedgerSize {
                uid: note.uid,
                bytes: note.bytes,
            };
            let leases = note.leases.iter().map(|&(first, last)| first..=last);
            let owned = self.owned(note.endpoints, leases.collect());
            self.resets.add(ledger, Some(note.ledger), size, owned);
        }
        for number in unknown {
            self.plane.ledger_drop(number);
        }
    }
}
