//! The receiving half of a queue: frames are lent in place and given back in order, with one cursor
//! store per batch.
//!
//! The port owns it, one per connection. As client we receive in our own buffers: the server writes
//! lengths and moves the tail, and we give buffers back by moving the head. As server we receive in
//! the client's buffers: the client moves the head, and we give back by moving the tail. In either
//! role the peer's cursor tells how far frames are there, and ours how far they are given back:
//!
//! ```text
//!            released          consumed            peer's cursor      released + slots
//!   ───────────┼─ lent to caller ─┼─ there, untouched ─┼── not yet filled ──┤
//! ```
//!
//! A chained frame (flag NEXT) is assembled in the batch's side buffer. A chain that is not
//! published completely is dropped, because honest senders publish whole frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::batch_unsafe::RxBatch;
use super::bell;
use super::layout::DESCRIPTOR_FLAG_NEXT;
use super::limits::{CHAIN_SEGMENTS_MAX, FRAME_BYTES_MAX, SLEEP_LOOKS};
use super::link::{Buffers, Counters, ProtocolViolation, RingEnd};
use super::region_unsafe::Window;
use super::ring_unsafe::{Descriptor, RingMemory};
use crate::RxFrame;

/// The receiving half of a queue.
#[derive(Debug)]
pub struct Rx {
    ring: RingMemory,
    bell: Arc<OwnedFd>,
    buffers: Option<Buffers>,
    length_max: u32,
    /// Cursor up to which frames were delivered.
    consumed: u16,
    /// Cursor up to which frames were given back.
    released: u16,
    batch: RxBatch,
    asleep: bool,
}

/// A chain whose descriptors were read once: its parts or the reason to drop it, and the next
/// frame's cursor.
struct Chain {
    parts: [(u16, u32, u32); CHAIN_SEGMENTS_MAX],
    count: usize,
    bytes: usize,
    whole: bool,
    next: u16,
}

impl Rx {
    /// Makes the half on `end`. `left_at`: where the last port of this queue stopped; `None` on a
    /// new connection.
    pub fn new(end: &RingEnd, window: Window, left_at: Option<u16>) -> Self {
        let consumed = left_at.unwrap_or(0);
        let mut rx = Self {
            ring: end.ring.clone(),
            bell: Arc::clone(&end.bell),
            buffers: end.buffers,
            length_max: end
                .buffers
                .map_or(FRAME_BYTES_MAX as u32, |buffers| buffers.bytes),
            consumed,
            // The last port has given everything back, so later slots may be filled already.
            released: left_at.unwrap_or(0u16.wrapping_sub(end.ring.slots())),
            batch: RxBatch::new(window),
            asleep: false,
        };
        rx.ring.set_interrupts(false);
        // On a new connection this lends every slot as client, and publishes our position as
        // server.
        rx.release();
        rx
    }

    /// The cursor at which the next port on this connection starts.
    pub fn consumed(&self) -> u16 {
        self.consumed
    }

    /// The frames of the last [`receive`](Self::receive).
    #[inline]
    pub fn frames(&self) -> &[RxFrame] {
        self.batch.frames()
    }

    /// Gives the last batch back and receives the next one.
    #[inline]
    pub fn receive(&mut self, counters: &mut Counters) -> Result<(), ProtocolViolation> {
        self.release();
        let produced = self.produced();
        let available = produced.wrapping_sub(self.consumed);
        if available == 0 {
            return Ok(());
        }
        if available > self.ring.slots() {
            return Err(ProtocolViolation::Cursor);
        }
        let mut cursor = self.consumed;
        while cursor != produced && self.batch.has_room() {
            let descriptor = self.ring.descriptor(cursor);
            if descriptor.flags & DESCRIPTOR_FLAG_NEXT != 0 {
                cursor = self.receive_chain(cursor, produced, counters);
                continue;
            }
            let (region, offset) = self.place(cursor, &descriptor);
            let length = descriptor.length;
            cursor = cursor.wrapping_add(1);
            // One comparison checks both bounds, because 0 wraps around.
            let plausible = length.wrapping_sub(1) < self.length_max;
            if !plausible || !self.batch.push(region, offset, length) {
                counters.rx_dropped_descriptor += 1;
            }
        }
        self.consumed = cursor;
        counters.rx_frames += self.batch.frames().len() as u64;
        counters.rx_bytes += self.batch.bytes();
        if self.batch.frames().is_empty() {
            self.release();
        }
        Ok(())
    }

