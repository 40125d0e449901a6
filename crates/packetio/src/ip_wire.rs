//! A wire within one process whose far end handles raw IP packets and stands for all other hosts.
//!
//! The near end is a [`Port`] for a stack. It answers ARP requests and neighbour solicitations for
//! any address at once, so the far end sees no Ethernet. The far end [injects](IpWireEnd::inject)
//! IP packets, and takes [packets that left](IpWireEnd::next) in order, each with its time on the
//! wire's [`Clock`]. The virtual host of packet scripts and of the packetdrill plug-in uses it.
//!
//! ```text
//!   stack ─ Port ─┬─ IP packets, stamped ──▶ next()
//!                 ├─ ARP, ND ──▶ answered here
//!                 ◀─ Ethernet header put before ── inject()
//! ```
//!
//! The ends may be on different threads. A lock protects what they share, and an injected packet
//! wakes a sleeping stack. One lock per batch and one allocation per packet are acceptable for
//! tests.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use rustix::event::PollFlags;
use wire::ethernet::{EtherType, Header};
use wire::icmpv6::{Message, NeighborFlags};
use wire::{arp, ipv6, protocol};

use crate::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use crate::clock::Clock;
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{
    FRAME_HEADER_MAX, IP_WIRE_BATCH_MAX, IP_WIRE_PACKET_BYTES_MAX, IP_WIRE_PACKETS_MAX,
};
use crate::mac::local_mac;
use crate::open_error::OpenError;
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, Port, PortCounters, PortError};

/// An IP packet that left the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The packet, from its IP header on.
    pub packet: Vec<u8>,
    /// Time at which the packet left, ns by the wire's clock.
    pub at_ns: u64,
}

/// The reason why a packet cannot be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// The packet is neither IPv4 nor IPv6.
    #[error("not an IP packet")]
    NotIp,
    /// The packet is longer than an IP packet can be.
    #[error("longer than {IP_WIRE_PACKET_BYTES_MAX} bytes")]
    TooLong,
    /// The stack has not taken enough of the earlier packets.
    #[error("more than {IP_WIRE_PACKETS_MAX} packets wait for the stack")]
    Full,
}

/// The stack's end of the wire.
pub struct IpWirePort {
    capabilities: Capabilities,
    far_mac: MacAddr,
    clock: Clock,
    shared: Arc<Mutex<Shared>>,
    arrival: StackBell,
    rx_free: Vec<FrameBuf>,
    tx_free: Vec<FrameBuf>,
    lent: RxBatch,
    granted: TxBatch,
    totals: PortCounters,
    unread_dropped: u64,
}

/// The far end of the wire; clones are the same end.
#[derive(Clone)]
pub struct IpWireEnd {
    shared: Arc<Mutex<Shared>>,
    arrival: StackBell,
    near_mac: MacAddr,
    far_mac: MacAddr,
}

