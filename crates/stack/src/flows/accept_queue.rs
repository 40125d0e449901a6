//! A listener's accept queue: connections that the application has not accepted yet.
//!
//! The queue is a ring to the application, as long as the backlog of `listen`. A later `listen`
//! with a larger backlog adds a longer ring; connections in the earlier rings stay there until they
//! are taken, and count.

use ring::socket_block::SocketId;
use ring::spsc::Producer;

use crate::activity::Histogram;
use crate::context::Accepted;

pub(crate) struct AcceptQueue {
    /// The last ring takes new connections. Each is longer than the one before, so there are few.
    rings: Vec<AcceptRing>,
    /// The backlog: as many may wait, and one more, as in Linux.
    pub backlog: u32,
    /// The queue is among those whose connections are awaited (`Listeners`).
    pub is_awaited: bool,
}

struct AcceptRing {
    accepted: Producer<Accepted>,
    /// The contents of `accepted` with the time of each, ns, by position: this end cannot look into
    /// the ring itself.
    recent: Vec<(SocketId, u64)>,
    /// The position up to which accepts were noted.
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

    fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        let end = self.accepted.position();
        let positions = (1..=self.accepted.len() as u32).map(move |back| end.wrapping_sub(back));
        positions.map(|position| self.recent[position as usize % self.recent.len()].0)
    }
}

impl AcceptRing {
    /// Adds the time that each connection waited which the application has taken since the last
    /// look. True: others still wait.
    fn note_taken(&mut self, now_ns: u64, delays: &mut Histogram) -> bool {
        let (end, waiting) = (self.accepted.position(), self.accepted.len() as u32);
        let taken = end.wrapping_sub(waiting);
        // The ring went round since the last look: the times of the oldest are overwritten.
        let known = self.recent.len() as u32;
        if taken.wrapping_sub(self.noted) > known {
            self.noted = taken.wrapping_sub(known);
        }
        while self.noted != taken {
            let (_, since_ns) = self.recent[self.noted as usize % self.recent.len()];
            delays.add(now_ns.saturating_sub(since_ns));
            self.noted = self.noted.wrapping_add(1);
        }
        waiting > 0
    }
}

impl AcceptQueue {
    pub fn new(accepted: Producer<Accepted>, backlog: u32) -> Self {
        Self {
            rings: vec![AcceptRing::new(accepted)],
            backlog,
            is_awaited: false,
        }
    }

    /// `listen` was called again.
    pub fn change(&mut self, backlog: u32, longer: Option<Producer<Accepted>>) {
        self.backlog = backlog;
        if let Some(accepted) = longer {
            self.rings.retain(|ring| !ring.accepted.is_empty());
            self.rings.push(AcceptRing::new(accepted));
        }
    }

    /// True if there is room for one more.
    pub fn has_room(&mut self) -> bool {
        let waiting: usize = self.rings.iter().map(|ring| ring.accepted.len()).sum();
        let last = self.rings.last_mut();
        last.is_some_and(|ring| ring.accepted.free() > 0) && waiting as u32 <= self.backlog
    }

    /// Puts a connection in, for which there is room.
    pub fn push(&mut self, accepted: Accepted, now_ns: u64) {
        let Some(ring) = self.rings.last_mut() else {
            return;
        };
        let place = ring.accepted.position() as usize % ring.recent.len();
        ring.recent[place] = (accepted.socket, now_ns);
        let pushed = ring.accepted.push(accepted);
        debug_assert!(pushed.is_ok(), "the accept queue had room");
    }

    /// Adds the delays of connections that were taken since the last look. True: others still wait.
    pub fn note_taken(&mut self, now_ns: u64, delays: &mut Histogram) -> bool {
        let rings = self.rings.iter_mut();
        rings.fold(false, |waits, ring| ring.note_taken(now_ns, delays) | waits)
    }

    /// Connections that were not taken.
    pub fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.rings.iter().flat_map(AcceptRing::waiting)
    }
}
