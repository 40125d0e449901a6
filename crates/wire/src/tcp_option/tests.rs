//! Option bytes that peers send, and Linux's layouts byte for byte.

use super::*;
use std::format;
use std::vec::Vec;

fn emitted(options: Options) -> Vec<u8> {
    let mut out = [0xee; TCP_OPTION_BYTES_MAX];
    let len = options.emit(&mut out);
    assert_eq!(len, options.emit_len());
    assert!(out[len..].iter().all(|&byte| byte == 0xee));
    out[..len].to_vec()
}

fn blocks(count: u32) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    for n in 0..count {
        let left = SeqNumber(100 * n);
        assert!(blocks.push(SackBlock {
            left,
            right: left + 50
        }));
    }
    blocks
}

const STAMP: Timestamp = Timestamp {
    value: 0x0102_0304,
    echo: 0x0506_0708,
};

#[test]
fn syn_with_timestamp_is_laid_out_as_linux_does() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(8),
        sack_permitted: true,
        timestamp: Some(STAMP),
        ..Options::default()
    };
    let expected = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 8,
    ];
    assert_eq!(emitted(options), expected);
    assert_eq!(Options::parse(&expected), Ok(options));
}

#[test]
fn syn_without_timestamp_is_laid_out_as_linux_does() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(0),
        sack_permitted: true,
        ..Options::default()
    };
    assert_eq!(emitted(options), [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 0]);
}

#[test]
fn timestamp_without_sack_is_aligned_by_nops() {
    let options = Options {
        mss: Some(536),
        timestamp: Some(STAMP),
        ..Options::default()
    };
    assert_eq!(
        emitted(options),
        [2, 4, 2, 24, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]
    );
}

