//! Frames that this stack sends to itself: they are taken out of a batch before it leaves and
//! processed in the next turn.
//!
//! The network owns the queue (`packetio::local_queue`). Connections to our own addresses have a
//! neighbour with [`LOCAL_MAC`](packetio::local_queue::LOCAL_MAC), so all stages treat them like
//! any other.

use packetio::TxFrame;
use packetio::local_queue::LocalQueue;

use crate::core::Core;
use crate::counters::Counters;
use crate::departures::Departures;
use crate::departures::ack_trains::AckTrains;
use crate::engine::Parts;
use crate::limits::{PORT_DEAD_NS, PORT_STUCK_REFUSALS, TX_FRAMES_PER_TURN};
use crate::network::layer::Network;

/// Moves the frames addressed to this stack into the queue. The port skips the emptied slots.
#[cold]
pub(super) fn take_local(
    network: &mut Network,
    counters: &mut Counters,
    frames: &[TxFrame],
    frame_bytes: usize,
) {
    let local = network.local_queue(frame_bytes);
    let (taken, lost) = local.take(frames);
    counters.local_frames += taken;
    counters.local_frames_lost += lost;
}
impl Departures {
    /// Notes that the port took nothing. True: this has lasted so long that frames for the wire are
    /// dropped. The stack's traffic with itself must not wait for the port, and peers on the wire
    /// retransmit.
    pub(super) fn refused(&mut self, network: &Network, now_ns: u64) -> bool {
        let state = &mut self.acceptance;
        if state.refusals == 0 {
            state.refuses_since_ns = now_ns;
        }
        state.refusals += 1;
        let refused_ns = now_ns.saturating_sub(state.refuses_since_ns);
        let is_dead = state.refusals >= PORT_STUCK_REFUSALS && refused_ns >= PORT_DEAD_NS;
        is_dead && network.talks_to_itself()
    }

    /// Fills frames of the local queue, because the port offers none. Returns how many.
    #[cold]
    pub(super) fn local_out(&mut self, core: &mut Core, trains: &mut AckTrains) -> usize {
        let Parts { network, .. } = core.engine_mut().parts();
        let local = network.take_local();
        let mut local = local.unwrap_or_else(|| Box::new(LocalQueue::new(self.frame_bytes)));
        let mut sent = 0;
        while (self.has_output(core.engine()) || !trains.is_empty()) && sent < TX_FRAMES_PER_TURN {
            let frames = local.reserve(TX_FRAMES_PER_TURN);
            if frames.is_empty() {
                break;
            }
            let used = self.fill_frames(core, trains, frames);
            let dropped = local.send();
            let Parts { counters, .. } = core.engine_mut().parts();
            counters.tx_drop_stuck += dropped;
            counters.local_frames += used as u64 - dropped;
            sent += used;
            if used == 0 {
                break;
            }
        }
        let Parts { network, .. } = core.engine_mut().parts();
        network.put_local(local);
        sent
    }
}
