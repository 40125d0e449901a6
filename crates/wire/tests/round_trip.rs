//! Properties: a value that is emitted parses to the same value.

use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::tcp::{AccEcn, FastOpenCookie, Flags, Options, SackBlock, SackBlocks, Timestamp};
use wire::{MacAddr, SeqNumber, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp};

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn station() -> impl Strategy<Value = MacAddr> {
    mac().prop_map(|MacAddr([a, b, c, d, e, f])| MacAddr([a & !1, b, c, d, e, f]))
}

fn sack_blocks() -> impl Strategy<Value = SackBlocks> {
    prop::collection::vec(any::<(u32, u32)>(), 0..=4).prop_map(|edges| {
        let mut blocks = SackBlocks::EMPTY;
        for (left, right) in edges {
            blocks.push(SackBlock {
                left: SeqNumber(left),
                right: SeqNumber(right),
            });
        }
        blocks
    })
}

fn cookie() -> impl Strategy<Value = FastOpenCookie> {
    let bytes = prop::collection::vec(any::<u8>(), 0..=16);
    (bytes, any::<bool>()).prop_filter_map("a length no cookie has", |(bytes, experimental)| {
        FastOpenCookie::new(&bytes).map(|cookie| cookie.with_experimental(experimental))
    })
}

fn accecn() -> impl Strategy<Value = AccEcn> {
    (any::<[u32; 3]>(), 0usize..=3, any::<bool>()).prop_map(|(counters, fields, order_1)| {
        let whole = if order_1 {
            AccEcn::order_1(counters)
        } else {
            AccEcn::order_0(counters)
        };
        whole.truncated(fields)
    })
}

fn options() -> impl Strategy<Value = Options> {
    let stamp = any::<(u32, u32)>().prop_map(|(value, echo)| Timestamp { value, echo });
    (
        any::<Option<u16>>(),
        any::<Option<u8>>(),
        any::<bool>(),
        prop::option::of(stamp),
        sack_blocks(),
        prop::option::of(cookie()),
        prop::option::of(accecn()),
    )
        .prop_map(
            |(mss, window_scale, sack_permitted, timestamp, sack, fast_open, accecn)| Options {
                mss,
                window_scale,
                sack_permitted,
                timestamp,
                sack,
                fast_open,
                accecn: accecn.unwrap_or_default(),
            },
        )
}

fn tcp_header() -> impl Strategy<Value = tcp::Header> {
    (
        any::<(u16, u16, u32, u32)>(),
        (0u16..0x200, any::<u16>(), any::<u16>(), any::<u16>()),
        options(),
    )
        .prop_map(
            |((src_port, dst_port, seq, ack), (flags, window, checksum, urgent), options)| {
                tcp::Header {
                    src_port,
                    dst_port,
                    seq: SeqNumber(seq),
                    ack: SeqNumber(ack),
                    flags: Flags(flags),
                    window,
                    checksum,
                    urgent,
                    options,
                }
            },
        )
}

/// Checks the options that arrive of `sent`: all of them, or, if 40 bytes do not hold them, fewer
/// SACK blocks, no cookie and no AccECN option.
fn assert_arrived(sent: &Options, arrived: &Options) {
    let fitting = Options {
        sack: arrived.sack,
        fast_open: arrived.fast_open,
        accecn: arrived.accecn,
        ..*sent
    };
    assert_eq!(&fitting, arrived);
    assert!(sent.sack.as_slice().starts_with(arrived.sack.as_slice()));
    let is_whole = arrived.sack == sent.sack
        && arrived.fast_open == sent.fast_open
        && arrived.accecn == sent.accecn;
    let free = 40 - arrived.emit_len();
    if !is_whole {
        assert!(free < 20, "{free} bytes free, yet something was left out");
    }
    if arrived.sack != sent.sack {
        assert!(arrived.sack.len() >= 2);
    }
    assert!(arrived.fast_open.is_none() || arrived.fast_open == sent.fast_open);
    assert!(!arrived.accecn.is_present() || arrived.accecn == sent.accecn);
}

