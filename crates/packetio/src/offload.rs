//! Work that a local kernel peer leaves to hardware, done in software: transport checksums and
//! segmentation.
//!
//! A kernel that sends over veth hands over frames whose checksum field holds just the
//! pseudo-header sum. It also hands over TCP or UDP "super-frames" of up to 64 KiB. No hardware
//! will ever see them. Before such a frame may go to a real wire or a TAP, both must be made good.
//!
//! Owns the one super-frame that is being cut. Used by `packet` (which is told by a virtio header)
//! and by the [`bridge`](crate::bridge) (which looks).

use wire::checksum::{Sum, of, pseudo_header_v4, pseudo_header_v6};
use wire::ethernet::{self, EtherType};
use wire::{ipv4, ipv6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
const TCP_FLAGS_AT: usize = 13;
/// FIN and PSH belong to the last segment only.
const TCP_FLAGS_LAST: u8 = 0x09;
/// CWR belongs to the first segment only.
const TCP_FLAGS_FIRST: u8 = 0x80;

/// Where the transport header of a frame is.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ip_at: usize,
    at: usize,
    end: usize,
    protocol: u8,
    v6: bool,
}

impl Layout {
    /// `None` for what is not whole TCP or UDP.
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

/// The address at `at`; the header was parsed, so it is there.
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

/// Finishes the checksum of a frame whose field holds just the pseudo-header sum; `true` if it was
/// so.
///
/// A finished checksum that looks the same by chance would be damaged, since it is summed again to
/// its complement. Hence a frame that verifies as it is stays as it is.
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

/// Sums `frame[start..]`, in which the field at `start + offset` holds the pseudo-header sum, and
/// writes the checksum there. `false` if the frame is too short for that.
pub fn complete_at(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let field = start.saturating_add(offset);
    if start >= frame.len() || field + 2 > frame.len() {
        return false;
    }
    let checksum = match of(&frame[start..]).finish() {
        // For UDP zero means "none"; for TCP both forms of zero are right.
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
    /// Next payload byte, as an offset into the frame.
    at: usize,
    index: u16,
}

impl Segmenter {
    /// Room for a super-frame of `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            frame: Vec::with_capacity(bytes_max),
            ..Self::default()
        }
    }

    /// Whether segments are left.
    pub fn is_empty(&self) -> bool {
        self.layout.is_none()
    }

    /// Takes a super-frame whose payload is to be cut into pieces of `segment` bytes; `false` if it
    /// is not TCP or UDP with a whole header and payload.
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
        // The owner of a TAP may write any data offset, and the kernel hands it on.
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

    /// Writes the next segment; its length, or `None` if it does not fit (the rest is then given
    /// up) or none is left.
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
            // The longest packet is longer than 16 bits say, its payload is not.
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
