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

    /// Begins a story of the connection of `socket`, and returns its place. `None`: no place is
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
        let Some(place) = self.stories.place(now_ns, is_asked_for) else {
            counters.stories_refused += 1;
            return None;
        };
        self.take_story_away(place);
        let slot = self.sockets.slot(socket);
        let key = slot.key;
        slot.story = place as u8 + 1;
        slot.watch();
        let id = SocketId {
            index: socket,
            generation,
        };
        self.stories.begin(place, id, key, glance, now_ns);
        Some(place)
    }

    /// Stops the story at `place`; its connection, if still live, goes on without one.
    fn take_story_away(&mut self, place: usize) {
        let Some(held) = self.stories.at(place).map(|story| story.socket) else {
            return;
        };
        if let Some(socket) = self.sockets.resolve(held)
            && let Some(slot) = self.sockets.warm_slot(socket)
            && usize::from(slot.story) == place + 1
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
        let Some(place) = usize::from(slot.story).checked_sub(1) else {
            return;
        };
        if let Some(conn) = slot.conn.as_ref() {
            self.stories.look(place, &conn.glance(), moment, now_ns);
        }
        if leaves {
            slot.story = 0;
            slot.watch();
            self.stories.end(place, now_ns);
        }
    }

    /// Adds to the story of `socket` that a timer fired.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_timer(&mut self, socket: u32, timer: DueTimer, backoff: u8, now_ns: u64) {
        let place = usize::from(self.sockets.slot(socket).story).checked_sub(1);
        if let Some(place) = place {
            self.stories.timer(place, timer, backoff, now_ns);
        }
    }
}
