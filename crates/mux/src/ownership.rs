//! Ownership of ports: the 3-tuples that each application has claimed, and the blocks of local
//! ports that are leased.
//!
//! Owns both tables and, with each entry, its reservation in the kernel. Makes no requests and
//! sends no messages. Called by the service.
//!
//! Claims of different applications must not overlap. An unspecified address overlaps with every
//! address of its family. TCP is the only protocol, so address and port form an endpoint.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use rustix::io::{self, Errno};

use crate::limits::{HOLDS_PER_PLACE_MAX, LEASE_BLOCK_PORTS, LISTENERS_PER_PLACE_MAX};
use crate::reservation::Reservation;

/// A claim.
#[derive(Debug)]
pub struct Claim {
    /// The application.
    pub application: u16,
    /// Contexts that listen, in the order in which they began.
    pub contexts: Vec<u16>,
    /// Connections of processes that hold the endpoint, whether or not they listen.
    pub holders: Vec<u64>,
    /// Contexts among those that listen whose process leaves its connections to others. They get
    /// none from the data path while there are others.
    pub passed_over: Vec<u16>,
    /// The context that said last that it accepts, for each context that has searched one.
    found: Vec<(u16, u16)>,
    reservation: Reservation,
}

impl Claim {
    /// The contexts among which the data path spreads new connections.
    fn takers(&self) -> Vec<u16> {
        let all = self.contexts.iter().copied();
        let takers: Vec<u16> = all.filter(|one| !self.passed_over.contains(one)).collect();
        match takers.is_empty() {
            true => self.contexts.clone(),
            false => takers,
        }
    }

    /// The context that said that it accepts, when `context` searched one.
    pub fn found_for(&self, context: u16) -> Option<u16> {
        let mut found = self.found.iter();
        found
            .find(|(of, _)| *of == context)
            .map(|(_, found)| *found)
    }

    fn is_idle(&self) -> bool {
        self.contexts.is_empty() && self.holders.is_empty()
    }

    /// True if a socket of the application reserves the endpoint in the kernel.
    pub fn is_bound(&self) -> bool {
        self.reservation.is_applications()
    }
}

/// A lease of local ports.
#[derive(Debug)]
pub struct Lease {
    /// The application.
    pub application: u16,
    /// The context.
    pub context: u16,
    /// The ports.
    pub ports: RangeInclusive<u16>,
    _reservations: Vec<Reservation>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ownership {
    claims: BTreeMap<SocketAddr, Claim>,
    /// Leases by their first port.
    leases: BTreeMap<u16, Lease>,
    lease_range: RangeInclusive<u16>,
    /// Block at which the search for free ports begins. The search goes round, so that ports which
    /// were given back stay unused for as long as possible.
    next_block: u16,
}

impl Ownership {
    /// An empty table; leases come from `lease_range`.
    pub fn new(lease_range: RangeInclusive<u16>) -> Self {
        Self {
            claims: BTreeMap::new(),
            leases: BTreeMap::new(),
            lease_range,
            next_block: 0,
        }
    }

    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = (SocketAddr, &Claim)> + Clone {
        self.claims
            .iter()
            .map(|(endpoint, claim)| (*endpoint, claim))
    }

