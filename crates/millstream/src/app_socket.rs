//! The application's own part of a socket, which the stack never sees: its ends of the byte rings
//! and who polls it.

use std::rc::Rc;
use std::sync::Arc;

use ring::byte_ring::{RxReader, TxWriter};
use ring::socket_block::{SocketBlock, SocketId, SocketState};
use stack::context::AcceptRings;

use crate::settings::Settings;
use crate::urgent::{Urgent, UrgentMark};

pub(crate) const NO_REGISTRATION: u32 = u32::MAX;

/// The use of an index of the socket table, as the application knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unused,
    /// The socket is neither connected nor listening.
    Idle,
    /// A Fast Open socket whose SYN waits for the first write, to carry its bytes (RFC 7413).
    Deferred,
    Stream,
    Listener,
}

pub(crate) struct AppSocket {
    pub id: SocketId,
    pub kind: Kind,
    pub rx: RxReader,
    pub tx: TxWriter,
    /// The connection's error was reported, which happens once (`SO_ERROR`).
    pub error_taken: bool,
    /// `shutdown(Write)` was called: writes fail, also before the stack sends the FIN.
    pub write_shut: bool,
    /// `shutdown(Read)` was called: reads find the end.
    pub read_shut: bool,
    /// The options that were set; `None`: none was.
    pub settings: Option<Rc<Settings>>,
    /// The accept queue; `Some` for listeners only.
    pub queue: Option<Arc<AcceptRings>>,
    /// First of the list of registrations with polls.
    pub registrations: u32,
    /// The urgent mark and how it is read (RFC 6093).
    pub urgent: Urgent,
}

impl AppSocket {
    pub fn unused() -> Self {
        Self {
            id: SocketId::default(),
            kind: Kind::Unused,
            rx: RxReader::new(),
            tx: TxWriter::new(),
            error_taken: false,
            write_shut: false,
            read_shut: false,
            settings: None,
            queue: None,
            registrations: NO_REGISTRATION,
            urgent: Urgent::default(),
        }
    }
}

// `urgent` takes the last 16 bytes.
const _: () = assert!(size_of::<AppSocket>() == 80);

/// The application's sockets by index. The table grows with use, never beyond the stack's limit.
#[derive(Default)]
pub(crate) struct AppSockets {
    sockets: Vec<AppSocket>,
    /// Number of sockets in use.
    open: usize,
    /// Makes new sockets take urgent bytes out of the stream ([`Urgent::is_apart`]).
    pub urgent_apart: bool,
}

impl AppSockets {
    /// Begins a use of `id`.
    pub fn open(&mut self, id: SocketId, kind: Kind) {
        let index = id.index as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, AppSocket::unused);
        }
        self.open += usize::from(matches!(self.sockets[index].kind, Kind::Unused));
        self.sockets[index] = AppSocket {
            id,
            kind,
            urgent: Urgent::new(self.urgent_apart),
            ..AppSocket::unused()
        };
    }

    /// Sockets in use.
    pub fn open_count(&self) -> usize {
        self.open
    }

    /// The socket that `id` names. The application opened it, so it exists.
    #[inline]
    pub fn at(&mut self, id: SocketId) -> &mut AppSocket {
        &mut self.sockets[id.index as usize]
    }

    /// The socket of an event, unless it was closed meanwhile.
    #[inline]
    pub fn current(&mut self, id: SocketId) -> Option<&mut AppSocket> {
        self.sockets
            .get_mut(id.index as usize)
            .filter(|socket| socket.id == id && !matches!(socket.kind, Kind::Unused))
    }

    /// Prefetches the entry of `id`.
    #[inline]
    pub fn prefetch(&self, id: SocketId) {
        if let Some(socket) = self.sockets.get(id.index as usize) {
            ring::prefetch::read(socket);
        }
    }

    /// Ends the present use of `id`.
    pub fn close(&mut self, id: SocketId) {
        let socket = &mut self.sockets[id.index as usize];
        self.open -= usize::from(!matches!(socket.kind, Kind::Unused));
        *socket = AppSocket::unused();
    }
}

impl AppSocket {
    /// The urgent mark, if it has not been passed.
    pub fn urgent_mark(&self, block: &SocketBlock) -> Option<UrgentMark> {
        if !block.state().contains(SocketState::URGENT) {
            return None;
        }
        let end = block.urgent_end();
        let ahead = end.wrapping_sub(1).wrapping_sub(self.rx.head());
        if ahead > i32::MAX as u32 {
            return None;
        }
        let in_line = self
            .settings
            .as_ref()
            .is_some_and(|settings| settings.urgent_inline);
        Some(UrgentMark {
            ahead: ahead as usize,
            has_arrived: self.rx.readable(block) > ahead,
            is_taken: self.urgent.end == Some(end) && self.urgent.is_taken,
            is_apart: self.urgent.is_apart && !in_line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_socket_counts_once_however_often_it_is_opened_or_closed() {
        let mut sockets = AppSockets::default();
        let [one, other] = [0, 3].map(|index| SocketId {
            index,
            generation: 1,
        });
        sockets.open(one, Kind::Idle);
        sockets.open(one, Kind::Stream);
        sockets.open(other, Kind::Listener);
        assert_eq!(sockets.open_count(), 2);
        for left in [1, 1] {
            sockets.close(one);
            assert_eq!(sockets.open_count(), left);
        }
        sockets.close(other);
        assert_eq!(sockets.open_count(), 0);
    }
}