proptest! {
    #[test]
    fn tcp_header_round_trips(sent in tcp_header()) {
        let mut out = [0u8; tcp::HEADER_LEN_MAX];
        let len = sent.emit(&mut out);
        prop_assert_eq!(len, sent.header_len());
        prop_assert!(len % 4 == 0 && (20..=60).contains(&len));
        let (arrived, data_offset) = tcp::Header::parse(&out[..len]).unwrap();
        prop_assert_eq!(data_offset, len);
        prop_assert_eq!(tcp::Header { options: sent.options, ..arrived }, sent);
        assert_arrived(&sent.options, &arrived.options);
    }

    #[test]
    fn tcp_header_of_a_live_flow_round_trips(mut sent in tcp_header(), with_stamp: bool) {
        sent.options = Options {
            timestamp: sent.options.timestamp.filter(|_| with_stamp),
            ..Options::NONE
        };
        let mut out = [0u8; 32];
        let len = sent.emit(&mut out);
        prop_assert_eq!(tcp::Header::parse(&out), Ok((sent, len)));
    }

    #[test]
    fn ethernet_round_trips(dst in mac(), src in mac(), vlan: Option<u16>, ethertype: u16) {
        // An untagged header of type VLAN would be a tagged one, cut short.
        prop_assume!(vlan.is_some() || ethertype != ethernet::EtherType::VLAN);
        let sent = ethernet::Header { dst, src, vlan, ethertype };
        let mut out = [0u8; 18];
        let len = sent.emit(&mut out);
        prop_assert_eq!(len, sent.header_len());
        prop_assert_eq!(ethernet::Header::parse(&out[..len]), Ok((sent, len)));
    }

    #[test]
    fn arp_round_trips(is_reply: bool, sha in station(), spa: u32, tha in mac(), tpa: u32) {
        let op = if is_reply { arp::Operation::Reply } else { arp::Operation::Request };
        let (spa, tpa) = (Ipv4Addr::from_bits(spa), Ipv4Addr::from_bits(tpa));
        let sent = arp::Repr { op, sha, spa, tha, tpa };
        let mut out = [0u8; 28];
        prop_assert_eq!(sent.emit(&mut out), 28);
        prop_assert_eq!(arp::Repr::parse(&out), Ok(sent));
    }

    #[test]
    fn ipv4_round_trips(
        words: (u16, u16), total_len in 20u16.., offset in 0u16..0x2000,
        bytes: (u8, u8, u8), flags: (bool, bool), addrs: (u32, u32),
    ) {
        let sent = ipv4::Header {
            dscp_ecn: bytes.0,
            total_len,
            ident: words.0,
            dont_fragment: flags.0,
            more_fragments: flags.1,
            fragment_offset: offset,
            ttl: bytes.1,
            protocol: bytes.2,
            src: Ipv4Addr::from_bits(addrs.0),
            dst: Ipv4Addr::from_bits(addrs.1),
            header_len: 20,
        };
        let mut out = [0u8; 20];
        prop_assert_eq!(sent.emit(&mut out), 20);
        prop_assert_eq!(ipv4::Header::parse(&out, usize::from(total_len)), Ok(sent));
    }

    #[test]
    fn ipv6_round_trips(
        traffic_class: u8, flow_label in 0u32..1 << 20, payload_len: u16,
        next_header: u8, hop_limit: u8, src: u128, dst: u128,
    ) {
        let sent = ipv6::Header {
            traffic_class,
            flow_label,
            payload_len,
            next_header,
            hop_limit,
            src: Ipv6Addr::from_bits(src),
            dst: Ipv6Addr::from_bits(dst),
        };
        let mut out = [0u8; 40];
        prop_assert_eq!(sent.emit(&mut out), 40);
        prop_assert_eq!(ipv6::Header::parse(&out, 40 + usize::from(payload_len)), Ok(sent));
    }

    #[test]
    fn icmpv4_round_trips(which in 0u8..5, ident: u16, seq: u16, code: u8, data: Vec<u8>) {
        let data = &data[..];
        let sent = match which {
            0 => icmpv4::Message::EchoRequest { ident, seq, data },
            1 => icmpv4::Message::EchoReply { ident, seq, data },
            2 => icmpv4::Message::DestinationUnreachable { code, next_hop_mtu: seq, quote: data },
            3 => icmpv4::Message::TimeExceeded { code, quote: data },
            _ => icmpv4::Message::ParameterProblem { code, pointer: ident as u8, quote: data },
        };
        let mut out = vec![0u8; sent.emit_len()];
        prop_assert_eq!(sent.emit(&mut out), out.len());
        prop_assert_eq!(icmpv4::Message::parse(&out), Ok(sent));
    }

    #[test]
    fn icmpv6_round_trips(
        which in 0u8..6, ident: u16, seq: u16, code: u8, word: u32,
        data: Vec<u8>, src: u128, dst: u128,
    ) {
        let (data, src, dst) = (&data[..], Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst));
        let sent = match which {
            0 => icmpv6::Message::EchoRequest { ident, seq, data },
            1 => icmpv6::Message::EchoReply { ident, seq, data },
            2 => icmpv6::Message::DestinationUnreachable { code, quote: data },
            3 => icmpv6::Message::PacketTooBig { mtu: word, quote: data },
            4 => icmpv6::Message::TimeExceeded { code, quote: data },
            _ => icmpv6::Message::ParameterProblem { code, pointer: word, quote: data },
        };
        let mut out = vec![0u8; sent.emit_len()];
        prop_assert_eq!(sent.emit(&mut out, src, dst), out.len());
        prop_assert_eq!(icmpv6::Message::parse(&out, src, dst, 64), Ok(sent));
    }

    #[test]
    fn neighbor_discovery_round_trips(
        is_answer: bool, flags: (bool, bool, bool), interface: u64, lladdr in prop::option::of(station()),
    ) {
        let target = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(interface));
        let sent = if is_answer {
            icmpv6::Message::NeighborAdvertisement {
                flags: icmpv6::NeighborFlags { router: flags.0, solicited: flags.1, overrides: flags.2 },
                target,
                target_lladdr: lladdr,
            }
        } else {
            icmpv6::Message::NeighborSolicitation { target, source_lladdr: lladdr }
        };
        let mut out = [0u8; icmpv6::NEIGHBOR_LEN_MAX];
        let len = sent.emit(&mut out, target, target);
        prop_assert_eq!(icmpv6::Message::parse(&out[..len], target, target, 255), Ok(sent));
    }
}
