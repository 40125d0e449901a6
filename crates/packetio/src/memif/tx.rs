//! The sending half of a queue: slots are filled in place and published with one cursor store per
//! batch.
//!
//! The port owns it, one per connection. As client we send from our own buffers and move the head;
//! the server gives them back by moving the tail. As server we fill buffers that the client lent by
//! moving the head, and move the tail. Either way:
//!
//! ```text
//!   cursor ─┬─ free slots ─┬─ peer + ahead        ahead: as client, the ring's slots; as server, 0
//! ```
//!
//! A client may lend buffers smaller than ours, and thus than the MTU that we promise. Slots are
//! then in a private staging buffer, and `send` copies each frame into a chain of lent buffers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::PROGRAM_NAME;
use super::batch_unsafe::TxBatch;
use super::bell;
use super::layout::DESCRIPTOR_FLAG_NEXT;
use super::limits::{
    BATCH_FRAMES_MAX, FRAME_BYTES_MAX, STAGED_FRAMES_MAX, TX_ROOM_POLL_NS_MAX, TX_ROOM_POLL_NS_MIN,
};
use super::link::{Buffers, Counters, Link, ProtocolViolation, RingEnd};
use super::ring_unsafe::{Descriptor, RingMemory};
use super::ringer_unsafe::Ringer;
use crate::TxFrame;

/// The sending half of a queue.
#[derive(Debug)]
pub struct Tx {
    ring: RingMemory,
    bell: Arc<OwnedFd>,
    buffers: Option<Buffers>,
    /// Cursor up to which frames were published.
    cursor: u16,
    /// The peer's cursor when it was last read.
    peer: u16,
    ahead: u16,
    /// Bytes that each slot must hold.
    frame_bytes: u32,
    batch: TxBatch,
    staged: bool,
    /// True if the peer masks its interrupt while awake, and reads the ring again before it unmasks
    /// it. Such a peer need not be rung twice.
    masks_awake: bool,
    /// The first frame of the batch for which the peer was rung; `None` once the peer was seen
    /// awake.
    rung_for: Option<u16>,
    room_pause_ns: u64,
}

impl Tx {
    /// Makes the half on `end` of `link` for frames of up to `frame_bytes`. `cursor` is 0 on a new
    /// connection.
    pub fn new(end: &RingEnd, link: &Link, cursor: u16, frame_bytes: usize) -> Self {
        let tx = Self {
            ring: end.ring.clone(),
            bell: Arc::clone(&end.bell),
            buffers: end.buffers,
            cursor,
            peer: 0,
            ahead: if end.buffers.is_some() {
                end.ring.slots()
            } else {
                0
            },
            frame_bytes: frame_bytes as u32,
            batch: TxBatch::new(link.window(), BATCH_FRAMES_MAX),
            staged: false,
            masks_awake: link.peer == PROGRAM_NAME,
            rung_for: None,
            room_pause_ns: TX_ROOM_POLL_NS_MIN,
        };
        let peer = tx.peer_cursor();
        Self { peer, ..tx }
    }

    /// The cursor at which the next port on this connection starts.
    pub fn cursor(&self) -> u16 {
        self.cursor
    }

    /// The slots of the last [`reserve`](Self::reserve).
    #[inline]
    pub fn frames(&self) -> &[TxFrame] {
        self.batch.frames()
    }

