//! Off-path attackers who know addresses and ports but no sequence number. They send resets, SYNs,
//! data and ICMP errors with invented numbers. None of these may affect a stream.

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::EtherType;
use wire::tcp::{Flags, Header, Options, Timestamp};
use wire::{FlowKey, MacAddr, SeqNumber};

use super::host::{Host, Shared};
use super::net::host_mac;
use super::net::packet::{self, Lament};
use super::plan::{Lie, LieKind};
use super::queue::Flying;
use super::random::Random;

/// Most draws until a number is no lucky guess.
const TRIES_MAX: usize = 8;

/// The forged frame, and the host that gets it. `None`: there is no connection to lie about.
#[must_use]
pub fn forge(shared: &Shared, hosts: &[Host], lie: &Lie) -> Option<(usize, Flying)> {
    let plan = &shared.plan.flows[lie.flow];
    let client_port = shared.ledger.live_port(lie.flow)?;
    let server_port = if plan.simultaneous {
        plan.port + 20_000
    } else {
        plan.port
    };
    let ips = [plan.client, plan.server].map(|host| shared.addresses.host(host, plan.v6));
    let ports = [client_port, server_port];
    let victim = SocketAddr::new(ips[lie.end], ports[lie.end]);
    let peer = SocketAddr::new(ips[1 - lie.end], ports[1 - lie.end]);
    let to = [plan.client, plan.server][lie.end];
    let key = FlowKey {
        local: victim.ip().into(),
        remote: peer.ip().into(),
        local_port: victim.port(),
        remote_port: peer.port(),
    };
    let mut dice = Random::new(lie.dice, 0);
    let (seq, ack) = numbers(&mut dice, &hosts[to], &key)?;
    let bytes = match lie.kind {
        LieKind::Unreachable | LieKind::TooBig => error(lie.kind, &mut dice, victim, peer, seq)?,
        kind => segment(kind, &mut dice, victim, peer, seq, ack),
    };
    let ethertype = if plan.v6 {
        EtherType::IPV6
    } else {
        EtherType::IPV4
    };
    let liar = MacAddr([2, 9, 0, 0, 0, 9]);
    let frame = packet::framed(liar, host_mac(to), ethertype, &bytes);
    let flying = Flying {
        bytes: frame,
        forged: true,
        damaged: false,
    };
    Some((to, flying))
}

/// A sequence number and an ACK number, both far from any valid ones.
fn numbers(dice: &mut Random, host: &Host, key: &FlowKey) -> Option<(u32, u32)> {
    for _ in 0..TRIES_MAX {
        let (seq, ack) = (dice.word() as u32, dice.word() as u32);
        let watch = host.watch();
        if !watch.would_guess(key, seq) && !watch.would_guess(key, ack) {
            return Some((seq, ack));
        }
    }
    None
}

fn segment(
    kind: LieKind,
    dice: &mut Random,
    victim: SocketAddr,
    peer: SocketAddr,
    seq: u32,
    ack: u32,
) -> Vec<u8> {
    let (flags, len) = match kind {
        LieKind::Reset if dice.percent(50) => (Flags::RST, 0),
        LieKind::Reset => (Flags::RST | Flags::ACK, 0),
        LieKind::Syn => (Flags::SYN, 0),
        LieKind::SynAck => (Flags::SYN | Flags::ACK, 0),
        LieKind::Data => (Flags::ACK | Flags::PSH, dice.between(1, 1_000) as usize),
        _ => (Flags::ACK, 0),
    };
    let stamp = Timestamp {
        value: dice.word() as u32,
        echo: dice.word() as u32,
    };
    let is_syn = flags.contains(Flags::SYN);
    let header = Header {
        src_port: peer.port(),
        dst_port: victim.port(),
        seq: SeqNumber(seq),
        ack: SeqNumber(if flags.contains(Flags::ACK) { ack } else { 0 }),
        flags,
        window: dice.word() as u16,
        options: Options {
            timestamp: dice.percent(50).then_some(stamp),
            mss: is_syn.then_some(1_460),
            ..Options::NONE
        },
        ..Header::default()
    };
    packet::tcp_packet(peer.ip(), victim.ip(), &header, &vec![0x5a; len])
}

/// An ICMP error about a segment that the victim never sent.
fn error(
    kind: LieKind,
    dice: &mut Random,
    victim: SocketAddr,
    peer: SocketAddr,
    seq: u32,
) -> Option<Vec<u8>> {
    let header = Header {
        src_port: victim.port(),
        dst_port: peer.port(),
        seq: SeqNumber(seq),
        flags: Flags::ACK,
        ..Header::default()
    };
    let quote = packet::tcp_packet(victim.ip(), peer.ip(), &header, &[]);
    let lament = match kind {
        LieKind::TooBig => Lament::TooBig(dice.pick(&[0, 1, 68, 296, 552, 1_000, 1_280, 65_535])),
        _ if dice.percent(50) => Lament::PortUnreachable,
        _ => Lament::HostUnreachable,
    };
    let liar: IpAddr = if victim.is_ipv6() {
        IpAddr::from([0xfd00, 0, 0, 0x66, 0, 0, 0, 1])
    } else {
        IpAddr::from([10, 66, 0, 1])
    };
    packet::icmp_error(liar, victim.ip(), &quote, lament)
}
