//! The common part of ports over a file descriptor: one system call moves one frame, in bounded
//! batches.
//!
//! Owns the frame buffers of both directions and the frames that the kernel did not take at once.
//! `tap` and `packet` give it a [`FrameIo`] and are done. Frames that the kernel refuses for now
//! wait here in order; their slots are missing from `reserve`, which is the back-pressure. They are
//! offered again with every call that speaks to the kernel anyway: `receive`, `send`,
//! `prepare_wait`.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FD_BATCH_BYTES, FD_BATCH_MAX, FD_TX_SLOTS, FRAME_HEADER_MAX};
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// Frame buffers are a multiple of this long.
const FRAME_ALIGN: usize = 64;

/// The outcome of one attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A frame is in the buffer.
    Frame,
    /// Something came and was dropped and counted; try again.
    Dropped,
    /// Nothing there.
    Empty,
}

/// The outcome of one attempt to write a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel has it.
    Sent,
    /// The kernel has no room; the same frame again later.
    Full,
    /// The frame was refused and counted.
    Dropped,
}

/// Bytes of a frame that is no super-frame, and of the slot that one is written into.
pub(crate) fn frame_bytes_max(mtu: usize) -> usize {
    (mtu + FRAME_HEADER_MAX).next_multiple_of(FRAME_ALIGN)
}

fn slot_bytes(capabilities: &Capabilities) -> usize {
    capabilities.mtu.max(capabilities.segment_bytes_max) + FRAME_HEADER_MAX
}

/// The system calls of one kind of descriptor.
pub trait FrameIo {
    /// Bytes of a buffer that `read` fills.
    fn frame_bytes(capabilities: &Capabilities) -> usize {
        frame_bytes_max(capabilities.mtu)
    }

    /// Reads one frame.
    fn read(&mut self, into: &mut FrameBuf) -> Result<Read, PortError>;
    /// Writes one frame.
    fn write(&mut self, frame: &FrameBuf) -> Result<Written, PortError>;
    /// Merged frames may be read from now on; see [`Port::accept_merged`].
    fn accept_merged(&mut self) -> bool {
        false
    }
    /// Frames were read ahead of what was handed out: do not sleep.
    fn holds_frames(&self) -> bool {
        false
    }
    /// The descriptor to sleep on.
    fn fd(&self) -> BorrowedFd<'_>;
    /// The name under which frames are counted that a failed port dropped.
    const TX_FAILED: &'static str;
    /// When there is something to look after that the descriptor does not announce, in ns.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// Adds the named counters.
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
    /// Frames to be written, oldest first.
    pending: VecDeque<FrameBuf>,
    /// The last batch was full, so more may be there.
    more: bool,
    /// A call said that the interface is gone: others need not find out by themselves.
    is_gone: bool,
    tx_failed: u64,
    totals: PortCounters,
}

impl<T: FrameIo> FdPort<T> {
    /// `capabilities.batch_max` is set here.
    pub(crate) fn new(io: T, capabilities: Capabilities) -> Self {
        // Memory of a slot is touched as far as frames reach.
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

    /// Fills the batch; system calls are bounded by the batch size, whatever they bring.
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

    /// Writes what is pending, until the kernel is full.
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
        // A caller who is kept busy by what arrives neither sleeps nor, when it has nothing to send
        // or no slot for it, sends.
        if !self.pending.is_empty() {
            // A failure shows as in `prepare_wait`.
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
        // A failure shows again at the caller's next `send` or `receive`, for one that lasts is
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

/// The meaning of a failed system call for the port.
#[cold]
pub(crate) fn failure(call: &'static str, errno: Errno) -> PortError {
    match errno {
        Errno::NODEV | Errno::NXIO | Errno::BADFD => PortError::Gone,
        errno => PortError::Io { call, errno },
    }
}

#[cfg(test)]
mod tests;
