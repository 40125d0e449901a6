//! Sharing of a wire's queues among the contexts of a process: context *k* drives queue *k*, and no
//! queue is ever without a driving context.
//!
//! ```text
//!  queues whose context is there ── that context's
//!  queues of a context that is not there, or of none ── parked ── the first context that looks
//! ```
//!
//! A NIC spreads flows over all its queues, whichever contexts are present. So a context that goes
//! leaves its queues behind, and a present one takes them over. When their own context comes, it
//! asks for them and gets them within the other's next turn. With more queues than contexts, queue
//! *q* belongs to context *q* mod *n*. A context receives from all queues that it drives, in turn,
//! and sends by its own.
//!
//! `millstream::Runtime` opens the queues. Each context's stack has a [`QueuesPort`].

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use ring::published::Flag;
use rustix::event::PollFlags;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FRAME_HEADER_MAX, SUPER_FRAME_BYTES_MAX};
use crate::open_error::OpenError;
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// A queue's number and its port.
type Queue = (usize, Box<dyn Port + Send>);

/// The queues of a wire, of which each context drives some.
pub struct SharedQueues {
    shared: Arc<Shared>,
    /// Capabilities of each context's own queue.
    capabilities: Vec<Capabilities>,
    takes_merged: bool,
}

struct Shared {
    lot: Mutex<Lot>,
    /// For each context: a flag that the lot has changed since its last look, and its bell.
    news: Vec<(Flag, StackBell)>,
}

/// Queues that no context drives at present, and the contexts that are present.
struct Lot {
    parked: Vec<Queue>,
    /// Contexts that are present or about to come, one bit each.
    present: u64,
}

impl Shared {
    fn lot(&self) -> MutexGuard<'_, Lot> {
        self.lot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context to which a queue belongs, whether it is present or not.
    fn home(&self, queue: usize) -> usize {
        queue % self.news.len()
    }

    fn tell(&self, except: usize) {
        for (_, (flag, bell)) in (self.news.iter().enumerate()).filter(|(at, _)| *at != except) {
            flag.raise();
            bell.insist();
        }
    }
}

impl SharedQueues {
    /// Shares the queues of one wire, at least one per context. `are_all_coming`: all contexts come
    /// before any of them works, so none takes another's queue first.
    ///
    /// # Errors
    /// Fewer queues than contexts, or no descriptor for a bell.
    pub fn new(
        mut queues: Vec<Box<dyn Port + Send>>,
        contexts: usize,
        are_all_coming: bool,
    ) -> Result<Self, OpenError> {
        if contexts == 0 || queues.len() < contexts || contexts > 64 {
            let why = format!("{} queues for {contexts} contexts", queues.len());
            return Err(OpenError::refused("queues", why));
        }
        // The wire has a single MAC address, even if each queue generated one.
        let mac = queues[0].capabilities().mac;
        let capabilities = queues[..contexts].iter().map(|port| Capabilities {
            mac,
            ..port.capabilities().clone()
        });
        let capabilities = capabilities.collect();
        // Every stack accepts merged frames.
        let merging = queues.iter_mut().filter_map(|port| {
            let merges = port.accept_merged();
            merges.then_some(())
        });
        let takes_merged = merging.count() > 0;
        let bell = |_| match StackBell::new() {
            Ok(bell) => Ok((Flag::new(), bell)),
            Err(errno) => Err(OpenError::io("queues", "eventfd", errno)),
        };
        let news: Result<Vec<_>, OpenError> = (0..contexts).map(bell).collect();
        let all = u64::MAX >> (64 - contexts);
        let lot = Lot {
            parked: queues.into_iter().enumerate().collect(),
            present: if are_all_coming { all } else { 0 },
        };
        Ok(Self {
            shared: Arc::new(Shared {
                lot: Mutex::new(lot),
                news: news?,
            }),
            capabilities,
            takes_merged,
        })
    }

    /// Length of the longest frame that the queues lend, bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        let mtu = self.capabilities.iter().map(|own| own.mtu).max();
        let frame_bytes = mtu.unwrap_or(0) + FRAME_HEADER_MAX;
        match self.takes_merged {
            true => frame_bytes.max(SUPER_FRAME_BYTES_MAX),
            false => frame_bytes,
        }
    }

    /// The port of context `index`, which is present until the port is dropped.
    ///
    /// # Errors
    /// There is no such context.
    pub fn port(&self, index: usize) -> Result<QueuesPort, OpenError> {
        let Some(capabilities) = self.capabilities.get(index) else {
            return Err(OpenError::refused("queues", format!("no context {index}")));
        };
        self.shared.lot().present |= 1 << index;
        let mut port = QueuesPort {
            index,
            shared: self.shared.clone(),
            capabilities: capabilities.clone(),
            takes_merged: self.takes_merged,
            queues: Vec::new(),
            at: 0,
            next: 0,
            is_gone: false,
        };
        port.look_around();
        self.shared.tell(index);
        Ok(port)
    }
}

