//! Frames per second through memif between two threads of this process, one way, for 64 and 1500
//! bytes, in both directions.
//!
//! ```text
//! cargo run --release -p packetio --example memif_rate [-- seconds-per-case]
//! ```
//!
//! The sender writes each whole frame in place. The receiver reads the first bytes of each ("look")
//! or copies it all ("copy"). Both poll. With fewer than two idle cores only the last part is
//! meaningful: both ends in turn on one thread, with the CPU time per frame for sending and
//! receiving.

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
    println!("\nbytes  from    CPU ns/frame, one thread: send, receive (look)");
    for length in [64, 1500] {
        for server_sends in [false, true] {
            run_on_one_thread(length, server_sends, Duration::from_secs_f64(seconds / 2.0));
        }
    }
}

/// A connected pair: (sender, receiver).
fn pair(server_sends: bool) -> Option<(MemifPort, MemifPort)> {
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
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("{error}");
            return None;
        }
    };
    while !server.is_connected() || !client.is_connected() {
        let _ = (server.receive().is_ok(), client.receive().is_ok());
    }
    Some(if server_sends {
        (server, client)
    } else {
        (client, server)
    })
}

fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn run_on_one_thread(length: usize, server_sends: bool, time: Duration) {
    let Some((mut sender, mut receiver)) = pair(server_sends) else {
        return;
    };
    let bytes = vec![0x5a; length];
    let mut header = [0; 14];
    let mut seen = 0u64;
    let (mut send_ns, mut receive_ns) = (0, 0);
    while send_ns + receive_ns < time.as_nanos() as u64 {
        let start = cpu_ns();
        for _ in 0..8 {
            send_batch(&mut sender, &bytes);
        }
        let middle = cpu_ns();
        for _ in 0..8 {
            receive_batch(&mut receiver, &mut header, &mut seen);
        }
        send_ns += middle - start;
        receive_ns += cpu_ns() - middle;
    }
    std::hint::black_box(seen);
    let frames = receiver.counters().rx_frames as f64;
    let from = if server_sends { "server" } else { "client" };
    println!(
        "{length:5}  {from:6}  {:5.1} {:5.1}",
        send_ns as f64 / frames,
        receive_ns as f64 / frames
    );
}

fn run(length: usize, server_sends: bool, copy: bool, time: Duration) {
    let Some((mut sender, mut receiver)) = pair(server_sends) else {
        return;
    };
    let stop = Flag::new();
    let start = Instant::now();
    let (sent_batches, received_batches) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&mut sender, length, &stop));
        // The receiver watches the time, so that no third thread is needed to stop two real-time
        // ones.
        let receiving = scope.spawn(|| receive(&mut receiver, copy, &stop, start + time));
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

/// Sends until told to stop; returns the number of non-empty batches.
fn send(port: &mut MemifPort, length: usize, stop: &Flag) -> u64 {
    let bytes = vec![0x5a; length];
    let mut batches = 0;
    while !stop.is_raised() {
        if send_batch(port, &bytes) {
            batches += 1;
        } else {
            std::hint::spin_loop();
        }
    }
    batches
}

fn send_batch(port: &mut MemifPort, bytes: &[u8]) -> bool {
    let slots = port.reserve(BATCH);
    let count = slots.len();
    for slot in slots {
        slot.write(0, bytes);
        slot.set_len(bytes.len());
    }
    count > 0 && port.send(count).is_ok()
}

/// Receives until `end`, then stops the sender; returns the number of non-empty batches.
fn receive(port: &mut MemifPort, copy: bool, stop: &Flag, end: Instant) -> u64 {
    let mut seen = 0u64;
    let mut batches = 0;
    let mut bytes = vec![0; if copy { 2048 } else { 14 }];
    while Instant::now() < end {
        for _ in 0..256 {
            batches += u64::from(receive_batch(port, &mut bytes, &mut seen));
        }
    }
    stop.raise();
    std::hint::black_box(seen);
    batches
}

fn receive_batch(port: &mut MemifPort, bytes: &mut [u8], seen: &mut u64) -> bool {
    let Ok(frames) = port.receive() else {
        return false;
    };
    let any = !frames.is_empty();
    for frame in frames {
        frame.copy_to(0, bytes);
        *seen = seen.wrapping_add(u64::from(bytes[13]));
    }
    port.release();
    any
}
