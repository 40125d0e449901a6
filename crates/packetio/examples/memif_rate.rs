//! How many frames a second go through memif between two threads of this process, one way, for 64 and 1500 bytes, in both directions.
//!
//! ```text
//! cargo run --release -p packetio --example memif_rate [-- seconds-per-case]
//! ```
//!
//! The sender writes each frame whole, in place; the receiver reads the first bytes of each ("look") or copies it all ("copy"). Both poll. With fewer than two idle cores
//! the figure says little.

use std::time::{Duration, Instant};

use packetio::Port;
use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use ring::published::Flag;

const BATCH: usize = 64;

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    println!("bytes  from    reader  Mframes/s   Gbit/s  (frames/batch sent, received)");
    for length in [64, 1500] {
        for server_sends in [false, true] {
            for copy in [false, true] {
                run(length, server_sends, copy, Duration::from_secs_f64(seconds));
            }
        }
    }
}

fn run(length: usize, server_sends: bool, copy: bool, time: Duration) {
    let path = format!("@memif-rate-{}", std::process::id());
    let options = MemifOptions {
        path,
        ..MemifOptions::default()
    };
    let client = MemifOptions {
        role: MemifRole::Client,
        ..options.clone()
    };
    let (mut server, mut client) = match (Memif::connect(&options), Memif::connect(&client)) {
        (Ok(mut server), Ok(mut client)) => (server.remove(0), client.remove(0)),
        (Err(error), _) | (_, Err(error)) => return eprintln!("{error}"),
    };
    while !server.is_connected() || !client.is_connected() {
        let _ = (server.receive().is_ok(), client.receive().is_ok());
    }
    let (mut sender, mut receiver) = if server_sends {
        (server, client)
    } else {
        (client, server)
    };
    let stop = Flag::new();
    let start = Instant::now();
    let (sent_batches, received_batches) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&mut sender, length, &stop));
        let receiving = scope.spawn(|| receive(&mut receiver, copy, &stop));
        std::thread::sleep(time);
        stop.raise();
        (sending.join().unwrap_or(1), receiving.join().unwrap_or(1))
    });
    let elapsed = start.elapsed().as_secs_f64();
    let frames = receiver.counters().rx_frames as f64;
    println!(
        "{length:5}  {:6}  {:6}  {:9.2}  {:7.2}  ({:.0}, {:.0})",
        if server_sends { "server" } else { "client" },
        if copy { "copy" } else { "look" },
        frames / elapsed / 1e6,
        frames * length as f64 * 8.0 / elapsed / 1e9,
        sender.counters().tx_frames as f64 / sent_batches as f64,
        frames / received_batches as f64,
    );
}

/// Sends until told to stop; the number of batches that were not empty.
fn send(port: &mut MemifPort, length: usize, stop: &Flag) -> u64 {
    let bytes = vec![0x5a; length];
    let mut batches = 0;
    while !stop.is_raised() {
        let slots = port.reserve(BATCH);
        let count = slots.len();
        for slot in slots {
            slot.write(0, &bytes);
            slot.set_len(length);
        }
        if port.send(count).is_err() {
            break;
        }
        batches += u64::from(count > 0);
        if count == 0 {
            std::hint::spin_loop();
        }
    }
    batches
}

/// Receives until told to stop; the number of batches that were not empty.
fn receive(port: &mut MemifPort, copy: bool, stop: &Flag) -> u64 {
    let mut bytes = [0; 2048];
    let mut seen = 0u64;
    let mut batches = 0;
    while !stop.is_raised() {
        let Ok(frames) = port.receive() else {
            break;
        };
        batches += u64::from(!frames.is_empty());
        for frame in frames {
            let wanted = if copy { bytes.len() } else { 14 };
            frame.copy_to(0, &mut bytes[..wanted]);
            seen = seen.wrapping_add(u64::from(bytes[13]));
        }
        port.release();
    }
    std::hint::black_box(seen);
    batches
}
