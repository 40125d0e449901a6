//! The log of a capture, into which a hostile process writes. The reader must show frames of
//! bounded length with plain reason names, or nothing, and every call must return.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ring::frame_log::{FrameLog, FrameLogReader};
use ring::limits::{LOG_FRAME_BYTES_MAX, LOG_REASON_BYTES};
use ring::stat_words::StatWords;

/// Size of the log's record area, in words of 8 bytes.
const RECORD_WORDS: usize = 256;
/// Calls of the reader, more than a log of this size has records.
const CALLS: usize = 300;

fuzz_target!(|bytes: &[u8]| {
    // A memory file of a log's size, empty but for the first word, by which the reader knows a log.
    let log = FrameLog::create(RECORD_WORDS, 64, &["drop_a"]).expect("a log");
    let file = log.file().try_clone_to_owned().expect("a copy");
    let real = StatWords::open(file, 1 << 20).expect("a memory file");
    let words = StatWords::create(real.len()).expect("a memory file");
    words.store(0, real.load(0));
    let file = words.file().try_clone_to_owned().expect("a copy");
    // The input is a list of (word index, value) pairs. The reader opens the file after the first
    // half of them was written.
    let pairs: Vec<&[u8]> = bytes.chunks_exact(10).collect();
    let (first, second) = pairs.split_at(pairs.len() / 2);
    let write = |pairs: &[&[u8]]| {
        for pair in pairs {
            let (at, value) = pair.split_at(2);
            let at = u16::from_le_bytes(at.try_into().expect("two bytes")) as usize;
            let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
            words.store(1 + at % (words.len() - 1), value);
        }
    };
    write(first);
    let mut reader = FrameLogReader::open(file).expect("a log by its first word");
    write(second);
    for _ in 0..CALLS {
        if let Some(frame) = reader.next_frame() {
            assert!(frame.bytes.len() <= LOG_FRAME_BYTES_MAX);
            let is_plain = |one: u8| matches!(one, b'a'..=b'z' | b'0'..=b'9' | b'_');
            if let Some(name) = frame.reason {
                assert!(name.len() <= LOG_REASON_BYTES && name.bytes().all(is_plain));
            }
        }
        let _ = reader.behind();
    }
});
