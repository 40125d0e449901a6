//! The addresses that this process has claimed: which contexts listen there, which only have
//! connections left, and which ones the service counts as listeners.
//!
//! A context without a listener must get no new connections while another one listens, so it is
//! released at once; the service's flow table keeps its connections. The last context of an address
//! stays until no context has a connection there, because the address then returns to the kernel.
//! An address that the process holds needs no listener: a context is released with its listener,
//! and the hold ends with the last connection.
//!
//! A context becomes a listener of the service only once its stack listens, because earlier SYNs
//! would be reset. A bound socket claims the address for its context only if the process does not
//! have it yet. The host calls the module and sends the releases.

use std::net::{IpAddr, SocketAddr};

use crate::mux::message::HOLD;

/// An address that a context has claimed.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    context: u16,
    local: SocketAddr,
    /// Number of sockets that are bound or listen there.
    uses: usize,
    /// Number of closed sockets that may have left connections.
    leaving: usize,
    /// True if the service counts the context as a listener.
    is_member: bool,
    /// True if the service has revoked the address.
    is_revoked: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claimed: Vec<Claimed>,
    holds: Vec<Hold>,
}

/// An address that this process holds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    local: SocketAddr,
    /// Number of sockets that are bound or listen there, or may.
    uses: usize,
    /// True if the service has revoked the address.
    is_revoked: bool,
}

/// Contexts and addresses to be released, in any order. [`HOLD`] in place of a context ends a hold.
pub(super) type Releases = Vec<(u16, SocketAddr)>;

impl Claims {
    /// Adds a socket if the process has the address, whether this context listens or not. False:
    /// the service must be asked.
    pub fn reserve(&mut self, context: u16, local: SocketAddr) -> bool {
        let is_held = self.holds().any(|held| held == local);
        if !is_held && !self.members().any(|(_, endpoint)| endpoint == local) {
            return false;
        }
        match self.find(context, local) {
            Some(claimed) => claimed.uses += 1,
            None => self.claimed.push(Claimed {
                context,
                local,
                uses: 1,
                leaving: 0,
                is_member: false,
                is_revoked: false,
            }),
        }
        true
    }

    /// True if the context is a listener there. False: the service must be asked.
    pub fn is_member(&mut self, context: u16, local: SocketAddr) -> bool {
        self.find(context, local).is_some_and(|one| one.is_member)
    }

