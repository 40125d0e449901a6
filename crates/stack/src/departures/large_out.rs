//! Bursts of one connection as large frames, which the port cuts into the segments that would
//! otherwise leave one by one.
//!
//! A large frame holds full segments with equal headers, as
//! [`poll_burst_tail`](tcp::Connection::poll_burst_tail) yields them: no FIN, no SACK blocks, no
//! window change between them. PSH is set on the frame that ends the burst, and the port sets it on
//! the last segment only. Every other segment leaves in a frame of its own. `tcp_out` calls this
//! module if the port cuts packets.

use packetio::TxFrame;
use ring::raw::RawSliceMut;
use tcp::{BurstTail, SegmentOut};
use wire::tcp::Flags;
use wire::{ipv4, ipv6};

use crate::departures::packet_out::{BurstOut, FrameWriter, build_segment};

impl FrameWriter<'_> {
    /// Sends `first` and the tail of its burst, with as many segments per frame as the port can
    /// cut.
    #[inline(never)]
    pub(super) fn large_out(
        &mut self,
        frames: &[TxFrame],
        first: &SegmentOut,
        tail: BurstTail,
    ) -> BurstOut {
        let mut out = BurstOut::default();
        let per_frame = self.segments_per_frame(first);
        let size = first.payload_len;
        let mut segment = first.clone();
        let mut left = 1 + tail.segments;
        while left > 0 {
            let count = left.min(per_frame);
            segment.payload_len = count * size;
            if count == left && tail.ends_burst {
                segment.flags |= Flags::PSH;
            }
            let built = frames
                .get(out.frames)
                .is_some_and(|frame| self.one_large(frame, &segment, size, count));
            match built {
                true => out.frames += 1,
                false => out.segments_lost += u64::from(count),
            }
            if built && count > 1 {
                out.segments_in_large += u64::from(count);
            }
            segment.seq += segment.payload_len;
            segment.payload_offset += segment.payload_len;
            left -= count;
        }
        out
    }

    /// Number of segments like `first` that fit one frame.
    #[inline]
    pub(super) fn segments_per_frame(&self, first: &SegmentOut) -> u32 {
        match self.segment_bytes_max {
            0 => 1,
            bytes => self.segments_in(bytes, first),
        }
    }

    fn segments_in(&self, bytes: u32, first: &SegmentOut) -> u32 {
        let network = match self.key.local.is_v4() {
            true => ipv4::HEADER_LEN,
            false => ipv6::HEADER_LEN,
        };
        let headers = network + wire::tcp::HEADER_LEN + first.options.emit_len();
        let payload = bytes.saturating_sub(headers as u32);
        (payload / first.payload_len.max(1)).max(1)
    }

    /// Builds a frame of `count` segments of `size` bytes; false: the frame is too small.
    fn one_large(&mut self, frame: &TxFrame, segment: &SegmentOut, size: u32, count: u32) -> bool {
        let offload = self.enter_lane(frame);
        if count > 1 {
            // A port with a single lane provides large buffers behind its slots, or large slots.
            frame.take_bulk_lane();
            frame.set_segment_bytes(size as u16);
        }
        let copy = |place: RawSliceMut<'_>| {
            self.tx
                .copy_out(self.memory, self.block, segment.payload_offset, place)
        };
        build_segment(frame, self.ends, self.key, segment, offload, copy)
    }
}
