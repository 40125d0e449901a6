//! Jobs and requests of the application since the last turn.
//!
//! Jobs (wrote, read, shut down, close) and control requests are applied in the order in which they
//! were sent: a request after the jobs before it, of which there are as many as sockets at most.
//! Jobs are taken out first and requests second, so that every job that precedes a request is at
//! hand.

use ring::socket_block::{Requests, SocketId, SocketState};
use rustix::io::Errno;
use tcp::Effects;

use crate::context::{Answer, Backlog, Control, Listen, Placed};
use crate::core::Core;
use crate::flows::accept_queue::AcceptQueue;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::{ListenError, Listener};
use crate::flows::slot::Role;
use crate::header_fields::HeaderFields;
use crate::limits::{CONTROLS_PER_TURN, JOBS_AHEAD, JOBS_PER_TURN};
use crate::requests::AppRequests;
use crate::settle::door;

impl AppRequests {
    /// Applies jobs and control requests, up to a turn's budget. Returns the number applied.
    pub(crate) fn job_queue(&mut self, core: &mut Core) -> usize {
        let mut batch = std::mem::take(&mut self.job_batch);
        let room = JOBS_PER_TURN - batch.len();
        self.app.jobs.pop_batch(room, |id| batch.push(id));
        // Jobs that come later are for the next turn.
        let count = if self.app.controls.is_empty() {
            for (at, &id) in batch.iter().enumerate() {
                if let Some(ahead) = batch.get(at + JOBS_AHEAD) {
                    core.flows.sockets.prefetch(ahead.index);
                }
                core.apply_job(id);
            }
            let jobs = batch.len();
            batch.clear();
            jobs
        } else {
            self.apply_in_order(core, &mut batch)
        };
        self.job_batch = batch;
        count
    }

    /// Applies the jobs of `batch`, and each control request between those that it was sent
    /// between. Jobs behind more requests than a turn applies stay for the next turn, and so do
    /// requests behind jobs that are still in the queue.
    #[cold]
    fn apply_in_order(&mut self, core: &mut Core, batch: &mut Vec<SocketId>) -> usize {
        let first = self.app.jobs.position().wrapping_sub(batch.len() as u32);
        let (mut jobs, mut controls) = (0, 0);
        loop {
            let next = self.app.controls.peek();
            let end = next.map(|next| next.jobs_end.wrapping_sub(first) as usize);
            let due = end.map_or(batch.len(), |end| end.clamp(jobs, batch.len()));
            for &id in &batch[jobs..due] {
                core.apply_job(id);
            }
            jobs = due;
            if end.is_none_or(|end| end > due) || controls == CONTROLS_PER_TURN {
                break;
            }
            if let Some(Placed { control, .. }) = self.app.controls.pop() {
                self.apply_control(core, control);
                controls += 1;
            }
        }
        batch.drain(..jobs);
        jobs + controls
    }

    fn apply_control(&mut self, core: &mut Core, control: Control) {
        if let Some(id) = control.asked_of() {
            core.begin_for(id);
        }
        match control {
            Control::Listen(listen) => core.listen(listen),
            Control::Backlog(backlog) => core.change_backlog(backlog),
            Control::Connect(connect) => core.connect(connect),
            Control::Bind(bind) => core.bind(bind),
            Control::Info(query) => core.answer_info(query),
            Control::Stamps(query) => core.flows.sockets.answer_stamps(query),
            Control::SoftError(query) => {
                (core.flows.icmp_notes).answer_soft_error(&mut core.flows.sockets, query);
            }
            Control::IcmpNote(query) => {
                (core.flows.icmp_notes).answer_note(&core.flows.sockets, query);
            }
            Control::SavedSyn(query) => {
                (core.flows.saved_syns).answer(&core.flows.sockets, query);
            }
            Control::Report(answer) => self.reports.push(answer),
            Control::FastOpenQuery(query) => core.answer_fast_open(query),
            Control::Settings(settings) => {
                std::sync::Arc::make_mut(&mut core.env.config).tcp = *settings
            }
            Control::Address(cidr) => core.network.add_address(cidr),
            Control::ForgetPeers => core.network.destinations.forget_fast_open(),
            Control::Option(id, option) => {
                if let Some(socket) = core.flows.sockets.resolve(id) {
                    core.set_option_later(socket, option);
                }
            }
        }
    }
}

impl Core {
    fn apply_job(&mut self, id: SocketId) {
        let Some(socket) = self.flows.sockets.resolve(id) else {
            self.counters.jobs_stale += 1;
            return;
        };
        self.counters.jobs += 1;
        let requests = self.flows.sockets.block(socket).take_requests();
        match self.flows.sockets.role(socket) {
            Role::Connection => self.connection_job(socket, requests),
            Role::Reserved if !ends(requests) => self.opening_job(socket, requests),
            role if ends(requests) => {
                if let Role::Listener(_) = role
                    && self.network.has_host
                    && !self.flows.sockets.slot(socket).bound
                {
                    self.leave_place(socket);
                }
                if let Role::Listener(index) = role {
                    self.end_listener(index);
                }
                self.release_socket(socket);
            }
            Role::Ended => {
                let (slot, pool, block) = self.flows.sockets.parts(socket);
                slot.rx.reclaim(pool, block);
            }
            Role::Free | Role::Reserved | Role::Listener(_) => {}
        }
    }

