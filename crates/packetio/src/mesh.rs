//! The contexts of a process whose wire has a queue for each: frames that arrive at the wrong one
//! are handed to their owner, and no thread stands between.
//!
//! ```text
//!   queue 0 ── context 0 ──┐ slots of each ordered pair:
//!   queue 1 ── context 1 ──┼── free ─► [queue] ─► lent ─► [queue of empties] ─► free
//!   queue 2 ── context 2 ──┘
//! ```
//!
//! Each context takes the frames of its own queue. It looks here only for a segment whose flow its
//! own flow table does not have. The directory says which context has the flow: each adds its flows
//! as its table gets them and removes them as its table loses them. A SYN of a new flow stays with
//! the context that it reached, if that one listens, else it goes to one that does. So a flow stays
//! with its first owner whoever listens later, as behind a switch (decision 0046), for its owner's
//! own flow table says so (decision 0125).
//!
//! A queue between two contexts is bounded. A frame that finds it full is dropped and counted by
//! the sender's stack. A context that sleeps is woken by its stack's bell, once for each batch.
//! `millstream::Runtime` makes a mesh, and each of its stacks owns one end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use ring::flow_owners::{FlowOwners, OWNERS_MAX};
use ring::port_masks::PortMasks;
use ring::published::Published64;
use ring::spsc::{Consumer, Producer, queue};

use crate::buffer_unsafe::{FrameBuf, RxBatch, carve};
use crate::frame_unsafe::RxFrame;
use crate::limits::{
    FLOW_OWNERS_MAX, MESH_BATCH_MAX, MESH_BYTES, MESH_CONTEXTS_MAX, MESH_SLOTS, MESH_SLOTS_MIN,
};
use crate::open_error::OpenError;

mod directory;

pub use directory::Directory;
use directory::Shared;

const _: () = assert!(MESH_CONTEXTS_MAX <= OWNERS_MAX);

/// Handle on a mesh: its ends are taken by the contexts that come, and return when they go.
pub struct Mesh {
    shared: Arc<Shared>,
    ends: Arc<Ends>,
}

/// Ends of contexts that are not there.
struct Ends {
    outboxes: Mutex<Vec<Option<Vec<Outbox>>>>,
    inboxes: Mutex<Vec<Option<Vec<Inbox>>>>,
}

/// A frame on its way from one context to another.
struct Handed {
    buf: FrameBuf,
    /// The wire by which it came, as the number of the stack's port.
    port: u8,
    /// How often it has been handed over.
    hops: u8,
}

/// One direction between two contexts, at its sender.
struct Outbox {
    frames: Producer<Handed>,
    empties: Consumer<FrameBuf>,
    free: Vec<FrameBuf>,
}

/// One direction between two contexts, at its receiver.
struct Inbox {
    frames: Consumer<Handed>,
    empties: Producer<FrameBuf>,
}

/// The outcome of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The frame is on its way.
    Done,
    /// The owner is behind: the queue to it is full, and the frame is lost.
    Full,
    /// The frame is longer than a slot, and lost.
    TooLong,
}

/// Which of the slots to another context a frame may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Any: its flow waits for it.
    Any,
    /// As long as half of them are free: a copy of what all contexts learn from.
    Spare,
}

/// The end by which a context hands frames over.
pub struct MeshSender {
    directory: Directory,
    /// By context; the one to itself is never used.
    outboxes: Vec<Outbox>,
    /// Contexts that were sent something since the bells were rung, a bit each.
    unrung: u64,
    ends: Arc<Ends>,
}

/// The end by which a context gets frames.
pub struct MeshReceiver {
    directory: Directory,
    inboxes: Vec<Inbox>,
    /// Whose frames are lent.
    lent_from: usize,
    lent: RxBatch,
    ends: Arc<Ends>,
}

