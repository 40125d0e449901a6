//! Fast Open (RFC 7413) as a stack sees it. Server: which SYN makes a connection by itself, and how many such may be pending. Client: what the
//! cache says before a SYN leaves, and what it learns when the SYN-ACK is here.

use packetio::RxFrame;
use tcp::fast_open::Verdict;
use tcp::listen::{PassiveOpen, SynRequest};
use tcp::{Connection, ConnectionError, Effects, FastOpenSyn};
use wire::tcp::FastOpenCookie;
use wire::{Addr, FlowKey};

use crate::arrivals::demux::Arrival;
use crate::context::{FastOpenAnswer, FastOpenQuery, SocketOption};
use crate::core::{Core, tcp_cx};
use crate::flows::flow_table::FlowEntry;
use crate::flows::half_opens::ListenerId;
use crate::flows::rx_sink::RxSink;
use crate::flows::saved_syns::Saved;

/// What a SYN is, by the rules of Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastOpenChoice {
    /// It makes a connection now.
    pub now: bool,
    /// The cookie that the SYN-ACK brings along.
    pub cookie: Option<FastOpenCookie>,
}

impl FastOpenChoice {
    const PLAIN: FastOpenChoice = FastOpenChoice {
        now: false,
        cookie: None,
    };
}

impl Core {
    /// Whether a SYN opens fast. The limit comes before the cookie, so that a flood costs no hashing (and a client cannot tell a full
    /// listener from one that does not open fast; so in Linux).
    pub(crate) fn choose_fast_open(
        &mut self,
        listener: ListenerId,
        key: &FlowKey,
        request: &SynRequest,
        len: u32,
    ) -> FastOpenChoice {
        let settings = &self.config.tcp.fast_open;
        let Some(listening) = self.listeners.at_mut(listener) else {
            return FastOpenChoice::PLAIN;
        };
        let pending_max = listening.fast_open_max(settings.every_listener);
        if !settings.server || pending_max == 0 || (len == 0 && request.fast_open.is_none()) {
            return FastOpenChoice::PLAIN;
        }
        if !listening.fast_open.has_room(pending_max, self.now_ns) {
            self.counters.fast_open_queue_full += 1;
            return FastOpenChoice::PLAIN;
        }
        let without_cookie = FastOpenChoice {
            now: true,
            cookie: None,
        };
        if settings.server_without_cookie || listening.no_cookie {
            return without_cookie;
        }
        let Some(presented) = request.fast_open else {
            return FastOpenChoice::PLAIN;
        };
        let keys = listening.fast_open.keys.or(settings.keys);
        let keys = keys.unwrap_or(self.fast_open_keys);
        let cookie = Some(keys.cookie(key, presented.experimental));
        if presented.is_request() {
            self.counters.fast_open_cookies_asked += 1;
            return FastOpenChoice { now: false, cookie };
        }
        match keys.judge(key, &presented) {
            Verdict::Good => without_cookie,
            Verdict::Outdated => FastOpenChoice { now: true, cookie },
            Verdict::Bad => {
                self.counters.fast_open_cookies_bad += 1;
                FastOpenChoice { now: false, cookie }
            }
        }
    }