    /// Notes that the service counts the context, which has a socket there, as a listener.
    pub fn joined(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local) {
            (claimed.is_member, claimed.is_revoked) = (true, false);
        }
        self.settle(local)
    }

    /// Adds a socket if the context is a listener there. False: the service must be asked.
    pub fn hold(&mut self, context: u16, local: SocketAddr) -> bool {
        match self.find(context, local) {
            Some(claimed) if claimed.is_member => {
                claimed.uses += 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that the service granted the address to a socket.
    pub fn granted(&mut self, context: u16, local: SocketAddr) -> Releases {
        match self.find(context, local) {
            Some(claimed) => {
                claimed.uses += 1;
                (claimed.is_member, claimed.is_revoked) = (true, false);
            }
            None => self.claimed.push(Claimed {
                context,
                local,
                uses: 1,
                leaving: 0,
                is_member: true,
                is_revoked: false,
            }),
        }
        self.settle(local)
    }

    /// Adds a socket if the process holds the address. False: the service must be asked.
    pub fn keep(&mut self, local: SocketAddr) -> bool {
        match self.holds.iter_mut().find(|hold| hold.local == local) {
            Some(hold) if !hold.is_revoked => {
                hold.uses += 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that the service lets the process hold the address.
    pub fn kept(&mut self, local: SocketAddr) {
        match self.holds.iter_mut().find(|hold| hold.local == local) {
            Some(hold) => {
                hold.uses += 1;
                hold.is_revoked = false;
            }
            None => self.holds.push(Hold {
                local,
                uses: 1,
                is_revoked: false,
            }),
        }
    }

    /// Removes a socket that held the address.
    pub fn let_go(&mut self, local: SocketAddr) -> Releases {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.local == local) {
            hold.uses = hold.uses.saturating_sub(1);
        }
        self.settle(local)
    }

    /// Addresses that the process holds.
    pub fn holds(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let holds = self.holds.iter().filter(|hold| !hold.is_revoked);
        holds.map(|hold| hold.local)
    }

    /// Removes a socket that may have left connections.
    pub fn leave(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local).filter(|one| one.uses > 0) {
            claimed.uses -= 1;
            claimed.leaving += 1;
        }
        self.settle(local)
    }

    /// Notes that the connections of a removed socket have ended.
    pub fn end(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local) {
            claimed.leaving = claimed.leaving.saturating_sub(1);
        }
        self.settle(local)
    }

    /// Removes a context with all its sockets.
    pub fn end_context(&mut self, context: u16) -> Releases {
        let mut endpoints = Vec::new();
        for claimed in self.claimed.iter_mut().filter(|one| one.context == context) {
            (claimed.uses, claimed.leaving) = (0, 0);
            endpoints.push(claimed.local);
        }
        let mut releases = Vec::new();
        for local in endpoints {
            releases.extend(self.settle(local));
        }
        releases
    }

    /// Notes that the service revoked an address. If a socket is still bound there when the address
    /// comes back, it is claimed again.
    pub fn revoke(&mut self, local: SocketAddr) {
        let claimed = self.claimed.iter_mut();
        for one in claimed.filter(|one| one.local == local && one.is_member) {
            (one.is_member, one.is_revoked) = (false, true);
        }
        for hold in self.holds.iter_mut().filter(|hold| hold.local == local) {
            hold.is_revoked = true;
        }
        self.claimed
            .retain(|one| one.uses + one.leaving > 0 || one.is_member);
        self.holds.retain(|hold| hold.uses > 0 || !hold.is_revoked);
    }

    /// Revoked claims at `address` that still have sockets: context or [`HOLD`], and the address
    /// with its port.
    pub fn revoked_at(&self, address: IpAddr) -> Releases {
        let is_there = |local: SocketAddr| local.ip() == address;
        let holds = self.holds.iter();
        let holds = holds.filter(|hold| hold.is_revoked && is_there(hold.local));
        let claimed = self.claimed.iter();
        let claimed = claimed.filter(|one| one.is_revoked && one.uses > 0 && is_there(one.local));
        holds
            .map(|hold| (HOLD, hold.local))
            .chain(claimed.map(|one| (one.context, one.local)))
            .collect()
    }

    /// Notes that the service granted a revoked address again. If its sockets have gone meanwhile,
    /// it is released.
    pub fn granted_again(&mut self, context: u16, local: SocketAddr) -> Releases {
        if context == HOLD {
            return match self.holds.iter_mut().find(|hold| hold.local == local) {
                Some(hold) => {
                    hold.is_revoked = false;
                    self.settle(local)
                }
                None => vec![(HOLD, local)],
            };
        }
        match self.find(context, local) {
            Some(claimed) => {
                (claimed.is_member, claimed.is_revoked) = (true, false);
                self.settle(local)
            }
            None => vec![(context, local)],
        }
    }

    /// Contexts that the service must know as listeners, with their addresses.
    pub fn members(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let members = self.claimed.iter().filter(|one| one.is_member);
        members.map(|one| (one.context, one.local))
    }

    fn find(&mut self, context: u16, local: SocketAddr) -> Option<&mut Claimed> {
        let mut all = self.claimed.iter_mut();
        all.find(|one| one.context == context && one.local == local)
    }

    /// Releases members that listen no more if another context listens, if the process holds the
    /// address, or if no connection is left. A hold without sockets ends then too.
    fn settle(&mut self, local: SocketAddr) -> Releases {
        let here = || self.claimed.iter().filter(|one| one.local == local);
        let is_kept = self.holds.iter().any(|hold| hold.local == local);
        let is_listened = is_kept || here().any(|one| one.uses > 0 && one.is_member);
        let is_held = here().any(|one| one.uses + one.leaving > 0);
        let mut releases = Vec::new();
        for one in self.claimed.iter_mut().filter(|one| one.local == local) {
            if one.uses == 0 && one.is_member && (is_listened || !is_held) {
                one.is_member = false;
                releases.push((one.context, local));
            }
        }
        self.claimed
            .retain(|one| one.uses + one.leaving > 0 || one.is_member);
        let is_over = |hold: &Hold| hold.local == local && hold.uses == 0 && !is_held;
        releases.extend(
            self.holds
                .extract_if(.., |hold| is_over(hold))
                .filter(|hold| !hold.is_revoked)
                .map(|_| (HOLD, local)),
        );
        releases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> SocketAddr {
        "0.0.0.0:80".parse().unwrap()
    }

    #[test]
    fn last_listener_stays_until_its_connections_are_gone() {
        let mut claims = Claims::default();
        assert!(!claims.hold(0, local()));
        assert!(claims.granted(0, local()).is_empty());
        assert!(claims.hold(0, local()), "a second socket needs no question");
        assert!(claims.leave(0, local()).is_empty());
        assert!(claims.end(0, local()).is_empty());
        assert!(claims.leave(0, local()).is_empty());
        assert_eq!(claims.members().count(), 1);
        assert_eq!(claims.end(0, local()), [(0, local())]);
        assert_eq!(claims.members().count(), 0);
    }

    #[test]
    fn context_that_left_is_released_while_another_listens() {
        let mut claims = Claims::default();
        claims.granted(0, local());
        claims.granted(1, local());
        assert_eq!(claims.leave(0, local()), [(0, local())]);
        // Context 1 keeps the address for the connections of context 0.
        assert!(claims.leave(1, local()).is_empty());
        assert!(claims.end(1, local()).is_empty());
        assert_eq!(claims.end(0, local()), [(1, local())]);
    }

    #[test]
    fn hold_outlives_its_listener_until_the_connections_are_gone() {
        let mut claims = Claims::default();
        assert!(!claims.keep(local()));
        claims.kept(local());
        claims.granted(0, local());
        assert_eq!(claims.leave(0, local()), [(0, local())]);
        assert!(claims.let_go(local()).is_empty(), "a connection is left");
        assert_eq!(claims.end(0, local()), [(HOLD, local())]);
        assert_eq!(claims.holds().count(), 0);
    }

    #[test]
    fn context_that_is_only_bound_listens_later_and_keeps_no_place() {
        let mut claims = Claims::default();
        assert!(!claims.reserve(0, local()), "the process does not have it");
        claims.granted(0, local());
        assert!(claims.reserve(1, local()));
        assert!(!claims.is_member(1, local()));
        assert!(claims.leave(0, local()).is_empty(), "it has the endpoint");
        assert_eq!(claims.joined(1, local()), [(0, local())]);
        assert!(claims.end(0, local()).is_empty());
        assert!(claims.leave(1, local()).is_empty());
        assert_eq!(claims.end(1, local()), [(1, local())]);
        assert!(!claims.reserve(1, local()));
    }

    #[test]
    fn context_bound_at_a_held_place_is_no_listener_until_it_listens() {
        let mut claims = Claims::default();
        claims.kept(local());
        assert!(claims.reserve(0, local()));
        assert_eq!(claims.members().count(), 0, "SYNs wait");
        assert!(claims.joined(0, local()).is_empty());
        assert_eq!(claims.members().count(), 1);
        assert_eq!(claims.leave(0, local()), [(0, local())]);
        assert!(claims.let_go(local()).is_empty());
        assert_eq!(claims.end(0, local()), [(HOLD, local())]);
    }

    #[test]
    fn place_revoked_with_its_address_is_claimed_again_while_a_socket_is_there() {
        let local: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let mut claims = Claims::default();
        claims.granted(0, local);
        claims.granted(1, local);
        claims.kept(local);
        claims.revoke(local);
        assert_eq!(claims.members().count() + claims.holds().count(), 0);
        assert!(!claims.hold(0, local), "the service must be asked");
        assert!(!claims.keep(local), "the service must be asked");
        assert!(claims.revoked_at("10.0.0.2".parse().unwrap()).is_empty());
        let endpoints = [(HOLD, local), (0, local), (1, local)];
        assert_eq!(claims.revoked_at(local.ip()), endpoints);
        assert!(claims.granted_again(HOLD, local).is_empty());
        assert!(claims.granted_again(0, local).is_empty());
        // The socket of context 1 closes before the service answers.
        assert!(claims.leave(1, local).is_empty());
        assert!(claims.end(1, local).is_empty());
        assert_eq!(claims.granted_again(1, local), [(1, local)]);
        assert_eq!(claims.members().collect::<Vec<_>>(), [(0, local)]);
        assert!(claims.revoked_at(local.ip()).is_empty());
    }

    #[test]
    fn listener_that_comes_back_takes_the_place_of_one_that_left() {
        let mut claims = Claims::default();
        claims.granted(0, local());
        claims.granted(1, local());
        claims.leave(0, local());
        claims.leave(1, local());
        assert!(!claims.hold(0, local()));
        assert_eq!(claims.granted(0, local()), [(1, local())]);
        assert!(claims.end_context(1).is_empty());
        assert_eq!(claims.end_context(0), [(0, local())]);
    }
}
