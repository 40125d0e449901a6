//! Jobs and requests that the application sent since the last turn.
//!
//! Jobs (wrote, read, shut down, close) and control requests are applied in the order in which they
//! were sent. A request follows the jobs sent before it, at most one per socket. Jobs are taken
//! from their queue first, so that every job before a request is at hand.

use ring::socket_block::{Requests, SocketId, SocketState};
use rustix::io::Errno;
use tcp::Effects;
use tcp::isn::IsnGenerator;

use crate::config::StackConfig;
use crate::context::{Backlog, Control, Listen, Placed};
use crate::core::Core;
use crate::counters::Counters;
use crate::effects::{apply_effects, effect_targets, notify, queue_opening, release_socket};
use crate::engine::{Engine, Parts, remove_half_open};
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::flows::accept_queue::AcceptQueue;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::{ListenError, Listener};
use crate::flows::slot::Role;
use crate::header_fields::HeaderFields;
use crate::host_wishes::leave_place;
use crate::limits::{CONTROLS_PER_TURN, JOBS_AHEAD, JOBS_PER_TURN};
use crate::network::layer::{FIRST_PORT, Network};
use crate::requests::AppRequests;
use crate::requests::answers::{answer, refuse, reserved};
use crate::requests::binds::bind;
use crate::requests::connect::{answer_fast_open, begin_waiting, connect, waits_to_begin};
use crate::requests::options::{answer_info, set_option_later};
use crate::transfer_lists::Transfers;

