//! The header that marks a packet written to a TUN device as an aggregate of segments. A kernel
//! then treats the packet as if its own aggregation had made it.
//!
//! Called by [`Kernel`](super::Kernel) for scripts with `--mss`.

use std::borrow::Cow;

use wire::protocol;

/// Bytes of a `struct virtio_net_hdr`.
pub(super) const HEADER_BYTES: usize = 10;

/// `VIRTIO_NET_HDR_GSO_TCPV4`, `VIRTIO_NET_HDR_GSO_TCPV6`
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;

/// SYN bit in byte 13 of a TCP header.
const SYN: u8 = 0x02;

/// `packet` as it is written to the device. Every packet gets the header if `mss` is not 0.
pub(super) fn with_header(packet: &[u8], mss: usize) -> Cow<'_, [u8]> {
    if mss == 0 {
        return Cow::Borrowed(packet);
    }
    let mss = u16::try_from(mss).unwrap_or(u16::MAX);
    let mut bytes = vec![0; HEADER_BYTES];
    if let Some((kind, headers)) = tcp_headers(packet)
        && packet.len() - headers > usize::from(mss)
    {
        bytes[1] = kind;
        bytes[2..4].copy_from_slice(&(headers as u16).to_ne_bytes());
        bytes[4..6].copy_from_slice(&mss.to_ne_bytes());
    }
    bytes.extend(packet);
    Cow::Owned(bytes)
}

/// The header's type for a TCP segment that may be an aggregate, and the length of its headers in
/// bytes.
fn tcp_headers(packet: &[u8]) -> Option<(u8, usize)> {
    let first = *packet.first()?;
    let (kind, ip, number) = match first >> 4 {
        4 => (TCP_V4, usize::from(first & 0xf) * 4, *packet.get(9)?),
        _ => (TCP_V6, 40, *packet.get(6)?),
    };
    let tcp = packet.get(ip..)?;
    let headers = ip + usize::from(*tcp.get(12)? >> 4) * 4;
    let is_aggregate = number == protocol::TCP && tcp.get(13)? & SYN == 0;
    (is_aggregate && headers <= packet.len()).then_some((kind, headers))
}
