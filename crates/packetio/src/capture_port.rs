//! A port around another that copies what passes into a log which other processes read.
//!
//! The stack [covers](CapturePort::cover) its port with it while somebody captures, and
//! [uncovers](CapturePort::uncover) it afterwards: a stack without a capture pays nothing for it.
//! Everything passes through. Slots are the inner port's own and are read just before they leave.
//! A batch of received frames reaches readers when the caller gives it back, so that the caller can
//! say before which frames it dropped.
//!
//! Readers say which frames they want. One that wants few costs the stack a look at each frame's
//! headers in place of a copy.

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};

use ring::frame_log::{FrameLog, Record};
use rustix::event::PollFlags;

use crate::frame_filter::FrameFilter;
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::offload::complete_at;
use crate::port::{Capabilities, Port, PortCounters, PortError};
use crate::wait::realtime_ns;
use wishes::Wishes;

mod wishes;

/// See the module's documentation.
pub struct CapturePort {
    inner: Box<dyn Port + Send>,
    recorder: Recorder,
    /// Records of the batch that is lent. `None`: nobody wants the frame.
    lent: Vec<Option<Record>>,
}

/// The log, and what goes into it.
struct Recorder {
    log: FrameLog,
    wishes: Wishes,
    /// Where a frame is copied on its way into the log.
    scratch: Vec<u8>,
}

impl Recorder {
    /// Logs a frame of `bytes` bytes, if somebody wants it. `copy` puts the first of them into a
    /// slice and says how many; `complete` changes them on their way into the log.
    #[inline]
    fn record(
        &mut self,
        (at_ns, is_outbound): (u64, bool),
        bytes: usize,
        copy: impl Fn(&mut [u8]) -> usize,
        complete: impl Fn(&mut [u8]),
    ) -> Option<Record> {
        if !self.wishes.want(bytes, &mut self.scratch, &copy) {
            return None;
        }
        let copied = copy(&mut self.scratch);
        let first = &mut self.scratch[..copied];
        complete(first);
        Some(self.log.write(at_ns, is_outbound, first, bytes))
    }

    /// Logs a batch of received frames.
    fn record_received(&mut self, frames: &[RxFrame], lent: &mut Vec<Option<Record>>) {
        if frames.is_empty() {
            return;
        }
        let stamp = (realtime_ns(), false);
        for frame in frames {
            let copy = |out: &mut [u8]| frame.copy_to(0, out);
            lent.push(self.record(stamp, frame.len(), copy, |_| {}));
        }
    }

    /// Logs a batch of frames that are about to be sent.
    fn record_sent(&mut self, frames: &[TxFrame]) {
        let stamp = (realtime_ns(), true);
        for frame in frames.iter().filter(|frame| !frame.is_empty()) {
            let copy = |out: &mut [u8]| frame.copy_to(0, out);
            // A checksum that the driver computes is in the slot as a partial sum. That of a frame
            // which the wire cuts is made whole as if it were one segment.
            let complete = |first: &mut [u8]| {
                if let Some((start, offset)) = frame.checksum_offload()
                    && first.len() == frame.len()
                {
                    complete_at(first, start.into(), offset.into());
                }
            };
            self.record(stamp, frame.len(), copy, complete);
        }
        self.log.publish();
    }
}

impl CapturePort {
    /// Logs what passes `port` from now on. No batch may be lent and no slot reserved.
    pub fn cover(port: &mut Box<dyn Port + Send>, log: FrameLog) {
        let capabilities = port.capabilities().clone();
        let lent = Vec::with_capacity(capabilities.batch_max);
        let inner = std::mem::replace(port, Box::new(NoPort(capabilities)));
        let recorder = Recorder {
            scratch: vec![0; log.snap()],
            wishes: Wishes::default(),
            log,
        };
        *port = Box::new(Self {
            inner,
            recorder,
            lent,
        });
    }

    /// Ends the log: `port` is again the one that was covered. Nothing happens to any other port.
    pub fn uncover(port: &mut Box<dyn Port + Send>) {
        let Some(cover) = Self::of(&mut **port) else {
            return;
        };
        cover.recorder.log.publish();
        let place = Box::new(NoPort(cover.inner.capabilities().clone()));
        *port = std::mem::replace(&mut cover.inner, place);
    }

    /// The cover of this port, if it has one.
    pub fn of(port: &mut dyn Port) -> Option<&mut Self> {
        port.wrapper()?.downcast_mut()
    }

    /// Logs the frames that a filter takes until `until_ns`, or all frames, and keeps at least
    /// `snap` bytes of each. Nothing is logged before the first such request.
    pub fn want(&mut self, snap: usize, filter: Option<FrameFilter>, now_ns: u64, until_ns: u64) {
        let recorder = &mut self.recorder;
        if snap > recorder.log.snap() {
            recorder.log.set_snap(snap);
            recorder.scratch.resize(recorder.log.snap(), 0);
        }
        recorder.wishes.add(filter, now_ns, until_ns);
    }

    /// A copy of the log's descriptor, to hand to a reader.
    ///
    /// # Errors
    /// The kernel's error: no descriptor is left.
    pub fn file(&self) -> rustix::io::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.recorder.log.file(), 0)
    }

    /// The caller dropped the frame at this position of the lent batch, for the reason of this
    /// number.
    pub fn note_drop(&mut self, at: usize, reason: usize) {
        if let Some(&Some(record)) = self.lent.get(at) {
            self.recorder.log.drop_record(record, reason);
        }
    }

    /// Receives as [`Port::receive`], and says in `logged` which of the frames go into the log.
    /// The reasons of other drops need not be [noted](Self::note_drop).
    ///
    /// # Errors
    /// As [`Port::receive`].
    pub fn receive_noting(&mut self, logged: &mut Vec<bool>) -> Result<&[RxFrame], PortError> {
        self.give_back();
        let frames = self.inner.receive()?;
        self.recorder.record_received(frames, &mut self.lent);
        logged.clear();
        logged.extend(self.lent.iter().map(Option::is_some));
        Ok(frames)
    }

    /// Logs the first bytes of a frame that the caller did not send, for the reason of this number.
    /// No batch may be lent.
    pub fn note_unsent(&mut self, bytes: &[u8], wire_bytes: usize, reason: usize) {
        let copy = |out: &mut [u8]| {
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            n
        };
        let stamp = (realtime_ns(), true);
        let recorder = &mut self.recorder;
        if let Some(record) = recorder.record(stamp, wire_bytes, copy, |_| {}) {
            recorder.log.drop_record(record, reason);
            recorder.log.publish();
        }
    }

    /// Readers may have the batch that was lent.
    fn give_back(&mut self) {
        self.lent.clear();
        self.recorder.log.publish();
    }
}

impl Port for CapturePort {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.give_back();
        let frames = self.inner.receive()?;
        self.recorder.record_received(frames, &mut self.lent);
        Ok(frames)
    }

    fn release(&mut self) {
        self.give_back();
        self.inner.release();
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        if n > 0 {
            let reserved = self.inner.reserved();
            self.recorder
                .record_sent(&reserved[..n.min(reserved.len())]);
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