    /// Makes a connection of a SYN with a good cookie, its text included, and puts it into the accept queue. False: there is no room for it, and
    /// the plain handshake serves.
    pub(crate) fn open_fast(
        &mut self,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        passive: (&SynRequest, &PassiveOpen),
        cookie: Option<FastOpenCookie>,
    ) -> bool {
        let (request, open) = passive;
        let Some(payload) = frame.slice(arrival.payload_at as usize, arrival.segment.len as usize)
        else {
            return false;
        };
        let Some(id) = self.sockets.reserve() else {
            self.counters.fast_open_no_room += 1;
            return false;
        };
        let entry = FlowEntry::Connection(id.index);
        if self.flows.insert(arrival.hash, entry).is_err() {
            self.counters.fast_open_no_room += 1;
            self.sockets.release(id.index);
            return false;
        }
        let (slot, pool, block) = self.sockets.parts(id.index);
        slot.become_connection(arrival.key, arrival.hash)
            .accept_fast_in(&mut tcp_cx!(self), request, open, cookie);
        let mut effects = Effects::TRANSMIT | Effects::TIMER;
        slot.fast_opened_by = Some(listener);
        if let Some(conn) = slot.conn.as_mut() {
            let mut sink = RxSink::new(&mut slot.rx, pool, block, payload);
            effects |= conn.take_syn_text(&mut tcp_cx!(self), &arrival.segment, &mut sink);
            self.counters.rx_no_buffer += u64::from(sink.starved);
        }
        if let Some(listening) = self.listeners.at_mut(listener) {
            listening.fast_open.pending += 1;
        }
        self.save_syn(listener, arrival, frame, Saved::Connection(id.index));
        self.tell_path(id.index);
        self.announce_accepted(listener, id, &arrival.key);
        self.settle(id.index, effects);
        true
    }

    /// A connection that was opened fast has completed its handshake, or has ended before that: it is not pending any more.
    #[cold]
    pub(crate) fn end_pending_fast_open(&mut self, socket: u32) {
        let slot = self.sockets.slot(socket);
        let Some(listener) = slot.fast_opened_by.take() else {
            return;
        };
        let error = slot.conn.as_ref().and_then(Connection::error);
        let was_reset = error == Some(ConnectionError::Reset);
        let was_accepted = !self.is_unaccepted(listener, socket);
        if let Some(listening) = self.listeners.at_mut(listener) {
            listening
                .fast_open
                .leave(was_reset && was_accepted, self.now_ns);
        }
    }

    /// A connection made by `listener` waits in its accept queue.
    pub(crate) fn is_unaccepted(&mut self, listener: ListenerId, socket: u32) -> bool {
        self.listeners
            .at_mut(listener)
            .is_some_and(|listening| listening.queue.waiting().any(|id| id.index == socket))
    }

    /// What the SYN of an open to `remote` brings along, with segments of at most `mss` bytes.
    pub(crate) fn fast_open_syn(
        &mut self,
        remote: Addr,
        mss: u16,
        no_cookie: bool,
    ) -> Option<FastOpenSyn> {
        let settings = &self.config.tcp.fast_open;
        self.destinations
            .fast_open_syn(remote, mss, no_cookie, settings, self.now_ns)
    }

    /// Tells an application what a Fast Open could carry.
    pub(crate) fn answer_fast_open(&mut self, mut query: FastOpenQuery) {
        let remote = Addr::from(query.remote.ip());
        let mss = self.mss_for(remote, query.mss_max);
        let syn = self.fast_open_syn(remote, mss, query.no_cookie);
        let is_request = |syn: &FastOpenSyn| syn.option.is_some_and(|option| option.is_request());
        let syn = syn.filter(|syn| !is_request(syn));
        let answer = FastOpenAnswer {
            has_cookie: syn.is_some(),
            syn_bytes_max: syn.map_or(0, |syn| u32::from(syn.bytes)),
        };
        // Who asked may have gone.
        let _ = query.answer.push(answer);
        if let Some(socket) = self.reserved(query.socket) {
            self.tell(socket);
        }
    }

    /// A black hole is suspected.
    #[cold]
    pub(crate) fn pause_fast_open(&mut self) {
        self.counters.fast_open_paused += 1;
        let settings = &self.config.tcp.fast_open;
        self.destinations.pause_fast_open(settings, self.now_ns);
    }
}

/// `TCP_FASTOPEN_NO_COOKIE` among the options of an open.
pub(crate) fn asks_no_cookie(options: &[SocketOption]) -> bool {
    options.contains(&SocketOption::FastOpenNoCookie(true))
}
