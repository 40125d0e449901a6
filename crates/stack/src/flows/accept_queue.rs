//! A listener's accept queue: connections that nobody has accepted yet.
//!
//! They lie in a ring to the application, as long as the backlog that `listen` was called with. A later `listen` that asks for more brings a longer ring; what
//! lies in the earlier ones stays there until it is taken, and counts.

use ring::socket_block::SocketId;
use ring::spsc::Producer;

use crate::context::Accepted;

pub(crate) struct AcceptQueue {
    /// The last takes what comes; each is longer than the one before, so there are few.
    rings: Vec<AcceptRing>,
    /// The backlog: as many may wait, and one more, as in Linux.
    pub backlog: u32,
}

struct AcceptRing {
    accepted: Producer<Accepted>,
    /// What lies in `accepted`, by position: the ring itself cannot be looked into from this end.
    recent: Vec<SocketId>,
}

impl AcceptRing {
    fn new(accepted: Producer<Accepted>) -> Self {
        Self {
            recent: vec![SocketId::default(); accepted.capacity()],
            accepted,
        }
    }

    fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        let end = self.accepted.position();
        let positions = (1..=self.accepted.len() as u32).map(move |back| end.wrapping_sub(back));
        positions.map(|position| self.recent[position as usize % self.recent.len()])
    }
}

impl AcceptQueue {
    pub fn new(accepted: Producer<Accepted>, backlog: u32) -> Self {
        Self {
            rings: vec![AcceptRing::new(accepted)],
            backlog,
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

    /// There is room for one more.
    pub fn has_room(&mut self) -> bool {
        let waiting: usize = self.rings.iter().map(|ring| ring.accepted.len()).sum();
        let last = self.rings.last_mut();
        last.is_some_and(|ring| ring.accepted.free() > 0) && waiting as u32 <= self.backlog
    }

    /// Puts a connection in, for which there is room.
    pub fn push(&mut self, accepted: Accepted) {
        let Some(ring) = self.rings.last_mut() else {
            return;
        };
        let place = ring.accepted.position() as usize % ring.recent.len();
        ring.recent[place] = accepted.socket;
        let pushed = ring.accepted.push(accepted);
        debug_assert!(pushed.is_ok(), "the accept queue had room");
    }

    /// Connections that nobody took.
    pub fn waiting(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.rings.iter().flat_map(AcceptRing::waiting)
    }
}
