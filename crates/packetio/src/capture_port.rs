//! A port around another that copies what passes into a log which other processes read.
//!
//! The stack [covers](CapturePort::cover) its port with it while somebody captures, and
//! [uncovers](CapturePort::uncover) it afterwards: a stack without a capture pays nothing for it.
//! Everything passes through. Slots are the inner port's own and are read just before they leave.
//! A batch of received frames reaches readers when the caller gives it back, so that the caller can
//! say before which frames it dropped.

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};

use ring::frame_log::{FrameLog, Record};
use rustix::event::PollFlags;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::offload::complete_at;
use crate::port::{Capabilities, Port, PortCounters, PortError};
use crate::wait::realtime_ns;

/// See the module's documentation.
pub struct CapturePort {
    inner: Box<dyn Port + Send>,
    log: FrameLog,
    /// Where a frame is copied on its way into the log.
    scratch: Vec<u8>,
    /// Records of the batch that is lent.
    lent: Vec<Record>,
}

impl CapturePort {
    /// Logs what passes `port` from now on. No batch may be lent and no slot reserved.
    pub fn cover(port: &mut Box<dyn Port + Send>, log: FrameLog) {
        let capabilities = port.capabilities().clone();
        let lent = Vec::with_capacity(capabilities.batch_max);
        let inner = std::mem::replace(port, Box::new(NoPort(capabilities)));
        *port = Box::new(Self {
            scratch: vec![0; log.snap()],
            lent,
            log,
            inner,
        });
    }

    /// Ends the log: `port` is again the one that was covered. Nothing happens to any other port.
    pub fn uncover(port: &mut Box<dyn Port + Send>) {
        let Some(cover) = Self::of(&mut **port) else {
            return;
        };
        cover.log.publish();
        let place = Box::new(NoPort(cover.inner.capabilities().clone()));
        *port = std::mem::replace(&mut cover.inner, place);
    }

    /// The cover of this port, if it has one.
    pub fn of(port: &mut dyn Port) -> Option<&mut Self> {
        port.wrapper()?.downcast_mut()
    }

    /// Keeps at least `snap` bytes of each frame from now on.
    pub fn raise_snap(&mut self, snap: usize) {
        if snap > self.log.snap() {
            self.log.set_snap(snap);
            self.scratch.resize(self.log.snap(), 0);
        }
    }

    /// A copy of the log's descriptor, to hand to a reader.
    ///
    /// # Errors
    /// The kernel's error: no descriptor is left.
    pub fn file(&self) -> rustix::io::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.log.file(), 0)
    }

    /// The caller dropped the frame at this position of the lent batch, for the reason of this
    /// number.
    pub fn note_drop(&mut self, at: usize, reason: usize) {
        if let Some(&record) = self.lent.get(at) {
            self.log.drop_record(record, reason);
        }
    }

    /// Logs the first bytes of a frame that the caller did not send, for the reason of this number.
    /// No batch may be lent.
    pub fn note_unsent(&mut self, bytes: &[u8], wire_bytes: usize, reason: usize) {
        let record = self.log.write(realtime_ns(), true, bytes, wire_bytes);
        self.log.drop_record(record, reason);
        self.log.publish();
    }

    /// Readers may have the batch that was lent.
    fn give_back(&mut self) {
        self.lent.clear();
        self.log.publish();
    }
}

impl Port for CapturePort {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.give_back();
        let frames = self.inner.receive()?;
        if !frames.is_empty() {
            let now_ns = realtime_ns();
            for frame in frames {
                let n = frame.copy_to(0, &mut self.scratch);
                let bytes = &self.scratch[..n];
                self.lent
                    .push(self.log.write(now_ns, false, bytes, frame.len()));
            }
        }
        Ok(frames)
    }

    fn release(&mut self) {
        self.give_back();
        self.inner.release();
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        if n > 0 {
            let now_ns = realtime_ns();
            let frames = self.inner.reserved().iter().take(n);
            for frame in frames.filter(|frame| !frame.is_empty()) {
                let copied = frame.copy_to(0, &mut self.scratch);
                let bytes = &mut self.scratch[..copied];
                // A checksum that the driver computes is in the slot as a partial sum. That of a
                // frame which the wire cuts is made whole as if it were one segment.
                if let Some((start, offset)) = frame.checksum_offload()
                    && copied == frame.len()
                {
                    complete_at(bytes, start.into(), offset.into());
                }
                self.log.write(now_ns, true, bytes, frame.len());
            }
            self.log.publish();
        }
        self.inner.send(n)
    }

    fn wrapper(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    crate::forward_port!(self => self.inner; capabilities drain waiting accept_merged reserve
        reserved prepare_wait finish_wait poll_fds deadline_ns counters host
        mover_shares_cpu);
}

/// A port on which nothing happens. It holds a place while the real one moves.
struct NoPort(Capabilities);

impl Port for NoPort {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        Ok(&[])
    }

    fn release(&mut self) {}

    fn reserve(&mut self, _n: usize) -> &[TxFrame] {
        &[]
    }

    fn reserved(&self) -> &[TxFrame] {
        &[]
    }

    fn send(&mut self, _n: usize) -> Result<(), PortError> {
        Ok(())
    }

    fn prepare_wait(&mut self, _want_tx: bool) -> bool {
        false
    }

    fn finish_wait(&mut self) {}

    fn poll_fds<'a>(&'a self, _want_tx: bool, _fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {}

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

#[cfg(test)]
mod tests;
