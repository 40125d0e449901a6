//! The common part of ports over a file descriptor: one system call per frame, in bounded batches.
//!
//! An [`FdPort`] owns the frame buffers of both directions, and frames that the kernel did not take
//! at once. `tap` and `packet` only add a [`FrameIo`]. Frames that the kernel refuses for now wait
//! in order. Their slots are missing from `reserve`, which is the back-pressure. Every call that
//! reaches the kernel anyway offers them again: `receive`, `send`, `prepare_wait`.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FD_BATCH_BYTES, FD_BATCH_MAX, FD_TX_SLOTS, FRAME_HEADER_MAX};
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// Frame buffers are a multiple of this long, bytes.
const FRAME_ALIGN: usize = 64;

/// The outcome of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The buffer holds a frame.
    Frame,
    /// A frame was dropped and counted; read again.
    Dropped,
    /// No frame is there.
    Empty,
}

/// The outcome of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel took the frame.
    Sent,
    /// The kernel has no room; the same frame must be written again later.
    Full,
    /// The kernel refused the frame, which was counted.
    Dropped,
}

/// Longest frame that is no super-frame, in bytes, and the size of the slot for one.
pub(crate) fn frame_bytes_max(mtu: usize) -> usize {
    (mtu + FRAME_HEADER_MAX).next_multiple_of(FRAME_ALIGN)
}

fn slot_bytes(capabilities: &Capabilities) -> usize {
    capabilities.mtu.max(capabilities.segment_bytes_max) + FRAME_HEADER_MAX
}

/// The system calls of one kind of descriptor.
pub trait FrameIo {
    /// Size of a buffer for `read`, bytes.
    fn frame_bytes(capabilities: &Capabilities) -> usize {
        frame_bytes_max(capabilities.mtu)
    }

    /// Reads one frame.
    fn read(&mut self, into: &mut FrameBuf) -> Result<Read, PortError>;
    /// Writes one frame.
    fn write(&mut self, frame: &FrameBuf) -> Result<Written, PortError>;
    /// Accepts merged frames from now on; see [`Port::accept_merged`].
    fn accept_merged(&mut self) -> bool {
        false
    }
    /// True if frames were read ahead, so that the caller must not sleep.
    fn holds_frames(&self) -> bool {
        false
    }
    /// The descriptor to sleep on.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Name of the counter for frames that a failed port dropped.
    const TX_FAILED: &'static str;
    /// Time to look for what the descriptor does not announce, ns.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// Adds the port's named counters.
    fn export(&self, into: &mut PortCounters);
}

/// A port over one descriptor.
#[derive(Debug)]
pub struct FdPort<T> {
    io: T,
    capabilities: Capabilities,
    rx_free: Vec<FrameBuf>,
    lent: RxBatch,
    tx_free: Vec<FrameBuf>,
    granted: TxBatch,
    /// Frames that the kernel has not taken, oldest first.
    pending: VecDeque<FrameBuf>,
    /// True if the last batch was full, so that more frames may be there.
    more: bool,
    /// True once a call reported that the interface is gone; other calls then need not find out.
    is_gone: bool,
    tx_failed: u64,
    totals: PortCounters,
}

impl<T: FrameIo> FdPort<T> {
    /// Makes a port; it sets `capabilities.batch_max` itself.
    pub(crate) fn new(io: T, capabilities: Capabilities) -> Self {
        // Memory of a slot is touched only as far as frames reach.
        let (rx_bytes, tx_bytes) = (T::frame_bytes(&capabilities), slot_bytes(&capabilities));
        Self {
            io,
            capabilities: Capabilities {
                batch_max: FD_BATCH_MAX,
                ..capabilities
            },
            rx_free: carve(FD_BATCH_MAX, rx_bytes),
            lent: RxBatch::new(FD_BATCH_MAX),
            tx_free: carve(FD_TX_SLOTS, tx_bytes),
            granted: TxBatch::new(FD_BATCH_MAX),
            pending: VecDeque::with_capacity(FD_TX_SLOTS),
            more: false,
            is_gone: false,
            tx_failed: 0,
            totals: PortCounters::default(),
        }
    }

