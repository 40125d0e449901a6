//! Time stamps of sockets (`SO_TIMESTAMPING`): the calls of the socket table into [`Stamps`].

use tcp::Effects;

use crate::context::{StampAnswer, StampKinds, StampQuery};
use crate::flows::sockets::Sockets;
use crate::flows::stamps::{StampedAt, Stamps};

impl Sockets {
    /// Requests stamps for the byte before `end`. Returns the number of stamps lost.
    #[cold]
    pub fn await_stamps(&mut self, socket: u32, end: u32, kinds: StampKinds) -> u64 {
        let now_ns = self.now_ns;
        self.stamping(socket, now_ns, |stamps, at| {
            stamps.get_or_insert_default().await_byte(at, end, kinds)
        })
    }

    /// Stamps bytes that were acknowledged or have arrived. Returns the number of stamps lost.
    #[cold]
    pub fn stamp_progress(&mut self, socket: u32, effects: Effects) -> u64 {
        let now_ns = self.now_ns;
        let mut lost = 0;
        if effects.contains(Effects::WRITABLE) {
            lost = self.stamping(socket, now_ns, |stamps, at| {
                stamps.as_mut().map_or(0, |stamps| stamps.on_ack(at))
            });
        }
        let slot = self.slot(socket);
        let end = slot.rx.tail();
        if let Some(stamps) = slot.stamps.as_mut()
            && stamps.of_arrivals
        {
            stamps.on_arrival(end, now_ns);
        }
        lost
    }

    fn stamping(
        &mut self,
        socket: u32,
        now_ns: u64,
        act: impl FnOnce(&mut Option<Box<Stamps>>, &StampedAt<'_>) -> u64,
    ) -> u64 {
        let (slot, _, block) = self.parts(socket);
        let Some(conn) = slot.conn.as_ref() else {
            return 0;
        };
        let at = StampedAt::new(conn, &slot.tx, block, now_ns);
        let lost = act(&mut slot.stamps, &at);
        slot.watch();
        lost
    }

    /// Answers a request with the stamps that are ready.
    #[cold]
    pub fn answer_stamps(&mut self, mut query: StampQuery) {
        let mut answer = StampAnswer::default();
        if let Some(socket) = self.resolve(query.socket)
            && let Some(stamps) = self.slot(socket).stamps.as_mut()
        {
            answer.sent = std::mem::take(&mut stamps.ready);
            answer.arrived_ns = stamps.arrival_of(query.read);
        }
        // The thread that asked may be gone.
        let _ = query.answer.push(answer);
    }
}
