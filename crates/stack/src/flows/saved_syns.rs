//! Headers of SYNs that an application wants to see (`TCP_SAVE_SYN`), from the SYN to the question
//! (`TCP_SAVED_SYN`), which frees them.
//!
//! A listener that asks for it has the headers of each SYN saved with the half-open entry, then
//! with the connection. They are freed with either. A SYN that is answered with a cookie leaves no
//! entry, so its headers are not saved.

use std::collections::HashMap;

use packetio::RxFrame;
use wire::ethernet;

use crate::context::SavedSynQuery;
use crate::flows::sockets::Sockets;
use crate::limits::SAVED_SYNS_MAX;

/// Ethernet with a tag, IP and TCP with all their options.
const HEADERS_BYTES_MAX: usize = 18 + 60 + 60;

/// `TCP_SAVE_SYN` that saves the link's header too.
const FROM_LINK: u8 = 2;

/// The entry that a SYN belongs to, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Saved {
    HalfOpen(u32),
    Connection(u32),
}

/// The headers that are saved.
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

impl SavedSyns {
    /// Saves the headers of a SYN, which end at `headers_end` of its frame, as its listener asked.
    /// False: there is no room.
    pub fn save(&mut self, how: u8, frame: &RxFrame, headers_end: usize, of: Saved) -> bool {
        if self.syns.len() >= SAVED_SYNS_MAX {
            return false;
        }
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = frame.copy_to(0, &mut headers).min(headers_end);
        let Ok((_, network_at)) = ethernet::Header::parse(&headers[..len]) else {
            return true;
        };
        let from = if how == FROM_LINK { 0 } else { network_at };
        if let Some(saved) = headers.get(from..len) {
            self.syns.insert(of, saved.into());
        }
        true
    }

    /// Hands out a connection's SYN, and forgets it.
    pub fn answer(&mut self, sockets: &Sockets, mut query: SavedSynQuery) {
        let of = sockets.resolve(query.socket).map(Saved::Connection);
        let syns = &mut self.syns;
        let len = of.and_then(|of| syns.get(&of)).map_or(0, |syn| syn.len());
        let answer = match of {
            _ if len > query.room => Err(len),
            Some(of) => Ok(syns.remove(&of).map(Vec::from).unwrap_or_default()),
            None => Ok(Vec::new()),
        };
        // The asking thread may have gone.
        let _ = query.answer.push(answer);
    }
}