    /// Gives the last batch back.
    #[inline]
    pub fn release(&mut self) {
        if self.released == self.consumed {
            return;
        }
        self.batch.clear();
        match self.buffers {
            None => self.ring.set_tail(self.consumed),
            Some(buffers) => self.lend(buffers),
        }
        self.released = self.consumed;
    }

    /// Enables the bell. True: frames are there already.
    pub fn prepare_wait(&mut self) -> bool {
        self.asleep = true;
        self.ring.set_interrupts(true);
        // With a sender that has a fence of its own, the fence in `set_interrupts` suffices. DPDK's
        // sender has none, so its last cursor may still be in its core's store buffer: poll for
        // about a microsecond.
        for _ in 0..SLEEP_LOOKS {
            if self.produced() != self.consumed {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Disables the bell and resets it.
    pub fn finish_wait(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.ring.set_interrupts(false);
            bell::drain(self.bell.as_fd());
        }
    }

    /// Descriptor of the bell.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The peer's cursor: how far frames are there.
    #[inline]
    fn produced(&self) -> u16 {
        match self.buffers {
            None => self.ring.head(),
            Some(_) => self.ring.tail(),
        }
    }

    /// The place of a frame. As client we know it, whatever the server wrote into the descriptor.
    #[inline]
    fn place(&self, cursor: u16, descriptor: &Descriptor) -> (u16, u32) {
        match self.buffers {
            None => (descriptor.region, descriptor.offset),
            Some(buffers) => (0, buffers.at(cursor & self.ring.mask())),
        }
    }

    /// Lends our buffers from `released` to `consumed` again, as client.
    #[inline]
    fn lend(&self, buffers: Buffers) {
        let mut cursor = self.released;
        while cursor != self.consumed {
            self.ring.set_span(cursor, 0, buffers.bytes);
            cursor = cursor.wrapping_add(1);
        }
        self.ring
            .set_head(self.consumed.wrapping_add(self.ring.slots()));
    }

    /// Assembles the chain at `cursor`; returns the cursor behind it.
    #[cold]
    fn receive_chain(&mut self, cursor: u16, produced: u16, counters: &mut Counters) -> u16 {
        let chain = self.read_chain(cursor, produced);
        if chain.whole && self.batch.push_chain(&chain.parts[..chain.count]) {
            counters.rx_chained += 1;
        } else {
            counters.rx_dropped_chain += 1;
        }
        chain.next
    }

    fn read_chain(&self, mut cursor: u16, produced: u16) -> Chain {
        let mut chain = Chain {
            parts: [(0, 0, 0); CHAIN_SEGMENTS_MAX],
            count: 0,
            bytes: 0,
            whole: false,
            next: produced,
        };
        let mut fits = true;
        while cursor != produced {
            let descriptor = self.ring.descriptor(cursor);
            let (region, offset) = self.place(cursor, &descriptor);
            cursor = cursor.wrapping_add(1);
            fits &= descriptor.length <= self.length_max && chain.count < CHAIN_SEGMENTS_MAX;
            if fits {
                chain.parts[chain.count] = (region, offset, descriptor.length);
                chain.count += 1;
                chain.bytes += descriptor.length as usize;
                fits = chain.bytes <= FRAME_BYTES_MAX;
            }
            if descriptor.flags & DESCRIPTOR_FLAG_NEXT == 0 {
                chain.whole = fits && chain.bytes > 0;
                chain.next = cursor;
                break;
            }
        }
        chain
    }
}
