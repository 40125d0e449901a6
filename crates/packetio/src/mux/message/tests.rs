//! Every message survives its encoding, and no bytes make decoding panic.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn text<const N: usize>() -> impl Strategy<Value = Text<N>> {
    prop::array::uniform::<_, N>(any::<u8>()).prop_map(Text)
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
    ]
}

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn tuple() -> impl Strategy<Value = Tuple> {
    (any::<u8>(), address(), any::<u16>()).prop_map(|(protocol, address, port)| Tuple {
        protocol,
        address,
        port,
    })
}

fn claim() -> impl Strategy<Value = Claim> {
    (any::<u32>(), any::<u16>(), tuple()).prop_map(|(request, context, tuple)| Claim {
        request,
        context,
        tuple,
    })
}

fn seek() -> impl Strategy<Value = Seek> {
    (any::<u32>(), any::<u16>(), tuple(), any::<[bool; 2]>()).prop_map(
        |(request, context, tuple, [accepts, is_urgent])| Seek {
            request,
            context,
            tuple,
            accepts,
            is_urgent,
        },
    )
}

fn lease() -> impl Strategy<Value = Lease> {
    any::<(u32, u16, u16, u16)>().prop_map(|(request, context, first, ports)| Lease {
        request,
        context,
        first,
        ports,
    })
}

