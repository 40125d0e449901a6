//! The means that decide on connections to come: initial sequence numbers, cookies, packet rules, and the
//! connections that go to another process or context instead.
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