#[test]
fn data_carries_nop_nop_timestamp() {
    let options = Options {
        timestamp: Some(STAMP),
        ..Options::default()
    };
    assert_eq!(emitted(options), [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn sack_is_aligned_by_nops() {
    let options = Options {
        sack: blocks(2),
        ..Options::default()
    };
    let expected = [
        1, 1, 5, 18, 0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 100, 0, 0, 0, 150,
    ];
    assert_eq!(emitted(options), expected);
    assert_eq!(Options::parse(&expected), Ok(options));
}

#[test]
fn fourth_block_gives_way_to_the_timestamp() {
    let options = Options {
        sack: blocks(4),
        timestamp: Some(STAMP),
        ..Options::default()
    };
    let bytes = emitted(options);
    assert_eq!((bytes.len(), bytes[15]), (40, 26));
    assert_eq!(Options::parse(&bytes).unwrap().sack, blocks(3));
    let alone = Options {
        sack: blocks(4),
        ..Options::default()
    };
    assert_eq!(Options::parse(&emitted(alone)), Ok(alone));
}

#[test]
fn fast_open_request_and_cookie_round_trip() {
    let request = Options {
        fast_open: Some(FastOpenCookie::REQUEST),
        ..Options::default()
    };
    assert_eq!(emitted(request), [34, 2, 1, 1]);
    assert_eq!(Options::parse(&[34, 2, 1, 1]), Ok(request));

    let cookie = FastOpenCookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let with_cookie = Options {
        fast_open: cookie,
        ..Options::default()
    };
    let expected = [34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
    assert_eq!(emitted(with_cookie), expected);
    assert_eq!(Options::parse(&expected), Ok(with_cookie));
}

#[test]
fn experimental_fast_open_is_answered_in_kind() {
    let cookie = FastOpenCookie::new(&[9; 4]).map(|cookie| cookie.with_experimental(true));
    let options = Options {
        fast_open: cookie,
        ..Options::default()
    };
    let expected = [254, 8, 0xf9, 0x89, 9, 9, 9, 9];
    assert_eq!(emitted(options), expected);
    assert_eq!(Options::parse(&expected), Ok(options));
    // The identifier of another experiment is not Fast Open.
    assert_eq!(
        Options::parse(&[254, 4, 0x12, 0x34]),
        Ok(Options::default())
    );
}

#[test]
fn cookies_of_impossible_lengths_are_no_cookies() {
    for len in [1, 2, 3, 5, 7, 15, 17, 18] {
        assert_eq!(FastOpenCookie::new(&[0; 18][..len]), None, "{len}");
    }
    assert_eq!(Options::parse(&[34, 4, 1, 2]), Ok(Options::default()));
    assert_eq!(FastOpenCookie::new(&[]), Some(FastOpenCookie::REQUEST));
}

#[test]
fn cookie_that_does_not_fit_is_left_out() {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        timestamp: Some(STAMP),
        sack_permitted: true,
        fast_open: FastOpenCookie::new(&[5; 16]),
        ..Options::default()
    };
    assert_eq!(emitted(options).len(), 40);
    let experimental = options
        .fast_open
        .map(|cookie| cookie.with_experimental(true));
    assert_eq!(
        emitted(Options {
            fast_open: experimental,
            ..options
        })
        .len(),
        40
    );
    let crowded = Options {
        sack: blocks(1),
        ..options
    };
    let bytes = emitted(crowded);
    assert_eq!(
        Options::parse(&bytes),
        Ok(Options {
            fast_open: None,
            ..crowded
        })
    );
}

#[test]
fn unknown_options_are_skipped_by_their_length() {
    // A quick-start response (27) that is too long, then an unassigned kind, then MSS.
    let mut bytes = Vec::from([27, 18]);
    bytes.extend([0xaa; 16]);
    bytes.extend([77, 3, 0xff, 2, 4, 2, 24]);
    assert_eq!(
        Options::parse(&bytes),
        Ok(Options {
            mss: Some(536),
            ..Options::default()
        })
    );
}

#[test]
fn signatures_are_refused() {
    let mut bytes = Vec::from([2, 4, 2, 24, 19, 18]);
    bytes.extend([0xaa; 16]);
    assert_eq!(Options::parse(&bytes), Err(WireError::Signed));
}

#[test]
fn known_options_of_a_wrong_length_are_skipped() {
    for bytes in [
        &[2, 3, 5][..],
        &[2, 5, 5, 180, 0],
        &[3, 2],
        &[3, 4, 7, 7],
        &[4, 3, 0],
        &[8, 6, 0, 0, 0, 1],
        &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        &[5, 2],
    ] {
        assert_eq!(Options::parse(bytes), Ok(Options::default()), "{bytes:?}");
    }
}

#[test]
fn end_of_options_ends_them() {
    assert_eq!(
        Options::parse(&[1, 0, 2, 4, 5, 180]),
        Ok(Options::default())
    );
    assert_eq!(Options::parse(&[0, 2, 0]), Ok(Options::default()));
}

#[test]
fn zero_length_and_overrun_are_bad_options() {
    for bytes in [
        &[2, 0, 0, 0][..],
        &[2, 1, 0, 0],
        &[8, 10, 0, 0],
        &[1, 1, 1, 2],
        &[99],
    ] {
        assert_eq!(
            Options::parse(bytes),
            Err(WireError::BadOption),
            "{bytes:?}"
        );
    }
}

#[test]
fn last_of_two_counts() {
    let options = Options::parse(&[2, 4, 0, 1, 2, 4, 0, 2, 3, 3, 1, 3, 3, 2]).unwrap();
    assert_eq!((options.mss, options.window_scale), (Some(2), Some(2)));
}

#[test]
fn fifth_block_is_refused() {
    let mut blocks = blocks(4);
    assert!(!blocks.push(SackBlock::default()));
    assert_eq!((blocks.len(), blocks.as_slice().len()), (4, 4));
    assert!(!blocks.is_empty() && SackBlocks::default().is_empty());
}

#[test]
fn debug_is_short() {
    let cookie = FastOpenCookie::new(&[0xab, 1, 2, 3]).unwrap();
    assert_eq!(
        format!("{:?}", cookie.with_experimental(true)),
        "experimental:ab010203"
    );
    assert_eq!(format!("{:?}", FastOpenCookie::REQUEST), "request");
    assert_eq!(format!("{:?}", SackBlocks::EMPTY), "[]");
}
