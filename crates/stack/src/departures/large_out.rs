//! Bursts of one connection as large frames, which the port cuts into the segments that would
//! otherwise leave one by one.
//!
//! A large frame holds full segments with equal headers, as
//! [`poll_burst_tail`](tcp::Connection::poll_burst_tail) yields them: no SACK blocks, no window
//! change between them. PSH is set on the frame that ends the burst, and the port sets it on the
//! last segment only. The segment that ends a text, which may be short and carry the FIN, joins the
//! frame before it. Every other segment leaves in a frame of its own. `tcp_out` calls this module
//! if the port cuts packets.

use packetio::TxFrame;
use ring::raw::RawSliceMut;
use tcp::{BurstTail, SegmentOut};
use wire::tcp::Flags;
use wire::{ipv4, ipv6};

use crate::departures::open_frame::OpenFrame;
use crate::departures::packet_out::{BurstOut, FrameWriter, build_segment};

impl FrameWriter<'_> {
    /// Adds `end`, the end of a text, to `frame`, which the connection built last. Returns the
    /// number of segments that now leave in a large frame and did not before; none: `end` needs a
    /// frame of its own.
    #[inline(never)]
    pub(super) fn join(&mut self, frame: &TxFrame, end: &SegmentOut) -> Option<u64> {
        let open = self.open.take().filter(|open| open.takes(end))?;
        let held = open.segment.payload_len;
        let mut whole = open.segment;
        whole.flags = end.flags;
        whole.payload_len += end.payload_len;
        if whole.payload_len > self.payload_room(self.segment_bytes_max, &whole) {
            return None;
        }
        let copy = |place: RawSliceMut<'_>| {
            let (_, place) = place.split_at(held as usize);
            (self.tx).copy_out(self.memory, self.block, end.payload_offset, place)
        };
        if !build_segment(frame, self.ends, self.key, &whole, true, copy) {
            return None;
        }
        frame.set_segment_bytes(open.size as u16);
        Some(1 + u64::from(held == open.size))
    }

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
            left -= count;
            if left == 0 {
                self.open = built.then_some(OpenFrame { segment, size });
                break;
            }
            segment.seq += segment.payload_len;
            segment.payload_offset += segment.payload_len;
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

    /// Notes a frame of one full segment, which the end of the text may join.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_open(&mut self, segment: &SegmentOut) {
        self.open = Some(OpenFrame {
            segment: segment.clone(),
            size: segment.payload_len,
        });
    }

    fn segments_in(&self, bytes: u32, first: &SegmentOut) -> u32 {
        (self.payload_room(bytes, first) / first.payload_len.max(1)).max(1)
    }

    /// Payload bytes of a packet of `bytes` with the headers of `segment`.
    fn payload_room(&self, bytes: u32, segment: &SegmentOut) -> u32 {
        let network = match self.key.local.is_v4() {
            true => ipv4::HEADER_LEN,
            false => ipv6::HEADER_LEN,
        };
        let headers = network + wire::tcp::HEADER_LEN + segment.options.emit_len();
        bytes.saturating_sub(headers as u32)
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
