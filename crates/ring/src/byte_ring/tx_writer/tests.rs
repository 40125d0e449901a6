//! A write that runs out of chunks while the stack brings new ones.

use super::TxWriter;
use crate::chunk::{LARGE_DATA_BYTES, SMALL_DATA_BYTES, create_memory, magazine};
use crate::huge_pages::PageSource;
use crate::memory::ContextLimits;
use crate::raw::RawSlice;

#[test]
fn slice_without_a_chunk_ends_the_write_although_one_comes_before_the_next_slice() {
    let limits = ContextLimits {
        sockets_max: 1,
        small_chunks: 8,
        large_chunks: 8,
    };
    let (memory, mut pool) = create_memory(&limits, &mut PageSource::default()).expect("memory");
    let block = memory.block(0).expect("one socket");
    block.open(100_000);
    let (mut feed, mut magazine) = magazine(1, 1);
    feed.refill(&mut pool);
    let stock = (LARGE_DATA_BYTES + SMALL_DATA_BYTES) as usize;
    let (long, short) = (vec![1; stock + 1], vec![2; 9]);
    // The stack fills the stock up whenever the writer turns to its next slice.
    let pieces = [&long[..], &short[..]].into_iter().map(|slice| {
        feed.refill(&mut pool);
        RawSlice::from(slice)
    });
    let total = long.len() + short.len();
    let written = TxWriter::new().append(&memory, block, &mut magazine, total, pieces);
    assert_eq!(
        written, stock,
        "the second slice does not follow a part of the first"
    );
    feed.refill(&mut pool);
    assert!(
        !magazine.is_empty(),
        "there was a chunk for the second slice"
    );
}
