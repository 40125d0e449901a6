//! Builds frames in the driver's own memory: link, network and transport header in one copy,
//! payload from the send ring in one pass that also sums it.

use packetio::{HeadMut, TxFrame};
use ring::byte_ring::TxReader;
use ring::memory::Memory;
use ring::raw::RawSliceMut;
use ring::socket_block::SocketBlock;
use tcp::{BurstTail, Connection, Cx, SegmentOut, TransmitClass};
use wire::checksum::{self, Sum};
use wire::ethernet::{self, EtherType};
use wire::plain::{ChangingFields, StoredHeaders};
use wire::tcp::{Flags, Header as TcpHeader};
use wire::{Ecn, FlowKey, ipv4, ipv6, plain, protocol};

use crate::counters::Counters;
use crate::departures::open_frame::OpenFrame;
use crate::flows::lane::Lane;
use crate::header_fields::{HeaderFields, LinkEnds};
use crate::limits::{BULK_SEGMENTS_MIN, HEADER_BYTES_MAX};
use crate::network::layer::Network;
use crate::shortcuts;

/// The part of a frame that holds a plain packet's headers.
pub(crate) type PlainHead<'a> = HeadMut<'a, { plain::BYTES_MAX }>;

/// The outcome of building one burst.
#[derive(Default)]
pub(super) struct BurstOut {
    /// Frames that were built.
    pub frames: usize,
    /// Segments lost because their frames were too small.
    pub segments_lost: u64,
    /// Segments that left in frames of several.
    pub segments_in_large: u64,
}

impl BurstOut {
    #[inline]
    pub fn count(&self, counters: &mut Counters) {
        counters.tx_frame_too_small += self.segments_lost;
        counters.tx_segments_in_large += self.segments_in_large;
    }
}

/// Builds segments of one connection, with payload from its send buffer.
pub(super) struct FrameWriter<'a> {
    pub ends: &'a mut LinkEnds,
    pub key: &'a FlowKey,
    pub header: &'a mut HeaderFields,
    /// Header fields that every segment of the connection shares.
    pub shared_headers: &'a mut StoredHeaders,
    pub tx: &'a mut TxReader,
    pub memory: &'a Memory,
    pub block: &'a SocketBlock,
    /// True if the port computes checksums.
    pub offload: bool,
    /// The same value as in [`Departures`](super::Departures).
    pub segment_bytes_max: u32,
    /// Largest packet that the port cuts in its bulk lane, bytes; 0 without such a lane.
    pub bulk_bytes_max: u32,
    /// True if the burst leaves by the bulk lane.
    pub is_bulk: bool,
    /// The frame that was built last, if the port cuts it and the next segment may join it.
    pub open: Option<OpenFrame>,
    pub now_ns: u64,
}

