//! Whatever comes out of a netlink socket: the reader comes to an end and reads nothing behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packetio::mirror::message::notices;

fuzz_target!(|bytes: &[u8]| {
    // Each message has a header of 16 bytes at least, so that many messages there are at most.
    assert!(notices(bytes).count() <= bytes.len() / 16);
});
