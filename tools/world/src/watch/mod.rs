//! An observer on a host's wire that knows TCP's rules and nothing of our engine. It sees every
//! frame that arrives or leaves, and reports one that breaks a rule.
//!
//! For each connection it keeps what the host was told and what it said:
//!
//! ```text
//!   inward:   what arrived (ranges) · the peer's ACK, window's edge, SACK blocks, timestamps, MSS
//!   outward:  sent no more than the edge · no data after FIN · no byte that was sacked · ACK only of what arrived, never back ·
//!             window's edge never back · SACK only of what arrived · timestamps never back, echoes only of what was seen · MSS · checksums
//!             accurate ECN: no more marks and bytes than arrived, and none taken back
//! ```
//!
//! Segments of liars change none of this: the observer knows the truth, and the host must stick to
//! it. The host may report a liar's data as a duplicate, as Linux does with data before its window.

mod flow;
mod marks;
mod ranges;

use std::collections::HashMap;

use wire::tcp::{Flags, Header};
use wire::{Ecn, FlowKey, protocol};

use self::flow::Flow;
use super::net::packet::{self, View};
use super::plan::Plan;

/// See the module's documentation.
pub struct Watch {
    flows: HashMap<FlowKey, Flow>,
    /// Connections that sent new data since [`take_new_data`](Self::take_new_data).
    new_data: Vec<FlowKey>,
    house: House,
}

/// Facts that hold for all connections of a host.
#[derive(Clone, Copy, Debug)]
struct House {
    /// Peers may discard out-of-order data that they have selectively acknowledged.
    peers_may_renege: bool,
    /// The host answered SYNs with cookies. It forgets what it offered, and a late segment may
    /// begin another connection.
    sends_cookies: bool,
    /// Questions for a neighbour's address may stay unanswered. Packets sent meanwhile are lost
    /// within the host.
    loses_neighbours: bool,
    /// Bytes of the largest IP packet on the host's own link.
    mtu: usize,
    /// Some link of the network has a smaller MTU, so segments may be cut again.
    path_narrows: bool,
}

/// A TCP segment in a frame.
struct Seen<'a> {
    key: FlowKey,
    header: Header,
    /// Length of the options in bytes.
    options_len: usize,
    /// The ECN codepoint of the IP header.
    codepoint: Ecn,
    payload: &'a [u8],
}

impl Watch {
    /// An observer for host `number` of a plan.
    #[must_use]
    pub fn new(plan: &Plan, number: usize) -> Self {
        Self {
            flows: HashMap::new(),
            new_data: Vec::new(),
            house: House {
                peers_may_renege: plan.strain.scarce,
                sends_cookies: false,
                loses_neighbours: plan.strain.lossy,
                mtu: plan.hosts[number].mtu,
                path_narrows: (plan.links.iter()).any(|link| link.mtu < plan.hosts[number].mtu),
            },
        }
    }

    /// A frame arrives at the host.
    pub fn inward(&mut self, frame: &[u8]) {
        let Ok(Some(seen)) = parse(frame) else {
            return;
        };
        let key = seen.key.reversed();
        let flow = self.flows.entry(key).or_default();
        flow.inward(&seen.header, seen.payload.len() as u32, seen.codepoint);
    }

    /// Notes that the host answers SYNs with cookies from now on.
    pub fn note_cookies(&mut self) {
        self.house.sends_cookies = true;
    }

    /// A liar's frame arrives at the host.
    pub fn lied_to(&mut self, frame: &[u8]) {
        if let Ok(Some(seen)) = parse(frame)
            && let Some(flow) = self.flows.get_mut(&seen.key.reversed())
        {
            flow.lied_to(&seen.header, seen.payload.len() as u32, seen.codepoint);
        }
    }

    /// A frame leaves the host.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn outward(&mut self, frame: &[u8]) -> Result<(), String> {
        let Some(seen) = parse(frame)? else {
            return Ok(());
        };
        if frame.len() > self.house.mtu + wire::ethernet::HEADER_LEN {
            return Err(format!("a frame of {} bytes", frame.len()));
        }
        let flow = self.flows.entry(seen.key).or_default();
        let news = flow
            .outward(
                &seen.header,
                seen.options_len as u32,
                seen.payload.len() as u32,
                self.house,
            )
            .map_err(|cause| format!("{:?}: {cause}; {flow:?}", seen.key))?;
        if news {
            self.new_data.push(seen.key);
        }
        Ok(())
    }

    /// Connections that sent new data since the last such call.
    pub fn take_new_data(&mut self) -> Vec<FlowKey> {
        std::mem::take(&mut self.new_data)
    }

    /// Whether a liar's number lies near a sequence number that the host expects, or near what it
    /// sent.
    #[must_use]
    pub fn would_guess(&self, key: &FlowKey, seq: u32) -> bool {
        self.flows.get(key).is_some_and(|flow| flow.is_near(seq))
    }
}

/// The segment in a frame; `None`: the frame holds no TCP segment that the host would process.
///
/// # Errors
/// A wrong checksum.
fn parse(frame: &[u8]) -> Result<Option<Seen<'_>>, String> {
    let Some(View::Ip {
        src,
        dst,
        protocol: protocol::TCP,
        payload_at,
        len,
    }) = packet::view(frame)
    else {
        return Ok(None);
    };
    let end = wire::ethernet::HEADER_LEN + len;
    let segment = &frame[payload_at..end.min(frame.len())];
    if !sums_to_ones(src.into(), dst.into(), segment) {
        return Err("a wrong checksum".to_owned());
    }
    let Ok((header, data_at)) = Header::parse(segment) else {
        return Ok(None);
    };
    let key = FlowKey {
        local: src.into(),
        remote: dst.into(),
        local_port: header.src_port,
        remote_port: header.dst_port,
    };
    Ok(Some(Seen {
        key,
        header,
        options_len: data_at - wire::tcp::HEADER_LEN,
        codepoint: packet::codepoint(frame),
        payload: &segment[data_at..],
    }))
}

/// Whether the checksum is right. Computed by the letter of RFC 1071, so that it shares no mistake
/// with the code it checks.
fn sums_to_ones(src: wire::Addr, dst: wire::Addr, segment: &[u8]) -> bool {
    let mut sum = u64::from(protocol::TCP) + segment.len() as u64;
    let mut add = |bytes: &[u8]| {
        // Four bytes at a time fold into the same sum.
        let mut fours = bytes.chunks_exact(4);
        for four in &mut fours {
            sum += u64::from(u32::from_be_bytes([four[0], four[1], four[2], four[3]]));
        }
        for pair in fours.remainder().chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    };
    match (src.to_v4(), dst.to_v4()) {
        (Some(src), Some(dst)) => {
            add(&src.octets());
            add(&dst.octets());
        }
        _ => {
            add(src.octets());
            add(dst.octets());
        }
    }
    add(segment);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// Number of sequence numbers that the flags occupy.
fn ghosts(flags: Flags) -> u32 {
    u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN))
}
