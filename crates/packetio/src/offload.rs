//! Software versions of what a local kernel peer leaves to hardware: transport checksums and
//! segmentation.
//!
//! A kernel that sends over veth leaves only the pseudo-header sum in the checksum field, and sends
//! TCP or UDP "super-frames" of up to 64 KiB. No hardware completes them. Before such a frame goes
//! to a real wire or a TAP, both must be completed.
//!
//! A [`Segmenter`] owns the super-frame that is being cut. `packet` (told by a virtio header) and
//! the [`bridge`](crate::bridge) (which inspects frames) use the module.

use wire::checksum::{Sum, of, pseudo_header_v4, pseudo_header_v6};
use wire::ethernet::{self, EtherType};
use wire::{ipv4, ipv6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
const TCP_FLAGS_AT: usize = 13;
/// Flags that only the last segment keeps: FIN and PSH.
const TCP_FLAGS_LAST: u8 = 0x09;
/// Flags that only the first segment keeps: CWR.
const TCP_FLAGS_FIRST: u8 = 0x80;

/// The offsets of a frame's headers.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ip_at: usize,
    at: usize,
    end: usize,
    protocol: u8,
    v6: bool,
}

impl Layout {
    /// The layout of a frame; `None` if it is not complete TCP or UDP.
    fn of(frame: &[u8]) -> Option<Self> {
        let (header, ip_at) = ethernet::Header::parse(frame).ok()?;
        let packet = frame.get(ip_at..)?;
        let (protocol, skip, len, v6) = match header.ethertype {
            EtherType::IPV4 => {
                let ip = ipv4::Header::parse(packet, packet.len()).ok()?;
                if ip.is_fragment() {
                    return None;
                }
                let skip = usize::from(ip.header_len);
                (ip.protocol, skip, usize::from(ip.total_len), false)
            }
            EtherType::IPV6 => {
                let ip = ipv6::Header::parse(packet, packet.len()).ok()?;
                let (protocol, skip) = ipv6::upper_layer(&ip, packet).ok()?;
                let len = ipv6::HEADER_LEN + usize::from(ip.payload_len);
                (protocol, skip, len, true)
            }
            _ => return None,
        };
        let layout = Self {
            ip_at,
            at: ip_at + skip,
            end: ip_at + len,
            protocol,
            v6,
        };
        let fits = layout.at + layout.header_min()? <= layout.end;
        fits.then_some(layout)
    }

    fn header_min(&self) -> Option<usize> {
        match self.protocol {
            TCP => Some(TCP_HEADER_LEN),
            UDP => Some(UDP_HEADER_LEN),
            _ => None,
        }
    }

    /// Offset of the checksum field in the frame.
    fn field(&self) -> usize {
        match self.protocol {
            TCP => self.at + 16,
            _ => self.at + 6,
        }
    }

    /// The pseudo-header's sum for a transport length of `len`.
    fn pseudo(&self, frame: &[u8], len: usize) -> Sum {
        let (ip, len) = (&frame[self.ip_at..], len as u32);
        match self.v6 {
            true => pseudo_header_v6(address(ip, 8), address(ip, 24), self.protocol, len),
            false => pseudo_header_v4(address(ip, 12), address(ip, 16), self.protocol, len),
        }
    }
}

