//! The application's end of an accept queue: rings of connections that wait to be accepted, under a
//! lock that the stack takes to get one back.
//!
//! Another process may wait at the listener's address while this one does not accept. The stack
//! then takes the oldest connection back and hands it over. The application may be away at that
//! time, so the stack cannot ask it. The number of calls that wait for the listener tells the stack
//! whether this process should get a connection of another one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ring::published::Published32;
use ring::socket_block::SocketId;
use ring::spsc::Consumer;
use ring::trylock::{Guard, TryLock};

/// A connection that a listener accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection's socket.
    pub socket: SocketId,
    /// The peer.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// See the module's documentation. A `listen` with a longer backlog adds a longer ring; connections
/// in the earlier rings come first.
pub struct AcceptRings {
    rings: TryLock<Vec<Consumer<Accepted>>>,
    /// Calls of the application that wait for a connection of this listener.
    calls: Published32,
}

/// A call that waits for a connection of a listener, until it is dropped.
pub struct AcceptCall(Arc<AcceptRings>);

impl Drop for AcceptCall {
    fn drop(&mut self) {
        self.0.calls.add_shared(u32::MAX);
    }
}

impl AcceptRings {
    /// A queue with one ring.
    pub fn new(ring: Consumer<Accepted>) -> Arc<Self> {
        Arc::new(Self {
            rings: TryLock::new(vec![ring]),
            calls: Published32::new(0),
        })
    }

    /// Appends the ring of a longer backlog.
    pub fn add(&self, ring: Consumer<Accepted>) {
        self.lock().push(ring);
    }

    /// Slots of the ring that takes new connections.
    pub fn capacity(&self) -> usize {
        self.lock().last().map_or(0, Consumer::capacity)
    }

    /// Takes the oldest connection.
    pub fn pop(&self) -> Option<Accepted> {
        self.lock().iter_mut().find_map(Consumer::pop)
    }

    /// Connections that wait.
    pub fn len(&self) -> usize {
        self.lock().iter_mut().map(Consumer::len).sum()
    }

    /// True if no connection waits.
    pub fn is_empty(&self) -> bool {
        self.lock().iter_mut().all(Consumer::is_empty)
    }

    /// Notes that a call waits for a connection.
    #[must_use]
    pub fn begin_call(self: &Arc<Self>) -> AcceptCall {
        self.calls.add_shared(1);
        AcceptCall(Arc::clone(self))
    }

    /// True if a call waits for a connection.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.load() != 0
    }

    /// Takes the oldest connection back into the stack. `None`: there is none, or the application
    /// is at the queue.
    pub(crate) fn take_back(&self) -> Option<Accepted> {
        self.rings.try_lock()?.iter_mut().find_map(Consumer::pop)
    }

    /// The rings, for the application. The stack holds the lock for no longer than one `pop`. A
    /// thread that only yielded might keep the core from the holder.
    #[inline]
    fn lock(&self) -> Guard<'_, Vec<Consumer<Accepted>>> {
        match self.rings.try_lock() {
            Some(rings) => rings,
            None => self.lock_later(),
        }
    }

    #[cold]
    fn lock_later(&self) -> Guard<'_, Vec<Consumer<Accepted>>> {
        loop {
            std::thread::sleep(LOCK_RETRY);
            if let Some(rings) = self.rings.try_lock() {
                return rings;
            }
        }
    }
}

/// Time between two attempts of the application to take the lock.
const LOCK_RETRY: Duration = Duration::from_micros(50);
