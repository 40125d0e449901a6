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

/// The use of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Free,
    /// The socket is in the application's stock, or not connected yet.
    Reserved,
    Connection,
    /// A listening socket, with its index among the listeners.
    Listener(u32),
    /// The connection is gone, the application still holds the socket.
    Ended,
}

/// The connection of a slot, or the remains of the last one, which a new one overwrites.
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

    /// The connection with the headers that its segments share.
    #[inline]
    pub fn with_headers(&mut self) -> Option<(&mut Connection, &mut StoredHeaders)> {
        self.is_live.then_some((&mut self.conn, &mut self.headers))
    }

    /// The headers that the connection's segments share are made anew.
    pub fn forget_headers(&mut self) {
        self.headers.forget();
    }

    /// The storage of the connection, which the caller is about to fill.
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

    /// The connection itself, live or not.
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
    /// The neighbour that frames to the peer go to; looked up again when it is gone.
    pub neighbour: Option<NeighbourId>,
    /// Network header fields that the application chose.
    pub header: HeaderFields,
    /// Time stamps, if the socket asked for some. [`watch`](Self::watch) follows a change.
    pub stamps: Option<Box<Stamps>>,
    /// One more than the place of the connection's story; 0: none is written.
    /// [`watch`](Self::watch) follows a change.
    pub story: u8,
    /// The socket has time stamps or a story: its effects are applied with both in mind.
    pub has_observers: bool,
    pub role: Role,
    /// The application closed the socket: no event is sent, and received bytes have no reader.
    pub app_gone: bool,
    /// Stands among the bound ones.
    pub bound: bool,
    /// The socket is in its neighbour's list of waiters.
    pub awaits_neighbour: bool,
    /// The listener that counts this connection among its pending Fast Opens.
    pub fast_opened_by: Option<ListenerId>,
    /// The lane of the port that the segments leave by.
    pub lane: Lane,
    /// Marks for `event_queue`, which looks at them when the turn ends.
    pub pending_events: u8,
    /// Position after which this socket last went into the event queue.
    pub event_position: u64,
    /// The use of the index that it went in for.
    pub event_generation: u32,
    /// The socket that has this slot.
    pub socket: u32,
}

/// The flow of a socket that has none.
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

    /// The connection, unless it has ended: the state of one that has (`TCP_INFO`) stays until the
    /// application closes.
    #[inline]
    pub fn live_mut(&mut self) -> Option<&mut Connection> {
        match self.role {
            Role::Connection => self.conn.as_mut(),
            _ => None,
        }
    }

    /// When the connection's peer was last heard of.
    #[inline]
    pub fn news_ns(&self) -> u64 {
        self.conn.as_ref().map_or(0, Connection::last_news_ns)
    }

    /// A free slot becomes that of `socket`, reserved.
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

    /// Follows a change of the time stamps or of the story.
    pub fn watch(&mut self) {
        self.has_observers = self.stamps.is_some() || self.story != 0;
    }

    /// Turns a reserved socket into a connection, which the caller makes in its slot.
    pub fn become_connection(&mut self, key: FlowKey, hash: u64) -> &mut Connection {
        (self.key, self.hash, self.role) = (key, hash, Role::Connection);
        self.neighbour = None;
        self.awaits_neighbour = false;
        self.fast_opened_by = None;
        self.lane = Lane::default();
        self.conn.take()
    }

    /// True if the connection has been quiet for `pack_after_ns`, or for a tenth of that if it
    /// never carried any payload.
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
