//! The exact bytes of each message, and a check that arbitrary bytes never make decoding panic.

use super::*;
use proptest::prelude::*;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn hello_bytes() {
    let hello = Hello {
        name: Text::new("mill"),
        version_min: 0x0200,
        version_max: 0x0201,
        region_index_max: 7,
        server_to_client_index_max: 3,
        client_to_server_index_max: 4,
        ring_slots_log2_max: 14,
    };
    let bytes = Message::Hello(hello).encode();
    assert_eq!(u16_at(&bytes, 0), 2);
    assert_eq!(&bytes[2..7], b"mill\0");
    assert_eq!(u16_at(&bytes, 34), 0x0200);
    assert_eq!(u16_at(&bytes, 36), 0x0201);
    assert_eq!(u16_at(&bytes, 38), 7);
    assert_eq!(u16_at(&bytes, 40), 3);
    assert_eq!(u16_at(&bytes, 42), 4);
    assert_eq!(bytes[44], 14);
    assert!(bytes[45..].iter().all(|&b| b == 0));
    assert_eq!(Message::decode(&bytes), Ok(Message::Hello(hello)));
}

#[test]
fn init_bytes() {
    let init = Init {
        version: VERSION,
        id: 0x0102_0304,
        mode: MODE_ETHERNET,
        secret: Text::new("psst"),
        name: Text::new("c"),
    };
    let bytes = Message::Init(init).encode();
    assert_eq!(u16_at(&bytes, 0), 3);
    assert_eq!(u16_at(&bytes, 2), 0x0200);
    assert_eq!(u32_at(&bytes, 4), 0x0102_0304);
    assert_eq!(bytes[8], 0);
    assert_eq!(&bytes[9..14], b"psst\0");
    assert_eq!(&bytes[33..35], b"c\0");
    assert_eq!(Message::decode(&bytes), Ok(Message::Init(init)));
}

#[test]
fn add_region_and_add_ring_bytes() {
    let bytes = Message::AddRegion {
        index: 5,
        size: 0x1_0000_0002,
    }
    .encode();
    assert_eq!((u16_at(&bytes, 0), u16_at(&bytes, 2)), (4, 5));
    assert_eq!(
        u64::from_ne_bytes(bytes[4..12].try_into().unwrap()),
        0x1_0000_0002
    );

    let ring = AddRing {
        flags: 1,
        index: 2,
        region: 3,
        offset: 0x4444,
        slots_log2: 10,
        private_header_bytes: 9,
    };
    let bytes = Message::AddRing(ring).encode();
    assert_eq!([0, 2, 4, 6].map(|at| u16_at(&bytes, at)), [5, 1, 2, 3]);
    assert_eq!(u32_at(&bytes, 8), 0x4444);
    assert_eq!(bytes[12], 10);
    assert_eq!(u16_at(&bytes, 13), 9);
    assert_eq!(Message::decode(&bytes), Ok(Message::AddRing(ring)));
}

#[test]
fn ack_connect_connected_and_disconnect_bytes() {
    assert_eq!(u16_at(&Message::Ack.encode(), 0), 1);
    assert_eq!(
        u16_at(
            &Message::Connect {
                interface: Text::new("a")
            }
            .encode(),
            0
        ),
        6
    );
    assert_eq!(
        u16_at(
            &Message::Connected {
                interface: Text::new("a")
            }
            .encode(),
            0
        ),
        7
    );
    let bytes = Message::Disconnect {
        code: 0xabcd,
        reason: Text::new("bye"),
    }
    .encode();
    assert_eq!(u16_at(&bytes, 0), 8);
    assert_eq!(u32_at(&bytes, 2), 0xabcd);
    assert_eq!(&bytes[6..10], b"bye\0");
}

#[test]
fn text_too_long_is_cut_and_text_without_end_is_read_whole() {
    assert_eq!(Text::<4>::new("abcdef").bytes(), b"abc");
    assert_eq!(Text::<4>(*b"abcd").bytes(), b"abcd");
    assert_eq!(Text::<4>([b'a', 7, 0xff, 0]).printable(), "a??");
}

#[test]
fn wrong_length_and_unknown_type_are_errors() {
    assert_eq!(Message::decode(&[0; 127]), Err(MessageError::Length));
    assert_eq!(Message::decode(&[0; 129]), Err(MessageError::Length));
    assert_eq!(Message::decode(&[]), Err(MessageError::Length));
    assert_eq!(Message::decode(&[0; 128]), Err(MessageError::Type));
    assert_eq!(Message::decode(&[9; 128]), Err(MessageError::Type));
}

proptest! {
    #[test]
    fn any_message_survives_the_round_trip(kind in 1u16..=8, mut bytes in proptest::collection::vec(any::<u8>(), 128)) {
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        let message = Message::decode(&bytes).unwrap();
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(&bytes);
    }
}