    /// Fills the batch. The batch size bounds the number of system calls, whatever they return.
    fn fill(&mut self) -> Result<(), PortError> {
        self.more = true;
        let mut bytes = 0;
        for _ in 0..FD_BATCH_MAX {
            if bytes >= FD_BATCH_BYTES {
                return Ok(());
            }
            let Some(mut buf) = self.rx_free.pop() else {
                return Ok(());
            };
            match self.io.read(&mut buf) {
                Ok(Read::Frame) => {
                    self.totals.rx_frames += 1;
                    self.totals.rx_bytes += buf.len() as u64;
                    bytes += buf.len();
                    self.lent.push(buf);
                }
                Ok(Read::Dropped) => self.rx_free.push(buf),
                Ok(Read::Empty) => {
                    self.more = false;
                    self.rx_free.push(buf);
                    return Ok(());
                }
                Err(error) => {
                    self.more = false;
                    self.rx_free.push(buf);
                    self.is_gone |= error == PortError::Gone;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes pending frames until the kernel has no room.
    fn flush(&mut self) -> Result<(), PortError> {
        while let Some(buf) = self.pending.front() {
            let written = self.io.write(buf);
            let bytes = buf.len() as u64;
            match written {
                Ok(Written::Full) => return Ok(()),
                Ok(Written::Sent) => {
                    self.totals.tx_frames += 1;
                    self.totals.tx_bytes += bytes;
                }
                Ok(Written::Dropped) => {}
                Err(error) => {
                    self.tx_failed += self.pending.len() as u64;
                    self.tx_free.extend(self.pending.drain(..));
                    self.is_gone |= error == PortError::Gone;
                    return Err(error);
                }
            }
            self.tx_free.extend(self.pending.pop_front());
        }
        Ok(())
    }
}

impl<T: FrameIo> Port for FdPort<T> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        // A caller busy with received frames never sleeps, and does not send if it has nothing to
        // send or no slot.
        if !self.pending.is_empty() {
            // `prepare_wait` reports a failure.
            let _ = self.flush();
        }
        if self.is_gone {
            return Err(PortError::Gone);
        }
        let filled = self.fill();
        if self.lent.is_empty() {
            filled?;
        }
        Ok(self.lent.frames())
    }

    fn release(&mut self) {
        self.rx_free.extend(self.lent.drain());
    }

    fn accept_merged(&mut self) -> bool {
        self.io.accept_merged()
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let n = n.min(FD_BATCH_MAX);
        while self.granted.len() < n {
            let Some(buf) = self.tx_free.pop() else {
                break;
            };
            self.granted.push(buf);
        }
        self.granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        for (i, buf) in self.granted.drain().enumerate() {
            if i < n && !buf.is_empty() {
                self.pending.push_back(buf);
            } else {
                self.tx_free.push(buf);
            }
        }
        self.flush()
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        // The caller's next `send` or `receive` reports a failure again, because a lasting one is
        // remembered.
        let failed = self.flush().is_err() || self.is_gone;
        let room = want_tx && !self.tx_free.is_empty();
        room || failed || self.more || self.io.holds_frames()
    }

    fn finish_wait(&mut self) {}

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        let out = match self.pending.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        fds(self.io.fd(), PollFlags::IN | out);
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.io.deadline_ns()
    }

    fn counters(&self) -> PortCounters {
        let mut all = self.totals;
        self.io.export(&mut all);
        all.push(T::TX_FAILED, self.tx_failed);
        all
    }
}

/// The port's error for a failed system call.
#[cold]
pub(crate) fn failure(call: &'static str, errno: Errno) -> PortError {
    match errno {
        Errno::NODEV | Errno::NXIO | Errno::BADFD => PortError::Gone,
        errno => PortError::Io { call, errno },
    }
}

#[cfg(test)]
mod tests;
