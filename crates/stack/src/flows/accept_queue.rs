//! A listener's accept queue: connections that the application has not accepted yet.
//!
//! The queue is a ring to the application, as long as the backlog of `listen`. A later `listen`
//! with a larger backlog adds a longer ring. Connections in earlier rings stay there until they are
//! accepted, and still count.

use std::sync::Arc;

use ring::socket_block::SocketId;
use ring::spsc::Producer;

use crate::activity::Histogram;
use crate::context::{AcceptRings, Accepted};
use crate::limits::SEEK_AGE_NS;

pub(crate) struct AcceptQueue {
    /// Rings in order of age; the last one takes new connections. Each is longer than the one
    /// before, so there are few.
    rings: Vec<AcceptRing>,
    /// The backlog. One more connection than this may wait, as in Linux.
    pub backlog: u32,
    /// True if `Listeners` counts this queue among those in which connections wait.
    pub is_awaited: bool,
    /// The application's end, from which the stack takes connections back.
    rings_out: Arc<AcceptRings>,
    pub search: Search,
}

/// The search for another process that accepts the connections of a queue.
pub(crate) struct Search {
    /// Number under which the host was asked and has not answered.
    pub asked: Option<u32>,
    /// Time before which the host is not asked, ns.
    pub next_ns: u64,
    /// Time from a refusal to the next question, ns.
    pub pause_ns: u64,
    /// Time until which another process's connection is expected, ns.
    pub promised_until_ns: u64,
    /// The application has accepted a connection.
    pub has_accepted: bool,
    /// The host prefers other processes, since the application had never accepted one.
    pub is_passed_over: bool,
}

struct AcceptRing {
    accepted: Producer<Accepted>,
    /// Copy of the ring's contents by position: socket, and time of arrival in ns. The stack's end
    /// cannot read the ring itself.
    recent: Vec<(SocketId, u64)>,
    /// Position up to which accepts were recorded.
    noted: u32,
}

impl AcceptRing {
    fn new(accepted: Producer<Accepted>) -> Self {
        Self {
            recent: vec![(SocketId::default(), 0); accepted.capacity()],
            noted: accepted.position(),
            accepted,
        }
    }

    fn oldest_ns(&self) -> Option<u64> {
        let waiting = self.accepted.len() as u32;
        let oldest = self.accepted.position().wrapping_sub(waiting);
        (waiting > 0).then(|| self.recent[oldest as usize % self.recent.len()].1)
    }

    fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        let end = self.accepted.position();
        let positions = (1..=self.accepted.len() as u32).map(move |back| end.wrapping_sub(back));
        positions.map(|position| self.recent[position as usize % self.recent.len()].0)
    }
}

impl AcceptRing {
    /// Records how long each connection waited that the application took since the last look.
    /// Returns whether it took some, and whether further ones wait.
    fn note_taken(&mut self, now_ns: u64, delays: &mut Histogram) -> (bool, bool) {
        let (end, waiting) = (self.accepted.position(), self.accepted.len() as u32);
        let taken = end.wrapping_sub(waiting);
        // The ring wrapped since the last look, so the times of the oldest entries are overwritten.
        let known = self.recent.len() as u32;
        if taken.wrapping_sub(self.noted) > known {
            self.noted = taken.wrapping_sub(known);
        }
        let has_taken = self.noted != taken;
        while self.noted != taken {
            let (_, since_ns) = self.recent[self.noted as usize % self.recent.len()];
            delays.add(now_ns.saturating_sub(since_ns));
            self.noted = self.noted.wrapping_add(1);
        }
        (has_taken, waiting > 0)
    }
}

impl AcceptQueue {
    /// A queue with both ends of its ring.
    pub fn new(
        (accepted, rings_out): (Producer<Accepted>, Arc<AcceptRings>),
        backlog: u32,
    ) -> Self {
        Self {
            rings: vec![AcceptRing::new(accepted)],
            backlog,
            is_awaited: false,
            rings_out,
            search: Search {
                asked: None,
                next_ns: 0,
                pause_ns: SEEK_AGE_NS,
                promised_until_ns: 0,
                has_accepted: false,
                is_passed_over: false,
            },
        }
    }

    /// Applies another `listen`: the new backlog, and a longer ring if one is needed.
    pub fn change(&mut self, backlog: u32, longer: Option<Producer<Accepted>>) {
        self.backlog = backlog;
        if let Some(accepted) = longer {
            self.rings.retain(|ring| !ring.accepted.is_empty());
            self.rings.push(AcceptRing::new(accepted));
        }
    }

    /// True if the queue has room for one more connection.
    pub fn has_room(&mut self) -> bool {
        let waiting: usize = self.rings.iter().map(|ring| ring.accepted.len()).sum();
        let last = self.rings.last_mut();
        last.is_some_and(|ring| ring.accepted.free() > 0) && waiting as u32 <= self.backlog
    }

    /// Adds a connection; the caller has checked that there is room.
    pub fn push(&mut self, accepted: Accepted, now_ns: u64) {
        let Some(ring) = self.rings.last_mut() else {
            return;
        };
        let place = ring.accepted.position() as usize % ring.recent.len();
        ring.recent[place] = (accepted.socket, now_ns);
        let pushed = ring.accepted.push(accepted);
        debug_assert!(pushed.is_ok(), "the accept queue had room");
    }

    /// Records how long connections waited that were taken since the last look. True: further ones
    /// wait.
    pub fn note_taken(&mut self, now_ns: u64, delays: &mut Histogram) -> bool {
        let mut any = (false, false);
        for ring in &mut self.rings {
            let (has_taken, waits) = ring.note_taken(now_ns, delays);
            any = (any.0 | has_taken, any.1 | waits);
        }
        if any.0 {
            self.search.has_accepted = true;
            self.search.pause_ns = SEEK_AGE_NS;
        }
        any.1
    }

    /// Time of arrival of the oldest connection that waits, ns.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.rings.iter().find_map(AcceptRing::oldest_ns)
    }

    /// True if a call of the application waits for a connection.
    pub fn has_calls(&self) -> bool {
        self.rings_out.has_calls()
    }

    /// Takes the oldest connection back from the application. `None`: the application has just
    /// taken it, or an earlier ring is not empty yet.
    pub fn take_back(&mut self) -> Option<Accepted> {
        let (last, earlier) = self.rings.split_last_mut()?;
        if earlier.iter().any(|ring| !ring.accepted.is_empty()) {
            return None;
        }
        let accepted = self.rings_out.take_back()?;
        // The stack's own take is none of the application's.
        last.noted = last.noted.wrapping_add(1);
        Some(accepted)
    }

    /// Connections that the application has not accepted.
    pub fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.rings.iter().flat_map(AcceptRing::waiting)
    }
}
