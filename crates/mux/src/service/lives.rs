//! Applications: beginning, end, and recovery after a restart of the service.
//!
//! An application lives as long as one of its processes is connected. Processes belong together if
//! they share a certain socket. After a restart, applications of the previous service are *lost*
//! until they connect again and show the sockets of their virtual ports, or until their time is
//! over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Instant;

use packetio::foreign::Foreign;
use packetio::mux::message::{Change, HOLD, Hello, Message, PortKind, Welcome};
use packetio::text::Text;
use packetio::{ChecksumPolicy, MacAddr};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;

use super::clients::{Client, ClientId, Role};
use super::hosts::bounded;
use super::shares::Thing;
use super::{Service, after_ns};
use crate::limits::{LEDGER_ENTRIES_MAX, MTU_MAX, RECOVERY_NS, SLOTS_MAX};
use crate::plane::Plane;
use crate::policy::Peer;
use crate::reserved_ports::ReservedPorts;
use crate::reset::{LedgerSize, Owned};
use crate::state::{ApplicationNote, Notes};

/// The user who has no shares.
const ROOT: u32 = 0;

#[derive(Debug)]
pub(super) struct Application {
    /// Connections of its processes; none while the application is lost.
    pub(super) clients: Vec<ClientId>,
    /// `SO_COOKIE` of the socket that its processes share, if several processes are possible.
    pub(super) family: Option<u64>,
    /// Time at which contexts that are still lost count as dead; `None`: none is lost.
    lost_until: Option<Instant>,
    pub(super) name: String,
    pub(super) peer: Peer,
    /// Number of contexts that its processes announced. Each takes a virtual port.
    pub(super) contexts: u16,
    /// There is no room for its contexts. It may come back in place of a lost application, and has
    /// no virtual port before there is room.
    is_guest: bool,
    /// The memory of each context.
    pub(super) costs: BTreeMap<u16, Cost>,
    /// `SO_COOKIE` of the socket of each context that has a virtual port.
    pub(super) cookies: BTreeMap<u16, u64>,
    /// Next hops that the application asked for.
    pub(super) next_hops: BTreeSet<IpAddr>,
}

/// The memory that the kernel keeps for a context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Bytes of the memory file.
    pub(super) memory: u64,
    /// Bytes of the ledger.
    pub(super) ledger: u64,
}

/// The room that is left for the contexts of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// For so many contexts beyond those that are counted.
    More(u16),
    /// None, but a lost application may be the same as this one.
    Guest,
}

impl Application {
    pub(super) fn is_lost(&self) -> bool {
        self.lost_until.is_some()
    }
}

impl<P: Plane> Service<P> {
    /// Gives an application its number and tells it about the NIC. A process of a known family
    /// joins its application.
    ///
    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn greet(
        &mut self,
        id: ClientId,
        hello: &Hello,
        family: Option<u64>,
    ) -> Result<(), &'static str> {
        if hello.contexts == 0 {
            return Err("an application without contexts");
        }
        let Some(uid) = self.clients.get(&id).map(|client| client.peer.uid) else {
            return Ok(());
        };
        let is_known = |one: &Application| family.is_some() && one.family == family;
        let mut known = self.applications.iter();
        let known = known
            .find(|(_, one)| is_known(one))
            .map(|(number, _)| *number);
        let room = self.room_for(uid, hello.contexts, known);
        let is_free = |one: &u16| !self.applications.contains_key(one) && !self.dying.has(*one);
        let number = known.or_else(|| (0..SLOTS_MAX).find(is_free));
        let base = number.and_then(|number| self.free_base(number, hello.contexts));
        let (Some(number), Some(base), Some(room)) = (number, base, room) else {
            self.refuse(id, 0, Errno::BUSY);
            self.disconnect(id, "all virtual ports are in use");
            return Ok(());
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        client.role = Role::Application(number);
        (client.base, client.contexts) = (base, hello.contexts);
        let new = || Application {
            clients: Vec::new(),
            family,
            lost_until: None,
            name: hello.name.printable(),
            peer: client.peer.clone(),
            contexts: 0,
            is_guest: room == Room::Guest,
            costs: BTreeMap::new(),
            cookies: BTreeMap::new(),
            next_hops: BTreeSet::new(),
        };
        let application = self.applications.entry(number).or_insert_with(new);
        application.clients.push(id);
        let more = match room {
            Room::More(more) => more,
            Room::Guest => hello.contexts,
        };
        application.contexts = application.contexts.saturating_add(more);
        self.are_notes_old = true;
        self.welcome(id, number);
        Ok(())
    }