impl FrameWriter<'_> {
    /// Chooses the lane of a segment and its burst, if the port has two lanes.
    #[inline(always)]
    pub fn choose_lane(
        &mut self,
        network: &Network,
        lane: &mut Lane,
        first: &SegmentOut,
        is_all_acked: bool,
    ) {
        if self.bulk_bytes_max > 0 {
            self.choose_of_two(network, lane, first, is_all_acked);
        }
    }

    fn choose_of_two(
        &mut self,
        network: &Network,
        lane: &mut Lane,
        first: &SegmentOut,
        is_all_acked: bool,
    ) {
        let is_numbered = first.payload_len > 0 || first.flags.intersects(Flags::SYN | Flags::FIN);
        let end = first.payload_offset.saturating_add(first.payload_len);
        let behind = self.tx.buffered(self.block).saturating_sub(end);
        // The bulk lane leads only to the wire, not to peers on the same host.
        let is_large = first.payload_len > 0
            && behind > first.payload_len.saturating_mul(BULK_SEGMENTS_MIN - 2)
            && !network.is_own_hop(self.ends.destination);
        self.is_bulk = is_numbered && lane.of_burst(is_all_acked, is_large);
        // Only the bulk lane cuts packets.
        self.segment_bytes_max = if self.is_bulk { self.bulk_bytes_max } else { 0 };
    }

    /// Prepares a frame for its lane. Returns whether the port makes its checksum.
    #[inline(always)]
    pub(super) fn enter_lane(&self, frame: &TxFrame) -> bool {
        self.offload || (self.is_bulk && frame.take_bulk_lane())
    }

    /// Builds the segment that `conn` has just sent, and the tail of its burst. Splits the batch
    /// into the frames that the connection has filled and the others.
    #[inline(always)]
    pub fn text_out(
        &mut self,
        conn: &mut Connection,
        cx: &mut Cx<'_>,
        (filled, frames): (&[TxFrame], &[TxFrame]),
        segment: &SegmentOut,
        is_stamped: bool,
    ) -> BurstOut {
        if self.open.is_some()
            && let Some(last) = filled.last()
            && let Some(segments_in_large) = self.join(last, segment)
        {
            return BurstOut {
                segments_in_large,
                ..BurstOut::default()
            };
        }
        // Nothing follows the last segment. Segments with time stamps or without DF are built one
        // by one.
        if conn.due() == TransmitClass::None || !self.ends.header.discovers_mtu || is_stamped {
            return self.burst_out(frames, segment, BurstTail::default());
        }
        let room = frames.len() as u32 * self.segments_per_frame(segment);
        let tail = conn.poll_burst_tail(cx, segment, room - 1);
        let sent = self.burst_out(frames, segment, tail);
        if self.segment_bytes_max > 0 && tail.segments == 0 && sent.frames == 1 {
            self.keep_open(segment);
        }
        sent
    }

    /// Builds a segment and the tail of its burst.
    #[inline(always)]
    fn burst_out(&mut self, frames: &[TxFrame], first: &SegmentOut, tail: BurstTail) -> BurstOut {
        if tail.segments > 0 && self.segment_bytes_max > 0 {
            return self.large_out(frames, first, tail);
        }
        // A frame may be too small even for an MSS derived from the port's MTU. The drop is
        // counted, and retransmission tries again.
        let built = self.segment_out(&frames[0], first);
        let mut frames_built = usize::from(built);
        if tail.segments > 0 {
            frames_built += self.tail_out(&frames[frames_built..], first, tail);
        }
        BurstOut {
            frames: frames_built,
            segments_lost: u64::from(1 + tail.segments) - frames_built as u64,
            segments_in_large: 0,
        }
    }

    /// Builds one segment, with the headers that are stored beside the connection if they fit it.
    /// False: the frame is too small for it.
    #[inline(always)]
    fn segment_out(&mut self, frame: &TxFrame, segment: &SegmentOut) -> bool {
        if !self.ends.header.discovers_mtu {
            self.header.before_fragmentable(self.now_ns);
            self.ends.header = *self.header;
        }
        let offload = self.enter_lane(frame);
        let (ends, key, stored) = (&*self.ends, self.key, &mut *self.shared_headers);
        let payload = |place: RawSliceMut<'_>| {
            self.tx
                .copy_out(self.memory, self.block, segment.payload_offset, place)
        };
        let is_plain = shortcuts::are_taken()
            && ends.header.discovers_mtu
            && segment.urgent == 0
            && segment.ecn == Ecn::NotEct
            && segment.options.is_plain();
        if is_plain && !stored.fits(ends.destination, ends.header.dscp, ends.header.hop_limit) {
            match headers_of(ends, key, segment) {
                Some(headers) => stored.store(&headers),
                None => stored.forget(),
            }
        }
        if !is_plain || !stored.is_made() {
            return build_segment(frame, ends, key, segment, offload, payload);
        }
        let one = ChangingFields {
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            timestamp: segment.options.timestamp,
            payload_len: segment.payload_len as u16,
        };
        let (at, payload_len) = (one.header_bytes(), segment.payload_len as usize);
        write_plain(frame, at, payload_len, offload, |head| {
            let payload_sum = put_payload(frame, at, payload_len, payload)?;
            stored.emit(head, &one, (!offload).then_some(payload_sum));
            Some(())
        })
    }

    /// Builds the segments that follow `first`, each as [`build_segment`] would. The number built:
    /// frames that are too small come last.
    fn tail_out(&mut self, frames: &[TxFrame], first: &SegmentOut, tail: BurstTail) -> usize {
        debug_assert!(
            !self.is_bulk,
            "bursts of the bulk lane leave in large frames"
        );
        let (ends, key, offload) = (&*self.ends, self.key, self.offload);
        let headers = plain_headers(ends, key, first);
        let template = headers.map(|headers| plain::DataTemplate::new(&headers, offload));
        let (mut segment, len) = (first.clone(), first.payload_len);
        let mut built = 0;
        for left in (0..tail.segments).rev() {
            let Some(frame) = frames.get(built) else {
                break;
            };
            segment.seq += len;
            segment.payload_offset += len;
            if left == 0 && tail.ends_burst {
                segment.flags |= Flags::PSH;
            }
            let mut payload = |place: RawSliceMut<'_>| {
                self.tx
                    .copy_out(self.memory, self.block, segment.payload_offset, place)
            };
            let done = match &template {
                Some(template) => {
                    let at = template.header_bytes();
                    write_plain(frame, at, len as usize, offload, |head| {
                        let sum = payload(frame.slice_mut(at, len as usize)?);
                        template.emit(head, segment.seq, segment.flags, sum as u16);
                        Some(())
                    })
                }
                None => build_segment(frame, ends, key, &segment, offload, payload),
            };
            built += usize::from(done);
        }
        built
    }
}