#[derive(Default)]
struct Shared {
    /// Frames on their way to the stack.
    inbound: VecDeque<Vec<u8>>,
    /// Packets that the stack sent.
    outbound: VecDeque<Departed>,
    /// True while the wire takes no frame from the stack.
    is_blocked: bool,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a wire for IP packets of at most `mtu` bytes from the stack, and of any length to it.
///
/// # Errors
/// The process has no descriptor left.
pub fn pair(mtu: usize, clock: Clock) -> Result<(IpWirePort, IpWireEnd), OpenError> {
    let arrival = StackBell::new().map_err(|e| OpenError::io("ip wire", "eventfd", e))?;
    let shared = Arc::new(Mutex::new(Shared::default()));
    let (near_mac, far_mac) = (local_mac("ip wire, near"), local_mac("ip wire, far"));
    let capabilities = Capabilities {
        mac: near_mac,
        mtu,
        rx_checksum: ChecksumPolicy::Verify,
        tx_checksum_offload: false,
        segment_bytes_max: 0,
        batch_max: IP_WIRE_BATCH_MAX,
        name: "ip wire".to_owned(),
        queue: 0,
    };
    let port = IpWirePort {
        capabilities,
        far_mac,
        clock,
        shared: shared.clone(),
        arrival: arrival.clone(),
        rx_free: carve(
            IP_WIRE_BATCH_MAX,
            IP_WIRE_PACKET_BYTES_MAX + FRAME_HEADER_MAX,
        ),
        tx_free: carve(IP_WIRE_BATCH_MAX, mtu + FRAME_HEADER_MAX),
        lent: RxBatch::new(IP_WIRE_BATCH_MAX),
        granted: TxBatch::new(IP_WIRE_BATCH_MAX),
        totals: PortCounters::default(),
        unread_dropped: 0,
    };
    let end = IpWireEnd {
        shared,
        arrival,
        near_mac,
        far_mac,
    };
    Ok((port, end))
}

impl IpWireEnd {
    /// Injects a packet, which the stack sees in its next turn.
    ///
    /// # Errors
    /// [`InjectError`]; the packet is not sent.
    pub fn inject(&self, packet: &[u8]) -> Result<(), InjectError> {
        let ethertype = match packet.first().map(|first| first >> 4) {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            _ => return Err(InjectError::NotIp),
        };
        if packet.len() > IP_WIRE_PACKET_BYTES_MAX {
            return Err(InjectError::TooLong);
        }
        let frame = framed(self.near_mac, self.far_mac, ethertype, packet);
        let mut shared = lock(&self.shared);
        if shared.inbound.len() >= IP_WIRE_PACKETS_MAX {
            return Err(InjectError::Full);
        }
        shared.inbound.push_back(frame);
        drop(shared);
        self.arrival.ring();
        Ok(())
    }

    /// Takes the oldest packet that left the stack.
    #[must_use]
    pub fn next(&self) -> Option<Departed> {
        lock(&self.shared).outbound.pop_front()
    }

    /// Blocks the wire like a full queue below the stack, or opens it. While it is blocked the
    /// stack finds no room for frames.
    pub fn set_blocked(&self, is_blocked: bool) {
        lock(&self.shared).is_blocked = is_blocked;
    }

    /// Number of packets that left and were not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.shared).outbound.len()
    }
}

/// A frame around a packet.
fn framed(to: MacAddr, from: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let header = Header {
        dst: to,
        src: from,
        ethertype,
        vlan: None,
    };
    let mut frame = vec![0; header.header_len()];
    header.emit(&mut frame);
    frame.extend_from_slice(packet);
    frame
}

/// The kind of a frame sent by the stack.
enum Sent {
    /// An ARP request or solicitation, with its answer.
    Question(Vec<u8>),
    /// Another link-layer frame, without an answer.
    LinkOnly,
    Packet,
}

impl IpWirePort {
    /// Takes a frame of the stack: answers a request, or keeps a packet for the far end.
    fn take(&mut self, buf: &FrameBuf) {
        let Ok((header, at)) = Header::parse(buf.bytes()) else {
            return;
        };
        let packet = &buf.bytes()[at..];
        let sent = match header.ethertype {
            EtherType::ARP => self.on_arp(packet),
            EtherType::IPV6 => self.on_ipv6(packet),
            EtherType::IPV4 => Sent::Packet,
            _ => Sent::LinkOnly,
        };
        let mut shared = lock(&self.shared);
        match sent {
            Sent::LinkOnly => {}
            Sent::Question(answer) => shared.inbound.push_back(answer),
            Sent::Packet if shared.outbound.len() >= IP_WIRE_PACKETS_MAX => {
                self.unread_dropped += 1;
            }
            Sent::Packet => shared.outbound.push_back(Departed {
                packet: packet.to_vec(),
                at_ns: self.clock.now_ns(),
            }),
        }
    }

