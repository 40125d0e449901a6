//! Requests of applications: memory and virtual ports, claims, leases, next hops.
//!
//! A request that cannot be granted is refused with an errno. A message that no correct client
//! sends ends its connection.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use packetio::foreign::Foreign;
use packetio::mux::message::{
    Claim, HOLD, Lease, Memory, Message, PROTOCOL_TCP, Tuple, VirtualPort,
};
use rustix::io::{self, Errno};

use super::clients::ClientId;
use super::shares::Thing;
use super::{Resolving, Service, after_ns};
use crate::bound_unsafe;
use crate::limits::{
    CLAIMS_PER_APPLICATION_MAX, LEASE_PORTS_MAX, LEASED_PORTS_PER_APPLICATION_MAX,
    LEDGER_ENTRIES_MAX, NEXT_HOPS_PER_APPLICATION_MAX, RESOLVE_NS_MAX,
    RESOLVING_PER_APPLICATION_MAX,
};
use crate::memory_file;
use crate::plane::Plane;
use crate::reservation::Reservation;

impl<P: Plane> Service<P> {
    /// Handles a message of an application.
    ///
    /// # Errors
    /// The reason why its connection must end.
    pub(super) fn serve(
        &mut self,
        id: ClientId,
        number: u16,
        message: &Message,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let granted = |request| move |()| Message::Granted { request };
        let (request, outcome) = match message {
            Message::Memory(memory) => return self.add_port(id, number, memory, descriptor),
            Message::PortAsk {
                context,
                ledger_entries,
            } => return self.add_channel(id, number, *context, *ledger_entries),
            Message::Recover {
                request,
                application,
                context,
            } => return self.take_back(id, *request, (*application, *context), descriptor),
            Message::BulkAsk { request, context } => {
                return self.add_bulk(id, number, *request, *context);
            }
            Message::Move(_) | Message::Seek(_) | Message::Accepts(_) | Message::Forget { .. } => {
                return self.serve_flows(id, number, message, descriptor);
            }
            Message::Granted { request } => return self.move_ended(id, number, *request, None),
            Message::Refused { request, errno } => {
                return self.move_ended(id, number, *request, Some(*errno));
            }
            Message::Claim(claim) => {
                let outcome = self.claim(id, number, claim, None);
                (claim.request, outcome.map(granted(claim.request)))
            }
            Message::Bound(claim) => {
                let outcome = self.hold_bound(id, number, claim, descriptor);
                (claim.request, outcome.map(granted(claim.request)))
            }
            Message::Release(claim) => {
                let outcome = self.release(id, number, claim);
                (claim.request, outcome.map(granted(claim.request)))
            }
            Message::Lease(lease) => (lease.request, self.lease(id, number, lease)),
            Message::Return(lease) => {
                let outcome = self.give_back(id, number, lease);
                (lease.request, outcome.map(granted(lease.request)))
            }
            Message::Resolve { request, address } => {
                match self.resolve(id, number, *request, *address) {
                    Ok(None) => return Ok(()),
                    Ok(Some(answer)) => (*request, Ok(answer)),
                    Err(errno) => (*request, Err(errno)),
                }
            }
            _ => return Err("a message that applications do not send"),
        };
        match outcome {
            Ok(answer) => self.send(id, &answer),
            Err(errno) => self.refuse(id, request, errno),
        }
        Ok(())
    }

