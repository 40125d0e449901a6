//! Local addresses that sockets were bound to before they listen or connect (RFC 9293 3.9.1.1; `bind`), and who may share one.
//!
//! The rules are Linux's (`inet_csk_get_port`): two sockets may have the same port if their addresses differ, if both set `SO_REUSEPORT`, or if both set
//! `SO_REUSEADDR` and neither listens. Connections count too, TIME_WAIT included, unless the newcomer sets `SO_REUSEADDR`. Few sockets are ever bound, so
//! this is a search over a short array, and only those pay for it.

use std::net::{IpAddr, SocketAddr};

use ring::socket_block::SocketId;
use rustix::io::Errno;
use wire::Addr;

use crate::context::Bind;
use crate::core::Core;
use crate::flows::sockets::Role;
use crate::limits::BINDS_MAX;

/// A local address that a socket has for itself, or shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    socket: SocketId,
    local: SocketAddr,
    /// Unspecified IPv6: IPv4 as well.
    dual: bool,
    reuse_addr: bool,
    reuse_port: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Binds {
    bound: Vec<Bound>,
}

impl Binds {
    /// The socket is bound no more.
    pub fn remove(&mut self, socket: u32) {
        self.bound.retain(|bound| bound.socket.index != socket);
    }

    /// Somebody is bound to this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.bound.iter().any(|bound| bound.local.port() == port)
    }
}

/// One address covers the other, or both are the same.
fn overlap(a: (IpAddr, bool), b: (IpAddr, bool)) -> bool {
    let covers = |(all, dual): (IpAddr, bool), other: IpAddr| {
        all.is_unspecified() && (all.is_ipv4() == other.is_ipv4() || dual)
    };
    a.0 == b.0 || covers(a, b.0) || covers(b, a.0)
}

impl Core {
    /// Binds a socket that is neither connected nor listening; the answer goes where the request says.
    pub(crate) fn bind(&mut self, mut bind: Bind) {
        let answer = self.bind_answer(&bind);
        // Who asked may have gone.
        let _ = bind.answer.push(answer);
    }

    fn bind_answer(&mut self, bind: &Bind) -> Result<SocketAddr, Errno> {
        let socket = self.reserved(bind.socket).ok_or(Errno::INVAL)?;
        if self.sockets.slot(socket).bound {
            return Err(Errno::INVAL);
        }
        let ip = bind.local.ip();
        if !ip.is_unspecified() && !bind.free && !self.network.addresses.is_local(ip) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        if self.binds.bound.len() >= BINDS_MAX {
            return Err(Errno::NOBUFS);
        }
        let mut bound = Bound {
            socket: bind.socket,
            local: bind.local,
            dual: bind.dual,
            reuse_addr: bind.reuse_addr,
            reuse_port: bind.reuse_port,
        };
        match bound.local.port() {
            0 => bound.local.set_port(self.ephemeral_port(&bound)?),
            _ if self.conflicts(&bound) => return Err(Errno::ADDRINUSE),
            _ => {}
        }
        self.binds.bound.push(bound);
        self.sockets.slot(socket).bound = true;
        Ok(bound.local)
    }

    /// A port that nobody has.
    fn ephemeral_port(&mut self, wanted: &Bound) -> Result<u16, Errno> {
        let taken = self.ports_taken((wanted.local.ip(), wanted.dual));
        let (first, last) = self.config.local_ports;
        let count = u32::from(last - first) + 1;
        for _ in 0..count {
            let port = first + (self.port_counter % count) as u16;
            self.port_counter = self.port_counter.wrapping_add(1);
            if !taken[usize::from(port)] {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// By port: somebody has it at this address, whatever he would share. One look at each, however few ports are left.
    fn ports_taken(&self, place: (IpAddr, bool)) -> Vec<bool> {
        let bound = self.binds.bound.iter();
        let bound = bound.map(|bound| (bound.local.ip(), bound.dual, bound.local.port()));
        let listened = self.listeners.places();
        let listened = listened.map(|(ip, port)| (ip, false, port));
        let flows = self.sockets.keys().chain(self.time_waits.keys().copied());
        let flows = flows.map(|key| (key.local.to_ip(), false, key.local_port));
        let mut taken = vec![false; 1 << 16];
        for (ip, dual, port) in bound.chain(listened).chain(flows) {
            if overlap(place, (ip, dual)) {
                taken[usize::from(port)] = true;
            }
        }
        taken
    }

    fn conflicts(&self, new: &Bound) -> bool {
        let place = (new.local.ip(), new.dual);
        let port = new.local.port();
        let with_bound = self.binds.bound.iter().any(|old| {
            let listens = matches!(self.sockets.role(old.socket.index), Role::Listener(_));
            let shares = (new.reuse_port && old.reuse_port)
                || (new.reuse_addr && old.reuse_addr && !listens);
            old.local.port() == port && overlap(place, (old.local.ip(), old.dual)) && !shares
        });
        if with_bound {
            return true;
        }
        let listened = self
            .listeners
            .places()
            .any(|(ip, listened)| listened == port && overlap(place, (ip, false)));
        if listened && !new.reuse_port {
            return true;
        }
        !new.reuse_addr && !new.reuse_port && self.has_flow_at(place, port)
    }

    /// A connection has this end, or a TIME_WAIT entry.
    fn has_flow_at(&self, place: (IpAddr, bool), port: u16) -> bool {
        let is_there = |local: Addr, local_port: u16| {
            local_port == port && overlap(place, (local.to_ip(), false))
        };
        self.sockets
            .keys()
            .any(|key| is_there(key.local, key.local_port))
            || self
                .time_waits
                .keys()
                .any(|key| is_there(key.local, key.local_port))
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    fn overlaps(a: &str, a_dual: bool, b: &str) -> bool {
        overlap((a.parse().unwrap(), a_dual), (b.parse().unwrap(), false))
    }

    #[test]
    fn unspecified_address_covers_its_family_and_a_dual_one_both() {
        assert!(overlaps("0.0.0.0", false, "10.0.0.1"));
        assert!(overlaps("10.0.0.1", false, "0.0.0.0"));
        assert!(overlaps("10.0.0.1", false, "10.0.0.1"));
        assert!(!overlaps("10.0.0.1", false, "10.0.0.2"));
        assert!(!overlaps("::", false, "10.0.0.1"));
        assert!(overlaps("::", true, "10.0.0.1"));
        assert!(overlaps("::", true, "0.0.0.0"));
        assert!(!overlaps("::1", false, "0.0.0.0"));
    }
}
