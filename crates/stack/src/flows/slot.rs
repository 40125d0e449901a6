//! A slot of the socket table: the connection, the stack's ends of its byte rings, and its role.

use ring::byte_ring::{RxWriter, TxReader};
use tcp::Connection;
use wire::plain::StoredHeaders;
use wire::{Addr, FlowKey};

use crate::flows::half_opens::ListenerId;
use crate::flows::lane::Lane;
use crate::flows::stamps::Stamps;
use crate::header_fields::HeaderFields;
use crate::network::neighbours::NeighbourId;

/// The role of a socket index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Free,
    /// The index is in the application's stock, or its socket is not connected yet.
    Reserved,
    Connection,
    /// The socket listens; its index among the listeners.
    Listener(u32),
    /// The connection has ended, but the application still holds the socket.
    Ended,
}

/// The connection of a slot. After its end the remains stay until a new connection overwrites them.
pub(crate) struct ConnectionCell {
    conn: Connection,
    is_live: bool,
    /// Header fields that every segment of this connection shares. Stored here because alignment
    /// leaves 64 bytes free.
    headers: StoredHeaders,
}

const _: () = assert!(size_of::<ConnectionCell>() == size_of::<Connection>() + 64);

impl ConnectionCell {
    fn new() -> Self {
        Self {
            conn: Connection::unused(),
            is_live: false,
            headers: StoredHeaders::NONE,
        }
    }

    #[inline]
    pub fn as_ref(&self) -> Option<&Connection> {
        self.is_live.then_some(&self.conn)
    }

    #[inline]
    pub fn as_mut(&mut self) -> Option<&mut Connection> {
        self.is_live.then_some(&mut self.conn)
    }

    /// The connection with the header fields that its segments share.
    #[inline]
    pub fn with_headers(&mut self) -> Option<(&mut Connection, &mut StoredHeaders)> {
        self.is_live.then_some((&mut self.conn, &mut self.headers))
    }

    /// Discards the shared header fields, so that they are made anew.
    pub fn forget_headers(&mut self) {
        self.headers.forget();
    }

    /// The storage of the connection; the caller fills it.
    #[inline]
    pub fn take(&mut self) -> &mut Connection {
        self.is_live = true;
        self.headers.forget();
        &mut self.conn
    }

    /// Forgets the connection.
    #[inline]
    pub fn clear(&mut self) {
        self.is_live = false;
    }

    /// The connection itself, live or ended.
    pub fn into_inner(self) -> Connection {
        self.conn
    }
}

pub(crate) struct Slot {
    pub conn: ConnectionCell,
    pub key: FlowKey,
    pub hash: u64,
    pub rx: RxWriter,
    pub tx: TxReader,
    /// The neighbour for frames to the peer; `None`: it must be looked up.
    pub neighbour: Option<NeighbourId>,
    /// Network header fields that the application chose.
    pub header: HeaderFields,
    /// Time stamps, if the socket asked for them. Call [`watch`](Self::watch) after a change.
    pub stamps: Option<Box<Stamps>>,
    /// One more than the slot of the connection's story; 0: no story is written. Call
    /// [`watch`](Self::watch) after a change.
    pub story: u8,
    /// True if the socket has time stamps or a story, so that its effects take the general path.
    pub has_observers: bool,
    pub role: Role,
    /// True if the application closed the socket: it gets no events, and received bytes have no
    /// reader.
    pub app_gone: bool,
    /// True if the socket is in the list of bound sockets.
    pub bound: bool,
    /// True if the socket is in its neighbour's list of waiters.
    pub awaits_neighbour: bool,
    /// The listener that counts this connection as a pending Fast Open.
    pub fast_opened_by: Option<ListenerId>,
    /// The lane of the port by which the connection's segments leave.
    pub lane: Lane,
    /// Event marks of this turn, for `event_queue`.
    pub pending_events: u8,
    /// Position in the event queue after this socket's last event; 0: none.
    pub event_position: u64,
    /// Generation of the index in that event.
    pub event_generation: u32,
    /// Index of the socket that uses this slot.
    pub socket: u32,
}

/// The key of a socket without a flow.
pub(crate) const NO_KEY: FlowKey = FlowKey {
    local: Addr::UNSPECIFIED_V4,
    remote: Addr::UNSPECIFIED_V4,
    local_port: 0,
    remote_port: 0,
};

impl Slot {
    pub fn new() -> Self {
        Self {
            conn: ConnectionCell::new(),
            key: NO_KEY,
            hash: 0,
            rx: RxWriter::new(),
            tx: TxReader::new(),
            neighbour: None,
            header: HeaderFields::default(),
            stamps: None,
            story: 0,
            has_observers: false,
            role: Role::Free,
            app_gone: false,
            bound: false,
            awaits_neighbour: false,
            fast_opened_by: None,
            lane: Lane::default(),
            pending_events: 0,
            event_position: 0,
            event_generation: 0,
            socket: 0,
        }
    }

    /// The connection while it is live. The state of an ended one stays for `TCP_INFO` until the
    /// application closes, but is not returned here.
    #[inline]
    pub fn live_mut(&mut self) -> Option<&mut Connection> {
        match self.role {
            Role::Connection => self.conn.as_mut(),
            _ => None,
        }
    }

    /// Time of the last news from the connection's peer, ns.
    #[inline]
    pub fn news_ns(&self) -> u64 {
        self.conn.as_ref().map_or(0, Connection::last_news_ns)
    }

    /// Gives a free slot to `socket`, in the role `Reserved`.
    pub fn begin(&mut self, socket: u32) {
        self.conn.clear();
        (self.key, self.hash) = (NO_KEY, 0);
        (self.rx, self.tx) = (RxWriter::new(), TxReader::new());
        self.header = HeaderFields::default();
        (self.neighbour, self.awaits_neighbour) = (None, false);
        (self.stamps, self.fast_opened_by) = (None, None);
        (self.story, self.has_observers) = (0, false);
        (self.role, self.app_gone, self.bound) = (Role::Reserved, false, false);
        (
            self.pending_events,
            self.event_position,
            self.event_generation,
        ) = (0, 0, 0);
        self.socket = socket;
    }

    /// Updates `has_observers` after time stamps or story have changed.
    pub fn watch(&mut self) {
        self.has_observers = self.stamps.is_some() || self.story != 0;
    }

    /// Turns a reserved socket into a connection, and returns its storage for the caller to fill.
    pub fn become_connection(&mut self, key: FlowKey, hash: u64) -> &mut Connection {
        (self.key, self.hash, self.role) = (key, hash, Role::Connection);
        self.neighbour = None;
        self.awaits_neighbour = false;
        self.fast_opened_by = None;
        self.lane = Lane::default();
        self.conn.take()
    }

    /// True if the connection has been quiet for `pack_after_ns`, or for a tenth of that if it
    /// never carried payload.
    pub fn is_quiet_for(&self, now_ns: u64, pack_after_ns: u64) -> bool {
        let Some(conn) = self.conn.as_ref() else {
            return false;
        };
        let wait_ns = match conn.has_carried_payload() {
            false => pack_after_ns / 10,
            true => pack_after_ns,
        };
        self.role == Role::Connection
            && conn.is_quiet()
            && now_ns.saturating_sub(conn.last_active_ns()) >= wait_ns
    }
}

#[cfg(test)]
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();
