//! A client that keeps rewriting all shared memory at random while we use it.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/hostile.rs"]
mod hostile;

use std::time::{Duration, Instant};

use common::{options, path, until};
use hostile::{Client, Memory, REGION_BYTES, RING_C2S, RING_S2C, SLOTS, hostile_server};
use packetio::Port;
use packetio::memif::{Memif, MemifOptions, MemifPort};

/// The next value of Splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Turns the victim as a stack does, and reads every byte of its frames.
fn exercise(victim: &mut MemifPort, bytes: &mut [u8]) {
    for frame in victim.receive().unwrap_or(&[]) {
        assert!(frame.len() <= 65_536);
        frame.copy_to(0, bytes);
    }
    victim.release();
    let count = victim.reserve(32).len();
    for slot in victim.reserve(32) {
        slot.write(0, &bytes[..1500]);
        slot.set_len(slot.capacity().min(1500));
    }
    let _ = victim.send(count);
    victim.prepare_wait(true);
    victim.finish_wait();
}

#[test]
fn peer_that_rewrites_everything_all_the_time_breaks_nothing() {
    let path = path("fuzz");
    let options = MemifOptions {
        path: path.clone(),
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let mut bytes = vec![0; 70_000];
    let mut state = 42;
    for _ in 0..40 {
        let client = Client::connect(&path, &mut victim);
        let done = ring::published::Flag::new();
        std::thread::scope(|scope| {
            let (memory, done) = (&client.memory, &done);
            let mut seed = random(&mut state);
            scope.spawn(move || {
                while !done.is_raised() {
                    scribble(memory, &mut seed);
                }
            });
            let end = Instant::now() + Duration::from_millis(100);
            while victim.is_connected() && Instant::now() < end {
                exercise(&mut victim, &mut bytes);
            }
            done.raise();
        });
        drop(client);
        assert!(until(Duration::from_secs(30), || {
            let _ = victim.receive().map(|_| ());
            !victim.is_connected()
        }));
        let _ = victim.receive().map(|_| ());
    }
}

#[test]
fn server_that_rewrites_everything_all_the_time_breaks_nothing() {
    let mut bytes = vec![0; 70_000];
    let mut state = 43;
    for round in 0..20 {
        let (mut victim, peer, memory) = hostile_server(&format!("fuzz-server-{round}"));
        let done = ring::published::Flag::new();
        std::thread::scope(|scope| {
            let (memory, done) = (&memory, &done);
            let mut seed = random(&mut state);
            scope.spawn(move || {
                while !done.is_raised() {
                    // The lies of a client, and further ones with the server's own cursor.
                    scribble(memory, &mut seed);
                    let ring = if seed & 1 == 0 { RING_C2S } else { RING_S2C };
                    let lead = (seed >> 8) as u16 % (SLOTS + u16::from((seed >> 40) & 0xff == 0));
                    memory.set_tail(ring, memory.u16(ring + 6).wrapping_sub(lead));
                }
            });
            let end = Instant::now() + Duration::from_millis(100);
            while victim.is_connected() && Instant::now() < end {
                exercise(&mut victim, &mut bytes);
            }
            done.raise();
        });
        drop(peer);
    }
}

/// Writes mostly plausible lies, so that they pass the first checks.
fn scribble(memory: &Memory, seed: &mut u64) {
    let word = random(seed);
    let ring = if word & 1 == 0 { RING_C2S } else { RING_S2C };
    match (word >> 1) % 16 {
        0 => memory.put(ring + (word >> 8) % 1024, &random(seed).to_ne_bytes()),
        1 => memory.put(ring + 4, &(word as u16).to_ne_bytes()),
        2..=8 => {
            let flags = u16::from((word >> 8) & 7 == 0);
            let region = u16::from((word >> 11) & 31 == 0);
            let length = [64, 2048, 0, 70_000, 600, u32::MAX, 1, 65_536][(word >> 16) as usize & 7];
            let offset = random(seed) % (REGION_BYTES + 4096);
            memory.set_descriptor(
                ring,
                (word >> 32) as u16 % SLOTS,
                flags,
                region,
                length,
                offset as u32,
            );
        }
        _ => {
            let tail = memory.tail(ring);
            let lead = (word >> 8) as u16 % (SLOTS + u16::from((word >> 40) & 0xff == 0));
            memory.set_head(ring, tail.wrapping_add(lead));
        }
    }
}
