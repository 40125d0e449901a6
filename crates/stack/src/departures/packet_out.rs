//! Builds frames in the driver's own memory: link, network and transport header in one copy,
//! payload from the send ring in one pass that also sums it.

use packetio::{HeadMut, TxFrame};
use ring::raw::RawSliceMut;
use tcp::{BurstTail, SegmentOut};
use wire::checksum::{self, Sum};
use wire::ethernet::{self, EtherType};
use wire::plain::{ChangingFields, StoredHeaders};
use wire::tcp::{Flags, Header as TcpHeader};
use wire::{Ecn, FlowKey, ipv4, ipv6, plain, protocol};

use crate::header_fields::LinkEnds;
use crate::limits::HEADER_BYTES_MAX;
use crate::shortcuts;

/// The part of a frame that holds a plain packet's headers.
pub(crate) type PlainHead<'a> = HeadMut<'a, { plain::BYTES_MAX }>;

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

/// Builds a segment from the headers stored beside the connection. Headers that do not match are
/// made anew.
#[inline(always)]
pub(crate) fn build_with(
    stored: &mut StoredHeaders,
    frame: &TxFrame,
    ends: &LinkEnds,
    key: &FlowKey,
    segment: &SegmentOut,
    offload: bool,
    payload: impl FnOnce(RawSliceMut<'_>) -> u32,
) -> bool {
    let header = &ends.header;
    let is_plain = shortcuts::are_taken()
        && header.discovers_mtu
        && segment.urgent == 0
        && segment.ecn == Ecn::NotEct
        && segment.options.is_plain();
    if is_plain && !stored.fits(ends.destination, header.dscp, header.hop_limit) {
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

/// Writes the `tail.segments` segments that follow `first` into one frame each, as
/// [`build_segment`] would. `payload` copies bytes from an offset in the send buffer. Returns the
/// number built: too small frames come last.
pub(crate) fn build_burst_tail(
    frames: &[TxFrame],
    ends: &LinkEnds,
    key: &FlowKey,
    (first, tail): (&SegmentOut, BurstTail),
    offload: bool,
    mut payload: impl FnMut(u32, RawSliceMut<'_>) -> u32,
) -> usize {
    let mut segment = first.clone();
    let headers = plain_headers(ends, key, first);
    let template = headers.map(|headers| plain::DataTemplate::new(&headers, offload));
    let len = first.payload_len;
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
        let mut copy = |place: RawSliceMut<'_>| payload(segment.payload_offset, place);
        let done = match &template {
            Some(template) => {
                let at = template.header_bytes();
                write_plain(frame, at, len as usize, offload, |head| {
                    let sum = copy(frame.slice_mut(at, len as usize)?);
                    template.emit(head, segment.seq, segment.flags, sum as u16);
                    Some(())
                })
            }
            None => build_segment(frame, ends, key, &segment, offload, copy),
        };
        built += usize::from(done);
    }
    built
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
