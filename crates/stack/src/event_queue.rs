//! The last stage of a turn: it tells the application which sockets to look at.
//!
//! During the turn sockets are only marked. At its end one full fence makes all changes visible.
//! Then each marked socket goes into the event queue, unless it is there already. The application
//! takes a socket out, fences, and looks. The side whose fence comes second sees the other side's
//! changes, so no event is lost.

use ring::published::fence_full;
use ring::socket_block::SocketId;
use ring::spsc::Producer;

use crate::flows::slot::Role;
use crate::flows::sockets::Sockets;

/// Mark for news that the application always gets: data to read, an end, a failure, a new
/// connection.
pub(crate) const EVENT_NEWS: u8 = 1;
/// Mark for room in the send buffer, which the application gets only if it waits for room.
pub(crate) const EVENT_ROOM: u8 = 2;

pub(crate) struct EventQueue {
    queue: Producer<SocketId>,
    marked: Vec<u32>,
    /// Indices of sockets with room in the send buffer but no free chunk. They are visited again
    /// when a chunk is free. An index appears once, regardless of its generation.
    starved: Vec<u32>,
    /// Membership in `starved`, one bit per index.
    is_starved: Vec<u64>,
    /// Number of events ever pushed; unlike queue positions it does not wrap.
    pushed: u64,
}

impl EventQueue {
    pub fn new(queue: Producer<SocketId>, sockets_max: usize) -> Self {
        Self {
            queue,
            marked: Vec::with_capacity(sockets_max),
            starved: Vec::with_capacity(sockets_max),
            is_starved: vec![0; sockets_max.div_ceil(64)],
            pushed: 0,
        }
    }

    /// Marks a socket until the turn ends. `pending_events` holds the marks of its slot.
    #[inline]
    pub fn mark(&mut self, socket: u32, pending_events: &mut u8, mark: u8) {
        if *pending_events & (EVENT_NEWS | EVENT_ROOM) == 0 {
            self.marked.push(socket);
        }
        *pending_events |= mark;
    }

    /// Puts marked sockets into the event queue; returns their number. `has_chunks`: a write would
    /// find a free chunk.
    #[inline(always)]
    pub fn publish(&mut self, sockets: &mut Sockets, has_chunks: bool) -> usize {
        if has_chunks {
            self.feed_starved(sockets);
        }
        if self.marked.is_empty() {
            return 0;
        }
        fence_full();
        let before = self.pushed;
        let mut kept = 0;
        for at in 0..self.marked.len() {
            let socket = self.marked[at];
            if !self.publish_one(socket, sockets, has_chunks) {
                self.marked[kept] = socket;
                kept += 1;
            }
        }
        self.marked.truncate(kept);
        (self.pushed - before) as usize
    }

    /// True if events wait for room in the queue, so that another turn is needed soon.
    pub fn is_behind(&self) -> bool {
        !self.marked.is_empty()
    }

    fn feed_starved(&mut self, sockets: &mut Sockets) {
        while let Some(socket) = self.starved.pop() {
            self.is_starved[socket as usize / 64] &= !(1 << (socket % 64));
            if let Some((slot, _)) = sockets.remembered(socket) {
                self.mark(socket, &mut slot.pending_events, EVENT_ROOM);
            }
        }
    }

    /// Puts one socket into the queue. False: the queue is full, and the socket stays marked.
    #[inline(always)]
    fn publish_one(&mut self, socket: u32, sockets: &mut Sockets, has_chunks: bool) -> bool {
        let Some((slot, block)) = sockets.remembered(socket) else {
            return true;
        };
        let pending_events = std::mem::take(&mut slot.pending_events);
        if slot.app_gone || slot.role == Role::Free {
            return true;
        }
        let mut told = pending_events & EVENT_NEWS != 0;
        if pending_events & EVENT_ROOM != 0
            && block.wants_writable()
            && block.is_writable_at(slot.tx.buffered(block))
        {
            if !has_chunks {
                let (word, bit) = (socket as usize / 64, 1 << (socket % 64));
                if self.is_starved[word] & bit == 0 {
                    self.is_starved[word] |= bit;
                    self.starved.push(socket);
                }
            } else if block.take_want_writable() {
                block.add_out_edge();
                told = true;
            }
        }
        if !told {
            return true;
        }
        let id = SocketId {
            index: socket,
            generation: block.generation(),
        };
        // An event for an earlier use of the index does not count for the present socket.
        if slot.event_generation == id.generation && self.stands_in_queue(slot.event_position) {
            return true;
        }
        // The queue has two slots per socket. A socket in use takes at most one. The others are for
        // sockets that the application closed before it read their events.
        if self.queue.push(id).is_err() {
            slot.pending_events |= EVENT_NEWS;
            return false;
        }
        self.pushed += 1;
        slot.event_position = self.pushed;
        slot.event_generation = id.generation;
        true
    }

    /// True if the application has not yet consumed the event. `position`: the value of `pushed`
    /// after its push.
    fn stands_in_queue(&self, position: u64) -> bool {
        let behind = self.pushed - position;
        position != 0
            && behind < self.queue.capacity() as u64
            && !self.queue.is_consumed((position - 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_twice_stands_in_the_list_once() {
        let (queue, _application) = ring::spsc::queue(4);
        let mut events = EventQueue::new(queue, 4);
        assert!(!events.is_behind());
        let mut pending_events = 0;
        events.mark(3, &mut pending_events, EVENT_ROOM);
        events.mark(3, &mut pending_events, EVENT_NEWS);
        assert_eq!(events.marked, [3]);
        assert_eq!(pending_events, EVENT_ROOM | EVENT_NEWS);
        assert!(events.is_behind());
    }
}
