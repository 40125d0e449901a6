//! A connection that no application has used, as the handshake from which another stack can make it
//! again.
//!
//! The connection has sent nothing but the SYN-ACK and ACKs. So the handshake, the bytes that
//! arrived and perhaps a FIN are all of its state. The stack calls this when it closes a listener
//! whose port other listeners share.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::ecn::EcnGrant;
use crate::handshake::{Handshake, SynAckRepetitions, WindowScales};
use crate::state::State;

/// State of a connection that no application has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untouched {
    /// The handshake that made the connection.
    pub handshake: Handshake,
    /// The peer's FIN follows the bytes that arrived.
    pub has_fin: bool,
}

impl Connection {
    /// The state after the handshake and `received` bytes. `None`: the connection is not open, or
    /// has sent data of its own.
    #[must_use]
    pub fn untouched(&self, received: u32) -> Option<Untouched> {
        let has_fin = match self.state() {
            State::Established => false,
            State::CloseWait => true,
            _ => return None,
        };
        let first = self.tx.iss() + 1;
        if self.snd.una() != first || self.snd.nxt() != first || self.snd.buffered() > 0 {
            return None;
        }
        let has = |flag| self.conn_flags.has(flag);
        let handshake = Handshake {
            iss: self.tx.iss(),
            irs: self.rcv.nxt() - received - u32::from(has_fin) - 1,
            una: first,
            snd_wnd: self.snd.wnd(),
            mss: self.rx.mss(),
            peer_mss: self.path.peer_mss(),
            window_scales: has(ConnFlags::WINDOW_SCALING).then_some(WindowScales {
                ours: self.rcv.shift(),
                peers: self.snd.shift(),
            }),
            sack: has(ConnFlags::SACK),
            ecn: match (self.snd.ecn().is_classic(), self.snd.ecn().is_accurate()) {
                (true, _) => EcnGrant::Classic,
                (_, true) => EcnGrant::ACCURATE,
                _ => EcnGrant::None,
            },
            timestamps: has(ConnFlags::TIMESTAMPS),
            ts_recent: self.rcv.ts_recent(),
            ts_offset: self.tx.ts_offset(),
            rtt_ns: Some(self.timers.rtt().srtt_ns()).filter(|rtt_ns| *rtt_ns > 0),
            syn_ack_lost: false,
            repetitions: SynAckRepetitions::default(),
        };
        Some(Untouched { handshake, has_fin })
    }
}

#[cfg(test)]
mod tests;
