//! A capture of a port's frames as a pcapng file for tcpdump, tshark and Wireshark.
//!
//! The wrapper owns the file and its own transmit slots. [`open`](crate::open::open) makes it from
//! `pcap=FILE`; tests make it too. The file has one interface block (Ethernet, ns timestamps) and
//! one enhanced packet block per frame, with its direction. A buffer is written to the file before
//! the caller sleeps and at the end. A failed write ends the capture, not the port (counter
//! `pcap_failed`).

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use crate::buffer_unsafe::{FrameBuf, TxBatch, carve};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FRAME_HEADER_MAX, PCAP_BUFFER_BYTES};
use crate::port::{Capabilities, Port, PortCounters, PortError};
use crate::wait::realtime_ns;

mod blocks;

pub use blocks::{Direction, Packet, PcapWriter};

/// A port that captures its frames to a file.
pub struct Pcap<P> {
    inner: P,
    capabilities: Capabilities,
    writer: Option<PcapWriter<BufWriter<File>>>,
    /// Buffer for a received frame on its way into the file.
    scratch: Vec<u8>,
    tx_free: Vec<FrameBuf>,
    granted: TxBatch,
    /// The caller's time, ns since 1970; `None`: the system's clock.
    now_ns: Option<u64>,
    written: u64,
    failed: u64,
    tx_no_room: u64,
}

impl<P: Port> Pcap<P> {
    /// Captures the frames of `inner` into a new file, which replaces an old one.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn new(inner: P, path: &Path) -> io::Result<Self> {
        let mut capabilities = inner.capabilities().clone();
        // The file shows complete packets, as the wire carries them.
        capabilities.tx_checksum_offload = false;
        capabilities.segment_bytes_max = 0;
        let file = BufWriter::with_capacity(PCAP_BUFFER_BYTES, File::create(path)?);
        let mut writer = PcapWriter::new(file, &capabilities.name)?;
        writer.flush()?;
        let frame = capabilities.mtu + FRAME_HEADER_MAX;
        let batch = capabilities.batch_max;
        Ok(Self {
            writer: Some(writer),
            scratch: vec![0; frame],
            tx_free: carve(batch, frame),
            granted: TxBatch::new(batch),
            now_ns: None,
            written: 0,
            failed: 0,
            tx_no_room: 0,
            inner,
            capabilities,
        })
    }

    /// Sets the time for the following frames: ns since 1970, or since the start of a simulation.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = Some(now_ns);
    }

    /// Writes the buffer to the file.
    pub fn flush(&mut self) {
        let result = self.writer.as_mut().map_or(Ok(()), PcapWriter::flush);
        note(&mut self.writer, &mut self.failed, result);
    }
}

/// Ends the capture at the first failure.
fn note<W>(writer: &mut Option<W>, failed: &mut u64, result: io::Result<()>) {
    if result.is_err() {
        *writer = None;
        *failed += 1;
    }
}

impl<P: Port> Port for Pcap<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        let now_ns = self.now_ns.unwrap_or_else(realtime_ns);
        let frames = self.inner.receive()?;
        if let Some(writer) = &mut self.writer {
            let mut result = Ok(());
            for frame in frames {
                let n = frame.copy_to(0, &mut self.scratch);
                result = writer.frame(now_ns, Direction::Inbound, &self.scratch[..n], frame.len());
                if result.is_err() {
                    break;
                }
                self.written += 1;
            }
            note(&mut self.writer, &mut self.failed, result);
        }
        Ok(frames)
    }

    /// Grants no more than the inner port has room for, so that `send` can pass all frames on.
    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let n = self.inner.reserve(n.min(self.capabilities.batch_max)).len();
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
        let now_ns = self.now_ns.unwrap_or_else(realtime_ns);
        let slots = self.inner.reserve(n.min(self.granted.len()));
        let mut filled = 0;
        let mut result = Ok(());
        for (i, buf) in self.granted.drain().enumerate() {
            if i < n && !buf.is_empty() {
                if let Some(slot) = slots.get(filled) {
                    slot.set_len(slot.write(0, buf.bytes()));
                    filled += 1;
                } else {
                    self.tx_no_room += 1;
                }
                if let (Some(writer), Ok(())) = (&mut self.writer, &result) {
                    result = writer.frame(now_ns, Direction::Outbound, buf.bytes(), buf.len());
                    self.written += 1;
                }
            }
            self.tx_free.push(buf);
        }
        note(&mut self.writer, &mut self.failed, result);
        self.inner.send(filled)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let ready = self.inner.prepare_wait(want_tx);
        if !ready {
            self.flush();
        }
        ready
    }

    fn counters(&self) -> PortCounters {
        let mut all = self.inner.counters();
        all.push("pcap_written", self.written);
        all.push("pcap_failed", self.failed);
        all.push("pcap_tx_dropped_no_room", self.tx_no_room);
        all
    }

    crate::forward_port!(self => self.inner; release drain waiting finish_wait poll_fds
        deadline_ns host);
}

impl<P> Drop for Pcap<P> {
    fn drop(&mut self) {
        if let Some(writer) = &mut self.writer {
            // A failure at the end cannot be reported.
            let _ = writer.flush();
        }
    }
}

#[cfg(test)]
mod tests;
