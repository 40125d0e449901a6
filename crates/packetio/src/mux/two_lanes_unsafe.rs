//! The two lanes by which the frames of a virtual port leave: its AF_XDP socket or memif queue, and
//! a TAP of the service's for large packets.
//!
//! Owns both, so that a frame's place in the TAP's buffers lives as long as the frame. Frames
//! arrive by the socket or queue alone. One `writev` moves one frame of the TAP, and the kernel has checked
//! and sent it when the call returns, so nothing waits here. What the kernel refuses is dropped and
//! counted; TCP sends it again. Called by `port`.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::buffer_unsafe::{BulkSlots, FrameBuf};
use crate::frame_unsafe::TxFrame;
use crate::limits::{FRAME_HEADER_MAX, SEGMENT_BYTES_MAX, XDP_BATCH_MAX};
use crate::port::{Port, PortCounters, PortError};
use crate::virtio::header_of;

/// See the module's documentation.
pub(super) struct TwoLanes {
    // The port goes first, and with it the frames that may name buffers of the lane.
    port: Box<dyn Port + Send>,
    /// `None`: all frames leave by the port.
    bulk: Option<BulkLane>,
}

/// A context's bulk lane.
#[derive(Debug)]
struct BulkLane {
    slots: BulkSlots,
    tap: Tap,
}

/// The TAP, and what became of the frames that were written to it.
#[derive(Debug)]
struct Tap {
    fd: OwnedFd,
    frames: u64,
    bytes: u64,
    refused: u64,
    gone: u64,
}

impl TwoLanes {
    pub fn new(port: Box<dyn Port + Send>, tap: Option<OwnedFd>) -> Self {
        let lane = |fd| BulkLane {
            slots: BulkSlots::new(XDP_BATCH_MAX, SEGMENT_BYTES_MAX + FRAME_HEADER_MAX),
            tap: Tap {
                fd,
                frames: 0,
                bytes: 0,
                refused: 0,
                gone: 0,
            },
        };
        Self {
            port,
            bulk: tap.map(lane),
        }
    }
}

impl BulkLane {
    /// Sends those of the granted slots that changed to this lane. They are empty afterwards.
    fn send(&mut self, frames: &[TxFrame]) {
        for (at, frame) in frames.iter().enumerate() {
            if !frame.is_bulk() || frame.is_empty() {
                continue;
            }
            if let Some(buf) = self.slots.written(at, frame) {
                self.tap.write(buf);
            }
            frame.leave_bulk_lane();
        }
    }
}

impl Tap {
    fn write(&mut self, frame: &FrameBuf) {
        let header = header_of(frame);
        let parts = [IoSlice::new(&header), IoSlice::new(frame.bytes())];
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => {
                self.frames += 1;
                self.bytes += frame.len() as u64;
            }
            // The service took the lane away.
            Err(Errno::BADFD | Errno::NODEV | Errno::NXIO) => self.gone += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn export(&self, into: &mut PortCounters) {
        into.tx_frames += self.frames;
        into.tx_bytes += self.bytes;
        into.push("mux_bulk_frames", self.frames);
        into.push("mux_bulk_bytes", self.bytes);
        into.push("mux_bulk_dropped_refused", self.refused);
        into.push("mux_bulk_dropped_gone", self.gone);
    }
}

impl Port for TwoLanes {
    crate::forward_port!(self => self.port; capabilities receive release drain waiting reserved
        prepare_wait finish_wait poll_fds deadline_ns);

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let frames = self.port.reserve(n);
        if let Some(bulk) = &self.bulk {
            // SAFETY: this value owns port and buffers, lends the port to nobody, and lends frames
            // only for as long as it is borrowed; `send` borrows it anew.
            unsafe { bulk.slots.attach(frames) };
        }
        frames
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        if let Some(bulk) = &mut self.bulk {
            let frames = self.port.reserved();
            bulk.send(&frames[..n.min(frames.len())]);
            // A peer on this host has answered within the calls.
            self.port.drain();
        }
        self.port.send(n)
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        if let Some(bulk) = &self.bulk {
            bulk.tap.export(&mut counters);
        }
        counters
    }
}

#[cfg(test)]
mod tests;
