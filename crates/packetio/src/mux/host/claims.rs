//! The places that this process has claimed: which contexts listen there, which only have
//! connections left, and which of them the service counts as listeners.
//!
//! Owns the list. A context whose listener is gone must get no new connections while another one
//! listens, so it is released then; the service's flow table keeps its connections with it. The
//! last context of a place stays until no context has a connection there, since the place goes to
//! the kernel with it. Called by the host, which sends the releases.

use std::net::SocketAddr;

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
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Claims(Vec<Claimed>);

/// Contexts and places to be released, in any order.
pub(super) type Releases = Vec<(u16, SocketAddr)>;

impl Claims {
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
                claimed.is_member = true;
            }
            None => self.0.push(Claimed {
                context,
                local,
                uses: 1,
                leaving: 0,
                is_member: true,
            }),
        }
        self.settle(local)
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
        for claimed in self.0.iter_mut().filter(|one| one.context == context) {
            (claimed.uses, claimed.leaving) = (0, 0);
            places.push(claimed.local);
        }
        let mut releases = Vec::new();
        for local in places {
            releases.extend(self.settle(local));
        }
        releases
    }

    /// The service has taken a place away.
    pub fn revoke(&mut self, local: SocketAddr) {
        self.0.retain(|one| one.local != local);
    }

    /// Listeners that the service must know.
    pub fn members(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let members = self.0.iter().filter(|one| one.is_member);
        members.map(|one| (one.context, one.local))
    }

    fn find(&mut self, context: u16, local: SocketAddr) -> Option<&mut Claimed> {
        let mut all = self.0.iter_mut();
        all.find(|one| one.context == context && one.local == local)
    }

    /// Members that listen no more are released if another context listens, or if nobody has a
    /// connection left.
    fn settle(&mut self, local: SocketAddr) -> Releases {
        let here = || self.0.iter().filter(|one| one.local == local);
        let is_listened = here().any(|one| one.uses > 0);
        let is_held = here().any(|one| one.uses + one.leaving > 0);
        let mut releases = Vec::new();
        for one in self.0.iter_mut().filter(|one| one.local == local) {
            if one.uses == 0 && one.is_member && (is_listened || !is_held) {
                one.is_member = false;
                releases.push((one.context, local));
            }
        }
        self.0
            .retain(|one| one.uses + one.leaving > 0 || one.is_member);
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
