//! The two lanes by which the frames of a port leave: its TX ring, and a descriptor beside it that
//! takes large packets. The port is an AF_XDP socket, or a memif queue to the service of a `mux`
//! wire.
//!
//! Owns both, so that a frame's place in the lane's buffers lives as long as the frame. Frames
//! arrive by the port alone. Nothing orders the two lanes; their caller keeps the segments of one
//! connection in one lane. So every slot that is granted has a buffer of the lane behind it, and a
//! grant is no longer than the buffers are many. One `writev` moves one frame of the bulk lane. A
//! frame for which the kernel has no room stays in its buffer, and no slot is granted until it has
//! left. What the kernel refuses is dropped and counted; TCP sends it again. Used by
//! [`open`](super::open) and by `mux`.

use super::bulk_wire::{BulkWire, Fate};
use crate::buffer_unsafe::BulkSlots;
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FRAME_HEADER_MAX, SEGMENT_BYTES_MAX, XDP_BATCH_MAX, XDP_TX_RETRY_NS};
use crate::port::{Port, PortCounters, PortError};
use crate::wait::monotonic_ns;

/// A port with an optional bulk lane.
pub(crate) struct TwoLanes<P> {
    // The port is dropped first, with the frames that may refer to the lane's buffers.
    port: P,
    /// The bulk lane; `None`: all frames leave by the TX ring.
    bulk: Option<BulkLane>,
}

/// A bulk lane: a buffer behind each slot of the port, and the descriptor by which they leave.
#[derive(Debug)]
struct BulkLane {
    slots: BulkSlots,
    wire: BulkWire,
    /// Slots whose frames wait for room in the kernel, the oldest last.
    held: Vec<usize>,
    /// Time to try them again, ns; 0 while no thread sleeps.
    retry_at_ns: u64,
}

impl<P: Port> TwoLanes<P> {
    /// Adds the lane to a port. With a lane, the port must already announce packets of
    /// [`SEGMENT_BYTES_MAX`].
    pub fn new(port: P, wire: Option<BulkWire>) -> Self {
        let lane = |wire| BulkLane {
            slots: BulkSlots::new(XDP_BATCH_MAX, SEGMENT_BYTES_MAX + FRAME_HEADER_MAX),
            wire,
            held: Vec::with_capacity(XDP_BATCH_MAX),
            retry_at_ns: 0,
        };
        Self {
            port,
            bulk: wire.map(lane),
        }
    }

    /// Sends frames that wait for room in the kernel. False: some still wait.
    #[inline]
    fn flush(&mut self) -> bool {
        match &mut self.bulk {
            Some(bulk) if !bulk.held.is_empty() => bulk.flush(),
            _ => true,
        }
    }
}

impl BulkLane {
    /// Sends the granted slots that changed to this lane, and empties them.
    fn send(&mut self, frames: &[TxFrame]) {
        for (at, frame) in frames.iter().enumerate() {
            if !frame.is_bulk() || frame.is_empty() {
                continue;
            }
            let written = self.slots.written(at, frame);
            let is_full = !self.held.is_empty();
            if let Some(buf) = written
                && (is_full || self.wire.write(buf) == Fate::Full)
            {
                self.held.push(at);
            }
            frame.leave_bulk_lane();
        }
        self.held.reverse();
    }

    #[cold]
    fn flush(&mut self) -> bool {
        while let Some(&at) = self.held.last() {
            if let Some(buf) = self.slots.held(at)
                && self.wire.write(buf) == Fate::Full
            {
                return false;
            }
            self.held.pop();
        }
        true
    }
}

impl<P: Port> Port for TwoLanes<P> {
    crate::forward_port!(self => self.port; capabilities release drain waiting reserved poll_fds);

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        // A caller busy with received frames neither sleeps nor gets slots.
        self.flush();
        self.port.receive()
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        if !self.flush() {
            return self.port.reserve(0);
        }
        let Some(bulk) = &self.bulk else {
            return self.port.reserve(n);
        };
        // Every slot must have both places: the caller has chosen the lane of a connection before
        // it sees the slot.
        let frames = self.port.reserve(n.min(XDP_BATCH_MAX));
        // SAFETY: this value owns port and buffers, lends the port to nobody, and lends frames only
        // for as long as it is borrowed; `send` and `flush` borrow it anew.
        unsafe { bulk.slots.attach(frames) };
        frames
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        if let Some(bulk) = &mut self.bulk {
            let frames = self.port.reserved();
            match frames.is_empty() {
                true => drop(self.flush()),
                false => bulk.send(&frames[..n.min(frames.len())]),
            }
            // A peer on this host may have answered within the calls.
            self.port.drain();
        }
        self.port.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        if self.flush() {
            return self.port.prepare_wait(want_tx);
        }
        if let Some(bulk) = &mut self.bulk {
            bulk.retry_at_ns = monotonic_ns() + XDP_TX_RETRY_NS;
        }
        // Slots of the TX ring would be of no use now.
        self.port.prepare_wait(false)
    }

    fn finish_wait(&mut self) {
        if let Some(bulk) = &mut self.bulk {
            bulk.retry_at_ns = 0;
        }
        self.port.finish_wait();
    }

    fn deadline_ns(&self) -> Option<u64> {
        let retry_at_ns = self.bulk.as_ref().map_or(0, |bulk| bulk.retry_at_ns);
        let own = (retry_at_ns != 0).then_some(retry_at_ns);
        own.into_iter().chain(self.port.deadline_ns()).min()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        if let Some(bulk) = &self.bulk {
            bulk.wire.export(&mut counters);
        }
        counters
    }
}

#[cfg(test)]
mod tests;
