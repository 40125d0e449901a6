//! AccECN options byte for byte as Linux writes them, and the options that give way when room is
//! short.

use super::*;
use crate::SeqNumber;
use crate::tcp::{Options, SackBlock, SackBlocks, Timestamp};
use std::vec::Vec;

const STAMP: Option<Timestamp> = Some(Timestamp { value: 1, echo: 2 });

fn option(fields: usize) -> AccEcn {
    AccEcn::order_1([0x01_0203, 0x04_0506, 0x07_0809]).truncated(fields)
}

fn blocks(count: u32) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    for at in 0..count {
        blocks.push(SackBlock {
            left: SeqNumber(at * 10),
            right: SeqNumber(at * 10 + 5),
        });
    }
    blocks
}

fn emitted(options: &Options) -> Vec<u8> {
    let mut out = [0xee; 40];
    let len = options.emit(&mut out);
    assert_eq!(len, options.emit_len());
    assert_eq!(Options::parse(&out[..len]), Ok(*options));
    out[..len].to_vec()
}

#[test]
fn alone_it_is_padded_at_its_end() {
    let bytes = |fields| {
        emitted(&Options {
            accecn: option(fields),
            ..Options::NONE
        })
    };
    assert_eq!(bytes(3), [174, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1]);
    assert_eq!(bytes(2), [174, 8, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bytes(1), [174, 5, 1, 2, 3, 1, 1, 1]);
    assert_eq!(bytes(0), [174, 2, 1, 1]);
}

#[test]
fn beside_sack_blocks_its_tail_takes_the_place_of_their_nops() {
    let bytes = |fields| {
        emitted(&Options {
            sack: blocks(1),
            accecn: option(fields),
            ..Options::NONE
        })
    };
    assert_eq!(
        bytes(3)[..14],
        [174, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1]
    );
    assert_eq!(bytes(1)[..8], [174, 5, 1, 2, 3, 1, 5, 10]);
    assert_eq!(bytes(0)[..4], [174, 2, 5, 10]);
}

#[test]
fn in_a_syn_ack_it_stands_before_sack_permitted_and_window_scale() {
    let options = Options {
        mss: Some(1460),
        sack_permitted: true,
        window_scale: Some(8),
        accecn: option(1),
        ..Options::NONE
    };
    assert_eq!(
        emitted(&options),
        [2, 4, 5, 0xb4, 174, 5, 1, 2, 3, 1, 4, 2, 1, 3, 3, 8]
    );
    let with_stamp = Options {
        timestamp: STAMP,
        ..options
    };
    assert_eq!(emitted(&with_stamp)[16..], [174, 5, 1, 2, 3, 3, 3, 8]);
    let empty = Options {
        timestamp: STAMP,
        accecn: option(0),
        ..options
    };
    // Two bytes do not fit into the one NOP before the window scale.
    assert_eq!(emitted(&empty)[16..], [1, 3, 3, 8, 174, 2, 1, 1]);
}

#[test]
fn fields_give_way_before_sack_blocks_do() {
    let room = |sack, timestamp| {
        Options {
            sack,
            timestamp,
            ..Options::NONE
        }
        .accecn_room()
    };
    let fit = |sack, timestamp, required| {
        let fit = room(sack, timestamp).fit(required);
        fit.map(|fit| (fit.fields, fit.sack_blocks, fit.growth))
    };
    assert_eq!(fit(SackBlocks::EMPTY, STAMP, 0), Some((3, 0, 12)));
    assert_eq!(fit(blocks(1), STAMP, 0), Some((3, 1, 12)));
    // 12 bytes of timestamp, 4 + 16 of SACK: eight are left.
    assert_eq!(fit(blocks(2), STAMP, 0), Some((2, 2, 8)));
    // 12 bytes of timestamp, 4 + 24 of SACK: only the padding is left.
    assert_eq!(fit(blocks(3), STAMP, 0), Some((0, 3, 0)));
    assert_eq!(fit(blocks(3), STAMP, 1), Some((2, 2, 0)));
    // Three counters find no room beside two SACK blocks, and two blocks are never dropped.
    assert_eq!(fit(blocks(2), STAMP, 3), None);
    assert_eq!(fit(blocks(3), STAMP, 3), None);
    // 4 + 32 without a timestamp: four bytes are left.
    assert_eq!(fit(blocks(4), None, 1), Some((1, 4, 4)));
    assert_eq!(fit(blocks(4), None, 3), Some((3, 3, 4)));
}

#[test]
fn what_is_read_is_whole_counters_only() {
    let read = |bytes: &[u8]| Options::parse(bytes).map(|options| options.accecn);
    let counters = |bytes: &[u8]| read(bytes).map(|option| option.counters().collect::<Vec<_>>());
    assert_eq!(counters(&[172, 6, 0, 0, 1, 9]), Ok([1].to_vec()));
    assert_eq!(counters(&[174, 2]), Ok([].to_vec()));
    let longer = [174, 14, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4];
    assert_eq!(counters(&longer), Ok([1, 2, 3].to_vec()));
    assert_eq!(read(&[172, 2]).map(|option| option.is_order_1()), Ok(false));
    assert_eq!(read(&[1, 1]).map(|option| option.is_present()), Ok(false));
}