    fn on_arp(&self, packet: &[u8]) -> Sent {
        let Ok(asked) = arp::Repr::parse(packet) else {
            return Sent::LinkOnly;
        };
        let is_announcement = asked.spa == asked.tpa || asked.spa.is_unspecified();
        if asked.op != arp::Operation::Request || is_announcement {
            return Sent::LinkOnly;
        }
        let reply = arp::Repr {
            op: arp::Operation::Reply,
            sha: self.far_mac,
            spa: asked.tpa,
            tha: asked.sha,
            tpa: asked.spa,
        };
        let mut bytes = [0; arp::PACKET_LEN];
        reply.emit(&mut bytes);
        Sent::Question(framed(asked.sha, self.far_mac, EtherType::ARP, &bytes))
    }

    fn on_ipv6(&self, packet: &[u8]) -> Sent {
        let Ok(header) = ipv6::Header::parse(packet, packet.len()) else {
            return Sent::Packet;
        };
        let (src, dst) = (header.src, header.dst);
        match packet.get(ipv6::HEADER_LEN..) {
            Some(body) if header.next_header == protocol::ICMPV6 => {
                match Message::parse(body, src, dst, header.hop_limit) {
                    Ok(Message::NeighborSolicitation { target, .. }) => {
                        Sent::Question(self.advertisement(target, src))
                    }
                    Ok(Message::NeighborAdvertisement { .. }) => Sent::LinkOnly,
                    _ => Sent::Packet,
                }
            }
            _ => Sent::Packet,
        }
    }

    fn advertisement(&self, target: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
        let message = Message::NeighborAdvertisement {
            flags: NeighborFlags {
                router: false,
                solicited: true,
                overrides: true,
            },
            target,
            target_lladdr: Some(self.far_mac),
        };
        let mut body = vec![0; message.emit_len()];
        message.emit(&mut body, target, to);
        let header = ipv6::Header {
            src: target,
            dst: to,
            next_header: protocol::ICMPV6,
            payload_len: body.len() as u16,
            hop_limit: 255,
            ..ipv6::Header::default()
        };
        let mut packet = vec![0; ipv6::HEADER_LEN];
        header.emit(&mut packet);
        packet.extend_from_slice(&body);
        framed(
            self.capabilities.mac,
            self.far_mac,
            EtherType::IPV6,
            &packet,
        )
    }
}

impl Port for IpWirePort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let mut shared = lock(&self.shared);
        while let Some(mut buf) = self.rx_free.pop() {
            let Some(frame) = shared.inbound.pop_front() else {
                self.rx_free.push(buf);
                break;
            };
            // A slot holds the longest frame that `inject` accepts.
            buf.copy_bytes(&frame);
            self.totals.rx_frames += 1;
            self.totals.rx_bytes += frame.len() as u64;
            self.lent.push(buf);
        }
        Ok(self.lent.frames())
    }

    fn release(&mut self) {
        self.rx_free.extend(self.lent.drain());
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let is_blocked = lock(&self.shared).is_blocked;
        let n = if is_blocked {
            0
        } else {
            n.min(IP_WIRE_BATCH_MAX)
        };
        while self.granted.len() < n {
            let Some(buf) = self.tx_free.pop() else {
                break;
            };
            self.granted.push(buf);
        }
        self.granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let written: Vec<FrameBuf> = self.granted.drain().collect();
        for (i, buf) in written.into_iter().enumerate() {
            if i < n && !buf.is_empty() {
                self.totals.tx_frames += 1;
                self.totals.tx_bytes += buf.len() as u64;
                self.take(&buf);
            }
            self.tx_free.push(buf);
        }
        Ok(())
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.arrival.prepare_sleep();
        want_tx || !lock(&self.shared).inbound.is_empty()
    }

    fn finish_wait(&mut self) {
        self.arrival.cancel_sleep();
    }

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        fds(self.arrival.fd(), PollFlags::IN);
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.totals;
        counters.push("ip_wire_tx_dropped_unread", self.unread_dropped);
        counters
    }
}

#[cfg(test)]
mod tests;
