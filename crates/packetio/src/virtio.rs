//! The header before each frame of packet sockets and TAPs (`struct virtio_net_hdr`): in both
//! directions it tells what the sender left to the receiver or to hardware.
//!
//! An [`Unpacker`] owns the super-frame that is being cut for a caller that accepts none. `packet`,
//! `tap` and the bulk lane of `xdp` use the module.

use wire::ethernet::{self, EtherType};
use wire::ipv6;

use crate::buffer_unsafe::FrameBuf;
use crate::fd_port::Read;
use crate::frame_unsafe::RxChecksum;
use crate::limits::SUPER_FRAME_BYTES_MAX;
use crate::offload::{Segmenter, complete_at};

/// Bytes of the header.
pub(crate) const VIRTIO_HEADER_LEN: usize = 10;
/// The header of a complete frame.
const NOTHING_TO_DO: [u8; VIRTIO_HEADER_LEN] = [0; VIRTIO_HEADER_LEN];

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// Offset in the TCP header of the byte with the data offset.
const DATA_OFFSET_AT: usize = 12;

/// The work that a header leaves to the frame's receiver.
#[derive(Clone, Copy, Debug)]
struct Todo {
    needs_checksum: bool,
    is_valid: bool,
    gso_type: u8,
    gso_size: u16,
    checksum_start: usize,
    checksum_offset: usize,
}

impl Todo {
    fn parse(header: &[u8; VIRTIO_HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Self {
            needs_checksum: header[0] & NEEDS_CHECKSUM != 0,
            is_valid: header[0] & DATA_VALID != 0,
            gso_type: header[1] & !GSO_ECN,
            gso_size: word(4),
            checksum_start: usize::from(word(6)),
            checksum_offset: usize::from(word(8)),
        }
    }

    /// True if the sender or the kernel merged TCP segments.
    fn is_merged_tcp(&self) -> bool {
        matches!(self.gso_type, GSO_TCP_V4 | GSO_TCP_V6) && self.gso_size > 0
    }
}

/// The header for a frame to be sent: the checksum and segmentation that its writer left to the
/// port.
pub(crate) fn header_of(frame: &FrameBuf) -> [u8; VIRTIO_HEADER_LEN] {
    let Some((start, offset)) = frame.offload else {
        return NOTHING_TO_DO;
    };
    let mut header = NOTHING_TO_DO;
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    put(6, start);
    put(8, offset);
    if frame.segment_bytes > 0 {
        let data_offset = usize::from(start) + DATA_OFFSET_AT;
        let words = frame.bytes().get(data_offset).map_or(0, |byte| byte >> 4);
        put(2, start + u16::from(words) * 4);
        put(4, frame.segment_bytes);
        let link = ethernet::Header::parse(frame.bytes());
        header[1] = match link.map(|(link, _)| link.ethertype) {
            Ok(EtherType::IPV6) => GSO_TCP_V6,
            _ => GSO_TCP_V4,
        };
    }
    header[0] = NEEDS_CHECKSUM;
    header
}

/// Turns frames read behind a header into frames for the port's caller.
#[derive(Debug)]
pub(crate) struct Unpacker {
    segmenter: Segmenter,
    /// True if the caller accepts merged frames and unfinished checksums.
    pub merges: bool,
    /// Longest frame that is no super-frame, bytes.
    frame_bytes_max: usize,
    /// Frames dropped because they are longer than that.
    pub too_long: u64,
    /// Frames dropped because their header is invalid.
    pub bad_offload: u64,
    /// Super-frames cut for the caller.
    pub segmented: u64,
    /// Merged frames lent to the caller.
    pub merged: u64,
    /// Checksums completed for the caller.
    pub completed: u64,
}

impl Unpacker {
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            segmenter: Segmenter::new(SUPER_FRAME_BYTES_MAX),
            merges: false,
            frame_bytes_max,
            too_long: 0,
            bad_offload: 0,
            segmented: 0,
            merged: 0,
            completed: 0,
        }
    }

    /// True if segments of a super-frame are left.
    pub fn holds_frames(&self) -> bool {
        !self.segmenter.is_empty()
    }

    /// Processes the frame in `into`, which was read behind `header`.
    pub fn unpack(&mut self, header: &[u8; VIRTIO_HEADER_LEN], into: &mut FrameBuf) -> Read {
        let todo = Todo::parse(header);
        into.checksum = match todo.needs_checksum || todo.is_valid {
            true => RxChecksum::Verified,
            false => RxChecksum::Unknown,
        };
        into.segment_bytes = 0;
        if todo.gso_type != GSO_NONE {
            return self.unpack_large(todo, into);
        }
        if into.len() > self.frame_bytes_max {
            self.too_long += 1;
            return Read::Dropped;
        }
        if todo.needs_checksum && !self.merges {
            if !complete_at(into.bytes_mut(), todo.checksum_start, todo.checksum_offset) {
                self.bad_offload += 1;
                return Read::Dropped;
            }
            self.completed += 1;
        }
        Read::Frame
    }

    fn unpack_large(&mut self, todo: Todo, into: &mut FrameBuf) -> Read {
        if self.merges && todo.is_merged_tcp() && has_whole_packet(into.bytes()) {
            into.segment_bytes = todo.gso_size;
            self.merged += 1;
            return Read::Frame;
        }
        if !self
            .segmenter
            .load(into.bytes(), usize::from(todo.gso_size))
        {
            self.bad_offload += 1;
            return Read::Dropped;
        }
        self.segmented += 1;
        self.next_segment(into)
    }

    /// Cuts the next segment off the current super-frame.
    pub fn next_segment(&mut self, into: &mut FrameBuf) -> Read {
        let room = self.frame_bytes_max.min(into.capacity());
        let Some(len) = self.segmenter.cut(&mut into.space()[..room]) else {
            self.too_long += 1;
            return Read::Dropped;
        };
        into.set_len(len);
        into.segment_bytes = 0;
        into.checksum = RxChecksum::Verified;
        Read::Frame
    }
}

/// True if the IP header's length agrees with the frame's. IPv4 cannot express a packet longer than
/// 65,535 bytes.
fn has_whole_packet(frame: &[u8]) -> bool {
    let Ok((header, at)) = ethernet::Header::parse(frame) else {
        return false;
    };
    let (len_at, more) = match header.ethertype {
        EtherType::IPV4 => (at + 2, 0),
        EtherType::IPV6 => (at + 4, ipv6::HEADER_LEN),
        _ => return false,
    };
    let Some(&[high, low]) = frame.get(len_at..len_at + 2) else {
        return false;
    };
    let len = usize::from(u16::from_be_bytes([high, low])) + more;
    at + len == frame.len()
}

#[cfg(test)]
mod tests;
