//! All queues of one memif connection as a single [`Port`]: frames arrive on every queue and leave
//! by the first.
//!
//! The peer has a thread per queue and this end one thread for all: an application behind `mill
//! mux`, whose service has a thread per queue of the NIC. A connection may have fewer queues than
//! this end offers, and the next one another number. The port owns those of the queues; the first
//! one reads the control channel for all.

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use super::port::MemifPort;
use crate::RxFrame;
use crate::port::{Port, PortCounters, PortError};

/// See the module's documentation.
#[derive(Debug)]
pub struct MemifQueues {
    first: MemifPort,
    others: Vec<MemifPort>,
    /// Index of the queue whose batch is lent: 0 is the first one, i + 1 is `others[i]`.
    lent: usize,
}

impl MemifQueues {
    /// Joins the open queues of one interface. `None`: there is none.
    pub(super) fn new(ports: Vec<MemifPort>) -> Option<Self> {
        let mut ports = ports.into_iter();
        Some(Self {
            first: ports.next()?,
            others: ports.collect(),
            lent: 0,
        })
    }

    /// True if the peer is connected and has the first queue.
    pub fn is_connected(&self) -> bool {
        self.first.is_connected()
    }

    /// Number of queues that the present connection has.
    pub fn queues(&self) -> usize {
        let others = self.others.iter().filter(|port| port.is_connected());
        usize::from(self.first.is_connected()) + others.count()
    }

    fn port(&mut self, at: usize) -> &mut MemifPort {
        match at.checked_sub(1).and_then(|at| self.others.get_mut(at)) {
            Some(port) => port,
            None => &mut self.first,
        }
    }

    /// Receives a batch from one queue. True: it has frames.
    fn receive_from(&mut self, at: usize) -> Result<bool, PortError> {
        let generation = self.first.generation();
        let port = self.port(at);
        if at > 0 && port.generation() != generation {
            port.follow_others();
        }
        // A port of a missing queue would read the control channel.
        if at > 0 && !port.has_queue() {
            return Ok(false);
        }
        let has_frames = port.receive().map(|frames| !frames.is_empty());
        match has_frames {
            // Only the first queue reports a disconnection.
            Err(PortError::Disconnected) if at > 0 => Ok(false),
            has_frames => has_frames,
        }
    }
}

impl Port for MemifQueues {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let count = self.others.len() + 1;
        let lent = self.lent;
        // The next batch comes from the next queue that has frames.
        for turn in 1..=count {
            let at = (lent + turn) % count;
            if self.receive_from(at)? {
                self.lent = at;
                return Ok(self.port(at).received());
            }
        }
        Ok(&[])
    }

    fn release(&mut self) {
        let lent = self.lent;
        self.port(lent).release();
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let mut is_ready = self.first.prepare_wait(want_tx);
        let generation = self.first.generation();
        for port in &mut self.others {
            is_ready |= port.generation() != generation || port.prepare_queue_wait();
        }
        is_ready
    }

    fn finish_wait(&mut self) {
        self.first.finish_wait();
        for port in &mut self.others {
            port.finish_wait();
        }
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.first.poll_fds(want_tx, fds);
        for bell in self.others.iter().filter_map(MemifPort::bell) {
            fds(bell, PollFlags::IN);
        }
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.first.counters();
        for port in &self.others {
            counters.merge(&port.counters());
        }
        counters
    }

    crate::forward_port!(self => self.first; capabilities reserve reserved send deadline_ns);
}
