//! Applications: birth, death, and recovery after the service was restarted.
//!
//! An application lives as long as its connection. After a restart the applications of the service
//! before are lost until they connect again and show their AF_XDP sockets, or until their time is
//! over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use packetio::foreign::Foreign;
use packetio::mux::message::{Change, Hello, Message, Welcome};
use packetio::text::Text;
use packetio::{ChecksumPolicy, MacAddr};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;

use super::clients::{ClientId, Role};
use super::{Service, after_ns};
use crate::limits::{LEDGER_ENTRIES_MAX, RECOVERY_NS, SLOTS_MAX};
use crate::plane::Plane;
use crate::policy::Peer;
use crate::reset::Owned;
use crate::state::ApplicationNote;

/// An application.
#[derive(Debug)]
pub(super) struct Application {
    /// Its connection; `None` while it is lost.
    pub(super) client: Option<ClientId>,
    /// While it is lost, when it counts as dead.
    lost_until: Option<Instant>,
    pub(super) name: String,
    pub(super) peer: Peer,
    /// How many contexts it announced; each takes a virtual port.
    pub(super) contexts: u16,
    /// `SO_COOKIE` of the AF_XDP socket of each context that has one.
    pub(super) cookies: BTreeMap<u16, u64>,
    /// The connections of each context, and the bytes of the file.
    pub(super) ledgers: BTreeMap<u16, (OwnedFd, u64)>,
    /// Next hops that it asked for.
    pub(super) next_hops: BTreeSet<IpAddr>,
}

impl Application {
    pub(super) fn is_lost(&self) -> bool {
        self.lost_until.is_some()
    }
}

impl<P: Plane> Service<P> {
    /// Gives an application its number and tells it about the NIC.
    ///
    /// # Errors
    /// Why its connection must end.
    pub(super) fn greet(&mut self, id: ClientId, hello: &Hello) -> Result<(), &'static str> {
        if hello.contexts == 0 {
            return Err("an application without contexts");
        }
        let used: u32 = self
            .applications
            .values()
            .map(|one| u32::from(one.contexts))
            .sum();
        // An application of the last service is counted already, and may come back in place of
        // itself.
        let has_room = used + u32::from(hello.contexts) <= u32::from(self.options.ports)
            || self.applications.values().any(Application::is_lost);
        let free = (0..SLOTS_MAX).find(|number| !self.applications.contains_key(number));
        let (Some(number), true) = (free, has_room) else {
            self.refuse(id, 0, Errno::BUSY);
            self.disconnect(id, "all virtual ports are in use");
            return Ok(());
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        client.role = Role::Application(number);
        let application = Application {
            client: Some(id),
            lost_until: None,
            name: hello.name.printable(),
            peer: client.peer.clone(),
            contexts: hello.contexts,
            cookies: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            next_hops: BTreeSet::new(),
        };
        self.applications.insert(number, application);
        self.are_notes_old = true;
        self.welcome(id, number);
        Ok(())
    }

    fn welcome(&mut self, id: ClientId, number: u16) {
        let host = self.mirror.host();
        let link = host.link.as_ref();
        let changes = host.all();
        let welcome = Welcome {
            application: number,
            mac: link.and_then(|link| link.mac).unwrap_or(MacAddr([0; 6])),
            mtu: link.map_or(0, |link| link.mtu),
            // Kernels on a veth pair's other end leave checksums for an offload that never happens.
            rx_checksum: ChecksumPolicy::AcceptPartial,
            link_is_up: link.is_some_and(|link| link.is_up),
            ifindex: link.map_or(0, |link| link.index),
            interface: Text::new(&self.options.interface),
            ledger_entries_max: LEDGER_ENTRIES_MAX,
        };
        self.send(id, &Message::Welcome(welcome));
        for change in changes {
            self.send(id, &Message::Change(change));
        }
        self.send(id, &Message::Change(Change::Complete));
    }

