//! Properties: no bytes make a parser panic, and every value that is parsed can be emitted again.

use proptest::prelude::*;
use std::net::Ipv6Addr;
use wire::quote::Quote;
use wire::tcp::Options;
use wire::{WireError, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// Option bytes that are mostly well formed: kinds that exist, lengths that nearly fit.
fn option_bytes() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        2 => Just(vec![1]),
        1 => Just(vec![0]),
        8 => (
            prop::sample::select(vec![2u8, 3, 4, 5, 8, 34, 254, 77]),
            prop::collection::vec(any::<u8>(), 0..20),
            0u8..30,
        )
            .prop_map(|(kind, body, noise)| {
                let right = body.len() as u8 + 2;
                let len = if noise < 26 { right } else { noise - 26 };
                [vec![kind, len], body].concat()
            }),
    ];
    prop::collection::vec(option, 0..8).prop_map(|options| {
        let mut bytes = options.concat();
        bytes.truncate(40);
        bytes
    })
}

proptest! {
    #[test]
    fn every_parser_survives(bytes in bytes(), frame_payload_len: usize, hop_limit: u8) {
        let _ = ethernet::Header::parse(&bytes);
        let _ = arp::Repr::parse(&bytes);
        let _ = ipv4::Header::parse(&bytes, frame_payload_len);
        let _ = ipv4::Header::parse_quoted(&bytes);
        if let Ok(header) = ipv6::Header::parse(&bytes, frame_payload_len) {
            let _ = ipv6::upper_layer(&header, &bytes);
        }
        let _ = icmpv4::Message::parse(&bytes);
        let _ = icmpv6::Message::parse(&bytes, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, hop_limit);
        let _ = tcp::Header::parse(&bytes);
        let _ = tcp::ports(&bytes);
        let _ = Options::parse(&bytes);
        let _ = Quote::parse_v4(&bytes);
        let _ = Quote::parse_v6(&bytes);
    }

    #[test]
    fn extension_walk_stays_inside(mut bytes in bytes(), first in prop::sample::select(vec![0u8, 43, 44, 60])) {
        bytes.resize(bytes.len().max(40), 0);
        let payload_len = (bytes.len() - 40) as u16;
        let header = ipv6::Header { next_header: first, payload_len, ..ipv6::Header::default() };
        if let Ok((_, offset)) = ipv6::upper_layer(&header, &bytes) {
            prop_assert!((48..=bytes.len()).contains(&offset));
        }
    }

    #[test]
    fn ipv4_with_the_right_checksum_is_within_its_frame(mut bytes in bytes(), header_len in 5u8..16) {
        bytes.resize(bytes.len().max(60), 0);
        bytes[0] = 0x40 | header_len;
        bytes[10..12].fill(0);
        let header_bytes = usize::from(header_len) * 4;
        let checksum = wire::checksum::of(&bytes[..header_bytes]).finish();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        match ipv4::Header::parse(&bytes, bytes.len()) {
            Ok(header) => {
                prop_assert_eq!(usize::from(header.header_len), header_bytes);
                prop_assert!(usize::from(header.total_len) <= bytes.len());
                prop_assert_eq!(header.payload_len() + header_bytes, usize::from(header.total_len));
            }
            Err(error) => {
                let expected = [WireError::BadLength, WireError::BadOption, WireError::Unsupported];
                prop_assert!(expected.contains(&error), "{}", error);
            }
        }
    }

    #[test]
    fn options_that_parse_survive_being_emitted(bytes in option_bytes()) {
        if let Ok(options) = Options::parse(&bytes) {
            let mut out = [0u8; 40];
            let len = options.emit(&mut out);
            let again = Options::parse(&out[..len]).unwrap();
            // Forty bytes of options without NOPs may exceed forty with the padding that `emit`
            // adds.
            let fitting = Options { sack: again.sack, fast_open: again.fast_open, ..options };
            prop_assert_eq!(again, fitting);
            prop_assert!(options.sack.as_slice().starts_with(again.sack.as_slice()));
        }
    }

    #[test]
    fn fast_path_and_general_parser_agree(mut bytes in bytes(), options in option_bytes(), offset in 0u8..16) {
        bytes.resize(bytes.len().max(60), 0);
        bytes[20..20 + options.len()].copy_from_slice(&options);
        bytes[12] = offset << 4;
        let data_offset = usize::from(offset) * 4;
        let parsed = tcp::Header::parse(&bytes);
        if data_offset < 20 {
            prop_assert_eq!(parsed, Err(WireError::BadLength));
        } else {
            let general = Options::parse(&bytes[20..data_offset]);
            prop_assert_eq!(parsed.map(|(header, _)| header.options), general);
        }
    }
}

#[test]
fn errors_have_distinct_names_and_dense_numbers() {
    let names: std::collections::HashSet<_> = WireError::ALL.map(WireError::name).into();
    assert_eq!(names.len(), WireError::ALL.len());
    for (index, error) in WireError::ALL.into_iter().enumerate() {
        assert_eq!(error.index(), index);
        assert!(!error.to_string().is_empty());
    }
}
