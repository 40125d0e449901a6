//! Headers of SYNs that an application wants to see (`TCP_SAVE_SYN`): kept from the SYN to the question (`TCP_SAVED_SYN`), which frees them.
//!
//! [`Core`] owns one [`SavedSyns`]. A listener that asks for it has the headers of each SYN kept with the half-open entry, then with the connection; they go
//! with whichever of the two ends. Those that cookies answer leave nothing, so neither do their headers. Without such a listener nothing is held.

use std::collections::HashMap;

use packetio::RxFrame;
use wire::ethernet;

use crate::arrivals::demux::Arrival;
use crate::context::SavedSynQuery;
use crate::core::Core;
use crate::flows::half_opens::ListenerId;
use crate::limits::SAVED_SYNS_MAX;

/// Ethernet with a tag, IP and TCP with all their options.
const HEADERS_BYTES_MAX: usize = 18 + 60 + 60;

/// `TCP_SAVE_SYN` that keeps the link's header too.
const FROM_LINK: u8 = 2;

/// Whose SYN it was, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Saved {
    HalfOpen(u32),
    Connection(u32),
}

/// The headers that are kept.
#[derive(Debug, Default)]
pub(crate) struct SavedSyns {
    syns: HashMap<Saved, Box<[u8]>>,
}

impl SavedSyns {
    /// The half-open entry, or the connection, is no more.
    pub fn forget(&mut self, of: Saved) {
        if !self.syns.is_empty() {
            self.syns.remove(&of);
        }
    }

    /// The half-open entry became a connection.
    pub fn accept(&mut self, half_open: u32, socket: u32) {
        if self.syns.is_empty() {
            return;
        }
        if let Some(syn) = self.syns.remove(&Saved::HalfOpen(half_open)) {
            self.syns.insert(Saved::Connection(socket), syn);
        }
    }
}

impl Core {
    /// Keeps the headers of a SYN if its listener wants them.
    pub(crate) fn save_syn(
        &mut self,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        of: Saved,
    ) {
        let how = match self.listeners.at(listener) {
            Some(listening) if listening.save_syn != 0 => listening.save_syn,
            _ => return,
        };
        if self.saved_syns.syns.len() >= SAVED_SYNS_MAX {
            self.counters.saved_syns_lost += 1;
            return;
        }
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = frame
            .copy_to(0, &mut headers)
            .min(arrival.payload_at as usize);
        let Ok((_, network_at)) = ethernet::Header::parse(&headers[..len]) else {
            return;
        };
        let from = if how == FROM_LINK { 0 } else { network_at };
        if let Some(kept) = headers.get(from..len) {
            self.saved_syns.syns.insert(of, kept.into());
        }
    }

    pub(crate) fn answer_saved_syn(&mut self, mut query: SavedSynQuery) {
        let of = self.sockets.resolve(query.socket).map(Saved::Connection);
        let syns = &mut self.saved_syns.syns;
        let len = of.and_then(|of| syns.get(&of)).map_or(0, |syn| syn.len());
        let answer = match of {
            _ if len > query.room => Err(len),
            Some(of) => Ok(syns.remove(&of).map(Vec::from).unwrap_or_default()),
            None => Ok(Vec::new()),
        };
        // Who asked may have gone.
        let _ = query.answer.push(answer);
    }
}
