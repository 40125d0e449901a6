//! Arbitrary bytes of TCP options: the header's fast path agrees with the general parser, and
//! parsed options are the same after they are emitted and parsed again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::tcp::{Flags, Header, Options};

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(40) & !3];
    let mut segment = [0u8; 60];
    segment[12] = ((20 + bytes.len()) as u8 / 4) << 4;
    segment[13] = Flags::ACK.0 as u8;
    segment[20..20 + bytes.len()].copy_from_slice(bytes);
    let general = Options::parse(bytes);
    let through_header = Header::parse(&segment).map(|(header, _)| header.options);
    assert_eq!(through_header, general);
    if let Ok(options) = general {
        assert_survives(&options);
    }
});

fn assert_survives(options: &Options) {
    let mut out = [0u8; 40];
    let len = options.emit(&mut out);
    assert_eq!(len, options.emit_len());
    assert_eq!(len % 4, 0);
    let again = Options::parse(&out[..len]);
    // `emit` pads options, so options that came without padding may not all fit. Then the last SACK
    // blocks, the Fast Open cookie and the AccECN option are left out, and nothing else.
    let Ok(again) = again else {
        panic!("our own options do not parse: {:02x?}", &out[..len]);
    };
    let fitting = Options {
        sack: again.sack,
        fast_open: again.fast_open,
        accecn: again.accecn,
        ..*options
    };
    assert_eq!(again, fitting);
    assert!(options.sack.as_slice().starts_with(again.sack.as_slice()));
    assert!(again.fast_open.is_none() || again.fast_open == options.fast_open);
    assert!(!again.accecn.is_present() || again.accecn == options.accecn);
    // Options that were cut once fit, and are not cut again.
    let mut twice = [0u8; 40];
    assert_eq!(again.emit(&mut twice), len);
    assert_eq!(twice, out);
}
