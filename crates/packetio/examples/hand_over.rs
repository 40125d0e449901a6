//! A counted loop of hand-overs between two contexts, to be run under an instruction counter:
//! `hand_over frames|flows COUNT BYTES`. `frames` hands over COUNT frames of BYTES bytes in batches
//! of 64. `flows` adds COUNT flows to the directory, looks them up from the other end and removes
//! them.
//!
//! Subtracting two counts removes the cost of set-up: `valgrind --tool=callgrind
//! target/debug/examples/hand_over frames 20000 64`, and the same with 40000.

use std::error::Error;

use packetio::Port as _;
use packetio::loopback::{LoopbackOptions, pair};
use packetio::mesh::{Claim, HandOver, Mesh};

/// Number of frames that are handed over before the receiver looks.
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, count, bytes] = words.as_slice() else {
        return Err("usage: hand_over frames|flows COUNT BYTES".into());
    };
    let (count, bytes) = (count.parse()?, bytes.parse()?);
    match what.as_str() {
        "frames" => frames(count, bytes),
        _ => flows(count),
    }
}

fn frames(count: usize, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mesh = Mesh::new(2, 1600, 1024)?;
    let (mut sender, _own) = mesh.join(0)?;
    let (_other, mut receiver) = mesh.join(1)?;
    let (mut near, mut far) = pair(&LoopbackOptions::default())?;
    let slots = far.reserve(1);
    slots[0].set_len(slots[0].write(0, &vec![7; bytes]));
    far.send(1)?;
    let lent = near.receive()?;
    let mut taken = 0;
    while taken < count {
        for _ in 0..BATCH {
            if sender.hand_over(1, (0, 1), &lent[0], Claim::Any) != HandOver::Done {
                return Err("the queue is full".into());
            }
        }
        sender.ring();
        while let Some(batch) = receiver.receive() {
            taken += batch.frames.len();
        }
        receiver.release();
    }
    Ok(())
}

fn flows(count: usize) -> Result<(), Box<dyn Error>> {
    let mesh = Mesh::new(2, 64, 1 << 16)?;
    let (owner, _own) = mesh.join(0)?;
    let (other, _others) = mesh.join(1)?;
    for flow in 0..count as u64 {
        let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let is_known = owner.directory().add(hash) && other.directory().owner(hash).is_some();
        owner.directory().remove(hash);
        if !is_known {
            return Err("not found".into());
        }
    }
    Ok(())
}
