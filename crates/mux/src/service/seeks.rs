//! Searches for a process that accepts, on behalf of connections that wait too long in another one.
//!
//! Owns the searches that are under way. The processes that listen at the endpoint are asked one
//! after another, first those that the data path gives new connections. The first that says yes
//! gets the connection, which its owner then [moves](super::moves). If the owner has never
//! accepted a connection, new ones go to the others from then on.

use std::net::SocketAddr;

use packetio::mux::message::{Claim, Message, Seek};
use rustix::io::Errno;

use super::Service;
use super::clients::{ClientId, Role};
use super::shares::Thing;
use crate::limits::MOVES_MAX;
use crate::plane::Plane;

/// A search.
#[derive(Debug)]
pub(super) struct Seeking {
    pub(super) from: ClientId,
    /// The question of the process that searches.
    seek: Seek,
    endpoint: SocketAddr,
    /// Number in the application of the context whose connections wait.
    context: u16,
    /// The process that is asked, and the number in the application of its context.
    asked: (ClientId, u16),
    /// Contexts that are asked next, the last one first.
    rest: Vec<u16>,
}

impl<P: Plane> Service<P> {
    /// Begins a search. If no other process listens, the answer follows at once.
    ///
    /// # Errors
    /// The reason why the client's connection must end.
    pub(super) fn seek(
        &mut self,
        id: ClientId,
        number: u16,
        seek: &Seek,
    ) -> Result<(), &'static str> {
        let own = self.context_of(id, seek.context);
        let context = own.ok_or("a search for a context that it does not have")?;
        let endpoint = SocketAddr::new(seek.tuple.address, seek.tuple.port);
        let uid = self.clients.get(&id).map_or(0, |client| client.peer.uid);
        let is_full = self.seeks.len() >= MOVES_MAX || !self.may_have(uid, Thing::Moves, 1);
        let claim = self.ownership.claim(endpoint);
        let claim = claim.filter(|claim| claim.application == number && !is_full);
        let Some(claim) = claim.filter(|claim| claim.contexts.contains(&context)) else {
            self.refuse(id, seek.request, Errno::AGAIN);
            return Ok(());
        };
        let mut rest = claim.contexts.clone();
        let first = self.next_move as usize % rest.len();
        rest.rotate_left(first);
        rest.retain(|other| *other != context);
        rest.sort_by_key(|other| !claim.passed_over.contains(other));
        self.ask_next(Seeking {
            from: id,
            seek: *seek,
            endpoint,
            context,
            asked: (id, context),
            rest,
        });
        Ok(())
    }

    /// Asks the next process, or tells the one that searches that there is none.
    fn ask_next(&mut self, mut seeking: Seeking) {
        let number = match self.clients.get(&seeking.from).map(|client| &client.role) {
            Some(Role::Application(number)) => *number,
            _ => return,
        };
        while let Some(context) = seeking.rest.pop() {
            let owner = self.owner_of(number, context);
            let Some((to, base)) = owner.filter(|(to, _)| *to != seeking.from) else {
                continue;
            };
            self.next_move = self.next_move.wrapping_add(1).max(1);
            let message = Message::Seek(Seek {
                request: self.next_move,
                context: context - base,
                ..seeking.seek
            });
            seeking.asked = (to, context);
            self.seeks.insert(self.next_move, seeking);
            self.send(to, &message);
            return;
        }
        self.refuse(seeking.from, seeking.seek.request, Errno::AGAIN);
    }

    /// The process that has a context of an application, and the number of its first context.
    pub(super) fn owner_of(&self, number: u16, context: u16) -> Option<(ClientId, u16)> {
        let mut clients = self.clients.iter();
        let (id, client) = clients.find(|(_, client)| {
            let end = client.base.saturating_add(client.contexts);
            client.role == Role::Application(number) && (client.base..end).contains(&context)
        })?;
        Some((*id, client.base))
    }

    /// Handles the answer of a process that was asked. False: the number is none of a search.
    pub(super) fn sought(&mut self, id: ClientId, number: u32, is_granted: bool) -> bool {
        if self.seeks.get(&number).is_none_or(|one| one.asked.0 != id) {
            return false;
        }
        let Some(seeking) = self.seeks.remove(&number) else {
            return false;
        };
        match is_granted {
            true => self.found(&seeking),
            false => self.ask_next(seeking),
        }
        true
    }

    fn found(&mut self, seeking: &Seeking) {
        let (endpoint, context) = (seeking.endpoint, seeking.context);
        let found = (context, seeking.asked.1);
        let takers = (self.ownership).found(endpoint, found, !seeking.seek.accepts);
        self.set_takers(endpoint, takers);
        let request = seeking.seek.request;
        self.send(seeking.from, &Message::Granted { request });
    }

    /// Handles the notice that a context accepts.
    pub(super) fn accepts(&mut self, id: ClientId, number: u16, claim: &Claim) {
        let endpoint = SocketAddr::new(claim.tuple.address, claim.tuple.port);
        let known = self.ownership.claim(endpoint);
        if known.is_some_and(|known| known.application == number)
            && let Some(context) = self.context_of(id, claim.context)
        {
            let takers = self.ownership.accepts(endpoint, context);
            self.set_takers(endpoint, takers);
        }
    }

    /// Tells the data path of the contexts that get new connections, if they have changed.
    fn set_takers(&mut self, endpoint: SocketAddr, takers: Option<Vec<u16>>) {
        let claim = self.ownership.claim(endpoint);
        if let (Some(claim), Some(takers)) = (claim, takers) {
            // If it fails, new connections go to those that had them before.
            let _ = (self.plane).claim_set(endpoint, claim.application, &takers);
        }
    }

    /// Handles the end of a process: searches in which it was asked go on.
    pub(super) fn forget_seeks(&mut self, id: ClientId) {
        self.seeks.retain(|_, one| one.from != id);
        let lost: Vec<Seeking> = (self.seeks)
            .extract_if(.., |_, one| one.asked.0 == id)
            .map(|(_, one)| one)
            .collect();
        for one in lost {
            self.ask_next(one);
        }
    }
}
