//! The 128 bytes that a socket's application end and stack end share.
//!
//! ```text
//! line 0, the stack writes        line 1, the application writes
//! rx_restart  chunk, counter      tx_restart  chunk, counter
//! rx_tail     bytes received      rx_head     bytes read
//! tx_una      bytes acknowledged  tx_tail     bytes written
//! tx_limit    send buffer         tx_open     chunk to append to
//! tx_wake     and unsent, tx_sent, urgent_end
//! state, edges, generation        requests, want_writable, owner
//! ports, both ends'               addresses, both ends': the stack writes them before CONNECTED is published
//! ```
//!
//! Cursors count bytes since the socket was opened, modulo 2^32. A word has one writer, with these
//! exceptions: both sides swap `tx_open` and `requests`; the stack clears `want_writable`;
//! application threads compete for `owner`; and either side may write the names, before the
//! connection is published. The streams themselves are in [`byte_ring`](crate::byte_ring); blocks
//! lie in the [`memory`](crate::memory) file.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Name of a socket: the index of its block, and the use of that block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SocketId {
    /// The block's index in the memory file.
    pub index: u32,
    /// Number of the block's use; an id of an earlier use does not match.
    pub generation: u32,
}

/// State of a socket, written by the stack: flags in the low half, an errno in the high half.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketState(pub u32);

impl SocketState {
    /// The handshake is complete; the names are valid.
    pub const CONNECTED: Self = Self(1);
    /// The peer's FIN is in order: after the readable bytes comes the end.
    pub const EOF: Self = Self(1 << 1);
    /// Our FIN is queued or sent: no more writes.
    pub const TX_SHUT: Self = Self(1 << 2);
    /// The connection has failed; [`errno`](Self::errno) says how.
    pub const FAILED: Self = Self(1 << 3);
    /// A listener.
    pub const LISTENING: Self = Self(1 << 4);
    /// The stack has let go of the connection; the block is about to be used again.
    pub const CLOSED: Self = Self(1 << 5);
    /// The peer has announced urgent data, and the stack has not yet seen the application read past
    /// it. [`SocketBlock::urgent_end`] says where it ends.
    pub const URGENT: Self = Self(1 << 6);
    /// At least one ICMP error about the connection has come, so the application asks the stack for
    /// it.
    pub const SOFT_ERROR: Self = Self(1 << 7);
    /// An ICMP error ended the attempt to connect. Linux keeps such an error in the socket's error
    /// queue as well.
    pub const REFUSED_BY_ICMP: Self = Self(1 << 8);
    /// An error waits to be returned by the next call, although the connection goes on.
    pub const ERROR_WAITS: Self = Self(1 << 9);
    /// The SYNs of both ends crossed (RFC 9293 section 3.5). `shutdown` closes such a half-open
    /// connection with a FIN.
    pub const SYNS_CROSSED: Self = Self(1 << 10);

