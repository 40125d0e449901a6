//! Requests to bind a socket to a local address and port.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::context::Bind;
use crate::core::Core;
use crate::flows::local_ports::Bound;

impl Core {
    /// Binds a socket that is neither connected nor listening; the answer goes where the request
    /// says.
    pub(crate) fn bind(&mut self, mut bind: Bind) {
        let answer = self.bind_answer(&bind);
        // The asking thread may have gone.
        let _ = bind.answer.push(answer);
    }

    fn bind_answer(&mut self, bind: &Bind) -> Result<SocketAddr, Errno> {
        let socket = self.reserved(bind.socket).ok_or(Errno::INVAL)?;
        if self.flows.sockets.slot(socket).bound {
            return Err(Errno::INVAL);
        }
        let ip = bind.local.ip();
        if !ip.is_unspecified() && !bind.free && !self.network.addresses.is_local(ip) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        if self.flows.binds.is_full() {
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
            0 => (bound.local).set_port(self.flows.ephemeral_port(&bound)?),
            _ if self.flows.conflicts(&bound) => return Err(Errno::ADDRINUSE),
            _ => {}
        }
        self.flows.binds.add(bound);
        self.flows.sockets.slot(socket).bound = true;
        Ok(bound.local)
    }
}