    /// Takes everything from an application that is gone, and resets its peers.
    pub(super) fn bury(&mut self, number: u16, cause: &str) {
        let Some(application) = self.applications.remove(&number) else {
            return;
        };
        let (claims, leases) = self.ownership.take_all(number);
        let owned = Owned {
            places: claims.iter().map(|(place, _)| *place).collect(),
            leases: leases.iter().map(|lease| lease.ports.clone()).collect(),
        };
        // First of all, answers of the peers must reach the kernel.
        for place in &owned.places {
            self.plane.claim_remove(*place);
        }
        for ports in &owned.leases {
            self.plane.lease_remove(ports.clone());
        }
        for context in 0..application.contexts {
            self.plane.port_remove(number, context);
        }
        drop((claims, leases));
        for (file, bytes) in application.ledgers.into_values() {
            self.resets.add(file, bytes, owned.clone());
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

    /// Takes over the applications of the service before this one, as lost ones.
    pub(super) fn recover(&mut self) {
        let recovered = self.plane.recovered();
        for note in self.notes.read().applications {
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
                self.plane.port_remove(port.application, port.context);
            }
        }
        self.are_notes_old = true;
    }

    fn recover_one(&mut self, note: ApplicationNote, cookies: BTreeMap<u16, u64>) {
        let number = note.number;
        for (place, contexts) in &note.claims {
            let added = contexts.iter().try_for_each(|context| {
                let added = self.ownership.claim_add(number, *context, *place);
                added.map(drop)
            });
            // The data plane must know a place before it can let go of it.
            let set = self.plane.claim_set(*place, number, contexts);
            if added.is_err() || set.is_err() {
                // The kernel has given the port away in between; then its owner keeps it.
                self.plane.claim_remove(*place);
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
        let application = Application {
            client: None,
            lost_until: Some(after_ns(RECOVERY_NS)),
            name: note.name,
            peer: Peer {
                pid: note.pid,
                uid: note.uid,
                gid: note.gid,
                groups: Vec::new(),
            },
            contexts: note.contexts,
            cookies,
            ledgers: BTreeMap::new(),
            next_hops: BTreeSet::new(),
        };
        self.applications.insert(number, application);
    }

    /// An application shows the AF_XDP socket of one of its contexts, and gets its number back.
    ///
    /// # Errors
    /// Why its connection must end.
    pub(super) fn take_back(
        &mut self,
        id: ClientId,
        request: u32,
        (number, context): (u16, u16),
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let mut cookie = None;
        // Asking any file for a cookie is harmless: only sockets have one, and the kernel answers.
        let socket = descriptor.keep_if("no socket", |file| {
            cookie = Some(socket_cookie(file).map_err(|_| "no socket")?);
            Ok(())
        })?;
        self.closer.close(socket);
        let Some(uid) = self.clients.get(&id).map(|client| client.peer.uid) else {
            return Ok(());
        };
        let is_own = self.applications.get(&number).is_some_and(|application| {
            let is_known = application.cookies.get(&context).copied() == cookie;
            let is_free = application.client.is_none_or(|client| client == id);
            is_known && is_free && application.peer.uid == uid
        });
        if !is_own {
            self.refuse(id, request, Errno::NOENT);
            return Ok(());
        }
        self.move_client(id, number);
        self.send(id, &Message::Granted { request });
        Ok(())
    }

    /// The connection belongs to application `number` from now on, and not to the one that its
    /// Hello made.
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
            application.client = Some(id);
            application.lost_until = None;
            application.peer = peer;
        }
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
            self.bury(number, "it did not come back after the restart");
        }
    }

    /// Writes what the next service needs.
    pub(super) fn write_notes(&mut self) {
        self.are_notes_old = false;
        let notes = self.applications.iter().map(|(&number, one)| {
            let claims = self.ownership.claims();
            let claims = claims.filter(|(_, claim)| claim.application == number);
            let leases = self.ownership.leases();
            let leases = leases.filter(|lease| lease.application == number);
            ApplicationNote {
                number,
                name: one.name.clone(),
                pid: one.peer.pid,
                uid: one.peer.uid,
                gid: one.peer.gid,
                contexts: one.contexts,
                claims: claims
                    .map(|(place, claim)| (place, claim.contexts.clone()))
                    .collect(),
                leases: leases
                    .map(|lease| (lease.context, *lease.ports.start(), *lease.ports.end()))
                    .collect(),
            }
        });
        if let Err(error) = self.notes.write(notes.collect()) {
            (self.say)(&format!("notes for the next service: {error}"));
        }
    }
}
