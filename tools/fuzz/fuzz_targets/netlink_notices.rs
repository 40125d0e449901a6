//! Arbitrary bytes from a netlink socket: the reader ends and does not read beyond them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packetio::mirror::message::notices;

fuzz_target!(|bytes: &[u8]| {
    // A message has a header of at least 16 bytes, which bounds the number of messages.
    assert!(notices(bytes).count() <= bytes.len() / 16);
});