    /// True if all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// True if any of `flags` is set.
    #[inline]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// The union of both sets of flags.
    #[inline]
    pub const fn union(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// The error number of a failed socket, 0 if none.
    #[inline]
    pub const fn errno(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl core::ops::BitOr for SocketState {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// Requests of the application to the stack. The socket stands in the job queue at most once,
/// however many requests are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests(pub u32);

impl Requests {
    /// Bytes were written.
    pub const WROTE: Self = Self(1);
    /// Bytes were read: the window may have opened.
    pub const READ: Self = Self(1 << 1);
    /// FIN after what has been written.
    pub const SHUTDOWN_WRITE: Self = Self(1 << 2);
    /// The application end is closed.
    pub const CLOSE: Self = Self(1 << 3);
    /// The application end is closed, and the peer gets a RST.
    pub const ABORT: Self = Self(1 << 4);

    /// Bytes were written, and more follows at once (MSG_MORE).
    pub const WROTE_MORE: Self = Self(1 << 5);
    /// The application will read no more than what has arrived.
    pub const SHUTDOWN_READ: Self = Self(1 << 6);
    /// Open a connection to the remote name.
    pub const CONNECT: Self = Self(1 << 7);
    /// A writer had room in the send buffer but no chunk, and wrote nothing. The stack refills the
    /// magazine.
    pub const REFILL: Self = Self(1 << 8);

    /// True if all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The union of both sets of requests.
    #[inline]
    pub const fn union(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These requests without those of `flags`.
    #[inline]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// True if nothing is requested.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for Requests {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// One end of a connection as the block holds it: an IPv6 or v4-mapped address
/// in network order, and a port in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Name {
    /// The address.
    pub address: [u8; 16],
    /// The port.
    pub port: u16,
}

/// The line that the stack writes.
#[repr(C, align(64))]
pub(crate) struct StackLine {
    pub(crate) rx_restart: AtomicU64,
    pub(crate) rx_tail: AtomicU32,
    pub(crate) tx_una: AtomicU32,
    pub(crate) tx_limit: AtomicU32,
    state: AtomicU32,
    in_edges: AtomicU32,
    out_edges: AtomicU32,
    generation: AtomicU32,
    tx_wake: AtomicU32,
    tx_unsent_wake: AtomicU32,
    pub(crate) tx_sent: AtomicU32,
    /// Local and remote port.
    ports: AtomicU32,
    urgent_end: AtomicU32,
    spare: [AtomicU32; 2],
}

/// The line that the application writes. The stack swaps `tx_open` and `requests`, and clears
/// `want_writable`.
#[repr(C, align(64))]
pub(crate) struct AppLine {
    pub(crate) tx_restart: AtomicU64,
    pub(crate) rx_head: AtomicU32,
    pub(crate) tx_tail: AtomicU32,
    pub(crate) tx_open: AtomicU32,
    requests: AtomicU32,
    want_writable: AtomicU32,
    owner: AtomicU32,
    /// Local and remote address, two words each. Written by the side that opens the connection,
    /// before the other side looks.
    addresses: [AtomicU64; 4],
}

/// The memory that the two ends of a socket share.
#[repr(C)]
pub struct SocketBlock {
    pub(crate) stack: StackLine,
    pub(crate) app: AppLine,
}

/// Bytes of a socket block.
pub const SOCKET_BLOCK_BYTES: usize = 128;

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<SocketBlock>() == SOCKET_BLOCK_BYTES);
    assert!(align_of::<SocketBlock>() == 64);
    assert!(size_of::<StackLine>() == 64 && size_of::<AppLine>() == 64);
    assert!(core::mem::offset_of!(SocketBlock, app) == 64);
};

/// Operations of both ends.
impl SocketBlock {
    /// Prefetches both lines.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::prefetch::read(&self.stack);
        crate::prefetch::read(&self.app);
    }
}

/// Operations of the stack.
impl SocketBlock {
    /// Starts a new use of the block: all cursors zero, a new generation, `tx_limit` bytes of send
    /// buffer. Nobody else may use the block. Returns the new generation (never 0).
    pub fn open(&self, tx_limit: u32) -> u32 {
        let generation = self.generation().wrapping_add(1).max(1);
        self.stack.rx_restart.store(0, Ordering::Relaxed);
        self.stack.rx_tail.store(0, Ordering::Relaxed);
        self.stack.tx_una.store(0, Ordering::Relaxed);
        self.stack.tx_limit.store(tx_limit, Ordering::Relaxed);
        self.stack
            .tx_wake
            .store(tx_limit - tx_limit / 3, Ordering::Relaxed);
        self.stack.tx_unsent_wake.store(u32::MAX, Ordering::Relaxed);
        self.stack.tx_sent.store(0, Ordering::Relaxed);
        self.stack.in_edges.store(0, Ordering::Relaxed);
        self.stack.out_edges.store(0, Ordering::Relaxed);
        self.app.tx_restart.store(0, Ordering::Relaxed);
        self.app.rx_head.store(0, Ordering::Relaxed);
        self.app.tx_tail.store(0, Ordering::Relaxed);
        self.app.tx_open.store(0, Ordering::Relaxed);
        self.app.requests.store(0, Ordering::Relaxed);
        self.app.want_writable.store(0, Ordering::Relaxed);
        self.app.owner.store(0, Ordering::Relaxed);
        for word in &self.app.addresses {
            word.store(0, Ordering::Relaxed);
        }
        self.stack.ports.store(0, Ordering::Relaxed);
        self.stack.state.store(0, Ordering::Relaxed);
        self.stack.generation.store(generation, Ordering::Release);
        generation
    }

    /// Ends this use of the block: its ids no longer resolve.
    pub fn retire(&self) {
        self.add_state(SocketState::CLOSED);
        let generation = self.generation().wrapping_add(1).max(1);
        self.stack.generation.store(generation, Ordering::Release);
    }

    /// Sets more flags. What the stack wrote before is visible to a reader that sees them.
    #[inline]
    pub fn add_state(&self, flags: SocketState) {
        let state = self.stack.state.load(Ordering::Relaxed);
        self.stack.state.store(state | flags.0, Ordering::Release);
    }

    /// Clears flags.
    pub fn clear_state(&self, flags: SocketState) {
        let state = self.stack.state.load(Ordering::Relaxed);
        self.stack.state.store(state & !flags.0, Ordering::Release);
    }

    /// Publishes that the peer's urgent data ends at this position of the receive stream.
    pub fn set_urgent_end(&self, position: u32) {
        self.stack.urgent_end.store(position, Ordering::Release);
        self.add_state(SocketState::URGENT);
    }

    /// Forgets urgent data that the application has read past. If it were kept, its end would seem
    /// to lie ahead of the reader again 2^31 bytes later.
    #[inline]
    pub fn forget_urgent_read(&self) {
        if self.state().contains(SocketState::URGENT) {
            self.forget_urgent_before(self.app.rx_head.load(Ordering::Acquire));
        }
    }

    #[cold]
    fn forget_urgent_before(&self, head: u32) {
        let passed = head.wrapping_sub(self.urgent_end());
        if passed <= i32::MAX as u32 {
            self.clear_state(SocketState::URGENT);
        }
    }

    /// Marks the socket as failed with this error number. The first failure stays.
    pub fn fail(&self, errno: u16) {
        let state = SocketState(self.stack.state.load(Ordering::Relaxed));
        if state.contains(SocketState::FAILED) {
            return;
        }
        let failed = state.0 | SocketState::FAILED.0 | u32::from(errno) << 16;
        self.stack.state.store(failed, Ordering::Release);
    }

    /// Sets the bytes that the send buffer may hold; 0 stops further writes.
    #[inline]
    pub fn set_tx_limit(&self, bytes: u32) {
        self.stack.tx_limit.store(bytes, Ordering::Relaxed);
    }

    /// Sets when a writer that waits for room is woken: when at most `waiting` bytes are in the
    /// send buffer, and at most `unsent` of them are unsent (`u32::MAX`: any number).
    #[inline]
    pub fn set_tx_wake(&self, waiting: u32, unsent: u32) {
        self.stack.tx_wake.store(waiting, Ordering::Relaxed);
        self.stack.tx_unsent_wake.store(unsent, Ordering::Relaxed);
    }

    /// [`set_tx_limit`](Self::set_tx_limit) and [`set_tx_wake`](Self::set_tx_wake) in one. False:
    /// the change makes no buffer more writable than before, so no waiting writer need be told.
    #[inline]
    pub fn set_room(&self, limit: u32, waiting: u32, unsent: u32) -> bool {
        let waiting_before = self.stack.tx_wake.load(Ordering::Relaxed);
        let unsent_before = self.stack.tx_unsent_wake.load(Ordering::Relaxed);
        // True if only `waiting` decides about waking, before and now, and it has not changed.
        let is_same = waiting_before == waiting
            && unsent & unsent_before == u32::MAX
            && self.tx_limit().min(limit) > waiting;
        self.set_tx_limit(limit);
        self.set_tx_wake(waiting, unsent);
        !is_same
    }

    /// Counts one more arrival of something to read (bytes, end, failure, a connection).
    #[inline]
    pub fn add_in_edge(&self) {
        let edges = self.in_edges().wrapping_add(1);
        self.stack.in_edges.store(edges, Ordering::Release);
    }

    /// Counts one more arrival of room to write.
    #[inline]
    pub fn add_out_edge(&self) {
        let edges = self.out_edges().wrapping_add(1);
        self.stack.out_edges.store(edges, Ordering::Release);
    }

    /// Writes both names, before CONNECTED or LISTENING is published. An application that connects
    /// writes them first, as far as it knows them.
    pub fn set_names(&self, local: Name, remote: Name) {
        let words = [halves(local.address), halves(remote.address)];
        for (place, word) in self.app.addresses.iter().zip(words.as_flattened()) {
            place.store(*word, Ordering::Relaxed);
        }
        let ports = u32::from(local.port) << 16 | u32::from(remote.port);
        self.stack.ports.store(ports, Ordering::Release);
    }

    /// Takes the requests. What the application wrote before is visible. One locked instruction per
    /// job.
    #[inline]
    pub fn take_requests(&self) -> Requests {
        Requests(self.app.requests.swap(0, Ordering::AcqRel))
    }

    /// True if the application waits for room to write. A hint: the application may set the flag a
    /// moment later.
    #[inline]
    pub fn wants_writable(&self) -> bool {
        self.app.want_writable.load(Ordering::Relaxed) != 0
    }

    /// True if the application waits for room to write; clears that wish. Call it after publishing
    /// room and a full fence ([`published::fence_full`](crate::published::fence_full), one per turn
    /// serves all sockets).
    #[inline]
    pub fn take_want_writable(&self) -> bool {
        // The application writes this flag too. An extra clearing is harmless, because the
        // application sets the flag again before each wait.
        let wanted = self.wants_writable();
        if wanted {
            self.app.want_writable.store(0, Ordering::Relaxed);
        }
        wanted
    }
}

/// Operations of the application.
impl SocketBlock {
    /// Flags and error.
    #[inline]
    pub fn state(&self) -> SocketState {
        SocketState(self.stack.state.load(Ordering::Acquire))
    }

    /// Position after the last urgent byte, as last announced; valid once URGENT has been seen.
    pub fn urgent_end(&self) -> u32 {
        self.stack.urgent_end.load(Ordering::Acquire)
    }

    /// Counter of arrivals of something to read, to compare with an earlier look.
    #[inline]
    pub fn in_edges(&self) -> u32 {
        self.stack.in_edges.load(Ordering::Acquire)
    }

    /// Counter of arrivals of room to write, to compare with an earlier look.
    #[inline]
    pub fn out_edges(&self) -> u32 {
        self.stack.out_edges.load(Ordering::Acquire)
    }

    /// Number of the block's current use.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.stack.generation.load(Ordering::Acquire)
    }

    /// Bytes that the send buffer may hold.
    #[inline]
    pub fn tx_limit(&self) -> u32 {
        self.stack.tx_limit.load(Ordering::Relaxed)
    }

    /// True if a waiting writer is to be woken while `waiting` bytes are in the send buffer.
    #[inline]
    pub fn is_writable_at(&self, waiting: u32) -> bool {
        let unsent_max = self.stack.tx_unsent_wake.load(Ordering::Relaxed);
        waiting <= self.stack.tx_wake.load(Ordering::Relaxed)
            && (unsent_max == u32::MAX || self.unsent_at(waiting) <= unsent_max)
            && self.tx_limit() > 0
    }

    /// Bytes in the send buffer that were never sent, of `waiting` bytes in all.
    #[inline]
    fn unsent_at(&self, waiting: u32) -> u32 {
        let sent = self
            .stack
            .tx_sent
            .load(Ordering::Acquire)
            .wrapping_sub(self.stack.tx_una.load(Ordering::Acquire));
        waiting.saturating_sub(sent)
    }

    /// Local and remote name; valid once CONNECTED or LISTENING has been seen.
    pub fn names(&self) -> (Name, Name) {
        let ports = self.stack.ports.load(Ordering::Acquire);
        let word = |at: usize| self.app.addresses[at].load(Ordering::Relaxed);
        let local = Name {
            address: joined([word(0), word(1)]),
            port: (ports >> 16) as u16,
        };
        let remote = Name {
            address: joined([word(2), word(3)]),
            port: ports as u16,
        };
        (local, remote)
    }

    /// Asks the stack for something. True: nothing was requested before, so the caller must put the
    /// socket into the job queue. False: the socket stands there already.
    #[inline]
    #[must_use = "true means that the socket must be queued"]
    pub fn request(&self, wanted: Requests) -> bool {
        self.app.requests.fetch_or(wanted.0, Ordering::AcqRel) == 0
    }

    /// Says that the application waits for room to write, and executes a full fence. The caller
    /// must try once more afterwards, or it may miss the wake-up.
    #[inline]
    pub fn set_want_writable(&self) {
        self.app.want_writable.store(1, Ordering::Relaxed);
        crate::fence::full();
    }

    /// Looks for room. If there is none, registers the wish for it and looks once more: room that
    /// appeared before the stack could see the wish produces no event.
    #[inline]
    pub fn look_or_want<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        look().or_else(|| {
            self.set_want_writable();
            look()
        })
    }