/// The port of one context: the queues that it drives at present.
pub struct QueuesPort {
    index: usize,
    shared: Arc<Shared>,
    capabilities: Capabilities,
    takes_merged: bool,
    /// The queues that this context drives, its own ones first; it sends by the first.
    queues: Vec<Queue>,
    /// Position of the queue whose frames are lent.
    at: usize,
    /// Position of the queue from which to receive next.
    next: usize,
    /// True once a queue has reported that it is gone for good.
    is_gone: bool,
}

impl QueuesPort {
    /// Gives up queues whose own context is present, and takes those meant for this one.
    #[cold]
    fn look_around(&mut self) {
        let (shared, index) = (self.shared.clone(), self.index);
        let mut lot = shared.lot();
        let is_ours = |present: u64, queue: usize| {
            let home = shared.home(queue);
            home == index || present >> home & 1 == 0
        };
        let present = lot.present;
        let mut gives_back = false;
        for at in (0..self.queues.len()).rev() {
            if !is_ours(present, self.queues[at].0) {
                lot.parked.push(self.queues.remove(at));
                gives_back = true;
            }
        }
        for at in (0..lot.parked.len()).rev() {
            if is_ours(present, lot.parked[at].0) {
                self.queues.push(lot.parked.remove(at));
            }
        }
        self.queues
            .sort_by_key(|(queue, _)| (shared.home(*queue) != index, *queue));
        (self.at, self.next) = (0, 0);
        drop(lot);
        if gives_back {
            shared.tell(index);
        }
    }

    /// The queue for sending, which is the context's own. `None`: another context still has it.
    fn own(&mut self) -> Option<&mut Box<dyn Port + Send>> {
        let (queue, port) = self.queues.first_mut()?;
        (self.shared.home(*queue) == self.index).then_some(port)
    }

    fn has_own(&self) -> bool {
        let first = self.queues.first();
        first.is_some_and(|(queue, _)| self.shared.home(*queue) == self.index)
    }

    fn bell(&self) -> &StackBell {
        &self.shared.news[self.index].1
    }
}

impl Port for QueuesPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        if self.shared.news[self.index].0.take() {
            self.look_around();
        }
        let (mut failed, count) = (None, self.queues.len());
        let first = if self.next < count { self.next } else { 0 };
        let (before, rest) = self.queues.split_at_mut(first);
        let in_turn = rest.iter_mut().chain(before);
        for (step, (_, port)) in in_turn.enumerate() {
            match port.receive() {
                Ok([]) => {}
                Ok(frames) => {
                    // Queues are served in turn, so that one that is never empty does not starve
                    // the others.
                    self.at = (first + step) % count;
                    self.next = self.at + 1;
                    return Ok(frames);
                }
                Err(PortError::Gone) => self.is_gone = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // All queues of an interface go at the same time.
            _ if self.is_gone => Err(PortError::Gone),
            Some(error) => Err(error),
            None => Ok(&[]),
        }
    }

    fn release(&mut self) {
        if let Some((_, port)) = self.queues.get_mut(self.at) {
            port.release();
        }
    }

    fn drain(&mut self) {
        self.queues.iter_mut().for_each(|(_, port)| port.drain());
    }

    fn waiting(&mut self) -> usize {
        self.queues.iter_mut().map(|(_, port)| port.waiting()).sum()
    }

    fn accept_merged(&mut self) -> bool {
        self.takes_merged
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.own().map_or(&[], |port| port.reserve(n))
    }

    fn reserved(&self) -> &[TxFrame] {
        match self.queues.first() {
            Some((_, port)) if self.has_own() => port.reserved(),
            _ => &[],
        }
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.own().map_or(Ok(()), |port| port.send(n))
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.bell().prepare_sleep();
        let mut has_work = self.shared.news[self.index].0.is_raised();
        let has_own = self.has_own();
        for (at, (_, port)) in self.queues.iter_mut().enumerate() {
            has_work |= port.prepare_wait(want_tx && has_own && at == 0);
        }
        has_work
    }

    fn finish_wait(&mut self) {
        self.queues
            .iter_mut()
            .for_each(|(_, port)| port.finish_wait());
        self.bell().cancel_sleep();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        fds(self.bell().fd(), PollFlags::IN);
        let has_own = self.has_own();
        for (at, (_, port)) in self.queues.iter().enumerate() {
            port.poll_fds(want_tx && has_own && at == 0, fds);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let deadlines = self
            .queues
            .iter()
            .filter_map(|(_, port)| port.deadline_ns());
        deadlines.min()
    }

    fn counters(&self) -> PortCounters {
        let mut all = PortCounters::default();
        for (_, port) in &self.queues {
            all.merge(&port.counters());
        }
        all
    }

    fn mover_shares_cpu(&self) -> bool {
        self.queues.iter().any(|(_, port)| port.mover_shares_cpu())
    }
}

impl Drop for QueuesPort {
    /// Leaves the queues to the contexts that are present.
    fn drop(&mut self) {
        self.release();
        let mut lot = self.shared.lot();
        lot.present &= !(1 << self.index);
        lot.parked.append(&mut self.queues);
        drop(lot);
        self.shared.tell(self.index);
    }
}

#[cfg(test)]
mod tests;
