//! Headers of SYNs saved for the application (`TCP_SAVE_SYN`), until it fetches them
//! (`TCP_SAVED_SYN`).
//!
//! The headers of each SYN to a listener with the option are saved with the half-open entry, then
//! with the connection, and freed with it. A SYN answered with a cookie leaves no entry, so its
//! headers are not saved.

use std::collections::HashMap;

use packetio::RxFrame;
use wire::ethernet;

use crate::context::SavedSynQuery;
use crate::flows::sockets::Sockets;
use crate::limits::SAVED_SYNS_MAX;

/// Bytes of the longest headers: Ethernet with a tag, IP and TCP with all options.
const HEADERS_BYTES_MAX: usize = 18 + 60 + 60;

/// Value of `TCP_SAVE_SYN` that saves the link header too.
const FROM_LINK: u8 = 2;

/// The owner of saved headers, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Saved {
    HalfOpen(u32),
    Connection(u32),
}

/// All saved headers.
#[derive(Debug, Default)]
pub(crate) struct SavedSyns {
    syns: HashMap<Saved, Box<[u8]>>,
}

impl SavedSyns {
    /// Forgets the headers of a half-open entry or connection.
    pub fn forget(&mut self, of: Saved) {
        if !self.syns.is_empty() {
            self.syns.remove(&of);
        }
    }

    /// Passes the headers from a half-open entry to its connection.
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
    /// Saves the headers of a SYN as its listener asked. They end at `headers_end` in the frame.
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

    /// Answers a request for a connection's saved SYN, and forgets it if the room suffices.
    pub fn answer(&mut self, sockets: &Sockets, mut query: SavedSynQuery) {
        let of = sockets.resolve(query.socket).map(Saved::Connection);
        let syns = &mut self.syns;
        let len = of.and_then(|of| syns.get(&of)).map_or(0, |syn| syn.len());
        let answer = match of {
            _ if len > query.room => Err(len),
            Some(of) => Ok(syns.remove(&of).map(Vec::from).unwrap_or_default()),
            None => Ok(Vec::new()),
        };
        // The thread that asked may be gone.
        let _ = query.answer.push(answer);
    }
}