    /// Handles a message about connections that change their process.
    ///
    /// # Errors
    /// The reason why the client's connection must end.
    fn serve_flows(
        &mut self,
        id: ClientId,
        number: u16,
        message: &Message,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        match message {
            Message::Move(one) => return self.move_on(id, number, one, descriptor),
            Message::Seek(seek) => return self.seek(id, number, seek),
            Message::Accepts(claim) => self.accepts(id, number, claim),
            Message::Forget {
                context,
                local,
                remote,
            } => {
                if let Some(own) = self.context_of(id, *context) {
                    self.plane.flow_forget(number, own, (*local, *remote));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_port(
        &mut self,
        id: ClientId,
        number: u16,
        memory: &Memory,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let own = self.context_of(id, memory.context);
        let context = own.ok_or("memory for a context that it does not have")?;
        if !memory_file::fits(memory) {
            return Err("impossible sizes of memory or rings");
        }
        let check = |file: BorrowedFd<'_>| memory_file::check(file, memory.bytes);
        let file = descriptor.keep_if("no memory file", check)?;
        self.close_context(number, context);
        let uid = self.uid_of(number).unwrap_or_default();
        if !self.may_have(uid, Thing::Memory, memory.bytes) {
            self.refuse(id, 0, Errno::NOBUFS);
            return Ok(());
        }
        if !self.has_room_of_its_own(number) {
            self.refuse(id, 0, Errno::BUSY);
            return Ok(());
        }
        match self.plane.port_add(number, context, memory, file.as_fd()) {
            Ok(made) => {
                if let Some(cost) = self.cost(number, context) {
                    cost.memory = memory.bytes;
                }
                let (own, entries) = (memory.context, memory.ledger_entries);
                self.add_ledger(id, (number, context), own, entries);
                self.give_port(id, (number, context), own, made);
            }
            Err(errno) => self.refuse(id, 0, errno),
        }
        Ok(())
    }

    /// Makes the virtual port of a context if virtual ports are memif channels.
    fn add_channel(
        &mut self,
        id: ClientId,
        number: u16,
        own: u16,
        ledger_entries: u32,
    ) -> Result<(), &'static str> {
        let context = self.context_of(id, own);
        let context = context.ok_or("a virtual port for a context that it does not have")?;
        self.close_context(number, context);
        if !self.has_room_of_its_own(number) {
            self.refuse(id, 0, Errno::BUSY);
            return Ok(());
        }
        match self.plane.channel_add(number, context) {
            Ok(made) => {
                self.add_ledger(id, (number, context), own, ledger_entries);
                self.give_port(id, (number, context), own, made);
            }
            Err(errno) => self.refuse(id, 0, errno),
        }
        Ok(())
    }

    /// Sends the socket of a virtual port to its process, in which the context has the number
    /// `own`.
    pub(super) fn give_port(
        &mut self,
        id: ClientId,
        (number, context): (u16, u16),
        own: u16,
        (socket, cookie): (OwnedFd, u64),
    ) {
        if let Some(application) = self.applications.get_mut(&number) {
            application.cookies.insert(context, cookie);
        }
        self.are_notes_old = true;
        let port = Message::Port(VirtualPort {
            context: own,
            cookie,
            kind: self.plane.kind(),
        });
        self.send_with(id, &port, Some(socket.as_fd()));
    }

    /// Makes the bulk lane of a context. Without one the context sends everything through its
    /// virtual port.
    fn add_bulk(
        &mut self,
        id: ClientId,
        number: u16,
        request: u32,
        context: u16,
    ) -> Result<(), &'static str> {
        let own = self.context_of(id, context);
        let context = own.ok_or("a bulk lane for a context that it does not have")?;
        match self.plane.bulk_add(number, context) {
            Ok(tap) => self.send_with(id, &Message::Bulk { request }, Some(tap.as_fd())),
            Err(errno) => self.refuse(id, request, errno),
        }
        Ok(())
    }

    /// Makes the ledger of a virtual port. Without one, peers of the context's connections are
    /// reset only when they send.
    fn add_ledger(&mut self, id: ClientId, (number, context): (u16, u16), own: u16, entries: u32) {
        let entries = entries.min(LEDGER_ENTRIES_MAX);
        if entries == 0 {
            return;
        }
        let bytes = u64::from(entries) * packetio::ledger::ENTRY_BYTES as u64;
        let uid = self.uid_of(number).unwrap_or_default();
        let has_room = self.may_have(uid, Thing::Ledgers, bytes) && self.has_ledger_room(bytes);
        let made = match has_room {
            true => self.plane.ledger_add(number, context, entries),
            false => Err(Errno::NOBUFS),
        };
        match made {
            Ok(ledger) => {
                if let Some(cost) = self.cost(number, context) {
                    cost.ledger = bytes;
                }
                let message = Message::Ledger {
                    context: own,
                    bytes,
                };
                self.send_with(id, &message, Some(ledger.as_fd()));
            }
            Err(errno) => (self.say)(&format!(
                "application {number} context {context} has no ledger: {errno}; its peers are not \
                 reset if it dies"
            )),
        }
    }

    /// Removes the virtual port of a context that is opened again, with all that it owned.
    pub(super) fn close_context(&mut self, number: u16, context: u16) {
        if self.take_all_of(number, context) {
            self.plane.port_remove(number, context);
        }
    }

    /// Takes its ports, its leases and its endpoint in the notes from a context. False: it has no
    /// virtual port.
    pub(super) fn take_all_of(&mut self, number: u16, context: u16) -> bool {
        let Some(application) = self.applications.get_mut(&number) else {
            return false;
        };
        application.costs.remove(&context);
        if application.cookies.remove(&context).is_none() {
            return false;
        }
        let claims = self
            .ownership
            .claims()
            .filter(|(_, claim)| claim.application == number && claim.contexts.contains(&context));
        let endpoints: Vec<SocketAddr> = claims.map(|(endpoint, _)| endpoint).collect();
        for endpoint in endpoints {
            let _ = self.unclaim(number, context, endpoint);
        }
        let leases = self
            .ownership
            .leases()
            .filter(|lease| lease.application == number && lease.context == context);
        let leases: Vec<RangeInclusive<u16>> = leases.map(|lease| lease.ports.clone()).collect();
        for ports in leases {
            self.plane.lease_remove(ports.clone());
            let _ = self.ownership.lease_remove(number, &ports);
        }
        true
    }

    /// Holds an endpoint that a socket of the application reserves in the kernel.
    fn hold_bound(
        &mut self,
        id: ClientId,
        number: u16,
        claim: &Claim,
        descriptor: Foreign,
    ) -> io::Result<()> {
        let endpoint = SocketAddr::new(claim.tuple.address, claim.tuple.port);
        let check = |socket: BorrowedFd<'_>| bound_unsafe::check(socket, endpoint);
        let socket = descriptor.keep_if("no socket", check);
        let socket = socket.map_err(|_| Errno::INVAL)?;
        let client = self.clients.get(&id).ok_or(Errno::NOTCONN)?;
        let bound = Reservation::of_application(socket, &client.closer);
        match claim.context {
            HOLD => self.claim(id, number, claim, Some(bound)),
            _ => Err(Errno::INVAL),
        }
    }

    /// Claims an endpoint. `bound`: the application's socket that reserves the endpoint in the
    /// kernel.
    fn claim(
        &mut self,
        id: ClientId,
        number: u16,
        claim: &Claim,
        bound: Option<Reservation>,
    ) -> io::Result<()> {
        let endpoint = self.endpoint(&claim.tuple)?;
        // A process may hold an endpoint without a context that listens.
        let context = match claim.context {
            HOLD => None,
            context => Some(self.must_have(id, number, context)?),
        };
        let peer = &self.clients.get(&id).ok_or(Errno::NOTCONN)?.peer;
        // A worker without privileges may join a claim of its master.
        let known = self.ownership.claim(endpoint);
        let is_joined = known.is_some_and(|known| known.application == number);
        if !is_joined && !self.policy.allows(peer, endpoint.port()) {
            return Err(Errno::ACCESS);
        }
        let claims = self.ownership.claims();
        let own = claims.filter(|(_, claim)| claim.application == number);
        let is_full =
            own.count() >= CLAIMS_PER_APPLICATION_MAX || !self.may_have(peer.uid, Thing::Claims, 1);
        if is_full && self.ownership.claim(endpoint).is_none() {
            return Err(Errno::NOBUFS);
        }
        let contexts = match context {
            Some(context) => self.ownership.claim_add(number, context, endpoint)?,
            None => self.ownership.hold_add(number, id.0, endpoint, bound)?,
        };
        if let Err(errno) = self.plane.claim_set(endpoint, number, &contexts) {
            let _ = match context {
                Some(context) => self.unclaim(number, context, endpoint),
                None => self.unhold(number, id, endpoint),
            };
            return Err(errno);
        }
        self.are_notes_old = true;
        Ok(())
    }

    pub(super) fn uid_of(&self, application: u16) -> Option<u32> {
        self.applications.get(&application).map(|one| one.peer.uid)
    }

    fn release(&mut self, id: ClientId, number: u16, claim: &Claim) -> io::Result<()> {
        let endpoint = SocketAddr::new(claim.tuple.address, claim.tuple.port);
        if claim.context == HOLD {
            return self.unhold(number, id, endpoint);
        }
        let context = self.context_of(id, claim.context).ok_or(Errno::NOENT)?;
        self.unclaim(number, context, endpoint)
    }

    /// Ends a hold of a process. Other processes of its application may still hold or listen.
    pub(super) fn unhold(
        &mut self,
        number: u16,
        id: ClientId,
        endpoint: SocketAddr,
    ) -> io::Result<()> {
        let claim = self.ownership.claim(endpoint).ok_or(Errno::NOENT)?;
        let is_own = claim.application == number && claim.holders == [id.0];
        if is_own && claim.contexts.is_empty() {
            self.plane.claim_remove(endpoint);
        }
        self.are_notes_old = true;
        self.ownership.hold_remove(number, id.0, endpoint).map(drop)
    }

    /// Ends a claim. The data plane releases the endpoint before the kernel gets it back.
    fn unclaim(&mut self, number: u16, context: u16, endpoint: SocketAddr) -> io::Result<()> {
        let claim = self.ownership.claim(endpoint).ok_or(Errno::NOENT)?;
        let is_own = claim.application == number && claim.contexts == [context];
        if is_own && claim.holders.is_empty() {
            self.plane.claim_remove(endpoint);
        }
        let left = self.ownership.claim_remove(number, context, endpoint)?;
        if self.ownership.claim(endpoint).is_some() {
            self.plane.claim_set(endpoint, number, &left)?;
        }
        self.are_notes_old = true;
        Ok(())
    }

    /// The endpoint of a claim, if it can be claimed on this NIC.
    fn endpoint(&self, tuple: &Tuple) -> io::Result<SocketAddr> {
        if tuple.protocol != PROTOCOL_TCP {
            return Err(Errno::PROTONOSUPPORT);
        }
        if tuple.port == 0 {
            return Err(Errno::INVAL);
        }
        if !tuple.address.is_unspecified() && !self.mirror.host().has(tuple.address) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        Ok(SocketAddr::new(tuple.address, tuple.port))
    }

    /// Number in the application of a process's context; `None`: the process announced fewer.
    pub(super) fn context_of(&self, id: ClientId, context: u16) -> Option<u16> {
        let client = self.clients.get(&id)?;
        let own = client.base.checked_add(context)?;
        (context < client.contexts).then_some(own)
    }

    /// Number in the application of a process's context, which must have a virtual port.
    fn must_have(&self, id: ClientId, number: u16, context: u16) -> io::Result<u16> {
        let application = self.applications.get(&number).ok_or(Errno::NOTCONN)?;
        let own = self.context_of(id, context);
        own.filter(|own| application.cookies.contains_key(own))
            .ok_or(Errno::INVAL)
    }

    fn lease(&mut self, id: ClientId, number: u16, lease: &Lease) -> io::Result<Message> {
        let context = self.must_have(id, number, lease.context)?;
        if lease.ports == 0 || lease.first != 0 {
            return Err(Errno::INVAL);
        }
        let own = self
            .ownership
            .leases()
            .filter(|lease| lease.application == number);
        let held: usize = own.map(|lease| lease.ports.len()).sum();
        if held >= LEASED_PORTS_PER_APPLICATION_MAX {
            return Err(Errno::NOBUFS);
        }
        let ports = lease.ports.min(LEASE_PORTS_MAX);
        let uid = self.uid_of(number).ok_or(Errno::NOTCONN)?;
        if !self.may_have(uid, Thing::LocalPorts, ports.into()) {
            return Err(Errno::NOBUFS);
        }
        let range = self.ownership.lease_add(number, context, ports)?;
        if let Err(errno) = self.plane.lease_add(range.clone(), number, context) {
            self.plane.lease_remove(range.clone());
            let _ = self.ownership.lease_remove(number, &range);
            return Err(errno);
        }
        self.are_notes_old = true;
        Ok(Message::Leased(Lease {
            first: *range.start(),
            ports: range.len() as u16,
            ..*lease
        }))
    }

    fn give_back(&mut self, id: ClientId, number: u16, lease: &Lease) -> io::Result<()> {
        let context = self.context_of(id, lease.context).ok_or(Errno::NOENT)?;
        let last = lease.ports.checked_sub(1).ok_or(Errno::INVAL)?;
        let last = lease.first.checked_add(last).ok_or(Errno::INVAL)?;
        let range: RangeInclusive<u16> = lease.first..=last;
        let is_own = |one: &crate::ownership::Lease| {
            one.application == number && one.context == context && one.ports == range
        };
        if !self.ownership.leases().any(is_own) {
            return Err(Errno::NOENT);
        }
        self.plane.lease_remove(range.clone());
        self.are_notes_old = true;
        self.ownership.lease_remove(number, &range)
    }

    /// A next hop that another application of the user has costs nothing.
    fn may_use_hop(&self, uid: u32, address: IpAddr) -> bool {
        let mut own = self.applications.values().filter(|one| one.peer.uid == uid);
        own.any(|one| one.next_hops.contains(&address)) || self.may_have(uid, Thing::NextHops, 1)
    }

    /// Resolves a next hop. `None`: the answer follows when the kernel has it.
    fn resolve(
        &mut self,
        id: ClientId,
        number: u16,
        request: u32,
        address: IpAddr,
    ) -> io::Result<Option<Message>> {
        if !self.is_next_hop(address) {
            return Err(Errno::HOSTUNREACH);
        }
        let application = self.applications.get(&number).ok_or(Errno::NOTCONN)?;
        let waiting = self.resolving.iter().filter(|one| one.client == id).count();
        let is_new = !application.next_hops.contains(&address);
        if is_new && application.next_hops.len() >= NEXT_HOPS_PER_APPLICATION_MAX
            || waiting >= RESOLVING_PER_APPLICATION_MAX
            || !self.may_use_hop(application.peer.uid, address)
        {
            return Err(Errno::NOBUFS);
        }
        let found = self.mirror.resolve(address)?;
        if let Some(application) = self.applications.get_mut(&number) {
            application.next_hops.insert(address);
        }
        let Some(mac) = found else {
            self.resolving.push(Resolving {
                client: id,
                request,
                address,
                deadline: after_ns(RESOLVE_NS_MAX),
            });
            self.silent_hops.expect(address);
            return Ok(None);
        };
        self.silent_hops.answered(address);
        self.plane.next_hop_set(mac, true);
        Ok(Some(Message::NextHop {
            request,
            address,
            mac,
        }))
    }
}
