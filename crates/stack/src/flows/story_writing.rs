//! The points at which the stack writes a connection's story: its begin, after calls into it, at
//! timers.

use ring::socket_block::SocketId;
use tcp::glance::DueTimer;

use crate::counters::Counters;
use crate::flows::Flows;
use crate::flows::stories::Moment;

impl Flows {
    /// Begins a story of a new connection if the sample includes it.
    #[inline]
    pub(crate) fn sample_story(&mut self, socket: u32, now_ns: u64, counters: &mut Counters) {
        if self.stories.samples_next() {
            self.begin_story(socket, false, now_ns, counters);
        }
    }

    /// Begins a story of the connection of `socket`, and returns its slot. `None`: no slot is
    /// free, or the connection is gone.
    #[cold]
    pub(crate) fn begin_story(
        &mut self,
        socket: u32,
        is_asked_for: bool,
        now_ns: u64,
        counters: &mut Counters,
    ) -> Option<usize> {
        let generation = self.sockets.block(socket).generation();
        let glance = self.sockets.slot(socket).live_mut()?.glance();
        let Some(index) = self.stories.slot(now_ns, is_asked_for) else {
            counters.stories_refused += 1;
            return None;
        };
        self.take_story_away(index);
        let slot = self.sockets.slot(socket);
        let key = slot.key;
        slot.story = index as u8 + 1;
        slot.watch();
        let id = SocketId {
            index: socket,
            generation,
        };
        self.stories.begin(index, id, key, glance, now_ns);
        Some(index)
    }

    /// Stops the story in slot `index`; its connection, if still live, goes on without one.
    fn take_story_away(&mut self, index: usize) {
        let Some(held) = self.stories.at(index).map(|story| story.socket) else {
            return;
        };
        if let Some(socket) = self.sockets.resolve(held)
            && let Some(slot) = self.sockets.warm_slot(socket)
            && usize::from(slot.story) == index + 1
        {
            slot.story = 0;
            slot.watch();
        }
    }

    /// Adds changes to the story of `socket`. `leaves`: the connection is about to end.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_story(&mut self, socket: u32, moment: Moment, leaves: bool, now_ns: u64) {
        let slot = self.sockets.slot(socket);
        let Some(index) = usize::from(slot.story).checked_sub(1) else {
            return;
        };
        if let Some(conn) = slot.conn.as_ref() {
            self.stories.look(index, &conn.glance(), moment, now_ns);
        }
        if leaves {
            slot.story = 0;
            slot.watch();
            self.stories.end(index, now_ns);
        }
    }

    /// Adds to the story of `socket` that a timer fired.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_timer(&mut self, socket: u32, timer: DueTimer, backoff: u8, now_ns: u64) {
        let index = usize::from(self.sockets.slot(socket).story).checked_sub(1);
        if let Some(index) = index {
            self.stories.timer(index, timer, backoff, now_ns);
        }
    }
}