/// The address at `at`, which exists because the header was parsed.
fn address<const N: usize, A: From<[u8; N]>>(ip: &[u8], at: usize) -> A {
    let mut octets = [0; N];
    octets.copy_from_slice(&ip[at..at + N]);
    octets.into()
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Completes the checksum of a frame whose field holds only the pseudo-header sum. True: it was
/// such a frame.
///
/// A complete checksum may equal the pseudo-header sum by chance, and summing again would damage
/// it. So a frame that verifies as it is stays unchanged.
pub fn complete_partial(frame: &mut [u8]) -> bool {
    let Some(layout) = Layout::of(frame) else {
        return false;
    };
    let pseudo = layout.pseudo(frame, layout.end - layout.at);
    if get16(frame, layout.field()) != pseudo.fold() {
        return false;
    }
    let mut whole = pseudo;
    whole.combine(of(&frame[layout.at..layout.end]), false);
    if whole.is_valid() {
        return false;
    }
    complete_at(
        &mut frame[..layout.end],
        layout.at,
        layout.field() - layout.at,
    )
}

/// Computes the checksum over `frame[start..]`, in which the field at `start + offset` holds the
/// pseudo-header sum, and writes it there. False: the frame is too short.
pub fn complete_at(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let field = start.saturating_add(offset);
    if start >= frame.len() || field + 2 > frame.len() {
        return false;
    }
    let checksum = match of(&frame[start..]).finish() {
        // For UDP zero means "no checksum"; for TCP both forms of zero are valid.
        0 => 0xffff,
        checksum => checksum,
    };
    put16(frame, field, checksum);
    true
}

/// A super-frame that is being cut.
#[derive(Debug, Default)]
pub struct Segmenter {
    frame: Vec<u8>,
    layout: Option<Layout>,
    headers: usize,
    segment: usize,
    /// Offset in the frame of the next payload byte.
    at: usize,
    index: u16,
}

impl Segmenter {
    /// Makes a segmenter for super-frames of up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            frame: Vec::with_capacity(bytes_max),
            ..Self::default()
        }
    }

    /// True if no segment is left.
    pub fn is_empty(&self) -> bool {
        self.layout.is_none()
    }

    /// Loads a super-frame whose payload is to be cut into pieces of `segment` bytes. False: it is
    /// not TCP or UDP with complete header and payload.
    pub fn load(&mut self, frame: &[u8], segment: usize) -> bool {
        self.layout = None;
        let Some(layout) = Layout::of(frame).filter(|_| segment > 0) else {
            return false;
        };
        let transport = match layout.protocol {
            TCP => usize::from(frame[layout.at + 12] >> 4) * 4,
            _ => UDP_HEADER_LEN,
        };
        self.headers = layout.at + transport;
        // The owner of a TAP may write any data offset, and the kernel passes it on.
        let is_whole = layout.header_min().is_some_and(|min| transport >= min);
        if !is_whole || self.headers >= layout.end {
            return false;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&frame[..layout.end]);
        self.layout = Some(layout);
        self.segment = segment;
        self.at = self.headers;
        self.index = 0;
        true
    }

    /// Writes the next segment; returns its length. `None`: none is left, or it does not fit, and
    /// the rest is given up.
    pub fn cut(&mut self, out: &mut [u8]) -> Option<usize> {
        let layout = self.layout?;
        let end = (self.at + self.segment).min(layout.end);
        let len = self.headers + (end - self.at);
        let Some(out) = out.get_mut(..len) else {
            self.layout = None;
            return None;
        };
        out[..self.headers].copy_from_slice(&self.frame[..self.headers]);
        out[self.headers..].copy_from_slice(&self.frame[self.at..end]);
        self.patch_ip(out, &layout);
        self.patch_transport(out, &layout, end == layout.end);
        self.at = end;
        self.index = self.index.wrapping_add(1);
        if end == layout.end {
            self.layout = None;
        }
        Some(len)
    }

    fn patch_ip(&self, out: &mut [u8], layout: &Layout) {
        let len = out.len() - layout.ip_at;
        let ip = &mut out[layout.ip_at..layout.at];
        if layout.v6 {
            // The longest packet exceeds 16 bits, but its payload does not.
            return put16(ip, 4, (len - ipv6::HEADER_LEN) as u16);
        }
        put16(ip, 2, len as u16);
        let ident = get16(ip, 4).wrapping_add(self.index);
        put16(ip, 4, ident);
        put16(ip, 10, 0);
        let checksum = of(ip).finish();
        put16(ip, 10, checksum);
    }

    fn patch_transport(&self, out: &mut [u8], layout: &Layout, last: bool) {
        let len = out.len() - layout.at;
        let field = layout.field();
        if layout.protocol == TCP {
            let header = &mut out[layout.at..];
            let skipped = (self.at - self.headers) as u32;
            let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            header[4..8].copy_from_slice(&seq.wrapping_add(skipped).to_be_bytes());
            if !last {
                header[TCP_FLAGS_AT] &= !TCP_FLAGS_LAST;
            }
            if self.index > 0 {
                header[TCP_FLAGS_AT] &= !TCP_FLAGS_FIRST;
            }
        } else {
            put16(out, layout.at + 4, len as u16);
        }
        let pseudo = layout.pseudo(out, len).fold();
        put16(out, field, pseudo);
        complete_at(out, layout.at, field - layout.at);
    }
}

#[cfg(test)]
mod tests;
