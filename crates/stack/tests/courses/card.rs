//! A driver whose card a course controls: received frames with the card's verdicts, and sent frames
//! as on the wire. The driver owns the buffers; the course holds the [`Card`].

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use packetio::buffer_unsafe::{BulkSlots, FrameBuf, RxBatch, TxBatch, carve};
use packetio::offload::{Segmenter, complete_partial};
use packetio::{
    Capabilities, ChecksumPolicy, MacAddr, Port, PortCounters, PortError, RxChecksum, RxFrame,
    TxFrame,
};
use rustix::event::PollFlags;

/// Most frames in one batch.
pub const BATCH: usize = 32;
const LARGE_BYTES: usize = 65_535 + 18;
const SMALL_BYTES: usize = 2_048;

/// The offloads of a card, drawn by a seed.
#[derive(Clone, Debug)]
pub struct Abilities {
    pub mtu: usize,
    pub policy: ChecksumPolicy,
    pub finishes_checksums: bool,
    pub cuts: bool,
    pub has_bulk_lane: bool,
    /// True if the card marks good checksums as verified.
    pub verifies: bool,
}

/// A frame that arrives at the card.
pub struct Arriving {
    pub bytes: Vec<u8>,
    pub checksum: RxChecksum,
    /// Payload of each segment of a merged frame, bytes; 0: a single segment.
    pub segment_bytes: u16,
}

/// The part of the card that a course sees and changes.
#[derive(Default)]
pub struct Card {
    pub arriving: VecDeque<Arriving>,
    /// Sent frames, each with a flag for the bulk lane.
    pub sent: Vec<(Vec<u8>, bool)>,
    /// Number of frames that the card still takes.
    pub room: usize,
    pub is_gone: bool,
    /// One flag per sleep of the stack: whether room in the card would end it.
    pub sleeps: Vec<bool>,
}

/// The course's end of a driver.
#[derive(Clone, Default)]
pub struct CardEnd(Arc<Mutex<Card>>);

impl CardEnd {
    pub fn lock(&self) -> MutexGuard<'_, Card> {
        self.0.lock().unwrap()
    }

    pub fn driver(&self, mac: MacAddr, number: u16, abilities: &Abilities) -> Box<dyn Port + Send> {
        let is_large = abilities.cuts || abilities.has_bulk_lane;
        let slot_bytes = match is_large {
            true => LARGE_BYTES,
            false => SMALL_BYTES,
        };
        Box::new(Driver {
            card: Arc::clone(&self.0),
            capabilities: Capabilities {
                mac,
                mtu: abilities.mtu,
                rx_checksum: abilities.policy,
                tx_checksum_offload: abilities.finishes_checksums,
                segment_bytes_max: if is_large { 65_535 } else { 0 },
                batch_max: BATCH,
                name: format!("card{number}"),
                queue: 0,
            },
            slot_bytes,
            free: carve(3 * BATCH, slot_bytes),
            lent: RxBatch::new(BATCH),
            granted: match abilities.has_bulk_lane {
                false => TxBatch::new(BATCH),
                true => TxBatch::with_bulk(BATCH, BulkSlots::new(BATCH, LARGE_BYTES)),
            },
        })
    }
}

struct Driver {
    card: Arc<Mutex<Card>>,
    capabilities: Capabilities,
    slot_bytes: usize,
    free: Vec<FrameBuf>,
    lent: RxBatch,
    granted: TxBatch,
}

impl Port for Driver {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let mut card = self.card.lock().unwrap();
        if card.is_gone {
            return Err(PortError::Gone);
        }
        while self.lent.len() < BATCH
            && let Some(arriving) = card.arriving.pop_front()
        {
            let mut buf = self.free.pop().unwrap();
            if buf.copy_bytes(&arriving.bytes) {
                buf.checksum = arriving.checksum;
                buf.segment_bytes = arriving.segment_bytes;
                self.lent.push(buf);
            } else {
                self.free.push(buf);
            }
        }
        Ok(self.lent.frames())
    }

    fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }

    fn accept_merged(&mut self) -> bool {
        true
    }

    fn waiting(&mut self) -> usize {
        self.card.lock().unwrap().arriving.len()
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let room = self.card.lock().unwrap().room.min(BATCH).min(n);
        while self.granted.len() < room {
            self.granted.push(self.free.pop().unwrap());
        }
        self.granted.frames(room)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let mut card = self.card.lock().unwrap();
        let mut by_bulk = Vec::new();
        for at in 0..n {
            let frame = self.granted.bulk_written(at);
            by_bulk.push(frame.map(|buf| buf.bytes().to_vec()));
        }
        let mut out = vec![0; self.slot_bytes.max(SMALL_BYTES)];
        for (at, mut buf) in self.granted.drain().enumerate() {
            let bulk = by_bulk.get_mut(at).and_then(Option::take);
            let is_bulk = bulk.is_some();
            let bytes = bulk.unwrap_or_else(|| buf.bytes().to_vec());
            if at < n && !bytes.is_empty() {
                card.room = card.room.saturating_sub(1);
                let has_offload = buf.offload.is_some();
                let size = match buf.segment_bytes {
                    0 => LARGE_BYTES,
                    size => usize::from(size),
                };
                let mut segmenter = Segmenter::new(LARGE_BYTES);
                if !has_offload || !segmenter.load(&bytes, size) {
                    let mut frame = bytes;
                    if has_offload {
                        complete_partial(&mut frame);
                    }
                    card.sent.push((frame, is_bulk));
                }
                while let Some(len) = segmenter.cut(&mut out) {
                    card.sent.push((out[..len].to_vec(), is_bulk));
                }
            }
            buf.set_len(0);
            self.free.push(buf);
        }
        match card.is_gone {
            true => Err(PortError::Gone),
            false => Ok(()),
        }
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let mut card = self.card.lock().unwrap();
        card.sleeps.push(want_tx);
        !card.arriving.is_empty() || (want_tx && card.room > 0)
    }

    fn finish_wait(&mut self) {}

    fn poll_fds<'a>(&'a self, _want_tx: bool, _fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {}

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}
