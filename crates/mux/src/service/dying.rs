//! Virtual ports of the dead that are yet to be removed, a few in each turn.
//!
//! To remove one takes the kernel tens of milliseconds, and an application may leave hundreds. The
//! service has one thread, so others would wait for all of them. Until its removal a virtual port
//! counts for its user's share, and its number is not given again. Ports, leases and claims of the
//! dead are free before. Called by `lives` and once in each turn.

use std::collections::VecDeque;

use packetio::mux::message::Message;

use super::Service;
use super::clients::ClientId;
use super::shares::Thing;
use crate::limits::PORT_REMOVALS_PER_TURN;
use crate::plane::Plane;

/// A virtual port without an owner.
#[derive(Clone, Copy, Debug)]
struct DeadPort {
    application: u16,
    context: u16,
    /// The user of the application.
    uid: u32,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Dying(VecDeque<DeadPort>);

impl Dying {
    pub(super) fn push(&mut self, application: u16, context: u16, uid: u32) {
        self.0.push_back(DeadPort {
            application,
            context,
            uid,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Number of those whose application was a user's.
    pub(super) fn of_user(&self, uid: u32) -> u64 {
        self.0.iter().filter(|port| port.uid == uid).count() as u64
    }

    /// True if an application of this number has left one.
    pub(super) fn has(&self, application: u16) -> bool {
        self.contexts(application).next().is_some()
    }

    /// Contexts of this application that have left one.
    pub(super) fn contexts(&self, application: u16) -> impl Iterator<Item = u16> + '_ {
        let own = self
            .0
            .iter()
            .filter(move |port| port.application == application);
        own.map(|port| port.context)
    }
}

impl<P: Plane> Service<P> {
    /// Removes the next virtual ports of the dead. Their ledgers go with them, so the notes name
    /// the kept ones before.
    pub(super) fn remove_dead_ports(&mut self) {
        if self.are_notes_old && !self.dying.is_empty() {
            self.write_notes();
        }
        for _ in 0..PORT_REMOVALS_PER_TURN {
            let Some(port) = self.dying.0.pop_front() else {
                return;
            };
            self.plane.port_remove(port.application, port.context);
        }
    }

    /// Removes all virtual ports of the dead: the service ends.
    pub(super) fn remove_all_dead_ports(&mut self) {
        while !self.dying.is_empty() {
            self.remove_dead_ports();
        }
    }

    /// True if a first message is to be answered later, since the dead still have what it asks for.
    pub(super) fn waits_for_the_dead(&self, id: ClientId, message: &Message) -> bool {
        let contexts = match message {
            Message::Hello(hello) | Message::Join(hello) => u64::from(hello.contexts),
            _ => return false,
        };
        let Some(client) = self.clients.get(&id) else {
            return false;
        };
        let has_room = self.contexts_taken() + contexts <= self.options.ports.into()
            && self.may_have(client.peer.uid, Thing::Contexts, contexts);
        !self.dying.is_empty() && client.is_silent() && !has_room
    }
}
