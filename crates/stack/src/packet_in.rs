//! A batch of frames from the driver, through demux and aggregation to `tcp_in`.

use packetio::{Port, PortError};

use crate::core::Core;
use crate::demux::{Arrival, Demux, Dropped, Found};
use crate::limits::{PORT_STUCK_NS, PORT_STUCK_REFUSALS, RX_FRAMES_PER_TURN};
use crate::stage_clock::Stage;

impl Core {
    /// Takes what the driver has, batch after batch, up to a turn's budget. Frames are lent by the port until the next batch; nothing here
    /// keeps one.
    pub(crate) fn packet_in(&mut self, port: &mut dyn Port) -> Result<usize, PortError> {
        let mut taken = 0;
        let mut arrival = Arrival::blank();
        self.is_input_held = false;
        while taken < RX_FRAMES_PER_TURN {
            if self.holds_input() {
                self.is_input_held = true;
                self.counters.input_held += 1;
                break;
            }
            let frames = port.receive()?;
            self.stages.lap(Stage::PacketIn);
            if frames.is_empty() {
                break;
            }
            taken += frames.len();
            for frame in frames {
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += frame.len() as u64;
                if self.takes_sequel(&arrival, frame) {
                    self.stages.lap(Stage::TcpIn);
                    continue;
                }
                let mut demux = Demux {
                    mac: self.network.mac,
                    policy: self.policy,
                    addresses: &self.network.addresses,
                    counters: &mut self.counters,
                };
                let found = demux.classify(frame, &mut arrival);
                self.stages.lap(Stage::Demux);
                match found {
                    Ok(Found::Tcp) => self.tcp_in(&mut arrival, frame),
                    Ok(Found::Other(other)) => {
                        self.end_run();
                        self.other_in(frame, &other);
                    }
                    // What was dropped is no pattern for what comes.
                    Err(Dropped) => arrival.is_plain = false,
                }
                self.stages.lap(Stage::TcpIn);
            }
            self.end_run();
        }
        port.release();
        self.stages.lap(Stage::PacketIn);
        Ok(taken)
    }

    /// Frames stay with the driver while the answers to earlier ones fill their queue: what is dropped there is asked for again a second later, what
    /// waits here loses nothing.
    fn holds_input(&self) -> bool {
        let is_stuck = self.port_refusals >= PORT_STUCK_REFUSALS
            && self.now_ns >= self.port_took_ns + PORT_STUCK_NS;
        self.control.is_half_full() && !is_stuck
    }
}
