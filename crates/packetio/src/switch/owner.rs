//! Whose a frame is, by its headers alone.

use std::hash::RandomState;

use super::{hash, hasher};
use crate::frame_unsafe::RxFrame;
use crate::port::MacAddr;

/// Nobody has sent a SYN from this port.
const NOBODY: u8 = u8::MAX;
/// Header bytes that are looked at: Ethernet, the longest IPv4 header or IPv6's, and TCP's first fourteen.
const HEAD_BYTES: usize = 14 + 60 + 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP_ECHO: u8 = 8;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Whom a member's frame is for.
pub enum Addressee {
    Wire,
    /// A bit each.
    Members(u64),
}

/// See the module's documentation.
pub struct Owners {
    hasher: RandomState,
    macs: Vec<Option<MacAddr>>,
    /// A bit for each member that is there.
    present: u64,
    is_ethernet: bool,
    /// By port: who last sent a SYN from it.
    callers: Vec<u8>,
    /// Ports and who listens there, a bit each.
    listening: Vec<(u16, u64)>,
}

/// What is looked at of a TCP segment.
struct Flow {
    /// Both addresses and both ports.
    key: [u8; 36],
    source_port: u16,
    port: u16,
    flags: u8,
}

impl Owners {
    pub fn new(members: usize, is_ethernet: bool) -> Self {
        Self {
            hasher: hasher(),
            macs: vec![None; members],
            present: 0,
            is_ethernet,
            callers: vec![NOBODY; 1 << 16],
            listening: Vec::new(),
        }
    }

    pub fn joined(&mut self, index: usize, mac: MacAddr) {
        self.macs[index] = Some(mac);
        self.present |= 1 << index;
    }

    pub fn left(&mut self, index: usize) {
        self.present &= !(1 << index);
        for caller in &mut self.callers {
            if usize::from(*caller) == index {
                *caller = NOBODY;
            }
        }
    }

    pub fn set_listening(&mut self, listening: &[(u16, Vec<u16>)]) {
        let mask = |counts: &[u16]| {
            let members = counts.iter().take(64).enumerate();
            members.fold(0, |mask, (index, &count)| {
                mask | u64::from(count > 0) << index
            })
        };
        self.listening = listening
            .iter()
            .map(|(port, counts)| (*port, mask(counts)))
            .collect();
    }

    /// Who gets a frame of the wire's, a bit each.
    pub fn of(&self, frame: &RxFrame) -> u64 {
        let head: [u8; HEAD_BYTES] = frame.head();
        match flow(&head) {
            Ok(flow) => self.owner(&flow),
            Err(NotTcp::Echo) => self.present & self.present.wrapping_neg(),
            Err(NotTcp::Other) => self.present,
        }
    }

    fn owner(&self, flow: &Flow) -> u64 {
        let listening = self.listening.iter().find(|(port, _)| *port == flow.port);
        if let Some((_, members)) = listening
            && members & self.present != 0
        {
            return self.choose(members & self.present, flow);
        }
        let caller = self.callers[usize::from(flow.port)];
        if caller != NOBODY {
            return 1 << caller & self.present;
        }
        // Nobody's: one says so.
        self.choose(self.present, flow)
    }

    /// Rendezvous hashing: the highest of the members' own hashes of the flow.
    fn choose(&self, members: u64, flow: &Flow) -> u64 {
        if members.is_power_of_two() || members == 0 {
            return members;
        }
        let each = (0..64).filter(|index| members >> index & 1 == 1);
        let best = each.max_by_key(|&index| hash(&self.hasher, &flow.key, index));
        best.map_or(0, |index| 1 << index)
    }

    /// A member sends a frame: remembers where it calls from, and says whom it is for.
    pub fn sent(&mut self, index: usize, frame: &RxFrame) -> Addressee {
        if self.is_ethernet {
            let [a, b, c, d, e, f]: [u8; 6] = frame.head();
            let to = MacAddr([a, b, c, d, e, f]);
            let named = self.macs.iter().position(|mac| *mac == Some(to));
            return Addressee::Members(named.map_or(self.present, |named| 1 << named));
        }
        let head: [u8; HEAD_BYTES] = frame.head();
        if let Ok(flow) = flow(&head)
            && flow.flags & (SYN | ACK) == SYN
        {
            self.callers[usize::from(flow.source_port)] = index as u8;
        }
        Addressee::Wire
    }
}

enum NotTcp {
    Echo,
    Other,
}

/// A first fragment, or a whole packet, of TCP; extension headers of IPv6 are not followed.
fn flow(head: &[u8; HEAD_BYTES]) -> Result<Flow, NotTcp> {
    let kind = [head[12], head[13]];
    let ip = &head[14..];
    let (protocol, len, addresses) = match kind {
        IPV4 => {
            let is_later_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff != 0;
            if is_later_fragment {
                return Err(NotTcp::Other);
            }
            (ip[9], usize::from(ip[0] & 0xf) * 4, &ip[12..20])
        }
        IPV6 => (ip[6], 40, &ip[8..40]),
        _ => return Err(NotTcp::Other),
    };
    let segment = ip.get(len..).unwrap_or(&[]);
    match (protocol, segment) {
        (TCP, [a, b, c, d, _, _, _, _, _, _, _, _, _, flags, ..]) => {
            let mut key = [0; 36];
            key[..addresses.len()].copy_from_slice(addresses);
            key[32..].copy_from_slice(&[*a, *b, *c, *d]);
            Ok(Flow {
                key,
                source_port: u16::from_be_bytes([*a, *b]),
                port: u16::from_be_bytes([*c, *d]),
                flags: *flags,
            })
        }
        (ICMP, [ICMP_ECHO, ..]) if kind == IPV4 => Err(NotTcp::Echo),
        _ => Err(NotTcp::Other),
    }
}