    /// Applies a job of a socket that is no connection yet. A socket that asks for a connection and
    /// nothing else waits as a number on a list: of thousands that do, few have their lines in the
    /// caches (decision 0043).
    #[inline]
    fn opening_job(&mut self, socket: u32, requests: Requests) {
        if requests.contains(Requests::CONNECT) {
            self.queue_opening(socket);
        }
        let more = requests.without(Requests::CONNECT);
        if !more.is_empty() && self.waits_to_begin(socket) {
            self.begin_waiting(socket);
            self.connection_job(socket, more);
        }
    }

    /// Begins a connection that waits to, since a request asks something of it.
    fn begin_for(&mut self, id: SocketId) {
        if let Some(socket) = self.reserved(id)
            && self.waits_to_begin(socket)
        {
            self.begin_waiting(socket);
        }
    }

    #[inline]
    fn connection_job(&mut self, socket: u32, requests: Requests) {
        let is_crowded = ends(requests) && self.is_crowded_with_orphans(socket);
        if ends(requests) {
            self.flows.sockets.orphan(socket);
        }
        let (slot, pool, block) = self.flows.sockets.parts(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut effects = Effects::NONE;
        let mut wrote = false;
        let unread = slot.rx.reclaim(pool, block);
        let mut cx = self.env.cx();
        let run = conn.begin_run();
        if requests.contains(Requests::READ) {
            conn.note_read(&mut cx, unread);
            block.forget_urgent_read();
        }
        if !requests.is_empty() && requests != Requests::READ {
            // The writer may have held its last chunk while the ACK that drained the stream was
            // acted on.
            slot.tx.reclaim(pool, block);
            let buffered = slot.tx.buffered(block);
            // A job that only ends the stream leaves the announcement (MSG_MORE) of its last bytes
            // unchanged.
            let more = !requests.contains(Requests::WROTE)
                && (requests.contains(Requests::WROTE_MORE) || conn.announces_more());
            match more {
                true => conn.note_write_more(&mut cx, buffered),
                false => conn.note_write(&mut cx, buffered),
            }
            wrote = true;
        }
        if requests.contains(Requests::SHUTDOWN_READ) {
            conn.shutdown_read();
        }
        if requests.contains(Requests::SHUTDOWN_WRITE) {
            conn.note_shutdown_write();
            block.add_state(SocketState::TX_SHUT);
        }
        if ends(requests) {
            // Nobody will read these bytes: the peer must not believe them delivered (RFC 9293
            // 3.10.4, RFC 1122 4.2.2.13).
            effects = if unread > 0 || is_crowded {
                conn.abort_with_loss(&mut cx)
            } else if requests.contains(Requests::ABORT) {
                conn.abort(&mut cx)
            } else {
                conn.note_close(&mut cx)
            };
        }
        if !requests.is_empty() {
            effects = conn.end_run(&mut cx, effects, run);
        }
        let door = door!(self, cx);
        if !door.settle_job(socket, slot, block, effects, wrote) {
            self.settle(socket, effects);
        }
    }

    /// Another orphan would be too many (Linux's `tcp_max_orphans`).
    #[inline]
    fn is_crowded_with_orphans(&mut self, socket: u32) -> bool {
        self.flows.sockets.orphans() >= self.env.config.limits.orphans_max
            && self.would_be_orphan(socket)
    }

    /// True if the connection would remain as an orphan. A connection that waits only for the
    /// peer's FIN becomes a compact entry instead.
    #[cold]
    fn would_be_orphan(&mut self, socket: u32) -> bool {
        let Some(conn) = self.flows.sockets.slot(socket).conn.as_ref() else {
            return false;
        };
        let stays = !conn.closes_as_entry(&self.env.config.tcp);
        self.counters.orphans_refused += u64::from(stays);
        stays
    }

    fn listen(&mut self, listen: Listen) {
        let Some(socket) = self.reserved(listen.socket) else {
            return refuse(listen.answer);
        };
        let ip = listen.local.ip();
        // The address of a bound socket was checked when it was bound (`IP_FREEBIND`).
        let may_listen = ip.is_unspecified()
            || self.flows.sockets.slot(socket).bound
            || self.network.addresses.is_local(ip);
        let outcome = if !may_listen {
            Err(Errno::ADDRNOTAVAIL)
        } else {
            self.flows
                .listeners
                .add(
                    listen.socket,
                    (ip, listen.local.port()),
                    self.flows.binds.shares_port(socket),
                    AcceptQueue::new(listen.accepted, listen.backlog),
                    listen.options,
                )
                .map_err(|error| match error {
                    ListenError::InUse => Errno::ADDRINUSE,
                    ListenError::Full => Errno::NOBUFS,
                })
        };
        if let Ok(index) = outcome {
            let (slot, _, block) = self.flows.sockets.parts(socket);
            slot.role = Role::Listener(index);
            block.add_state(SocketState::LISTENING);
            self.tell(socket);
        }
        self.answer(socket, outcome.map(|_| ()), listen.answer);
    }

    /// `listen` was called on a listener.
    fn change_backlog(&mut self, change: Backlog) {
        if let Some(socket) = self.flows.sockets.resolve(change.socket)
            && let Role::Listener(index) = self.flows.sockets.role(socket)
            && let Some(listener) = self.flows.listeners.by_index_mut(index)
        {
            listener.queue.change(change.backlog, change.longer);
        }
    }

    /// Ends a listener. Other processes that share its place get what waits behind it.
    #[cold]
    fn end_listener(&mut self, index: u32) {
        match self.flows.listeners.remove(index) {
            Some((id, listener)) if self.network.has_host => self.transfers.close(id, listener),
            Some((id, listener)) => self.forget_listener(id, &listener),
            None => {}
        }
    }

    /// Forgets a listener's handshakes, and resets unaccepted connections, as in Linux.
    pub(crate) fn forget_listener(&mut self, id: ListenerId, listener: &Listener) {
        for at in 0..self.flows.half_opens.span() {
            let is_its_own = self
                .flows
                .half_opens
                .at(at)
                .is_some_and(|slot| slot.listener == id);
            if is_its_own {
                self.remove_half_open(at);
            }
        }
        for id in listener.queue.waiting() {
            if let Some(socket) = self.flows.sockets.resolve(id) {
                self.disown(socket);
            }
        }
    }

    /// Ends a connection that never had an application.
    pub(crate) fn disown(&mut self, socket: u32) {
        self.flows.sockets.orphan(socket);
        let Some(conn) = self.flows.sockets.slot(socket).live_mut() else {
            return self.release_socket(socket);
        };
        let effects = conn.abort(&mut self.env.cx());
        self.settle(socket, effects);
    }

    /// Resets connections from `next` on, also those of which only an entry is left that waits for
    /// the peer: there is no time left to close them in order. Stops when the queue has no room for
    /// more resets, and returns where to go on then.
    #[cold]
    pub(crate) fn abort_some(&mut self, next: u32) -> Option<u32> {
        let span = self.flows.sockets.span();
        for socket in next..span {
            if self.schedule.control.room() == 0 {
                return Some(socket);
            }
            if self.flows.sockets.role(socket) == Role::Connection {
                self.disown(socket);
            } else if self.waits_to_begin(socket) {
                self.release_socket(socket);
            }
        }
        // Entries come last: a connection may become one while others are reset.
        while let Some(index) = self.flows.time_waits.oldest_in_fin_wait_2() {
            if self.schedule.control.room() == 0 {
                return Some(span);
            }
            if let Some(slot) = self.flows.time_waits.at(index) {
                let (header, farewell) =
                    (HeaderFields::of_answer(slot.dscp), slot.entry.farewell());
                (self.schedule.control).push(&slot.key, &farewell, header, &mut self.counters);
            }
            self.flows.remove_time_wait(index);
        }
        None
    }

    /// The socket that a control request names, if it still waits for one.
    pub(crate) fn reserved(&self, id: SocketId) -> Option<u32> {
        let socket = self.flows.sockets.resolve(id)?;
        (self.flows.sockets.role(socket) == Role::Reserved).then_some(socket)
    }

    /// Tells the application the outcome of a request on a socket that was no connection yet.
    pub(crate) fn answer(
        &mut self,
        socket: u32,
        outcome: Result<(), Errno>,
        answer: Option<Answer>,
    ) {
        match (answer, outcome) {
            (Some(mut answer), outcome) => {
                // The asking thread may have gone.
                let _ = answer.push(outcome);
            }
            (None, Ok(())) => {}
            (None, Err(errno)) => self.fail_socket(socket, errno),
        }
    }

    /// A request on a socket that is no connection yet failed.
    pub(crate) fn fail_socket(&mut self, socket: u32, errno: Errno) {
        let (_, _, block) = self.flows.sockets.parts(socket);
        block.fail(errno.raw_os_error() as u16);
        block.add_in_edge();
        block.add_out_edge();
        self.tell(socket);
    }
}

/// Refuses a request on a socket that is in use already, or gone: a thread may wait for the answer.
#[cold]
pub(crate) fn refuse(answer: Option<Answer>) {
    if let Some(mut answer) = answer {
        // The asking thread may have gone.
        let _ = answer.push(Err(Errno::INVAL));
    }
}

/// The application lets go of the socket.
#[inline]
fn ends(requests: Requests) -> bool {
    requests.contains(Requests::CLOSE) || requests.contains(Requests::ABORT)
}
