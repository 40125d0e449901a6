//! The parts of a stack that decide on new connections: initial sequence numbers, cookies, packet
//! rules, and the hand-over to other processes and contexts.
//!
//! Segments without a flow, active opens and the exchange with the host use them. A segment of an
//! existing connection never does.

use packetio::mesh::MeshSender;
use tcp::FastOpenKeys;
use tcp::isn::IsnGenerator;
use tcp::syn_cookie::SynCookies;

use crate::handshake_keys::HandshakeKeys;
use crate::rules::judge::Judge;
use crate::transfer_lists::Transfers;

/// See the module's documentation.
pub(crate) struct Admission {
    isn: IsnGenerator,
    handshakes: HandshakeKeys,
    transfers: Transfers,
    /// Packet rules; `None`: everything is allowed.
    rules: Option<Box<Judge>>,
    /// Queues to the other contexts that share the wire. `None`: no frame for another context
    /// arrives here.
    mesh: Option<Box<MeshSender>>,
}

impl Admission {
    /// Makes the parts. `rules`: packet rules; `mesh`: queues to other contexts.
    pub fn new(
        isn: IsnGenerator,
        handshakes: HandshakeKeys,
        rules: Option<Box<Judge>>,
        mesh: Option<Box<MeshSender>>,
    ) -> Self {
        Self {
            isn,
            handshakes,
            transfers: Transfers::default(),
            rules,
            mesh,
        }
    }

    /// The generator of initial sequence numbers.
    #[inline(always)]
    pub fn isn(&mut self) -> &mut IsnGenerator {
        &mut self.isn
    }

    /// The maker of SYN cookies, with this hour's secrets.
    #[inline(always)]
    pub fn cookies(&mut self, now_ns: u64) -> &mut SynCookies {
        self.handshakes.cookies(now_ns)
    }

    /// The keys of Fast Open cookies.
    #[inline(always)]
    pub fn fast_open_keys(&self) -> &FastOpenKeys {
        &self.handshakes.fast_open
    }

    /// Connections and places that go to other processes.
    #[inline(always)]
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Connections and places that go to other processes, to change them.
    #[inline(always)]
    pub fn transfers_mut(&mut self) -> &mut Transfers {
        &mut self.transfers
    }

    /// Packet rules; `None`: everything is allowed.
    pub fn rules(&self) -> Option<&Judge> {
        self.rules.as_deref()
    }

    /// Packet rules, for a judgement that counts.
    #[inline(always)]
    pub fn rules_mut(&mut self) -> &mut Option<Box<Judge>> {
        &mut self.rules
    }

    /// Replaces the packet rules.
    pub fn set_rules(&mut self, rules: Option<Box<Judge>>) {
        self.rules = rules;
    }

    /// Queues to the other contexts that share the wire. `None`: no frame for another context
    /// arrives here.
    #[inline(always)]
    pub fn mesh(&mut self) -> Option<&mut MeshSender> {
        self.mesh.as_deref_mut()
    }

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