    /// The room for so many contexts of a process, which joins the application `known` or begins
    /// one. `None`: there is none.
    fn room_for(&self, uid: u32, contexts: u16, known: Option<u16>) -> Option<Room> {
        let known = known.and_then(|number| self.applications.get(&number));
        let lost = known.filter(|one| one.is_lost());
        // Contexts of a lost application are counted already.
        let more = lost.map_or(contexts, |lost| {
            let clients = lost.clients.iter().filter_map(|id| self.clients.get(id));
            let back: u16 = clients.map(|client| client.contexts).sum();
            (back.saturating_add(contexts)).saturating_sub(lost.contexts)
        });
        // The share is that of the user whose application it is.
        let uid = known.map_or(uid, |one| one.peer.uid);
        let has_room = self.contexts_taken() + u64::from(more) <= self.options.ports.into()
            && self.may_have(uid, Thing::Contexts, more.into());
        if more == 0 || has_room {
            return Some(Room::More(more));
        }
        // One that is no family says only later that it is the lost one.
        let all = self.applications.values();
        let like = all
            .filter(|one| one.family.is_none() && (one.peer.uid, one.contexts) == (uid, contexts));
        let lost = like.clone().filter(|one| one.is_lost()).count();
        let guests = like.filter(|one| one.is_guest).count();
        (known.is_none() && lost > guests).then_some(Room::Guest)
    }

    /// Whether an application may have virtual ports: a guest only once there is room for it.
    pub(super) fn has_room_of_its_own(&mut self, number: u16) -> bool {
        let has_room = self.contexts_taken() <= self.options.ports.into();
        let uid = self.uid_of(number).unwrap_or_default();
        let has_room = has_room && self.may_have(uid, Thing::Contexts, 0);
        let Some(application) = self.applications.get_mut(&number) else {
            return false;
        };
        application.is_guest &= !has_room;
        !application.is_guest
    }

    /// The cost of a context, to be set.
    pub(super) fn cost(&mut self, number: u16, context: u16) -> Option<&mut Cost> {
        let application = self.applications.get_mut(&number)?;
        Some(application.costs.entry(context).or_default())
    }

    /// The first of `contexts` consecutive numbers that are free in the application.
    fn free_base(&self, number: u16, contexts: u16) -> Option<u16> {
        let clients = self.clients.values();
        let clients = clients.filter(|one| one.role == Role::Application(number));
        let mut taken: Vec<(u16, u16)> = clients.map(|one| (one.base, one.contexts)).collect();
        if let Some(application) = self.applications.get(&number) {
            taken.extend(application.cookies.keys().map(|context| (*context, 1)));
        }
        taken.extend(self.dying.contexts(number).map(|context| (context, 1)));
        taken.sort_unstable();
        let mut base = 0_u16;
        for (from, count) in taken {
            if base.checked_add(contexts)? <= from {
                break;
            }
            base = base.max(from.checked_add(count)?);
        }
        base.checked_add(contexts).filter(|end| *end < HOLD)?;
        Some(base)
    }

