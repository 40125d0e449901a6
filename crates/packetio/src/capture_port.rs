//! A wrapper port that copies passing frames into a log which other processes read.
//!
//! The stack [covers](CapturePort::cover) a port with this wrapper for the time of a capture and
//! [uncovers](CapturePort::uncover) it afterwards, so other stacks pay nothing. All calls pass
//! through. Transmit slots are the inner port's own and are read just before they leave. Readers
//! get a received batch only when the caller gives it back, so that the caller can note its drops.
//!
//! Readers tell which frames they want. For unwanted frames the stack reads headers but copies
//! nothing.

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
    /// Frames of the lent batch that are logged: position in the batch, and record.
    lent: Vec<(usize, Record)>,
}

/// The log, and the readers' wishes.
struct Recorder {
    log: FrameLog,
    wishes: Wishes,
    /// Buffer for a frame on its way into the log.
    scratch: Vec<u8>,
}

/// The time at which a batch passes the port, read only if a frame of it is logged.
#[derive(Default)]
struct Stamp(Option<u64>);

impl Stamp {
    #[inline]
    fn ns(&mut self) -> u64 {
        *self.0.get_or_insert_with(realtime_ns)
    }
}

impl Recorder {
    /// Logs a batch of received frames, and adds those that are logged to `lent`.
    fn record_received(&mut self, frames: &[RxFrame], lent: &mut Vec<(usize, Record)>) {
        // The stack looks at headers ahead of their turn, so that it waits for no cache line. Whoever
        // looks before it has to do the same.
        for frame in frames {
            frame.prefetch();
        }
        let mut stamp = Stamp::default();
        for (at, frame) in frames.iter().enumerate() {
            if !self.wishes.want(frame, frame.len()) {
                continue;
            }
            let copied = frame.copy_to(0, &mut self.scratch);
            let first = &self.scratch[..copied];
            let record = self.log.write(stamp.ns(), false, first, frame.len());
            lent.push((at, record));
        }
    }

    /// Logs a batch of frames that are about to be sent.
    fn record_sent(&mut self, frames: &[TxFrame]) {
        let mut stamp = Stamp::default();
        for frame in frames.iter().filter(|frame| !frame.is_empty()) {
            if !self.wishes.want(frame, frame.len()) {
                continue;
            }
            let copied = frame.copy_to(0, &mut self.scratch);
            let first = &mut self.scratch[..copied];
            // The slot holds a partial sum if the driver computes the checksum. The log gets the
            // complete checksum, for a frame that the wire cuts too, as if it were one segment.
            if let Some((start, offset)) = frame.checksum_offload()
                && first.len() == frame.len()
            {
                complete_at(first, start.into(), offset.into());
            }
            self.log.write(stamp.ns(), true, first, frame.len());
        }
        self.log.publish();
    }

    /// Logs the first bytes of a frame of `wire_bytes` bytes that was given up.
    fn record_unsent(&mut self, bytes: &[u8], wire_bytes: usize, reason: usize) {
        if self.wishes.want(bytes, wire_bytes) {
            let record = self.log.write(realtime_ns(), true, bytes, wire_bytes);
            self.log.drop_record(record, reason);
            self.log.publish();
        }
    }
}

impl CapturePort {
    /// Begins to log the frames of `port`. No batch may be lent and no slot reserved.
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

    /// Ends the log and restores the covered port. A port without a cover is left alone.
    pub fn uncover(port: &mut Box<dyn Port + Send>) {
        let Some(cover) = Self::of(&mut **port) else {
            return;
        };
        cover.recorder.log.publish();
        let place = Box::new(NoPort(cover.inner.capabilities().clone()));
        *port = std::mem::replace(&mut cover.inner, place);
    }

    /// The cover of `port`, if it has one.
    pub fn of(port: &mut dyn Port) -> Option<&mut Self> {
        port.wrapper()?.downcast_mut()
    }

    /// Logs frames that `filter` selects (all without a filter) until `until_ns`, with at least
    /// `snap` bytes of each. Nothing is logged before the first call.
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
    /// The process has no descriptor left.
    pub fn file(&self) -> rustix::io::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.recorder.log.file(), 0)
    }

    /// Notes that the caller dropped the frame at position `at` of the lent batch. `reason`: the
    /// number of the drop reason.
    pub fn note_drop(&mut self, at: usize, reason: usize) {
        if let Ok(index) = self.lent.binary_search_by_key(&at, |(logged, _)| *logged) {
            self.recorder.log.drop_record(self.lent[index].1, reason);
        }
    }

    /// Receives like [`Port::receive`], and replaces `logged` by the positions of the frames that are
    /// logged, in rising order. Only drops of such frames need to be [noted](Self::note_drop).
    ///
    /// # Errors
    /// The errors of [`Port::receive`].
    pub fn receive_noting(&mut self, logged: &mut Vec<usize>) -> Result<&[RxFrame], PortError> {
        self.give_back();
        let frames = self.inner.receive()?;
        self.recorder.record_received(frames, &mut self.lent);
        logged.clear();
        logged.extend(self.lent.iter().map(|(at, _)| *at));
        Ok(frames)
    }

    /// Logs the first bytes of a frame that the caller gave up. `reason`: the number of the drop
    /// reason. No batch may be lent.
    pub fn note_unsent(&mut self, bytes: &[u8], wire_bytes: usize, reason: usize) {
        self.recorder.record_unsent(bytes, wire_bytes, reason);
    }

    /// Releases the records of the lent batch to the readers.
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

/// A port without function, which stands in while the real port is moved.
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