/// Writes one TCP segment into `frame` and sets its length. `payload` copies the segment's bytes
/// into place and returns their sum; it is called only if there are any. False: the frame is too
/// small and must not be sent.
#[inline]
pub(crate) fn build_segment(
    frame: &TxFrame,
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
    offload: bool,
    payload: impl FnOnce(RawSliceMut<'_>) -> u32,
) -> bool {
    let Some(headers) = headers_of(ends, key, segment) else {
        return build_any(frame, ends, key, segment, offload, payload);
    };
    if segment.options.is_plain() {
        return build_plain(frame, &headers, offload, payload);
    }
    match segment.options.plain_syn() {
        // Payload on a SYN occurs only with Fast Open, so the general path builds it.
        Some(syn) if segment.payload_len == 0 => build_syn(frame, &headers, syn, offload),
        _ => build_any(frame, ends, key, segment, offload, payload),
    }
}

/// The headers of a plain segment; see [`plain`]. `None` for any other segment.
#[inline]
pub(crate) fn plain_headers(
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
) -> Option<plain::Headers> {
    headers_of(ends, key, segment).filter(|_| segment.options.is_plain())
}

/// The plain headers of an IPv4 segment, options apart. `None` if the segment is not plain.
#[inline]
fn headers_of(ends: &LinkEnds, key: &FlowKey, segment: &SegmentOut) -> Option<plain::Headers> {
    if !ends.header.discovers_mtu || segment.urgent != 0 || !shortcuts::are_taken() {
        return None;
    }
    let (src, dst) = (key.local.to_v4()?, key.remote.to_v4()?);
    Some(plain::Headers {
        dst_mac: ends.destination,
        src_mac: ends.source,
        src,
        dst,
        dscp_ecn: segment.ecn.within(ends.header.dscp),
        ttl: ends.header.hop_limit,
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        timestamp: segment.options.timestamp,
        payload_len: segment.payload_len as u16,
    })
}

/// A SYN or SYN-ACK without payload, in one straight line.
#[inline(never)]
fn build_syn(
    frame: &TxFrame,
    headers: &plain::Headers,
    syn: plain::SynOptions,
    offload: bool,
) -> bool {
    let Some(mut head) = frame.head_mut::<{ plain::SYN_BYTES }>() else {
        return false;
    };
    headers.emit_syn(&mut head, syn, (!offload).then_some(0));
    if offload {
        frame.set_checksum_offload(plain::TCP_AT as u16, wire::tcp::CHECKSUM_OFFSET as u16);
    }
    frame.set_len(plain::SYN_BYTES);
    true
}

#[inline]
fn build_plain(
    frame: &TxFrame,
    headers: &plain::Headers,
    offload: bool,
    payload: impl FnOnce(RawSliceMut<'_>) -> u32,
) -> bool {
    let at = headers.header_bytes();
    let payload_len = usize::from(headers.payload_len);
    write_plain(frame, at, payload_len, offload, |head| {
        let payload_sum = put_payload(frame, at, payload_len, payload)?;
        headers.emit(head, (!offload).then_some(payload_sum));
        Some(())
    })
}

/// Copies the payload behind the headers of a plain packet, and returns its sum. `None`: the frame
/// is too small.
#[inline(always)]
fn put_payload(
    frame: &TxFrame,
    at: usize,
    len: usize,
    payload: impl FnOnce(RawSliceMut<'_>) -> u32,
) -> Option<u16> {
    match len {
        0 => Some(0),
        _ => Some(payload(frame.slice_mut(at, len)?) as u16),
    }
}

/// Lets `put` write `header_bytes` of headers into the frame's head and the payload behind them,
/// then sets the frame's length. False: the frame is too small.
#[inline(always)]
pub(crate) fn write_plain(
    frame: &TxFrame,
    header_bytes: usize,
    payload_len: usize,
    offload: bool,
    put: impl FnOnce(&mut PlainHead<'_>) -> Option<()>,
) -> bool {
    // A frame that cannot hold the longest plain headers is treated as too small.
    let Some(mut head) = frame.head_mut() else {
        return false;
    };
    if header_bytes + payload_len > frame.capacity() || put(&mut head).is_none() {
        return false;
    }
    if offload {
        frame.set_checksum_offload(plain::TCP_AT as u16, wire::tcp::CHECKSUM_OFFSET as u16);
    }
    frame.set_len(header_bytes + payload_len);
    true
}

/// Builds any segment, IPv6 and unusual options included.
fn build_any(
    frame: &TxFrame,
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
    offload: bool,
    payload: impl FnOnce(RawSliceMut<'_>) -> u32,
) -> bool {
    let mut headers = [0; HEADER_BYTES_MAX];
    let shape = Shape::of(key, segment);
    let len = shape.payload_at + segment.payload_len as usize;
    if len > frame.capacity() {
        return false;
    }
    let mut sum =
        checksum::pseudo_header(key.local, key.remote, protocol::TCP, shape.transport_len);
    let at = shape.transport_at;
    write_network(&mut headers, ends, key, &shape);
    write_transport(&mut headers[at..shape.payload_at], key, segment);
    let field = at + wire::tcp::CHECKSUM_OFFSET;
    if segment.payload_len > 0 {
        let Some(place) = frame.slice_mut(shape.payload_at, segment.payload_len as usize) else {
            return false;
        };
        let payload_sum = payload(place);
        sum.combine(Sum::from_folded(payload_sum as u16), false);
    }
    if offload {
        let pseudo =
            checksum::pseudo_header(key.local, key.remote, protocol::TCP, shape.transport_len)
                .fold();
        headers[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame.set_checksum_offload(at as u16, wire::tcp::CHECKSUM_OFFSET as u16);
    } else {
        sum.add_bytes(&headers[at..shape.payload_at]);
        headers[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
    }
    frame.write(0, &headers[..shape.payload_at]);
    frame.set_len(len);
    true
}

/// Writes a segment without payload into a buffer of ours, for a frame that waits for its neighbour
/// to be resolved. Returns the length written.
pub(crate) fn build_bare(
    out: &mut [u8; HEADER_BYTES_MAX],
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
) -> usize {
    let bare = SegmentOut {
        payload_len: 0,
        ..segment.clone()
    };
    let shape = Shape::of(key, &bare);
    write_network(out, ends, key, &shape);
    write_transport(&mut out[shape.transport_at..shape.payload_at], key, &bare);
    let mut sum =
        checksum::pseudo_header(key.local, key.remote, protocol::TCP, shape.transport_len);
    sum.add_bytes(&out[shape.transport_at..shape.payload_at]);
    let field = shape.transport_at + wire::tcp::CHECKSUM_OFFSET;
    out[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
    shape.payload_at
}

/// Writes only the headers of a segment into a buffer of ours, for the log of a segment that was
/// not sent. The checksum does not cover the payload. Returns the length written.
pub(crate) fn build_head(
    out: &mut [u8; HEADER_BYTES_MAX],
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
) -> usize {
    if segment.payload_len == 0 {
        return build_bare(out, ends, key, segment);
    }
    let shape = Shape::of(key, segment);
    write_network(out, ends, key, &shape);
    write_transport(&mut out[shape.transport_at..shape.payload_at], key, segment);
    shape.payload_at
}

/// Offsets of the parts of a frame.
struct Shape {
    transport_at: usize,
    payload_at: usize,
    /// TCP header and payload.
    transport_len: u32,
    ecn: Ecn,
}

impl Shape {
    #[inline]
    fn of(key: &FlowKey, segment: &SegmentOut) -> Self {
        let network_len = if key.local.is_v4() {
            ipv4::HEADER_LEN
        } else {
            ipv6::HEADER_LEN
        };
        let header_len = wire::tcp::HEADER_LEN + segment.options.emit_len();
        let transport_at = ethernet::HEADER_LEN + network_len;
        Self {
            transport_at,
            payload_at: transport_at + header_len,
            transport_len: header_len as u32 + segment.payload_len,
            ecn: segment.ecn,
        }
    }
}

#[inline]
fn write_network(out: &mut [u8; HEADER_BYTES_MAX], ends: &LinkEnds, key: &FlowKey, shape: &Shape) {
    let ethertype = if key.local.is_v4() {
        EtherType::IPV4
    } else {
        EtherType::IPV6
    };
    ethernet::Header {
        dst: ends.destination,
        src: ends.source,
        vlan: None,
        ethertype,
    }
    .emit(out);
    let out = &mut out[ethernet::HEADER_LEN..];
    match (key.local.to_v4(), key.remote.to_v4()) {
        (Some(src), Some(dst)) => {
            let header = ipv4::Header {
                dscp_ecn: shape.ecn.within(ends.header.dscp),
                total_len: (ipv4::HEADER_LEN as u32 + shape.transport_len) as u16,
                ident: ends.header.ident,
                dont_fragment: ends.header.discovers_mtu,
                more_fragments: false,
                fragment_offset: 0,
                ttl: ends.header.hop_limit,
                protocol: protocol::TCP,
                src,
                dst,
                header_len: ipv4::HEADER_LEN as u8,
            };
            header.emit(out);
        }
        _ => {
            let header = ipv6::Header {
                traffic_class: shape.ecn.within(ends.header.dscp),
                flow_label: 0,
                payload_len: shape.transport_len as u16,
                next_header: protocol::TCP,
                hop_limit: ends.header.hop_limit,
                src: key.local.to_v6(),
                dst: key.remote.to_v6(),
            };
            header.emit(out);
        }
    }
}

#[inline]
fn write_transport(out: &mut [u8], key: &FlowKey, segment: &SegmentOut) {
    let header = TcpHeader {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        checksum: 0,
        urgent: segment.urgent,
        options: segment.options,
    };
    header.emit(out);
}

#[cfg(test)]
mod tests;
