//! Arbitrary text as a packet script. The parser accepts it or names the place of an error, and
//! does not panic, hang or recurse without end. The seeds are the scripts of tools/script/scripts.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Errors in the text are of no interest here.
        let _ = script::check(text);
    }
});