fn route() -> impl Strategy<Value = Route> {
    let optional = || prop::option::of(address());
    (address(), any::<(u8, u32, u32)>(), optional(), optional()).prop_map(
        |(destination, (prefix, mtu, metric), gateway, source)| Route {
            destination,
            prefix,
            gateway,
            source,
            mtu,
            metric,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let network = || (address(), any::<u8>());
    prop_oneof![
        Just(Change::Complete),
        Just(Change::Gone),
        any::<bool>().prop_map(|is_up| Change::Link { is_up }),
        mac().prop_map(Change::Mac),
        any::<u32>().prop_map(Change::Mtu),
        prop::option::of(mac()).prop_map(Change::OwnHop),
        network().prop_map(|(address, prefix)| Change::AddressAdded { address, prefix }),
        network().prop_map(|(address, prefix)| Change::AddressRemoved { address, prefix }),
        route().prop_map(Change::RouteAdded),
        route().prop_map(Change::RouteRemoved),
        (address(), prop::option::of(mac()))
            .prop_map(|(address, mac)| Change::NextHop { address, mac }),
    ]
}

fn welcome() -> impl Strategy<Value = Message> {
    let policy = prop_oneof![
        Just(ChecksumPolicy::Verify),
        Just(ChecksumPolicy::AcceptPartial),
        Just(ChecksumPolicy::Trust),
    ];
    let numbers = any::<(u16, u32, bool, u32, u32)>();
    let words = (numbers, mac(), policy, text(), kind());
    words.prop_map(|(numbers, mac, rx_checksum, interface, kind)| {
        let (application, mtu, link_is_up, ifindex, ledger_entries_max) = numbers;
        Message::Welcome(Welcome {
            application,
            mac,
            mtu,
            rx_checksum,
            link_is_up,
            ifindex,
            interface,
            ledger_entries_max,
            kind,
        })
    })
}

fn memory() -> impl Strategy<Value = Message> {
    any::<(u16, u64, [u32; 7])>().prop_map(|(context, bytes, words)| {
        let [chunk, headroom, fill, completion, rx, tx, ledger] = words;
        Message::Memory(Memory {
            context,
            bytes,
            chunk_bytes: chunk,
            headroom_bytes: headroom,
            fill_slots: fill,
            completion_slots: completion,
            rx_slots: rx,
            tx_slots: tx,
            ledger_entries: ledger,
        })
    })
}

fn query() -> impl Strategy<Value = Query> {
    prop_oneof![
        Just(Query::Status),
        Just(Query::Ports),
        Just(Query::Drops),
        Just(Query::Check),
        Just(Query::Stop),
    ]
}

fn requests() -> impl Strategy<Value = Message> {
    prop_oneof![
        (text(), any::<u16>())
            .prop_map(|(name, contexts)| Message::Hello(Hello { name, contexts })),
        memory(),
        claim().prop_map(Message::Claim),
        claim().prop_map(Message::Bound),
        (any::<(u16, u16, u16)>(), address(), address()).prop_map(
            |((context, ours, theirs), local, remote)| Message::Forget {
                context,
                local: SocketAddr::new(local, ours),
                remote: SocketAddr::new(remote, theirs),
            }
        ),
        claim().prop_map(Message::Release),
        lease().prop_map(Message::Lease),
        lease().prop_map(Message::Return),
        (any::<u32>(), address())
            .prop_map(|(request, address)| Message::Resolve { request, address }),
        (text(), any::<u16>()).prop_map(|(name, contexts)| Message::Join(Hello { name, contexts })),
        any::<(u32, u16, u16)>().prop_map(|(request, application, context)| Message::Recover {
            request,
            application,
            context
        }),
        (any::<u32>(), query()).prop_map(|(request, query)| Message::Query { request, query }),
        any::<(u32, u16)>().prop_map(|(request, context)| Message::BulkAsk { request, context }),
    ]
}

fn moving() -> impl Strategy<Value = Move> {
    let numbers = any::<(u32, u16, u16, u32)>();
    (numbers, tuple(), address(), address()).prop_map(
        |((request, context, port, bytes), tuple, local, remote)| Move {
            request,
            context,
            tuple,
            local,
            remote: SocketAddr::new(remote, port),
            bytes,
        },
    )
}

fn kind() -> impl Strategy<Value = PortKind> {
    prop_oneof![Just(PortKind::Xdp), Just(PortKind::Memif)]
}

fn answers() -> impl Strategy<Value = Message> {
    prop_oneof![
        welcome(),
        (any::<(u16, u64)>(), kind()).prop_map(|((context, cookie), kind)| {
            Message::Port(VirtualPort {
                context,
                cookie,
                kind,
            })
        }),
        any::<(u16, u32)>().prop_map(|(context, ledger_entries)| Message::PortAsk {
            context,
            ledger_entries,
        }),
        any::<(u16, u64)>().prop_map(|(context, bytes)| Message::Ledger { context, bytes }),
        any::<u32>().prop_map(|request| Message::Granted { request }),
        any::<u32>().prop_map(|request| Message::Bulk { request }),
        any::<(u32, u16)>().prop_map(|(request, errno)| Message::Refused { request, errno }),
        lease().prop_map(Message::Leased),
        (any::<u32>(), address(), mac()).prop_map(|(request, address, mac)| Message::NextHop {
            request,
            address,
            mac
        }),
        change().prop_map(Message::Change),
        moving().prop_map(Message::Move),
        seek().prop_map(Message::Seek),
        claim().prop_map(Message::Accepts),
        (tuple(), any::<u16>()).prop_map(|(tuple, errno)| Message::Revoke { tuple, errno }),
        any::<bool>().prop_map(|stays| Message::Stopping { stays }),
        any::<(u32, u64)>().prop_map(|(request, bytes)| Message::Answer { request, bytes }),
    ]
}

proptest! {
    #[test]
    fn every_message_survives_its_encoding(message in prop_oneof![requests(), answers()]) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn bytes_that_decode_encode_to_themselves(
        mut bytes in prop::collection::vec(any::<u8>(), MESSAGE_LEN),
        number in 0u16..31,
        used in 4usize..=MESSAGE_LEN,
    ) {
        bytes[..2].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[2..4].copy_from_slice(&number.to_ne_bytes());
        bytes[used..].fill(0);
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(&message.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn one_changed_byte_is_another_message_or_an_error(
        message in prop_oneof![requests(), answers()],
        at in 0..MESSAGE_LEN,
        change in 1u8..,
    ) {
        let mut bytes = message.encode();
        bytes[at] ^= change;
        prop_assert_ne!(Message::decode(&bytes), Ok(message));
    }
}

#[test]
fn wrong_length_version_or_type_is_refused() {
    let bytes = Message::Granted { request: 1 }.encode();
    let decode = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        Message::decode(&bytes)
    };
    assert_eq!(Message::decode(&bytes[1..]), Err(MessageError::Length));
    assert_eq!(Message::decode(&[]), Err(MessageError::Length));
    assert_eq!(decode(0, 99), Err(MessageError::Version(99)));
    assert_eq!(decode(2, 99), Err(MessageError::Type(99)));
    assert_eq!(decode(MESSAGE_LEN - 1, 1), Err(MessageError::Padding));
}

#[test]
fn fields_stand_in_order_without_padding() {
    let bytes = Message::Claim(Claim {
        request: 0x0102_0304,
        context: 0x0506,
        tuple: Tuple {
            protocol: PROTOCOL_TCP,
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            port: 8080,
        },
    })
    .encode();
    assert_eq!(bytes[..2], VERSION.to_ne_bytes());
    assert_eq!(bytes[2..4], 5u16.to_ne_bytes());
    assert_eq!(bytes[4..8], 0x0102_0304u32.to_ne_bytes());
    assert_eq!(bytes[8..10], 0x0506u16.to_ne_bytes());
    assert_eq!(bytes[10..16], [6, 4, 10, 0, 0, 1]);
    assert_eq!(bytes[28..30], 8080u16.to_ne_bytes());
    assert!(bytes[30..].iter().all(|byte| *byte == 0));
}
