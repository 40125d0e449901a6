//! The earliest-departure queue: connections that hold back data for their pace, or SACKs for more
//! of them, by the nanosecond at which it may leave.
//!
//! A binary heap of sockets that notes each one's position, so a departure can be moved and removed
//! in O(log n). A connection is in it once at most, only while it waits; one that is not paced
//! touches it only while segments are missing. The wheel of [`timers`](crate::schedule::timers)
//! holds the timers for which milliseconds are fine enough.

/// See the module's documentation.
pub struct DepartureTimes {
    /// Heap order: a parent departs no later than its children.
    heap: Vec<u32>,
    waits: Vec<Wait>,
    sockets_max: usize,
}

#[derive(Clone, Copy, Default)]
struct Wait {
    at_ns: u64,
    /// One more than the position in the heap; 0 = not in it.
    place: u32,
}

impl DepartureTimes {
    /// An empty queue for sockets `0..sockets_max`.
    #[must_use]
    pub fn new(sockets_max: usize) -> Self {
        Self {
            heap: Vec::with_capacity(sockets_max),
            waits: vec![Wait::default(); sockets_max],
            sockets_max,
        }
    }

    /// `socket` departs at `at_ns`, whatever was said before.
    pub fn set(&mut self, socket: u32, at_ns: u64) {
        debug_assert!((socket as usize) < self.sockets_max);
        let Some(wait) = self.waits.get_mut(socket as usize) else {
            return;
        };
        wait.at_ns = at_ns;
        let place = match wait.place {
            0 => {
                self.heap.push(socket);
                wait.place = self.heap.len() as u32;
                self.heap.len() - 1
            }
            place => place as usize - 1,
        };
        let place = self.rise(place);
        self.sink(place);
    }

    /// `socket` no longer waits.
    pub fn stop(&mut self, socket: u32) {
        let place = match self.waits.get(socket as usize) {
            Some(&Wait { place, .. }) if place > 0 => place as usize - 1,
            _ => return,
        };
        let last = self.heap.len() - 1;
        self.swap(place, last);
        self.heap.pop();
        self.waits[socket as usize].place = 0;
        if place < last {
            let place = self.rise(place);
            self.sink(place);
        }
    }

    /// A socket that may depart at `now_ns`, taken out.
    pub fn poll(&mut self, now_ns: u64) -> Option<u32> {
        let &first = self.heap.first()?;
        if self.at_ns(0) > now_ns {
            return None;
        }
        self.stop(first);
        Some(first)
    }

    /// The next departure.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        (!self.heap.is_empty()).then(|| self.at_ns(0))
    }

    fn at_ns(&self, place: usize) -> u64 {
        self.waits[self.heap[place] as usize].at_ns
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.waits[self.heap[a] as usize].place = a as u32 + 1;
        self.waits[self.heap[b] as usize].place = b as u32 + 1;
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.at_ns(parent) <= self.at_ns(place) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let earliest = children
                .into_iter()
                .filter(|&child| child < self.heap.len())
                .min_by_key(|&child| self.at_ns(child));
            match earliest {
                Some(child) if self.at_ns(child) < self.at_ns(place) => {
                    self.swap(place, child);
                    place = child;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
