//! The places that this process has claimed: which contexts listen there, which only have
//! connections left, and which of them the service counts as listeners.
//!
//! Owns the list. A context whose listener is gone must get no new connections while another one
//! listens, so it is released then; the service's flow table keeps its connections with it. The
//! last context of a place stays until no context has a connection there, since the place goes to
//! the kernel with it. A place that the process holds stays without a listener: then a context is
//! released with its listener, and the hold ends with the last connection.
//!
//! A context becomes a listener of the service's once its stack listens: SYNs that came before
//! would be reset. A socket that is bound claims the place for its context only if the process does
//! not have it yet. Called by the host, which sends the releases.

use std::net::{IpAddr, SocketAddr};

use crate::mux::message::HOLD;

/// A place that a context has claimed.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    context: u16,
    local: SocketAddr,
    /// Sockets that are bound or listen there.
    uses: usize,
    /// Sockets that are gone and may have left connections.
    leaving: usize,
    /// The service counts the context as a listener.
    is_member: bool,
    /// The service has taken the place away with its address.
    is_revoked: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claimed: Vec<Claimed>,
    holds: Vec<Hold>,
}

/// A place that this process holds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    local: SocketAddr,
    /// Sockets that are bound or listen there, or may.
    uses: usize,
    /// The service has taken the place away with its address.
    is_revoked: bool,
}

/// Contexts and places to be released, in any order. [`HOLD`] in place of a context ends a hold.
pub(super) type Releases = Vec<(u16, SocketAddr)>;

impl Claims {
    /// Counts one more socket if the process has the place, with this context as a listener or
    /// without. False: the service must be asked.
    pub fn reserve(&mut self, context: u16, local: SocketAddr) -> bool {
        let is_held = self.holds().any(|held| held == local);
        if !is_held && !self.members().any(|(_, place)| place == local) {
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

    /// The context is a listener there. False: the service must be asked.
    pub fn is_member(&mut self, context: u16, local: SocketAddr) -> bool {
        self.find(context, local).is_some_and(|one| one.is_member)
    }

    /// The service counts the context, which has a socket there, as a listener.
    pub fn joined(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local) {
            (claimed.is_member, claimed.is_revoked) = (true, false);
        }
        self.settle(local)
    }

    /// Counts one more socket if the context is a listener there. False: the service must be asked.
    pub fn hold(&mut self, context: u16, local: SocketAddr) -> bool {
        match self.find(context, local) {
            Some(claimed) if claimed.is_member => {
                claimed.uses += 1;
                true
            }
            _ => false,
        }
    }

    /// The service has granted the place to a socket.
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

    /// Counts one more socket if the process holds the place. False: the service must be asked.
    pub fn keep(&mut self, local: SocketAddr) -> bool {
        match self.holds.iter_mut().find(|hold| hold.local == local) {
            Some(hold) if !hold.is_revoked => {
                hold.uses += 1;
                true
            }
            _ => false,
        }
    }

    /// The service lets the process hold the place.
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

    /// A socket that held the place is gone.
    pub fn let_go(&mut self, local: SocketAddr) -> Releases {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.local == local) {
            hold.uses = hold.uses.saturating_sub(1);
        }
        self.settle(local)
    }

    /// Places that the process holds.
    pub fn holds(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let holds = self.holds.iter().filter(|hold| !hold.is_revoked);
        holds.map(|hold| hold.local)
    }

    /// A socket is gone and may have left connections.
    pub fn leave(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local).filter(|one| one.uses > 0) {
            claimed.uses -= 1;
            claimed.leaving += 1;
        }
        self.settle(local)
    }

    /// The connections of a socket that was gone before are gone as well.
    pub fn end(&mut self, context: u16, local: SocketAddr) -> Releases {
        if let Some(claimed) = self.find(context, local) {
            claimed.leaving = claimed.leaving.saturating_sub(1);
        }
        self.settle(local)
    }

    /// A context is gone with all its sockets.
    pub fn end_context(&mut self, context: u16) -> Releases {
        let mut places = Vec::new();
        for claimed in self.claimed.iter_mut().filter(|one| one.context == context) {
            (claimed.uses, claimed.leaving) = (0, 0);
            places.push(claimed.local);
        }
        let mut releases = Vec::new();
        for local in places {
            releases.extend(self.settle(local));
        }
        releases
    }

    /// The service has taken a place away. It is claimed again when its address comes back, if a
    /// socket is still bound there.
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

    /// Places at `address` that were revoked and have sockets: [`HOLD`] or a context, and the
    /// place.
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

    /// The service has granted a place again that was revoked. If its sockets are gone by now, the
    /// place is released.
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

    /// Listeners that the service must know.
    pub fn members(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let members = self.claimed.iter().filter(|one| one.is_member);
        members.map(|one| (one.context, one.local))
    }

    fn find(&mut self, context: u16, local: SocketAddr) -> Option<&mut Claimed> {
        let mut all = self.claimed.iter_mut();
        all.find(|one| one.context == context && one.local == local)
    }

    /// Members that listen no more are released if another context listens, if the process holds
    /// the place, or if nobody has a connection left. A hold without sockets ends then.
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
        // The other one holds the place for the connections of the first.
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
        assert!(claims.leave(0, local()).is_empty(), "it has the place");
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
        let places = [(HOLD, local), (0, local), (1, local)];
        assert_eq!(claims.revoked_at(local.ip()), places);
        assert!(claims.granted_again(HOLD, local).is_empty());
        assert!(claims.granted_again(0, local).is_empty());
        // The socket of context 1 is closed before the service answers.
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
