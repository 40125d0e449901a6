//! The means that decide on connections to come: initial sequence numbers, cookies, packet rules,
//! and the connections that go to another process or context instead.
//!
//! Segments of no flow, active opens and the exchange with the host use it. A segment of a
//! connection never does.

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
    /// The way to the other contexts of the wire; `None`: nothing arrives here that is theirs.
    pub mesh: Option<Box<MeshSender>>,
}

impl Admission {
    /// SYN cookies may come back: this stack's or another context's.
    pub fn expects_cookies(&mut self, now_ns: u64) -> bool {
        let cookies = self.handshakes.cookies(now_ns);
        if let Some(mesh) = &self.mesh {
            cookies.expect_until(mesh.directory().cookies_out_until_ns());
        }
        cookies.are_out(now_ns)
    }

    /// Tells the other contexts that a cookie was sent, whose ACK may reach them.
    pub fn tell_of_cookie(&mut self, now_ns: u64) {
        if let Some(mesh) = &self.mesh {
            let until_ns = self.handshakes.cookies(now_ns).out_until_ns();
            mesh.directory().expect_cookies_until(until_ns);
        }
    }
}
