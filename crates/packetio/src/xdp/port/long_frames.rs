//! Frames longer than a chunk, in generic mode: put together from their parts, and cut into frames
//! of the link's size.
//!
//! A kernel peer leaves TCP segmentation to hardware that a veth does not have, and GRO makes long
//! frames of short ones. Generic XDP sees both whole, of up to 64 KiB. Dropping them would stall a
//! connection, so they are cut here, off the fast path. Owns the frame under way and the buffers of
//! the pieces; called by the port's `receive`.

use wire::ethernet::{self, EtherType};
use wire::{ipv4, ipv6, protocol, tcp};

use crate::buffer_unsafe::{FrameBuf, RxBatch, carve};
use crate::frame_unsafe::RxFrame;
use crate::limits::{FRAME_HEADER_MAX, SUPER_FRAME_BYTES_MAX, XDP_BATCH_MAX};
use crate::offload::Segmenter;

/// The frame that is arriving, or being cut. All memory is taken at open.
#[derive(Debug)]
pub(super) struct LongFrames {
    /// Largest IP packet to cut to, in bytes.
    mtu: usize,
    /// The part of the frame that has arrived.
    parts: Vec<u8>,
    /// A part is missing or too much: the frame is dropped when its last part comes.
    broken: bool,
    assembling: bool,
    segmenter: Segmenter,
    free: Vec<FrameBuf>,
    lent: RxBatch,
}

/// Outcome of a frame once its last part is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// Pieces of it are ready.
    Cut,
    /// The frame was not TCP, or not whole.
    Dropped,
}

impl LongFrames {
    /// For a link of this MTU.
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

    /// Whether the next descriptor belongs to a frame whose start has been taken.
    pub(super) fn is_assembling(&self) -> bool {
        self.assembling
    }

    /// Whether pieces wait to be lent.
    pub(super) fn is_ready(&self) -> bool {
        !self.segmenter.is_empty()
    }

    /// Takes a part that others follow; `None` for one that the descriptor misnamed.
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

    /// Takes the last part.
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

    /// The next pieces, lent until `release`.
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

    /// The pieces come back.
    pub(super) fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }
}

/// Bytes of the link's header, and of all headers up to TCP's; `None` for what is not whole TCP.
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
