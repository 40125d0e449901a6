//! The parts of a stack that decide on new connections: initial sequence numbers, cookies, packet
//! rules, and the hand-over to other processes and contexts.
//!
//! Segments without a flow, active opens and the exchange with the host use them. A segment of an
//! existing connection never does.

use packetio::mesh::MeshSender;
use tcp::isn::IsnGenerator;

use crate::handshake_keys::HandshakeKeys;
use crate::rules::judge::Judge;
use crate::transfer_lists::Transfers;

/// See the module's documentation.
pub(crate) struct Admission {
    pub isn: IsnGenerator,
    pub handshakes: HandshakeKeys,
    pub transfers: Transfers,
    /// Packet rules; `None`: everything is allowed.
    pub rules: Option<Box<Judge>>,
    /// Queues to the other contexts that share the wire. `None`: no frame for another context
    /// arrives here.
    pub mesh: Option<Box<MeshSender>>,
}

impl Admission {
    /// True if the ACK of a SYN cookie may arrive, whether this stack or another context sent the
    /// cookie.
    pub fn expects_cookies(&mut self, now_ns: u64) -> bool {
        let cookies = self.handshakes.cookies(now_ns);
        if let Some(mesh) = &self.mesh {
            cookies.expect_until(mesh.directory().cookies_out_until_ns());
        }
        cookies.are_out(now_ns)
    }

    /// Tells the other contexts that this stack sent a SYN cookie: its ACK may reach any of them.
    pub fn tell_of_cookie(&mut self, now_ns: u64) {
        if let Some(mesh) = &self.mesh {
            let until_ns = self.handshakes.cookies(now_ns).out_until_ns();
            mesh.directory().expect_cookies_until(until_ns);
        }
    }
}
