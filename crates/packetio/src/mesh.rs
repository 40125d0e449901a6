//! Hand-over of frames between the contexts of a process whose wire has a queue for each: a frame
//! at the wrong context goes directly to its owner, without a thread between them.
//!
//! ```text
//!   queue 0 ── context 0 ──┐ slots of each ordered pair:
//!   queue 1 ── context 1 ──┼── free ─► [queue] ─► lent ─► [queue of empties] ─► free
//!   queue 2 ── context 2 ──┘
//! ```
//!
//! Each context receives from its own queue, and asks the directory only about a segment whose flow
//! it does not have. The directory tells which context has a flow; each context keeps its own flows
//! up to date there. A SYN of a new flow stays with the context that it reached if that one
//! listens, else it goes to one that does. A flow thus stays with its first owner whatever listens
//! later, as behind a switch (decision 0046, decision 0125).
//!
//! A queue between two contexts is bounded; a frame that finds it full is dropped and counted by
//! the sender's stack. The stack's bell wakes a sleeping context, once per batch.
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

/// A mesh, from which contexts take their ends when they come, and to which the ends return when
/// they go.
pub struct Mesh {
    shared: Arc<Shared>,
    ends: Arc<Ends>,
}

/// Ends of contexts that are not present.
struct Ends {
    outboxes: Mutex<Vec<Option<Vec<Outbox>>>>,
    inboxes: Mutex<Vec<Option<Vec<Inbox>>>>,
}

/// A frame on its way from one context to another.
struct Handed {
    buf: FrameBuf,
    /// Index of the stack's port on whose wire the frame arrived.
    port: u8,
    /// Number of times that the frame was handed over.
    hops: u8,
}

/// The queue from one context to another, at its sender.
struct Outbox {
    frames: Producer<Handed>,
    empties: Consumer<FrameBuf>,
    free: Vec<FrameBuf>,
}

/// The queue from one context to another, at its receiver.
struct Inbox {
    frames: Consumer<Handed>,
    empties: Producer<FrameBuf>,
}

/// The result of handing a frame over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The frame is in the queue.
    Done,
    /// The queue to the owner is full, and the frame is lost.
    Full,
    /// The frame is longer than a slot and lost.
    TooLong,
}

/// The slots of a queue that a frame may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Any free slot: the frame belongs to the other context's flow.
    Any,
    /// A slot while half of them are free: the frame is a copy that all contexts learn from.
    Spare,
}

/// The end of the mesh by which a context hands frames over.
pub struct MeshSender {
    directory: Directory,
    /// Queues by receiving context; the one to the sender itself is unused.
    outboxes: Vec<Outbox>,
    /// Contexts that were sent frames since the bells were last rung, one bit each.
    unrung: u64,
    ends: Arc<Ends>,
}

/// The end of the mesh by which a context receives frames.
pub struct MeshReceiver {
    directory: Directory,
    inboxes: Vec<Inbox>,
    /// Index of the context whose frames are lent.
    lent_from: usize,
    lent: RxBatch,
    ends: Arc<Ends>,
}

/// Frames that arrived by the same port with the same number of hops.
pub struct HandedBatch<'a> {
    /// Index of the stack's port on whose wire the frames arrived.
    pub port: u8,
    /// Number of times that the frames were handed over.
    pub hops: u8,
    /// The frames, lent until the next call of the receiver.
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
    /// Makes a mesh of `contexts` for frames of at most `frame_bytes` bytes. `flows`: most flows of
    /// all contexts together.
    ///
    /// # Errors
    /// More contexts than a mesh can have, or no descriptor for a bell.
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

    /// Takes the ends of context `index`, which is present from now on.
    ///
    /// # Errors
    /// There is no such context, or its last stack still has the ends.
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
        // Frames for the context's predecessor are discarded.
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

    /// Notes that a socket of context `index` begins (`on`) or stops listening at `port`.
    pub fn listens(&self, index: usize, port: u16, on: bool) {
        self.shared.listens(index, port, on);
    }
}

impl Inbox {
    fn clear(&mut self) {
        while let Some(handed) = self.frames.pop() {
            // The queue of empty slots has room for all slots.
            let _ = self.empties.push(handed.buf);
        }
    }
}

impl MeshSender {
    /// The directory of flows, which the owner of a flow table keeps up to date.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Copies a frame that arrived by `port` to another context. [`ring`](Self::ring) wakes that
    /// context.
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

    /// Wakes the sleeping contexts to which frames were sent since the last call.
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
    /// The bell that other contexts ring, which is the stack's own.
    #[must_use]
    pub fn bell(&self) -> &StackBell {
        &self.directory.shared.bells[self.directory.index]
    }

    /// True if frames have arrived from other contexts.
    #[inline]
    pub fn has_frames(&mut self) -> bool {
        self.inboxes
            .iter_mut()
            .any(|inbox| !inbox.frames.is_empty())
    }

    /// The next frames of one sender with the same port and hops; `None`: there are none.
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

    /// Ends the loan: gives the frames back to their sender.
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