    /// Reserves up to `n` slots.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> Result<(), ProtocolViolation> {
        self.batch.clear();
        self.staged = false;
        let n = n.min(BATCH_FRAMES_MAX);
        let n = n.min(usize::from(self.free(n)?)) as u16;
        match self.buffers {
            Some(buffers) => self.reserve_own(n, buffers),
            None => self.reserve_lent(n),
        }
    }

    /// Publishes those of the first `n` reserved slots that hold a frame, and wakes the peer if it
    /// sleeps.
    #[inline]
    pub fn send(
        &mut self,
        n: usize,
        ringer: &Ringer,
        counters: &mut Counters,
    ) -> Result<(), ProtocolViolation> {
        let n = n.min(self.batch.frames().len());
        let sent = if self.staged {
            self.send_staged(n, counters)
        } else {
            Ok(self.send_in_place(n, counters))
        };
        self.batch.clear();
        let used = sent?;
        if used == 0 {
            return Ok(());
        }
        let first = self.cursor;
        self.cursor = self.cursor.wrapping_add(used);
        match self.buffers {
            Some(_) => self.ring.set_head(self.cursor),
            None => self.ring.set_tail(self.cursor),
        }
        self.ask_for_next(used);
        if !self.ring.wants_interrupt() {
            self.rung_for = None;
        } else if !self.is_rung_for() {
            self.rung_for = Some(first);
            counters.tx_bells += 1;
            bell::ring(ringer, self.bell.as_fd());
        }
        Ok(())
    }

    /// True if the peer has not taken the batch for which it was rung, so that another ring is
    /// needless. Its thread may be waiting for a core that other stacks use. Once awake it takes
    /// everything there, this batch included. Between asking for the bell and sleeping it reads the
    /// ring again: either it sees this batch then, or we see the slots that it gave back. Taking
    /// *anything* since the ring is not enough: a ring may arrive after its frames were taken, and
    /// find no thread that takes further ones. VPP in interrupt mode never masks its interrupt and
    /// is rung each time.
    #[inline]
    fn is_rung_for(&self) -> bool {
        let Some(first) = self.rung_for.filter(|_| self.masks_awake) else {
            return false;
        };
        let taken = self
            .peer_cursor()
            .wrapping_add(self.ahead)
            .wrapping_sub(self.ring.slots());
        first.wrapping_sub(taken) <= self.ring.slots()
    }

    /// Prefetches the memory of the next `n` slots, so that the peer's core gives it up before they
    /// are written. Only slots known to be free are prefetched: in a full ring the next slots are
    /// the oldest that the peer still has to read.
    #[inline]
    fn ask_for_next(&self, n: u16) {
        let free = self.peer.wrapping_add(self.ahead).wrapping_sub(self.cursor);
        for i in 0..n.min(free) {
            let cursor = self.cursor.wrapping_add(i);
            let (region, offset) = match self.buffers {
                Some(buffers) => (0, buffers.at(cursor & self.ring.mask())),
                None => {
                    let descriptor = self.ring.descriptor(cursor);
                    (descriptor.region, descriptor.offset)
                }
            };
            self.batch.ask_for(region, offset);
        }
    }

    /// True if a slot is free.
    pub fn has_room(&mut self) -> Result<bool, ProtocolViolation> {
        let room = self.free(1)? > 0;
        if room {
            self.room_pause_ns = TX_ROOM_POLL_NS_MIN;
        }
        Ok(room)
    }

    /// Length of the next sleep before looking for room again, ns, because the protocol has no bell
    /// for room.
    pub fn room_pause_ns(&mut self) -> u64 {
        let pause = self.room_pause_ns;
        self.room_pause_ns = (pause * 2).min(TX_ROOM_POLL_NS_MAX);
        pause
    }

    /// Number of free slots. The peer's cursor is read only if fewer than `wanted` are known to be
    /// free.
    #[inline]
    fn free(&mut self, wanted: usize) -> Result<u16, ProtocolViolation> {
        let known = self.peer.wrapping_add(self.ahead).wrapping_sub(self.cursor);
        if usize::from(known) >= wanted && known <= self.ring.slots() {
            return Ok(known);
        }
        self.peer = self.peer_cursor();
        let free = self.peer.wrapping_add(self.ahead).wrapping_sub(self.cursor);
        if free > self.ring.slots() {
            return Err(ProtocolViolation::Cursor);
        }
        Ok(free)
    }

    #[inline]
    fn peer_cursor(&self) -> u16 {
        match self.buffers {
            Some(_) => self.ring.tail(),
            None => self.ring.head(),
        }
    }

    #[inline]
    fn reserve_own(&mut self, n: u16, buffers: Buffers) -> Result<(), ProtocolViolation> {
        for i in 0..n {
            let slot = self.cursor.wrapping_add(i) & self.ring.mask();
            if !self.batch.push(0, buffers.at(slot), buffers.bytes) {
                debug_assert!(false, "our own buffers lie within our own region");
                return Err(ProtocolViolation::Buffer);
            }
        }
        Ok(())
    }

    #[inline]
    fn reserve_lent(&mut self, n: u16) -> Result<(), ProtocolViolation> {
        for i in 0..n {
            let Descriptor {
                region,
                length,
                offset,
                ..
            } = self.ring.descriptor(self.cursor.wrapping_add(i));
            if length < self.frame_bytes {
                return self.reserve_staged(n);
            }
            if !self
                .batch
                .push(region, offset, length.min(FRAME_BYTES_MAX as u32))
            {
                return Err(ProtocolViolation::Buffer);
            }
        }
        Ok(())
    }

    /// Reserves up to `n` staged slots, as many as the free buffers surely hold.
    #[cold]
    fn reserve_staged(&mut self, n: u16) -> Result<(), ProtocolViolation> {
        let wanted = usize::from(n).min(STAGED_FRAMES_MAX);
        let free = self.free(usize::from(self.ring.slots()))?;
        let mut frames = 0;
        let mut room = 0;
        for i in 0..free {
            if frames == wanted {
                break;
            }
            room += u64::from(self.ring.descriptor(self.cursor.wrapping_add(i)).length);
            if room >= u64::from(self.frame_bytes) {
                frames += 1;
                room = 0;
            }
        }
        self.batch.stage(frames, self.frame_bytes as usize);
        self.staged = true;
        Ok(())
    }

    /// Writes the descriptors of frames that are in their buffers; returns the number of slots
    /// used.
    #[inline]
    fn send_in_place(&mut self, n: usize, counters: &mut Counters) -> u16 {
        let mut used: u16 = 0;
        let mut bytes = 0;
        for i in 0..n {
            let length = self.batch.frames()[i].len();
            if length == 0 {
                continue;
            }
            if usize::from(used) != i && !self.batch.move_slot(i, usize::from(used)) {
                counters.tx_dropped_no_buffer += 1;
                continue;
            }
            self.ring
                .set_span(self.cursor.wrapping_add(used), 0, length as u32);
            used += 1;
            bytes += length as u64;
        }
        counters.tx_frames += u64::from(used);
        counters.tx_bytes += bytes;
        used
    }

    /// Copies staged frames into lent buffers; returns the number of slots used.
    #[cold]
    fn send_staged(&mut self, n: usize, counters: &mut Counters) -> Result<u16, ProtocolViolation> {
        let free = self.free(usize::from(self.ring.slots()))?;
        let mut used = 0;
        for i in 0..n {
            let length = self.batch.frames()[i].len() as u32;
            if length == 0 {
                continue;
            }
            let Some(after) = self.unstage_frame(i, length, used, free)? else {
                counters.tx_dropped_no_buffer += 1;
                continue;
            };
            used = after;
            counters.tx_frames += 1;
            counters.tx_staged += 1;
            counters.tx_bytes += u64::from(length);
        }
        Ok(used)
    }

    /// Copies one staged frame into the free slots from `used` on. Returns the first slot behind
    /// it; `None`: they do not suffice.
    fn unstage_frame(
        &mut self,
        index: usize,
        length: u32,
        used: u16,
        free: u16,
    ) -> Result<Option<u16>, ProtocolViolation> {
        let mut slot = used;
        let mut at = 0;
        while slot < free {
            let cursor = self.cursor.wrapping_add(slot);
            let descriptor = self.ring.descriptor(cursor);
            let part = descriptor.length.min(length - at);
            if part == 0
                || !self.batch.unstage(
                    index,
                    at as usize,
                    descriptor.region,
                    descriptor.offset,
                    part,
                )
            {
                return Err(ProtocolViolation::Buffer);
            }
            at += part;
            slot += 1;
            let more = at < length;
            self.ring
                .set_span(cursor, if more { DESCRIPTOR_FLAG_NEXT } else { 0 }, part);
            if !more {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }
}
