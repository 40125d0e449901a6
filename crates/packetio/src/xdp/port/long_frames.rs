//! Frames longer than a chunk, in generic mode: assembled from their parts, then cut into frames
//! for the link.
//!
//! A kernel peer leaves TCP segmentation to hardware that a veth lacks, and GRO merges short
//! frames. Generic XDP sees such frames whole, up to 64 KiB. Dropping them would stall a
//! connection, so they are cut here, off the fast path. A [`LongFrames`] owns the frame under way
//! and the buffers of its pieces; the port's `receive` calls it.

use wire::ethernet::{self, EtherType};
use wire::{ipv4, ipv6, protocol, tcp};

use crate::buffer_unsafe::{FrameBuf, RxBatch, carve};
use crate::frame_unsafe::RxFrame;
use crate::limits::{FRAME_HEADER_MAX, SUPER_FRAME_BYTES_MAX, XDP_BATCH_MAX};
use crate::offload::Segmenter;

/// The frame that is being assembled or cut. All memory is allocated at open.
#[derive(Debug)]
pub(super) struct LongFrames {
    /// Largest IP packet of a piece, bytes.
    mtu: usize,
    /// The parts of the frame that have arrived.
    parts: Vec<u8>,
    /// True if a part is missing or too long: the frame is dropped after its last part.
    broken: bool,
    assembling: bool,
    segmenter: Segmenter,
    free: Vec<FrameBuf>,
    lent: RxBatch,
}

/// The result of a frame's last part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// Pieces of the frame are ready.
    Cut,
    /// The frame was dropped, because it is not TCP or incomplete.
    Dropped,
}

impl LongFrames {
    /// Makes the assembler for a link with this MTU.
    pub(super) fn new(mtu: usize) -> Self {
        Self {
            mtu,
            parts: Vec::with_capacity(SUPER_FRAME_BYTES_MAX),
            broken: false,
            assembling: false,
            segmenter: Segmenter::new(SUPER_FRAME_BYTES_MAX),
            free: carve(XDP_BATCH_MAX, mtu + FRAME_HEADER_MAX),
            lent: RxBatch::new(XDP_BATCH_MAX),
        }
    }

    /// True if the next descriptor belongs to a frame whose first part was taken.
    pub(super) fn is_assembling(&self) -> bool {
        self.assembling
    }

    /// True if pieces wait to be lent.
    pub(super) fn is_ready(&self) -> bool {
        !self.segmenter.is_empty()
    }

    /// Takes a part that is not the last; `None`: its descriptor was invalid.
    pub(super) fn push(&mut self, part: Option<&RxFrame>) {
        if !self.assembling {
            self.parts.clear();
            self.broken = false;
            self.assembling = true;
        }
        let at = self.parts.len();
        match part {
            Some(part) if at + part.len() <= SUPER_FRAME_BYTES_MAX => {
                self.parts.resize(at + part.len(), 0);
                part.copy_to(0, &mut self.parts[at..]);
            }
            _ => self.broken = true,
        }
    }

    /// Takes the last part; `None`: its descriptor was invalid.
    pub(super) fn finish(&mut self, part: Option<&RxFrame>) -> Assembled {
        self.push(part);
        self.assembling = false;
        let headers = header_bytes(&self.parts).filter(|_| !self.broken);
        let Some((link, headers)) = headers else {
            return Assembled::Dropped;
        };
        let segment = (link + self.mtu).saturating_sub(headers);
        match self.segmenter.load(&self.parts, segment) {
            true => Assembled::Cut,
            false => Assembled::Dropped,
        }
    }

    /// Lends the next pieces, until `release`.
    pub(super) fn lend(&mut self) -> &[RxFrame] {
        while let Some(mut buf) = self.free.pop() {
            match self.segmenter.cut(buf.space()) {
                Some(len) => {
                    buf.set_len(len);
                    self.lent.push(buf);
                }
                None => {
                    self.free.push(buf);
                    break;
                }
            }
        }
        self.lent.frames()
    }

    /// Ends the loan of pieces.
    pub(super) fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }
}

/// Length of the link's header, and of all headers up to TCP's, bytes; `None` if the frame is not
/// complete TCP.
fn header_bytes(frame: &[u8]) -> Option<(usize, usize)> {
    let (header, link) = ethernet::Header::parse(frame).ok()?;
    let packet = frame.get(link..)?;
    let (above, skip) = match header.ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(packet, packet.len()).ok()?;
            (ip.protocol, usize::from(ip.header_len))
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(packet, packet.len()).ok()?;
            ipv6::upper_layer(&ip, packet).ok()?
        }
        _ => return None,
    };
    if above != protocol::TCP {
        return None;
    }
    let (_, offset) = tcp::Header::parse(packet.get(skip..)?).ok()?;
    Some((link, link + skip + offset))
}

#[cfg(test)]
mod tests;