    /// The claim of exactly this endpoint.
    pub fn claim(&self, endpoint: SocketAddr) -> Option<&Claim> {
        self.claims.get(&endpoint)
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Adds `context` to the claim of `endpoint`, which is made and reserved if it does not exist.
    /// Returns the contexts that listen now.
    ///
    /// # Errors
    /// `ADDRINUSE` if another application, the leases or the kernel have the port; `NOBUFS` if too
    /// many contexts listen there.
    pub fn claim_add(
        &mut self,
        application: u16,
        context: u16,
        endpoint: SocketAddr,
    ) -> io::Result<Vec<u16>> {
        self.check_free(application, endpoint)?;
        if let Some(claim) = self.claims.get_mut(&endpoint) {
            if !claim.contexts.contains(&context) {
                if claim.contexts.len() >= LISTENERS_PER_PLACE_MAX {
                    return Err(Errno::NOBUFS);
                }
                claim.contexts.push(context);
            }
            return Ok(claim.takers());
        }
        let reservation = Reservation::new(endpoint)?;
        self.insert(
            application,
            endpoint,
            (vec![context], Vec::new()),
            reservation,
        );
        Ok(vec![context])
    }

    /// Restores a claim of the previous service whose application also listens in the kernel. The
    /// application will show that socket again.
    ///
    /// # Errors
    /// `ADDRINUSE` if another application or a lease has the port.
    pub fn claim_again(
        &mut self,
        application: u16,
        contexts: Vec<u16>,
        endpoint: SocketAddr,
    ) -> io::Result<()> {
        self.check_free(application, endpoint)?;
        let parts = (contexts, Vec::new());
        self.insert(application, endpoint, parts, Reservation::awaited());
        Ok(())
    }

    /// Keeps `endpoint` for a process of the application: SYNs wait until one of its contexts
    /// listens.
    /// `bound` is a socket of the application's that keeps the endpoint in the kernel, if there is
    /// one. Returns the contexts that listen.
    ///
    /// # Errors
    /// As [`claim_add`](Self::claim_add); `NOBUFS` if the endpoint has too many holds.
    pub fn hold_add(
        &mut self,
        application: u16,
        holder: u64,
        endpoint: SocketAddr,
        bound: Option<Reservation>,
    ) -> io::Result<Vec<u16>> {
        self.check_free(application, endpoint)?;
        if let Some(claim) = self.claims.get_mut(&endpoint) {
            if claim.holders.len() >= HOLDS_PER_PLACE_MAX {
                return Err(Errno::NOBUFS);
            }
            claim.holders.push(holder);
            if let (Some(bound), true) = (bound, claim.reservation.is_awaited()) {
                claim.reservation = bound;
            }
            return Ok(claim.takers());
        }
        let reservation = bound.map_or_else(|| Reservation::new(endpoint), Ok)?;
        self.insert(
            application,
            endpoint,
            (Vec::new(), vec![holder]),
            reservation,
        );
        Ok(Vec::new())
    }

    /// Ends one hold of a process. False: the claim and its reservation have ended, too.
    ///
    /// # Errors
    /// `NOENT` if the process does not hold the endpoint.
    pub fn hold_remove(
        &mut self,
        application: u16,
        holder: u64,
        endpoint: SocketAddr,
    ) -> io::Result<bool> {
        let claim = self.claims.get_mut(&endpoint).ok_or(Errno::NOENT)?;
        let at = claim.holders.iter().position(|one| *one == holder);
        let (Some(at), true) = (at, claim.application == application) else {
            return Err(Errno::NOENT);
        };
        claim.holders.swap_remove(at);
        let stays = !claim.is_idle();
        if !stays {
            self.claims.remove(&endpoint);
        }
        Ok(stays)
    }

    /// Endpoints that a process of the application holds, each as many times as it is held.
    pub fn holds(&self, application: u16, holder: u64) -> Vec<SocketAddr> {
        let own = self
            .claims()
            .filter(|(_, one)| one.application == application);
        own.flat_map(|(endpoint, one)| {
            let times = one.holders.iter().filter(|one| **one == holder).count();
            std::iter::repeat_n(endpoint, times)
        })
        .collect()
    }

    /// Notes that for a connection of the first context the second one was found. `is_watcher`: the
    /// first one's process has never accepted a connection, so it is passed over. Returns the
    /// contexts that get new connections, if they have changed.
    pub fn found(
        &mut self,
        endpoint: SocketAddr,
        (context, found): (u16, u16),
        is_watcher: bool,
    ) -> Option<Vec<u16>> {
        let claim = self.claims.get_mut(&endpoint)?;
        if !claim.contexts.contains(&context) {
            return None;
        }
        claim.found.retain(|(of, _)| *of != context);
        claim.found.push((context, found));
        let is_new = is_watcher && !claim.passed_over.contains(&context);
        is_new.then(|| {
            claim.passed_over.push(context);
            claim.takers()
        })
    }

    /// Notes that a context accepts. Returns the contexts that get new connections, if they have
    /// changed.
    pub fn accepts(&mut self, endpoint: SocketAddr, context: u16) -> Option<Vec<u16>> {
        let claim = self.claims.get_mut(&endpoint)?;
        let at = claim.passed_over.iter().position(|one| *one == context)?;
        claim.passed_over.swap_remove(at);
        Some(claim.takers())
    }

    /// Checks that neither a lease nor another application has the endpoint.
    fn check_free(&self, application: u16, endpoint: SocketAddr) -> io::Result<()> {
        if self.lease_range.contains(&endpoint.port()) {
            return Err(Errno::ADDRINUSE);
        }
        let overlaps = |other: &SocketAddr| {
            let (one, other) = (endpoint.ip(), other.ip());
            one == other
                || one.is_ipv4() == other.is_ipv4()
                    && (one.is_unspecified() || other.is_unspecified())
        };
        let mut others = self
            .claims
            .iter()
            .filter(|(other, _)| other.port() == endpoint.port() && overlaps(other));
        match others.any(|(_, claim)| claim.application != application) {
            true => Err(Errno::ADDRINUSE),
            false => Ok(()),
        }
    }

    fn insert(
        &mut self,
        application: u16,
        endpoint: SocketAddr,
        (contexts, holders): (Vec<u16>, Vec<u64>),
        reservation: Reservation,
    ) {
        let claim = Claim {
            application,
            contexts,
            holders,
            passed_over: Vec::new(),
            found: Vec::new(),
            reservation,
        };
        self.claims.insert(endpoint, claim);
    }

    /// Removes `context` from the claim of `endpoint`. Returns the contexts that still listen.
    /// Without listeners and holders the claim and its reservation end.
    ///
    /// # Errors
    /// `NOENT` if the application has no such claim.
    pub fn claim_remove(
        &mut self,
        application: u16,
        context: u16,
        endpoint: SocketAddr,
    ) -> io::Result<Vec<u16>> {
        let claim = self.claims.get_mut(&endpoint).ok_or(Errno::NOENT)?;
        if claim.application != application || !claim.contexts.contains(&context) {
            return Err(Errno::NOENT);
        }
        claim.contexts.retain(|one| *one != context);
        claim.passed_over.retain(|one| *one != context);
        claim.found.retain(|(of, _)| *of != context);
        let left = claim.takers();
        if claim.is_idle() {
            self.claims.remove(&endpoint);
        }
        Ok(left)
    }

    /// Leases up to `ports` local ports, rounded up to whole blocks.
    ///
    /// # Errors
    /// `ADDRNOTAVAIL` if no port is free.
    pub fn lease_add(
        &mut self,
        application: u16,
        context: u16,
        ports: u16,
    ) -> io::Result<RangeInclusive<u16>> {
        let blocks = self.blocks();
        let wanted = ports.div_ceil(LEASE_BLOCK_PORTS).max(1);
        for at in 0..blocks {
            let first = (self.next_block + at) % blocks;
            let mut reservations = Vec::new();
            let mut count = 0;
            while count < wanted && first + count < blocks {
                let Some(block) = self.reserve_block(first + count) else {
                    break;
                };
                reservations.extend(block);
                count += 1;
            }
            if count == 0 {
                continue;
            }
            self.next_block = (first + count) % blocks;
            let start = self.block_start(first);
            let range = start..=start + (count * LEASE_BLOCK_PORTS - 1);
            self.lease_insert(application, context, range.clone(), reservations);
            return Ok(range);
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Leases exactly these ports, as an earlier service did.
    ///
    /// # Errors
    /// `ADDRINUSE` if one of them is taken.
    pub fn lease_again(
        &mut self,
        application: u16,
        context: u16,
        ports: RangeInclusive<u16>,
    ) -> io::Result<()> {
        let is_within =
            self.lease_range.contains(ports.start()) && self.lease_range.contains(ports.end());
        if !is_within || ports.clone().any(|port| self.lease_at(port).is_some()) {
            return Err(Errno::ADDRINUSE);
        }
        let reservations = ports
            .clone()
            .map(Reservation::everywhere)
            .collect::<io::Result<_>>()?;
        self.lease_insert(application, context, ports, reservations);
        Ok(())
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// `NOENT` if the application has no such lease.
    pub fn lease_remove(
        &mut self,
        application: u16,
        ports: &RangeInclusive<u16>,
    ) -> io::Result<()> {
        match self.leases.get(ports.start()) {
            Some(lease) if lease.application == application && lease.ports == *ports => {
                self.leases.remove(ports.start());
                Ok(())
            }
            _ => Err(Errno::NOENT),
        }
    }

    /// Removes all claims and leases of an application. Their reservations end when the returned
    /// values are dropped.
    pub fn take_all(&mut self, application: u16) -> (Vec<(SocketAddr, Claim)>, Vec<Lease>) {
        let claims = self
            .claims
            .extract_if(.., |_, claim| claim.application == application)
            .collect();
        let leases = self
            .leases
            .extract_if(.., |_, lease| lease.application == application)
            .map(|(_, lease)| lease)
            .collect();
        (claims, leases)
    }

    /// Removes the claims of an address that the NIC has lost.
    pub fn take_address(&mut self, address: IpAddr) -> Vec<(SocketAddr, Claim)> {
        let claims = self
            .claims
            .extract_if(.., |endpoint, _| endpoint.ip() == address);
        claims.collect()
    }

    fn lease_insert(
        &mut self,
        application: u16,
        context: u16,
        ports: RangeInclusive<u16>,
        reservations: Vec<Reservation>,
    ) {
        let lease = Lease {
            application,
            context,
            ports,
            _reservations: reservations,
        };
        self.leases.insert(*lease.ports.start(), lease);
    }

    fn lease_at(&self, port: u16) -> Option<&Lease> {
        let (_, lease) = self.leases.range(..=port).next_back()?;
        lease.ports.contains(&port).then_some(lease)
    }

    fn blocks(&self) -> u16 {
        (self.lease_range.len() / usize::from(LEASE_BLOCK_PORTS)) as u16
    }

    fn block_start(&self, block: u16) -> u16 {
        self.lease_range.start() + block * LEASE_BLOCK_PORTS
    }

    /// Reserves the ports of a block; `None` if one of them is taken.
    fn reserve_block(&self, block: u16) -> Option<Vec<Reservation>> {
        let start = self.block_start(block);
        let mut ports = start..=start + (LEASE_BLOCK_PORTS - 1);
        if ports.clone().any(|port| self.lease_at(port).is_some()) {
            return None;
        }
        ports.try_fold(Vec::new(), |mut all, port| {
            all.push(Reservation::everywhere(port).ok()?);
            Some(all)
        })
    }
}

#[cfg(test)]
mod tests;
