//! Packing of quiet connections: a walk over all fields in their order.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::pack::{Packer, Packing, Unpacker, Usual};
use crate::segment::TransmitClass;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    /// True if nothing is in flight, owed or stored, and no caller waits. The connection can then
    /// be packed.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.state() == State::Established
            && self.due == TransmitClass::None
            && self.snd.una() == self.snd.nxt()
            && self.snd.buffered() == 0
            && self.rx.unread() == 0
            && !self
                .conn_flags
                .any(ConnFlags::ACK_PENDING | ConnFlags::OUT_OF_ORDER)
            && self.timers.departure_ns() == NEVER_NS
    }

    /// True if payload ever arrived or left.
    #[inline]
    #[must_use]
    pub fn has_carried_payload(&self) -> bool {
        self.rx.data_segs_in() > 0 || self.tx.data_segs_out() > 0
    }

    /// Time at which the peer last sent new text in order, which proves that it had our ACKs until
    /// then; 0: never.
    #[inline]
    #[must_use]
    pub fn last_news_ns(&self) -> u64 {
        self.rx.last_data_ns()
    }

    /// Time at which anything last arrived, or payload last left.
    #[inline]
    #[must_use]
    pub fn last_active_ns(&self) -> u64 {
        self.rx.last_ack_ns().max(self.tx.last_sent_ns())
    }

    /// Walks over all fields of a quiet connection. A reader sets every field, so it may begin with
    /// any connection.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Connection {
            snd,
            rcv,
            conn_flags,
            state,
            error,
            due,
            timers,
            planned,
            tx,
            rx,
            flight,
            ecn,
            path,
            opening,
        } = self;
        rx.pack_clock(p);
        snd.pack_una(p);
        tx.pack_iss(p, snd.una() - 1);
        rcv.pack_nxt(p);
        let usual = Usual {
            now_ns: rx.last_ack_ns(),
            una: snd.una(),
            first: tx.iss() + 1,
            rcv_nxt: rcv.nxt(),
        };
        conn_flags.pack(p);
        state.pack(p);
        if p.must(error.is_none()) {
            *error = None;
        }
        p.one_of(due, &[TransmitClass::None]);
        if p.is_reading() {
            planned.forget();
        }
        rx.pack(p, rcv, &usual);
        snd.pack(p, rcv);
        timers.pack(p, &usual);
        tx.pack(p, snd, &usual);
        flight.pack(p, &usual);
        ecn.pack(p);
        path.pack(p);
        opening.pack(p);
    }

    /// Panics unless the connection, if it is quiet, comes out of packing unchanged; for tests.
    /// Returns the number of bytes.
    #[doc(hidden)]
    pub fn check_packing(&self) -> Option<usize> {
        use alloc::format;
        if !self.is_quiet() {
            return None;
        }
        let mut bytes = [0; 1024];
        let mut packer = Packer::new(&mut bytes);
        let mut packed = self.clone();
        packed.pack(&mut packer);
        let len = packer.finish();
        assert_eq!(format!("{packed:?}"), format!("{self:?}"));
        let len = len?;
        // A reader sets every field, whatever it held before.
        let mut found = self.clone();
        found.pack(&mut Unpacker::new(&[0xa5; 1024]));
        found.pack(&mut Unpacker::new(&bytes[..len]));
        assert_eq!(format!("{found:?}"), format!("{self:?}"));
        Some(len)
    }
}

#[cfg(test)]
mod tests;
