//! A statistics file and packets that a hostile process writes. The reader may show nothing, but
//! names that it shows are not empty, and each context has a value for each name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use observe::layout::{FILE_WORDS, LAYOUT_VERSION, MAGIC, header};
use observe::message::Header;
use observe::reader::Statistics;
use ring::stat_words::StatWords;

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::decode(bytes, 64);
    let words = StatWords::create(FILE_WORDS).expect("a memory file");
    // The input is a list of (word index, value) pairs.
    for pair in bytes.chunks_exact(12) {
        let (at, value) = pair.split_at(4);
        let at = u32::from_le_bytes(at.try_into().expect("four bytes")) as usize % FILE_WORDS;
        words.store(
            at,
            u64::from_le_bytes(value.try_into().expect("eight bytes")),
        );
    }
    words.store(header::MAGIC, MAGIC);
    words.store(header::LAYOUT, LAYOUT_VERSION);
    let file = words.file().try_clone_to_owned().expect("a copy");
    let statistics = Statistics::open(file).expect("a file of this layout");
    assert!(statistics.command().len() <= 64 * 3);
    if let Some(names) = statistics.names() {
        assert!(names.iter().all(|name| !name.name.is_empty()));
        for context in statistics.contexts(&names) {
            assert_eq!(context.values.len(), names.len());
        }
    }
});
