//! Connections that move between the processes of an application, because their listener was closed
//! before they were accepted.
//!
//! Owns the unanswered offers. The service does not read a connection's state: it passes the file
//! on to a process of the same application that listens at the endpoint, and the answer back. The
//! data path knows the flow's new owner before the sender hears that its connection was taken.
//! Otherwise the sender might end, and a segment that came to a third process would be reset.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use packetio::foreign::Foreign;
use packetio::mux::message::{Message, Move};
use rustix::io::Errno;

use super::Service;
use super::clients::ClientId;
use super::shares::Thing;
use crate::limits::MOVES_MAX;
use crate::memory_file;
use crate::plane::Plane;

/// An offer that waits for its answer.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) from: ClientId,
    /// The sender's number of the request.
    request: u32,
    to: ClientId,
    /// Number in the application of the context that gets the connection.
    context: u16,
    /// Both ends of the connection, this host's first.
    ends: (SocketAddr, SocketAddr),
}

impl<P: Plane> Service<P> {
    /// Offers a connection to another process that listens at its endpoint. If no process can take
    /// the offer now, the sender is told to try again; if no other process has the endpoint, that
    /// the connection is lost.
    ///
    /// # Errors
    /// The reason why the sender's connection must end.
    pub(super) fn move_on(
        &mut self,
        id: ClientId,
        number: u16,
        one: &Move,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let ends = self
            .ends_of(one)
            .ok_or("a connection of another endpoint")?;
        let check = |file: BorrowedFd<'_>| memory_file::check(file, one.bytes.into());
        let file = descriptor.keep_if("no memory file", check)?;
        match self.taker(id, number, one) {
            Ok((to, base, context)) => {
                self.next_move = self.next_move.wrapping_add(1).max(1);
                let moving = Moving {
                    from: id,
                    request: one.request,
                    to,
                    context,
                    ends,
                };
                self.moves.insert(self.next_move, moving);
                let message = Message::Move(Move {
                    request: self.next_move,
                    context: context - base,
                    ..*one
                });
                self.send_with(to, &message, Some(file.as_fd()));
            }
            Err(errno) => self.refuse(id, one.request, errno),
        }
        self.close(id, file);
        Ok(())
    }

    /// Both ends of a connection; `None` if the connection cannot belong to its endpoint.
    fn ends_of(&self, one: &Move) -> Option<(SocketAddr, SocketAddr)> {
        let endpoint = one.tuple.address;
        let is_there = match endpoint.is_unspecified() {
            true => self.mirror.host().has(one.local),
            false => one.local == endpoint,
        };
        let families = [endpoint, one.local, one.remote.ip()].map(|ip| ip.is_ipv4());
        let is_right = is_there && families.iter().all(|is_v4| *is_v4 == families[0]);
        is_right.then(|| (SocketAddr::new(one.local, one.tuple.port), one.remote))
    }

    /// The process that gets a connection, the number of its first context, and the context that
    /// takes it.
    fn taker(&self, id: ClientId, number: u16, one: &Move) -> Result<(ClientId, u16, u16), Errno> {
        let endpoint = SocketAddr::new(one.tuple.address, one.tuple.port);
        let claim = self.ownership.claim(endpoint).ok_or(Errno::NOENT)?;
        let is_shared = claim.holders.iter().any(|holder| *holder != id.0);
        if claim.application != number || !is_shared && claim.contexts.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut others = Vec::new();
        for context in &claim.contexts {
            let owner = self.owner_of(number, *context);
            if let Some((to, base)) = owner.filter(|(to, _)| *to != id) {
                others.push((to, base, *context));
            }
        }
        let own = self.context_of(id, one.context);
        let found = own.and_then(|own| claim.found_for(own));
        let uid = self.clients.get(&id).map_or(0, |client| client.peer.uid);
        let is_full = || self.moves.len() >= MOVES_MAX || !self.may_have(uid, Thing::Moves, 1);
        match others.len() {
            0 if is_shared => Err(Errno::AGAIN),
            0 => Err(Errno::NOENT),
            _ if is_full() => Err(Errno::AGAIN),
            count => {
                let mut all = others.iter();
                let wanted = all.find(|(_, _, context)| Some(*context) == found);
                Ok(*wanted.unwrap_or(&others[self.next_move as usize % count]))
            }
        }
    }

    /// Handles the answer of the process that was offered a connection, and tells the sender.
    ///
    /// # Errors
    /// The reason why its connection must end.
    pub(super) fn move_ended(
        &mut self,
        id: ClientId,
        application: u16,
        number: u32,
        errno: Option<u16>,
    ) -> Result<(), &'static str> {
        if self.sought(id, number, errno.is_none()) {
            return Ok(());
        }
        // The offer's sender may be gone; this is not the client's fault.
        if self.moves.get(&number).is_none_or(|one| one.to != id) {
            return match number <= self.next_move {
                true => Ok(()),
                false => Err("an answer to what was not asked"),
            };
        }
        if let Some(one) = self.moves.remove(&number) {
            let request = one.request;
            let answer = match errno {
                None => {
                    self.plane.flow_set(application, one.context, one.ends);
                    Message::Granted { request }
                }
                Some(errno) => Message::Refused { request, errno },
            };
            self.send(one.from, &answer);
        }
        Ok(())
    }

    /// Handles the end of a process: offers that it has not answered go to others.
    pub(super) fn forget_moves(&mut self, id: ClientId) {
        self.moves.retain(|_, one| one.from != id);
        let lost: Vec<Moving> = self
            .moves
            .extract_if(.., |_, one| one.to == id)
            .map(|(_, one)| one)
            .collect();
        for one in lost {
            self.refuse(one.from, one.request, Errno::AGAIN);
        }
    }
}