    /// The cookie of a socket that came with a message.
    ///
    /// # Errors
    /// The message had no socket.
    pub(super) fn cookie_of(&self, id: ClientId, descriptor: Foreign) -> Result<u64, &'static str> {
        let mut cookie = 0;
        // Asking any file for a cookie is harmless: only sockets have one.
        let socket = descriptor.keep_if("no socket", |file| {
            cookie = socket_cookie(file).map_err(|_| "no socket")?;
            Ok(())
        })?;
        self.close(id, socket);
        Ok(cookie)
    }

    fn welcome(&mut self, id: ClientId, number: u16) {
        let host = self.mirror.host();
        let link = host.link.as_ref();
        let changes = host.all();
        let welcome = Welcome {
            application: number,
            mac: link.and_then(|link| link.mac).unwrap_or(MacAddr([0; 6])),
            mtu: link.map_or(0, |link| link.mtu.min(MTU_MAX as u32)),
            // The kernel at a veth's other end leaves checksums to an offload that does not happen.
            rx_checksum: ChecksumPolicy::AcceptPartial,
            link_is_up: link.is_some_and(|link| link.is_up),
            ifindex: link.map_or(0, |link| link.index),
            interface: Text::new(&self.options.interface),
            ledger_entries_max: LEDGER_ENTRIES_MAX,
            kind: self.plane.kind(),
        };
        self.send(id, &Message::Welcome(welcome));
        for change in changes {
            self.send(id, &Message::Change(bounded(change)));
        }
        self.send(id, &Message::Change(Change::OwnHop(self.plane.own_hop())));
        self.send(id, &Message::Change(Change::Complete));
    }

    /// Handles the end of a process's connection: its share ends, and with the last process the
    /// application. Peers of its connections are reset; new connections go to other processes.
    pub(super) fn leave(&mut self, id: ClientId, client: &Client, number: u16, cause: &str) {
        let Some(application) = self.applications.get_mut(&number) else {
            return;
        };
        application.clients.retain(|one| *one != id);
        if application.clients.is_empty() {
            return self.remove_dead(number, cause);
        }
        application.contexts = application.contexts.saturating_sub(client.contexts);
        let range = client.base..client.base.saturating_add(client.contexts);
        let open = application.cookies.range(range);
        let open: Vec<u16> = open.map(|(context, _)| *context).collect();
        for context in open {
            self.bury_context(number, context);
        }
        for endpoint in self.ownership.holds(number, id.0) {
            // The hold was just listed, so this cannot fail.
            let _ = self.unhold(number, id, endpoint);
        }
        self.forget_next_hops();
        self.are_notes_old = true;
        (self.say)(&format!(
            "pid {} of application {number} is gone: {cause}",
            client.peer.pid
        ));
    }

    /// Removes everything from one context of a living application, and resets the context's peers.
    fn bury_context(&mut self, number: u16, context: u16) {
        let size = self.ledger_size(number, context);
        let is_own = |lease: &&crate::ownership::Lease| {
            (lease.application, lease.context) == (number, context)
        };
        let claims = self.ownership.claims();
        let claims = claims.filter(|(_, claim)| claim.application == number);
        let endpoints = claims.map(|(endpoint, _)| endpoint).collect();
        let leases = self.ownership.leases().filter(is_own);
        let leases = leases.map(|one| one.ports.clone()).collect();
        let owned = self.owned(endpoints, leases);
        // Answers of the peers reach another context or the kernel, which both reset them.
        if self.take_all_of(number, context) {
            self.reset_peers_of((number, context), size, owned);
            self.dying.push(number, context, size.uid);
        }
    }

    /// The memory of a context's ledger, if it has one.
    fn ledger_size(&self, number: u16, context: u16) -> LedgerSize {
        let application = self.applications.get(&number);
        let cost = application.and_then(|one| one.costs.get(&context));
        LedgerSize {
            uid: self.uid_of(number).unwrap_or_default(),
            bytes: cost.map_or(0, |cost| cost.ledger),
        }
    }

    /// The rights of an application that dies now.
    pub(super) fn owned(
        &self,
        endpoints: Vec<SocketAddr>,
        leases: Vec<RangeInclusive<u16>>,
    ) -> Owned {
        let host = self.mirror.host();
        let own = host.addresses.iter();
        Owned {
            endpoints,
            leases,
            addresses: own.clone().map(|one| one.address).collect(),
            broadcasts: own.filter_map(|one| one.broadcast).collect(),
            link: host.link.as_ref().map(|link| link.index),
            is_local: self.plane.own_hop().is_some(),
        }
    }

    /// Removes everything from an application that is gone, and resets its peers.
    pub(super) fn remove_dead(&mut self, number: u16, cause: &str) {
        let Some(application) = self.applications.remove(&number) else {
            return;
        };
        let uid = application.peer.uid;
        let (claims, leases) = self.ownership.take_all(number);
        let endpoints = claims.iter().map(|(endpoint, _)| *endpoint).collect();
        let owned_leases = leases.iter().map(|lease| lease.ports.clone()).collect();
        let owned = self.owned(endpoints, owned_leases);
        // Without the claims, the peers' answers reach the kernel, which resets the connections.
        for endpoint in &owned.endpoints {
            self.plane.claim_remove(*endpoint);
        }
        for ports in &owned.leases {
            self.plane.lease_remove(ports.clone());
        }
        // Free the ports before the virtual ports, whose disappearance others can see.
        drop((claims, leases));
        for context in application.cookies.keys() {
            let cost = application.costs.get(context);
            let bytes = cost.map_or(0, |cost| cost.ledger);
            let size = LedgerSize { uid, bytes };
            self.reset_peers_of((number, *context), size, owned.clone());
            self.dying.push(number, *context, uid);
        }
        self.forget_next_hops();
        self.are_notes_old = true;
        if !application.cookies.is_empty() {
            (self.say)(&format!(
                "application {number} (`{}`, pid {}) is gone: {cause}",
                application.name, application.peer.pid
            ));
        }
    }

    /// Takes over the applications of the previous service, as lost ones, and what its dead have
    /// left.
    pub(super) fn recover(&mut self, notes: Notes) {
        let recovered = self.plane.recovered();
        for note in notes.applications {
            let cookies: BTreeMap<u16, u64> = recovered
                .iter()
                .filter(|port| port.application == note.number)
                .map(|port| (port.context, port.cookie))
                .collect();
            if !cookies.is_empty() {
                self.recover_one(note, cookies);
            }
        }
        for port in recovered {
            if !self.applications.contains_key(&port.application) {
                // No note says whose it was.
                self.dying.push(port.application, port.context, ROOT);
            }
        }
        self.recover_dead(notes.dead);
    }

    fn recover_one(&mut self, note: ApplicationNote, cookies: BTreeMap<u16, u64>) {
        let number = note.number;
        for (endpoint, contexts) in &note.claims {
            let added = match note.bound.contains(endpoint) {
                true => self
                    .ownership
                    .claim_again(number, contexts.clone(), *endpoint),
                false => contexts.iter().try_for_each(|context| {
                    let added = self.ownership.claim_add(number, *context, *endpoint);
                    added.map(drop)
                }),
            };
            // The data plane must know an endpoint before it can release it.
            let set = self.plane.claim_set(*endpoint, number, contexts);
            // An endpoint without listeners stays its holder's, who may come back.
            let waits = contexts.is_empty() && !note.bound.contains(endpoint);
            if added.is_err() || set.is_err() || waits {
                // The kernel has given the port to another socket meanwhile, which keeps it.
                self.plane.claim_remove(*endpoint);
            }
        }
        for &(context, first, last) in &note.leases {
            let ports = first..=last;
            let again = self.ownership.lease_again(number, context, ports.clone());
            if again.is_err()
                || self
                    .plane
                    .lease_add(ports.clone(), number, context)
                    .is_err()
            {
                self.plane.lease_remove(ports);
            }
        }
        let costs = note.costs.iter().map(|&(context, memory, ledger)| {
            let cost = Cost { memory, ledger };
            (context, cost)
        });
        let application = Application {
            clients: Vec::new(),
            family: note.family,
            lost_until: Some(after_ns(RECOVERY_NS)),
            name: note.name,
            peer: Peer {
                pid: note.pid,
                uid: note.uid,
                gid: note.gid,
                groups: Vec::new(),
            },
            contexts: note.contexts,
            is_guest: false,
            costs: costs.collect(),
            cookies,
            next_hops: BTreeSet::new(),
        };
        self.applications.insert(number, application);
    }

    /// Handles an application that shows the socket of one of its contexts: it gets its number
    /// back.
    ///
    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn take_back(
        &mut self,
        id: ClientId,
        request: u32,
        (number, context): (u16, u16),
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let cookie = self.cookie_of(id, descriptor)?;
        let Some(client) = self.clients.get(&id) else {
            return Ok(());
        };
        let (uid, contexts) = (client.peer.uid, client.contexts);
        if self.is_member(id, number) {
            let is_back = self.take_back_member(id, (number, context), cookie);
            match is_back {
                true => self.came_back(id, request, (number, context)),
                false => self.refuse(id, request, Errno::NOENT),
            }
            return Ok(());
        }
        let is_own = self.applications.get(&number).is_some_and(|application| {
            let is_known = application.cookies.get(&context) == Some(&cookie);
            let is_free = application.clients.iter().all(|client| *client == id);
            let is_same = (application.peer.uid, application.contexts) == (uid, contexts);
            is_known && is_free && is_same
        });
        if !is_own || !self.is_blank(id, number) {
            self.refuse(id, request, Errno::NOENT);
            return Ok(());
        }
        self.move_client(id, number);
        self.name_ports_beyond_policy(id, number);
        self.came_back(id, request, (number, context));
        Ok(())
    }

    /// Says which ports an application keeps from the service before this one although the policy
    /// grants them no more.
    fn name_ports_beyond_policy(&self, id: ClientId, number: u16) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let claims = self.ownership.claims();
        let own = claims.filter(|(_, claim)| claim.application == number);
        let kept = own.filter(|(endpoint, _)| !self.policy.allows(&client.peer, endpoint.port()));
        for (endpoint, _) in kept {
            (self.say)(&format!(
                "application {number} (uid {}) keeps {endpoint}, which --allow no longer grants, \
                 until it gives it back",
                client.peer.uid
            ));
        }
    }

    /// Whether a client has nothing yet but the number that its Hello got, or has `number` already.
    /// Nothing would take away what it had under the other number.
    fn is_blank(&self, id: ClientId, number: u16) -> bool {
        let role = self.clients.get(&id).map(|client| client.role);
        let Some(Role::Application(made)) = role else {
            return false;
        };
        let is_alone = self
            .applications
            .get(&made)
            .is_some_and(|one| one.cookies.is_empty() && one.clients == [id]);
        let mut claims = self.ownership.claims();
        let mut leases = self.ownership.leases();
        let has_ports = claims.any(|(_, claim)| claim.application == made)
            || leases.any(|lease| lease.application == made);
        made == number || is_alone && !has_ports
    }

    /// Confirms the number of a context. Its memif channel ended with the previous service, so the
    /// context gets a new one.
    fn came_back(&mut self, id: ClientId, request: u32, (number, context): (u16, u16)) {
        self.send(id, &Message::Granted { request });
        if self.plane.kind() != PortKind::Memif {
            return;
        }
        let Some(own) = self.context_of(id, context) else {
            return;
        };
        match self.plane.channel_add(number, own) {
            Ok(made) => self.give_port(id, (number, own), context, made),
            Err(errno) => (self.say)(&format!(
                "application {number} context {own} gets no new channel: {errno}"
            )),
        }
    }

    /// True if the connection is one of a family's.
    fn is_member(&self, id: ClientId, number: u16) -> bool {
        let application = self.applications.get(&number);
        application.is_some_and(|one| one.family.is_some() && one.clients.contains(&id))
    }

    /// Handles a process of a family that shows a socket of its own: its contexts get their numbers
    /// back.
    fn take_back_member(
        &mut self,
        id: ClientId,
        (number, context): (u16, u16),
        cookie: u64,
    ) -> bool {
        let Some(application) = self.applications.get(&number) else {
            return false;
        };
        let mut known = application.cookies.iter();
        let known = known
            .find(|(_, one)| **one == cookie)
            .map(|(known, _)| *known);
        let Some(base) = known.and_then(|known| known.checked_sub(context)) else {
            return false;
        };
        let Some(client) = self.clients.get(&id) else {
            return false;
        };
        let Some(end) = base.checked_add(client.contexts) else {
            return false;
        };
        let mut others = application.clients.iter().filter(|one| **one != id);
        let overlaps =
            |other: &Client| other.base < end && base < other.base.saturating_add(other.contexts);
        let is_taken = others.any(|other| self.clients.get(other).is_some_and(overlaps));
        if context >= client.contexts || is_taken {
            return false;
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.base = base;
        }
        let is_whole = self.missing_contexts(number).is_empty();
        if let Some(application) = self.applications.get_mut(&number).filter(|_| is_whole) {
            application.lost_until = None;
        }
        true
    }

    /// Contexts of an application whose processes have not come back.
    fn missing_contexts(&self, number: u16) -> Vec<u16> {
        let Some(application) = self.applications.get(&number) else {
            return Vec::new();
        };
        let has = |context: u16| {
            let mut clients = application
                .clients
                .iter()
                .filter_map(|id| self.clients.get(id));
            clients.any(|one| (one.base..one.base.saturating_add(one.contexts)).contains(&context))
        };
        let contexts = application.cookies.keys().copied();
        contexts.filter(|context| !has(*context)).collect()
    }

    /// Moves the connection to application `number`, from the one that its `Hello` made.
    fn move_client(&mut self, id: ClientId, number: u16) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let Role::Application(made) = client.role else {
            return;
        };
        if made == number {
            return;
        }
        client.role = Role::Application(number);
        let peer = client.peer.clone();
        self.applications.remove(&made);
        if let Some(application) = self.applications.get_mut(&number) {
            application.clients = vec![id];
            application.lost_until = None;
            application.peer = peer;
        }
        self.forget_next_hops();
        self.are_notes_old = true;
    }

    /// Buries applications that did not come back in time.
    pub(super) fn bury_the_lost(&mut self, now: Instant) {
        let is_over = |one: &Application| one.lost_until.is_some_and(|until| until <= now);
        let over: Vec<u16> = self
            .applications
            .iter()
            .filter(|(_, application)| is_over(application))
            .map(|(number, _)| *number)
            .collect();
        for number in over {
            let missing = self.missing_contexts(number);
            match self.applications.get_mut(&number) {
                Some(application) if !application.clients.is_empty() => {
                    application.lost_until = None;
                    let clients = application.clients.iter();
                    let clients = clients.filter_map(|id| self.clients.get(id));
                    application.contexts = clients.map(|client| client.contexts).sum();
                    for context in missing {
                        self.bury_context(number, context);
                    }
                }
                _ => self.remove_dead(number, "it did not come back after the restart"),
            }
        }
    }

    /// Writes the notes for the next service.
    pub(super) fn write_notes(&mut self) {
        self.are_notes_old = false;
        let notes = self.applications.iter().map(|(&number, one)| {
            let claims = self.ownership.claims();
            let claims = claims.filter(|(_, claim)| claim.application == number);
            let bound = claims.clone().filter(|(_, claim)| claim.is_bound());
            let leases = self.ownership.leases();
            let leases = leases.filter(|lease| lease.application == number);
            ApplicationNote {
                number,
                name: one.name.clone(),
                pid: one.peer.pid,
                uid: one.peer.uid,
                gid: one.peer.gid,
                contexts: one.contexts,
                family: one.family,
                claims: claims
                    .map(|(endpoint, claim)| (endpoint, claim.contexts.clone()))
                    .collect(),
                bound: bound.map(|(endpoint, _)| endpoint).collect(),
                leases: leases
                    .map(|lease| (lease.context, *lease.ports.start(), *lease.ports.end()))
                    .collect(),
                costs: one
                    .costs
                    .iter()
                    .map(|(context, cost)| (*context, cost.memory, cost.ledger))
                    .collect(),
            }
        });
        let reserved = self.reserved_ports.iter().flat_map(ReservedPorts::added);
        let notes = Notes {
            applications: notes.collect(),
            dead: self.dead_notes(),
            reserved: reserved.map(|one| (*one.start(), *one.end())).collect(),
            network: self.network,
            ..Notes::default()
        };
        if let Err(error) = self.notes.write(notes) {
            (self.say)(&format!("notes for the next service: {error}"));
        }
    }
}
