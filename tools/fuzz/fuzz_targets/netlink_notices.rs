//! Arbitrary bytes from a netlink socket: the reader ends and does not read beyond them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packetio::mirror::message::notices;

fuzz_target!(|bytes: &[u8]| {
    // Each message has a header of 16 bytes at least, so that many messages there are at most.
    assert!(notices(bytes).count() <= bytes.len() / 16);
});