/// Frames that came the same way.
pub struct HandedBatch<'a> {
    /// The wire by which they came, as the number of the stack's port.
    pub port: u8,
    /// How often they have been handed over.
    pub hops: u8,
    /// The frames, lent until the next call.
    pub frames: &'a [RxFrame],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn direction(frame_bytes: usize) -> (Outbox, Inbox) {
    let slots = (MESH_BYTES / frame_bytes.max(1)).clamp(MESH_SLOTS_MIN, MESH_SLOTS);
    let (to, from) = queue(slots);
    let (give_back, come_back) = queue(slots);
    let outbox = Outbox {
        frames: to,
        empties: come_back,
        free: carve(slots, frame_bytes),
    };
    let inbox = Inbox {
        frames: from,
        empties: give_back,
    };
    (outbox, inbox)
}

impl Mesh {
    /// A mesh of `contexts`, for frames of at most `frame_bytes`. `flows`: how many all contexts
    /// together have at most.
    ///
    /// # Errors
    /// More contexts than a mesh has, or no descriptor for a bell.
    pub fn new(contexts: usize, frame_bytes: usize, flows: usize) -> Result<Self, OpenError> {
        if contexts == 0 || contexts > MESH_CONTEXTS_MAX {
            let why = format!("{contexts} contexts: a mesh joins {MESH_CONTEXTS_MAX} at most");
            return Err(OpenError::refused("mesh", why));
        }
        let bell = |_| StackBell::new().map_err(|errno| OpenError::io("mesh", "eventfd", errno));
        let bells: Result<Vec<_>, OpenError> = (0..contexts).map(bell).collect();
        let (mut outboxes, mut inboxes): (Vec<Vec<_>>, Vec<Vec<_>>) = (Vec::new(), Vec::new());
        inboxes.resize_with(contexts, Vec::new);
        for from in 0..contexts {
            let mut row = Vec::new();
            for (to, column) in inboxes.iter_mut().enumerate() {
                let bytes = if from == to { 0 } else { frame_bytes };
                let (outbox, inbox) = direction(bytes);
                row.push(outbox);
                column.push(inbox);
            }
            outboxes.push(row);
        }
        let shared = Shared {
            flows: FlowOwners::new(flows.saturating_mul(2).min(FLOW_OWNERS_MAX)),
            listening: PortMasks::new(),
            listeners: Mutex::default(),
            present: Published64::default(),
            cookies_out_until_ns: Published64::default(),
            bells: bells?,
        };
        Ok(Self {
            shared: Arc::new(shared),
            ends: Arc::new(Ends {
                outboxes: Mutex::new(outboxes.into_iter().map(Some).collect()),
                inboxes: Mutex::new(inboxes.into_iter().map(Some).collect()),
            }),
        })
    }

    /// The ends of context `index`, which is there from now on.
    ///
    /// # Errors
    /// There is no such context, or its stack has not ended yet.
    pub fn join(&self, index: usize) -> Result<(MeshSender, MeshReceiver), OpenError> {
        let is_there = || OpenError::refused("mesh", format!("context {index} is still there"));
        let mut inboxes = locked(&self.ends.inboxes);
        let mut outboxes = locked(&self.ends.outboxes);
        let (Some(from), Some(to)) = (inboxes.get_mut(index), outboxes.get_mut(index)) else {
            return Err(OpenError::refused("mesh", format!("no context {index}")));
        };
        if from.is_none() || to.is_none() {
            return Err(is_there());
        }
        let mut inboxes = from.take().ok_or_else(is_there)?;
        let outboxes = to.take().ok_or_else(is_there)?;
        // Frames that came for the context's predecessor are not for this one.
        inboxes.iter_mut().for_each(Inbox::clear);
        let directory = Directory {
            shared: self.shared.clone(),
            index,
        };
        directory.come();
        let sender = MeshSender {
            directory: directory.clone(),
            outboxes,
            unrung: 0,
            ends: self.ends.clone(),
        };
        let receiver = MeshReceiver {
            directory,
            inboxes,
            lent_from: index,
            lent: RxBatch::new(MESH_BATCH_MAX),
            ends: self.ends.clone(),
        };
        Ok((sender, receiver))
    }

