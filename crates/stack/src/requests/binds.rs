//! Requests to bind a socket to a local address and port.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::context::Bind;
use crate::flows::Flows;
use crate::flows::local_ports::Bound;
use crate::network::layer::Network;
use crate::requests::answers::reserved;

/// Binds a socket that is neither connected nor listening, and answers to the queue in the request.
pub(crate) fn bind(flows: &mut Flows, network: &Network, mut bind: Bind) {
    let answer = bind_answer(flows, network, &bind);
    // The thread that asked may be gone.
    let _ = bind.answer.push(answer);
}

fn bind_answer(flows: &mut Flows, network: &Network, bind: &Bind) -> Result<SocketAddr, Errno> {
    let socket = reserved(flows, bind.socket).ok_or(Errno::INVAL)?;
    if flows.slot(socket).bound {
        return Err(Errno::INVAL);
    }
    let ip = bind.local.ip();
    if !ip.is_unspecified() && !bind.free && !network.addresses().is_local(ip) {
        return Err(Errno::ADDRNOTAVAIL);
    }
    if flows.is_bind_table_full() {
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
        0 => (bound.local).set_port(flows.ephemeral_port(&bound)?),
        _ if !bind.again && flows.conflicts(&bound) => return Err(Errno::ADDRINUSE),
        _ => {}
    }
    flows.note_bind(bound);
    flows.slot(socket).bound = true;
    Ok(bound.local)
}
