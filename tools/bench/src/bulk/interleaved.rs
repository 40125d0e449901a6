//! A sender whose flows interleave on the wire: each sends a burst, then the next does.
//!
//! The sender is Millstream's for every receiver that is compared, so all receivers meet the same
//! order of frames. Each burst is written and leaves in a turn of its own. A flow's send buffer is
//! small, so that the congestion window soon exceeds it and what is written leaves at once.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mill::net::millstream::Millstream;
use mill::net::{Interest, Net, Ready};
use millstream::Runtime;

use super::bursts::{Bursts, segment_bytes};
use super::side::{self, LOOK, STDIN, SideOptions};

/// Bytes of an IP packet.
const MTU: usize = 1500;
/// Bytes that SO_SNDBUF asks for, of all flows together. As in Linux, a buffer gets twice as much
/// memory, half of it for bookkeeping.
const BUFFERS_BYTES: usize = 2 << 20;
/// Bytes that SO_SNDBUF asks for at least: four of the longest bursts.
const BUFFER_BYTES_MIN: usize = 128 << 10;
/// Seed of the lengths of bursts.
const SEED: u64 = 1;

/// Sends until stdin closes or the receiver has gone.
pub fn send(runtime: &Runtime, options: &SideOptions, burst: usize) -> io::Result<()> {
    let net = Millstream::new(runtime, 0)?;
    let mut poll = net.poll()?;
    net.register_fd(&mut poll, rustix::stdio::stdin(), STDIN)?;
    let mut streams = side::accept(&net, &mut poll, options)?;
    let buffer = (BUFFERS_BYTES / options.flows.max(1)).max(BUFFER_BYTES_MIN);
    for (token, stream) in streams.iter().enumerate() {
        stream.options().set_send_buffer(buffer as u32)?;
        net.register(&mut poll, stream, token, Interest::Write)?;
    }
    let mut bursts = Bursts::new(burst, SEED);
    let bytes = vec![b'm'; 20 * segment_bytes(MTU)];
    let mut ready: Vec<Ready> = Vec::new();
    loop {
        let mut has_sent = false;
        for stream in &mut streams {
            let wanted = bursts.next_len() * segment_bytes(MTU);
            match net.write(stream, &bytes[..wanted]) {
                Ok(_) => has_sent = true,
                // A flow whose buffer is full leaves its turn to the next.
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                // The receiver leaves first.
                Err(_) => return Ok(()),
            }
            net.wait(&mut poll, &mut ready, Some(Duration::ZERO))?;
            if ready.iter().any(|ready| ready.token == STDIN) {
                return Ok(());
            }
        }
        if !has_sent {
            net.wait(&mut poll, &mut ready, Some(LOOK))?;
            if ready.iter().any(|ready| ready.token == STDIN) {
                return Ok(());
            }
        }
    }
}