    /// Notes that a socket of context `index` begins (`on`) or ceases to listen at `port`.
    pub fn listens(&self, index: usize, port: u16, on: bool) {
        self.shared.listens(index, port, on);
    }
}

impl Inbox {
    fn clear(&mut self) {
        while let Some(handed) = self.frames.pop() {
            // There are as many places as slots.
            let _ = self.empties.push(handed.buf);
        }
    }
}

impl MeshSender {
    /// The directory of flows, for whoever keeps the flow table.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Copies a frame, which came by `port`, to another context. The context is woken by
    /// [`ring`](Self::ring).
    pub fn hand_over(
        &mut self,
        to: usize,
        (port, hops): (u8, u8),
        frame: &RxFrame,
        claim: Claim,
    ) -> HandOver {
        let Some(outbox) = self.outboxes.get_mut(to) else {
            return HandOver::Full;
        };
        let needed = match claim {
            Claim::Any => 1,
            Claim::Spare => outbox.frames.capacity() / 2,
        };
        if outbox.free.len() < needed {
            let free = &mut outbox.free;
            outbox
                .empties
                .pop_batch(usize::MAX, |empty| free.push(empty));
        }
        if outbox.free.len() < needed {
            return HandOver::Full;
        }
        let Some(mut buf) = outbox.free.pop() else {
            return HandOver::Full;
        };
        if !buf.copy_frame(frame) {
            outbox.free.push(buf);
            return HandOver::TooLong;
        }
        if let Err(back) = outbox.frames.push(Handed { buf, port, hops }) {
            outbox.free.push(back.buf);
            return HandOver::Full;
        }
        self.unrung |= 1 << to;
        HandOver::Done
    }

    /// Wakes the contexts that were sent something since the last call, if they sleep.
    #[inline]
    pub fn ring(&mut self) {
        if self.unrung != 0 {
            self.directory.ring(std::mem::take(&mut self.unrung));
        }
    }
}

impl Drop for MeshSender {
    fn drop(&mut self) {
        let outboxes = std::mem::take(&mut self.outboxes);
        locked(&self.ends.outboxes)[self.directory.index] = Some(outboxes);
    }
}

impl MeshReceiver {
    /// The bell that others ring: the stack's own.
    #[must_use]
    pub fn bell(&self) -> &StackBell {
        &self.directory.shared.bells[self.directory.index]
    }

    /// Something has come.
    #[inline]
    pub fn has_frames(&mut self) -> bool {
        self.inboxes
            .iter_mut()
            .any(|inbox| !inbox.frames.is_empty())
    }

    /// The next frames of one sender that came the same way; `None` if there are none.
    pub fn receive(&mut self) -> Option<HandedBatch<'_>> {
        self.release();
        let count = self.inboxes.len();
        let after = self.lent_from + 1;
        let from = (0..count)
            .map(|step| (after + step) % count)
            .find(|&from| !self.inboxes[from].frames.is_empty())?;
        self.lent_from = from;
        let frames = &mut self.inboxes[from].frames;
        let (port, hops) = frames.peek().map(|first| (first.port, first.hops))?;
        let is_alike = |one: &Handed| one.port == port && one.hops == hops;
        while self.lent.len() < MESH_BATCH_MAX
            && frames.peek().is_some_and(is_alike)
            && let Some(handed) = frames.pop()
        {
            self.lent.push(handed.buf);
        }
        Some(HandedBatch {
            port,
            hops,
            frames: self.lent.frames(),
        })
    }

    /// Gives the lent frames back to their sender.
    pub fn release(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        let mut bufs = self.lent.drain();
        self.inboxes[self.lent_from].empties.push_batch(&mut bufs);
        debug_assert!(bufs.next().is_none(), "as many places as slots");
    }
}

impl Drop for MeshReceiver {
    fn drop(&mut self) {
        self.release();
        self.directory.go();
        let inboxes = std::mem::take(&mut self.inboxes);
        locked(&self.ends.inboxes)[self.directory.index] = Some(inboxes);
    }
}

#[cfg(test)]
mod tests;