impl AppRequests {
    /// Applies jobs and control requests, up to a turn's budget. Returns how many.
    #[inline(always)]
    pub(crate) fn job_queue(&mut self, core: &mut Core) -> usize {
        let mut batch = std::mem::take(&mut self.job_batch);
        let room = JOBS_PER_TURN - batch.len();
        self.app.jobs.pop_batch(room, |id| batch.push(id));
        // Later jobs wait for the next turn.
        let count = if self.app.controls.is_empty() {
            for (at, &id) in batch.iter().enumerate() {
                if let Some(ahead) = batch.get(at + JOBS_AHEAD) {
                    core.engine().view().flows.sockets().prefetch(ahead.index);
                }
                apply_job(core, id);
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

    /// Applies the jobs of `batch` and the control requests sent between them, in order. The next
    /// turn applies jobs behind more requests than a turn takes, and requests behind jobs not yet
    /// taken.
    #[cold]
    fn apply_in_order(&mut self, core: &mut Core, batch: &mut Vec<SocketId>) -> usize {
        let first = self.app.jobs.position().wrapping_sub(batch.len() as u32);
        let (mut jobs, mut controls) = (0, 0);
        loop {
            let next = self.app.controls.peek();
            let end = next.map(|next| next.jobs_end.wrapping_sub(first) as usize);
            let due = end.map_or(batch.len(), |end| end.clamp(jobs, batch.len()));
            for &id in &batch[jobs..due] {
                apply_job(core, id);
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
        let (engine, admission) = core.split();
        if let Some(id) = control.asked_of() {
            begin_for(engine, admission.isn(), id);
        }
        let parts = engine.parts();
        match control {
            Control::Listen(asked) => listen(parts.flows, parts.network, parts.events, asked),
            Control::Backlog(backlog) => change_backlog(parts.flows, backlog),
            Control::Connect(asked) => connect(engine, admission.isn(), asked),
            Control::Bind(asked) => bind(parts.flows, parts.network, asked),
            Control::Info(query) => {
                answer_info(parts.flows, parts.network, parts.env.now_ns, query)
            }
            Control::Stamps(query) => parts.flows.sockets_mut().answer_stamps(query),
            Control::SoftError(query) => parts.flows.answer_soft_error(query),
            Control::IcmpNote(query) => parts.flows.answer_icmp_note(query),
            Control::SavedSyn(query) => parts.flows.answer_saved_syn(query),
            Control::Report(answer) => self.reports.push(answer),
            Control::FastOpenQuery(query) => answer_fast_open(
                parts.flows,
                parts.network,
                parts.events,
                &parts.env.config,
                parts.env.now_ns,
                query,
            ),
            Control::Settings(settings) => {
                std::sync::Arc::make_mut(&mut parts.env.config)
                    .tcp
                    .replace(*settings);
            }
            Control::Address(cidr) => parts.network.add_address(cidr),
            Control::Rules(rules) => admission.set_rules(rules),
            Control::Sources(pool) => parts.flows.set_sources(pool),
            Control::ForgetPeers => parts.network.destinations_mut().forget_fast_open(),
            Control::Option(id, option) => {
                if let Some(socket) = parts.flows.resolve(id) {
                    set_option_later(engine, socket, option);
                }
            }
        }
    }
}

fn apply_job(core: &mut Core, id: SocketId) {
    let (engine, admission) = core.split();
    let parts = engine.parts();
    let Some(socket) = parts.flows.resolve(id) else {
        parts.counters.jobs_stale += 1;
        return;
    };
    parts.counters.jobs += 1;
    let requests = parts.flows.block(socket).take_requests();
    match parts.flows.role(socket) {
        Role::Connection => connection_job(engine, socket, requests),
        Role::Reserved if !ends(requests) => opening_job(engine, admission.isn(), socket, requests),
        role if ends(requests) => {
            if let Role::Listener(_) = role
                && parts.network.has_host()
                && !parts.flows.slot(socket).bound
            {
                leave_place(parts.flows, parts.host_wishes, parts.env.now_ns, socket);
            }
            if let Role::Listener(index) = role {
                end_listener(engine, admission.transfers_mut(), index);
            }
            release_socket(engine, socket);
        }
        Role::Ended => {
            let (slot, pool, block) = parts.flows.socket_parts(socket);
            slot.rx.reclaim(pool, block);
        }
        Role::Free | Role::Reserved | Role::Listener(_) => {}
    }
}

/// Applies a job of a socket that is not a connection yet. A socket that only asks to connect waits
/// as a number on a list: with thousands of them, few are in the cache (decision 0043).
#[inline]
fn opening_job(engine: &mut Engine, isn: &mut IsnGenerator, socket: u32, requests: Requests) {
    let parts = engine.parts();
    if requests.contains(Requests::CONNECT) {
        queue_opening(parts.schedule, socket);
    }
    let more = requests.without(Requests::CONNECT);
    // With several ports the list could hold this open up behind a full port.
    let is_urgent = !more.is_empty() || parts.network.ports() > 1;
    if is_urgent && waits_to_begin(parts.flows, parts.schedule, socket) {
        begin_waiting(engine, isn, socket);
        connection_job(engine, socket, more);
    }
}

/// Begins a waiting connection, because a request concerns it.
fn begin_for(engine: &mut Engine, isn: &mut IsnGenerator, id: SocketId) {
    let parts = engine.parts();
    if let Some(socket) = reserved(parts.flows, id)
        && waits_to_begin(parts.flows, parts.schedule, socket)
    {
        begin_waiting(engine, isn, socket);
    }
}

#[inline]
fn connection_job(engine: &mut Engine, socket: u32, requests: Requests) {
    let parts = engine.parts();
    let is_crowded = ends(requests)
        && is_crowded_with_orphans(parts.flows, &parts.env.config, parts.counters, socket);
    if ends(requests) {
        parts.flows.sockets_mut().orphan(socket);
    }
    let (slot, pool, block) = parts.flows.socket_parts(socket);
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let mut effects = Effects::NONE;
    let mut wrote = false;
    let unread = slot.rx.reclaim(pool, block);
    let mut cx = parts.env.cx();
    let run = conn.begin_run();
    if requests.contains(Requests::READ) {
        conn.note_read(&mut cx, unread);
        block.forget_urgent_read();
    }
    if !requests.is_empty() && requests != Requests::READ {
        // The writer may have held its last chunk while the stack processed the ACK that drained
        // the stream.
        slot.tx.reclaim(pool, block);
        let buffered = slot.tx.buffered(block);
        // A job that only ends the stream does not change whether its last bytes announced more
        // (MSG_MORE).
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
        // Unread bytes are lost, and the peer must not believe them delivered (RFC 9293 section
        // 3.10.4, RFC 1122 section 4.2.2.13).
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
    let targets = effect_targets!(parts);
    if !targets.after_job(socket, slot, block, effects, wrote) {
        apply_effects(engine, socket, effects);
    }
}

/// True if a further orphan would exceed the limit (Linux's `tcp_max_orphans`).
#[inline]
fn is_crowded_with_orphans(
    flows: &mut Flows,
    config: &StackConfig,
    counters: &mut Counters,
    socket: u32,
) -> bool {
    flows.sockets().orphans() >= config.limits.orphans_max
        && would_be_orphan(flows, config, counters, socket)
}

/// True if the connection would become an orphan. One that only waits for the peer's FIN becomes a
/// compact entry instead.
#[cold]
fn would_be_orphan(
    flows: &mut Flows,
    config: &StackConfig,
    counters: &mut Counters,
    socket: u32,
) -> bool {
    let Some(conn) = flows.slot(socket).conn.as_ref() else {
        return false;
    };
    let stays = !conn.closes_as_entry(&config.tcp);
    counters.orphans_refused += u64::from(stays);
    stays
}

fn listen(flows: &mut Flows, network: &Network, events: &mut EventQueue, listen: Listen) {
    let Some(socket) = reserved(flows, listen.socket) else {
        return refuse(listen.answer);
    };
    let ip = listen.local.ip();
    // A bound socket's address was checked by `bind` (`IP_FREEBIND`).
    let may_listen =
        ip.is_unspecified() || flows.slot(socket).bound || network.addresses().is_local(ip);
    let outcome = if !may_listen {
        Err(Errno::ADDRNOTAVAIL)
    } else {
        let shares_port = flows.shares_port(socket);
        flows
            .listeners_mut()
            .add(
                listen.socket,
                (ip, listen.local.port()),
                shares_port,
                AcceptQueue::new((listen.accepted, listen.rings), listen.backlog),
                listen.options,
            )
            .map_err(|error| match error {
                ListenError::InUse => Errno::ADDRINUSE,
                ListenError::Full => Errno::NOBUFS,
            })
    };
    if let Ok(index) = outcome {
        let (slot, _, block) = flows.socket_parts(socket);
        slot.role = Role::Listener(index);
        block.add_state(SocketState::LISTENING);
        notify(flows, events, socket);
    }
    answer(flows, events, socket, outcome.map(|_| ()), listen.answer);
}

/// Applies `listen` on a socket that listens already.
fn change_backlog(flows: &mut Flows, change: Backlog) {
    if let Some(socket) = flows.resolve(change.socket)
        && let Role::Listener(index) = flows.role(socket)
        && let Some(listener) = flows.listeners_mut().by_index_mut(index)
    {
        listener.queue.change(change.backlog, change.longer);
    }
}

/// Ends a listener. On a port with a host, other processes at its address may get the waiting
/// connections.
#[cold]
fn end_listener(engine: &mut Engine, transfers: &mut Transfers, index: u32) {
    let Parts { flows, network, .. } = engine.parts();
    match flows.listeners_mut().remove(index) {
        Some((id, listener)) if network.has_host() => transfers.close(id, listener),
        Some((id, listener)) => forget_listener(engine, id, &listener),
        None => {}
    }
}

/// Forgets a listener's handshakes and resets its unaccepted connections, as in Linux.
pub(crate) fn forget_listener(engine: &mut Engine, id: ListenerId, listener: &Listener) {
    let parts = engine.parts();
    for at in 0..parts.flows.half_opens().span() {
        let is_its_own = (parts.flows.half_opens().at(at)).is_some_and(|slot| slot.listener == id);
        if is_its_own {
            remove_half_open(parts.flows, parts.schedule, at);
        }
    }
    for id in listener.queue.waiting() {
        if let Some(socket) = engine.view().flows.resolve(id) {
            disown(engine, socket);
        }
    }
}

/// Aborts a connection that no application has accepted.
pub(crate) fn disown(engine: &mut Engine, socket: u32) {
    let Parts { env, flows, .. } = engine.parts();
    flows.sockets_mut().orphan(socket);
    let Some(conn) = flows.slot(socket).live_mut() else {
        return release_socket(engine, socket);
    };
    let effects = conn.abort(&mut env.cx());
    apply_effects(engine, socket, effects);
}

/// Resets connections from socket `next` on, then compact entries in FIN_WAIT_2, because there is
/// no time to close them in order. Returns where to continue if the queue of resets is full.
#[cold]
pub(crate) fn abort_some(engine: &mut Engine, next: u32) -> Option<u32> {
    let span = engine.view().flows.sockets().span();
    for socket in next..span {
        let parts = engine.parts();
        if parts.schedule.control(FIRST_PORT).room() == 0 {
            return Some(socket);
        }
        if parts.flows.role(socket) == Role::Connection {
            disown(engine, socket);
        } else if waits_to_begin(parts.flows, parts.schedule, socket) {
            release_socket(engine, socket);
        }
    }
    let parts = engine.parts();
    // Compact entries come last, because a reset connection may leave one.
    while let Some(index) = parts.flows.time_waits().oldest_in_fin_wait_2() {
        if parts.schedule.control(FIRST_PORT).room() == 0 {
            return Some(span);
        }
        if let Some(slot) = parts.flows.time_waits().at(index) {
            let (header, farewell) = (HeaderFields::of_answer(slot.dscp), slot.entry.farewell());
            parts.schedule.reply(&slot.key, &farewell, header);
        }
        parts.flows.remove_time_wait(index);
    }
    None
}

/// True if the application lets go of the socket.
#[inline]
fn ends(requests: Requests) -> bool {
    requests.contains(Requests::CLOSE) || requests.contains(Requests::ABORT)
}