    /// Takes the application end for the thread with this nonzero token. True if the end was free
    /// or already this thread's.
    pub fn try_own(&self, token: u32) -> bool {
        match self
            .app
            .owner
            .compare_exchange(0, token, Ordering::Acquire, Ordering::Acquire)
        {
            Ok(_) => true,
            Err(owner) => owner == token,
        }
    }

    /// Token of the thread that owns the application end; 0: none.
    pub fn owner(&self) -> u32 {
        self.app.owner.load(Ordering::Relaxed)
    }

    /// Gives up the application end. What this thread did with it is visible to the next owner.
    pub fn disown(&self) {
        self.app.owner.store(0, Ordering::Release);
    }
}

fn halves(address: [u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = address;
    [
        u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        u64::from_ne_bytes(rest),
    ]
}

fn joined(words: [u64; 2]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..8].copy_from_slice(&words[0].to_ne_bytes());
    address[8..].copy_from_slice(&words[1].to_ne_bytes());
    address
}

#[cfg(loom)]
impl SocketBlock {
    /// A block of zeros, as it is in a fresh memory file.
    pub(crate) fn new() -> Self {
        let word = || AtomicU32::new(0);
        let wide = || AtomicU64::new(0);
        Self {
            stack: StackLine {
                rx_restart: wide(),
                rx_tail: word(),
                tx_una: word(),
                tx_limit: word(),
                state: word(),
                in_edges: word(),
                out_edges: word(),
                generation: word(),
                tx_wake: word(),
                tx_unsent_wake: word(),
                tx_sent: word(),
                ports: word(),
                urgent_end: word(),
                spare: core::array::from_fn(|_| word()),
            },
            app: AppLine {
                tx_restart: wide(),
                rx_head: word(),
                tx_tail: word(),
                tx_open: word(),
                requests: word(),
                want_writable: word(),
                owner: word(),
                addresses: core::array::from_fn(|_| wide()),
            },
        }
    }
}
