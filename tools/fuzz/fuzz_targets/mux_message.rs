//! A packet that a process writes to the socket of `mill mux`. The decoder refuses it, or gives a
//! message that is encoded as exactly these bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packetio::mux::message::{MESSAGE_LEN, Message, VERSION};

fuzz_target!(|bytes: &[u8]| {
    let _ = Message::decode(bytes);
    // The length and the version are made right, since few inputs have both by chance.
    let mut packet = [0; MESSAGE_LEN];
    let used = bytes.len().min(MESSAGE_LEN - 2);
    packet[..2].copy_from_slice(&VERSION.to_ne_bytes());
    packet[2..2 + used].copy_from_slice(&bytes[..used]);
    if let Ok(message) = Message::decode(&packet) {
        assert_eq!(message.encode(), packet);
    }
});
