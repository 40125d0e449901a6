//! The queue of departure times: connections that hold back data for their pace, or a SACK to wait
//! for more, by the nanosecond at which it may leave.
//!
//! A binary heap of sockets that knows each one's position, so that a departure moves or leaves in
//! O(log n). A connection is in it at most once, and only while it waits. The wheel of
//! [`timers`](crate::schedule::timers) holds timers for which milliseconds suffice.

/// See the module's documentation.
pub struct DepartureTimes {
    /// Sockets in heap order: a parent departs no later than its children.
    heap: Vec<u32>,
    waits: Vec<Wait>,
    sockets_max: usize,
}

#[derive(Clone, Copy, Default)]
struct Wait {
    at_ns: u64,
    /// One more than the socket's position in the heap; 0: it does not wait.
    position: u32,
}

impl DepartureTimes {
    /// Makes an empty queue for sockets `0..sockets_max`.
    #[must_use]
    pub fn new(sockets_max: usize) -> Self {
        Self {
            heap: Vec::with_capacity(sockets_max),
            waits: vec![Wait::default(); sockets_max],
            sockets_max,
        }
    }

    /// Sets the departure of `socket` to `at_ns`, in place of any earlier value.
    pub fn set(&mut self, socket: u32, at_ns: u64) {
        debug_assert!((socket as usize) < self.sockets_max);
        let Some(wait) = self.waits.get_mut(socket as usize) else {
            return;
        };
        wait.at_ns = at_ns;
        let position = match wait.position {
            0 => {
                self.heap.push(socket);
                wait.position = self.heap.len() as u32;
                self.heap.len() - 1
            }
            position => position as usize - 1,
        };
        let position = self.rise(position);
        self.sink(position);
    }

    /// Removes the departure of `socket`.
    pub fn stop(&mut self, socket: u32) {
        let position = match self.waits.get(socket as usize) {
            Some(&Wait { position, .. }) if position > 0 => position as usize - 1,
            _ => return,
        };
        let last = self.heap.len() - 1;
        self.swap(position, last);
        self.heap.pop();
        self.waits[socket as usize].position = 0;
        if position < last {
            let position = self.rise(position);
            self.sink(position);
        }
    }

    /// Removes and returns a socket that may depart at `now_ns`.
    pub fn poll(&mut self, now_ns: u64) -> Option<u32> {
        let &first = self.heap.first()?;
        if self.at_ns(0) > now_ns {
            return None;
        }
        self.stop(first);
        Some(first)
    }

    /// Time of the next departure, ns.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        (!self.heap.is_empty()).then(|| self.at_ns(0))
    }

    fn at_ns(&self, position: usize) -> u64 {
        self.waits[self.heap[position] as usize].at_ns
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.waits[self.heap[a] as usize].position = a as u32 + 1;
        self.waits[self.heap[b] as usize].position = b as u32 + 1;
    }

    fn rise(&mut self, mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.at_ns(parent) <= self.at_ns(position) {
                break;
            }
            self.swap(position, parent);
            position = parent;
        }
        position
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let earliest = children
                .into_iter()
                .filter(|&child| child < self.heap.len())
                .min_by_key(|&child| self.at_ns(child));
            match earliest {
                Some(child) if self.at_ns(child) < self.at_ns(position) => {
                    self.swap(position, child);
                    position = child;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
