//! One core's stack: its ports, the state of its connections, and the turn that processes both.
//!
//! ```text
//! packet_in → demux → tcp_in → job_queue → timers → tcp_out → packet_out → event_queue
//! ```
//!
//! The runtime decides which thread turns the crank: the application's, one per stack, or a
//! simulation's. A stack blocks only in [`Stack::wait`] and gets the time only from its caller.
//! After set-up it allocates only its queue to itself, on first use.

mod capture;
mod each_port;

use std::sync::Arc;

use packetio::Port;
use packetio::mesh::{MeshReceiver, MeshSender};
use ring::doorbell::StackBell;
use ring::due::Due;
use ring::huge_pages::{PageSource, PagesHeld};
use ring::memory::ContextLimits;
use ring::stock::Stock;
use ring::{chunk, spsc};
use rustix::event::PollFlags;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use tcp::isn::IsnGenerator;
use wire::{FlowHasher, FlowKey};

pub use self::each_port::PortView;
use crate::activity::{Activity, Batch};
use crate::admission::Admission;
use crate::config::{ConfigError, StackConfig};
use crate::context::{AppSide, Report, Usage};
use crate::core::Core;
use crate::counters::Counters;
use crate::engine::{Engine, Parts, View, count_refusals, judge_memory};
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::flows::ledger::Ledger;
use crate::flows::local_ports::PortSearch;
use crate::flows::memory_rounds::MemoryRounds;
use crate::flows::shedding::Shedding;
use crate::flows::slot::Role;
use crate::flows::sockets::Sockets;
use crate::handshake_keys::HandshakeKeys;
use crate::host::exchange;
use crate::limits::{
    CONTROLS_PER_TURN, Limits, MAGAZINE_LARGE, MAGAZINE_SMALL, QUEUE_LOOKS_MAX,
    ROUND_TRIPS_PER_LOOK, SOCKET_STOCK_MAX, TX_LOOKS_MIN,
};
use crate::network::neighbours::NeighbourCounters;
use crate::network_setup::network;
use crate::ports::Ports;
use crate::requests::job_queue::abort_some;
use crate::requests::{AppRequests, StackSide};
use crate::rules::counts;
use crate::rules::judge::Judge;
use crate::schedule::Schedule;
use crate::schedule::tx_lists::Acks;
use crate::secrets::Secrets;
use crate::stage_clock::Stage;
use crate::survey::{self, SurveyCursor, SurveyId, SurveyRow, kill_flow, survey};
use crate::tcp_env::TcpEnv;
use crate::timer_stage::{fire_timers, next_timer_ns};
use crate::transfers::is_transferring;

/// The outcome of a turn: whether to turn again at once or to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Frames were received or sent, jobs applied, or events published: another turn may find more.
    pub busy: bool,
    /// Number of sockets that the application was told of.
    pub events: usize,
    /// A port had no room for ready segments.
    pub blocked: bool,
    /// The turn sent as many frames as it may, and a port has room for more.
    pub behind: bool,
}

/// Lengths of a stack's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Connections that wait in accept queues.
    pub accept: usize,
    /// Connections with something to send, counting at most 16,384 of each list.
    pub transmit: usize,
    /// Segments without a connection that wait to leave.
    pub control: usize,
}

/// An observer that looks into a stack from time to time, at the end of a turn.
pub trait Observer {
    /// Looks at the stack, and sets the next [due time](Stack::set_observer). The turn began at
    /// `now_ns`.
    fn observe(&mut self, stack: &mut Stack, now_ns: u64);
}

/// See the module's documentation.
pub struct Stack {
    ports: Ports,
    /// Boxed on the heap, because a thread with a small stack may make and move this value.
    core: Core,
    /// The pages under tables and memory file.
    pages: PagesHeld,
    requests: AppRequests,
    shedding: Shedding,
    rounds: MemoryRounds,
    bell: StackBell,
    activity: Activity,
    /// The next slot whose round trip is sampled.
    round_trip_next: usize,
    /// Time of the observer's next look.
    observer_due: Arc<Due>,
    observer: Option<Box<dyn Observer + Send>>,
    /// Time at which the running capture ends; `None`: no capture runs.
    capture_until_ns: Option<u64>,
}

impl Stack {
    /// Makes a stack on `port`, and the application's end of it.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is invalid, or the kernel's error.
    pub fn new(
        config: StackConfig,
        port: Box<dyn Port + Send>,
        now_ns: u64,
    ) -> Result<(Self, AppSide), ConfigError> {
        Self::with_ports(config, vec![port], now_ns)
    }

    /// Makes a stack on several ports, at most [`PORTS_MAX`](crate::limits::PORTS_MAX).
    /// [`StackConfig::further_ports`] holds the settings of those behind the first.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`ConfigError::Ports`] if the number of ports differs from
    /// the settings.
    pub fn with_ports(
        config: StackConfig,
        ports: Vec<Box<dyn Port + Send>>,
        now_ns: u64,
    ) -> Result<(Self, AppSide), ConfigError> {
        Self::among_others(config, ports, None, now_ns)
    }

    /// Makes a stack like [`with_ports`](Self::with_ports), with a context's ends of the mesh by
    /// which contexts of a process hand frames over. All contexts must share [`StackConfig::seed`],
    /// so that they hash flows alike.
    ///
    /// # Errors
    /// The errors of [`with_ports`](Self::with_ports).
    pub fn among_others(
        config: StackConfig,
        mut ports: Vec<Box<dyn Port + Send>>,
        mesh: Option<(MeshSender, MeshReceiver)>,
        now_ns: u64,
    ) -> Result<(Self, AppSide), ConfigError> {
        config.check()?;
        if ports.len() != 1 + config.further_ports.len() {
            return Err(ConfigError::Ports(ports.len()));
        }
        let config = Arc::new(config);
        let secrets = Secrets::new(config.seed)?;
        let has_host = ports[0].host().is_some();
        let ledger = ports[0].host().and_then(|host| host.take_ledger());
        let network = network(&config, &ports, has_host, &secrets)?;
        let mut source = PageSource::new(config.hugetlb);
        let Shared {
            sockets,
            events,
            side,
            app,
        } = Shared::new(
            &config.limits,
            config.tcp.send_buffer.bytes_default,
            mesh.as_ref().map(|(_, receiver)| receiver.bell().clone()),
            &mut source,
        )?;
        let bell = app.stack_bell.clone();
        let mut flows = flows(&config, &secrets, sockets, now_ns, &mut source);
        let limits = &config.limits;
        let ledger = Ledger::new(ledger, limits.sockets_max, limits.time_wait_max);
        flows.observe(ledger, config.story_one_in);
        let (mesh, handed) = mesh.unzip();
        flows.share(mesh.as_ref().map(MeshSender::directory).cloned());
        let engine = Box::new(Engine::new(
            TcpEnv::new(config.clone(), secrets.key(1)[0], now_ns),
            flows,
            network,
            Schedule::new(limits, ports.len(), now_ns, &mut source),
            events,
        ));
        let admission = Admission::new(
            IsnGenerator::new(secrets.key(3)),
            HandshakeKeys::new(secrets, now_ns),
            Judge::new(&config.rules, now_ns)?,
            mesh.map(Box::new),
        );
        let core = Core::new(engine, admission);
        source.check()?;
        let stack = Self {
            core,
            pages: source.held(),
            requests: AppRequests::new(side),
            shedding: Shedding::default(),
            rounds: MemoryRounds::new(config.return_memory_ns, now_ns),
            ports: Ports::new(&config, ports, handed.map(Box::new), now_ns),
            bell,
            activity: Activity::new(now_ns),
            round_trip_next: 0,
            observer_due: Arc::default(),
            observer: None,
            capture_until_ns: None,
        };
        Ok((stack, app))
    }

    /// Runs every stage once, each within its budget. `now_ns` is the time of everything in this
    /// turn.
    pub fn turn(&mut self, now_ns: u64) -> Turned {
        self.stages(now_ns, Acks::Leave)
    }

    /// Runs a [`turn`](Self::turn) for a caller that lets the application handle its events and
    /// returns at once. ACKs that could ride on the application's answers wait for a few turns
    /// ([`TransmitClass::Piggyback`](tcp::TransmitClass)).
    pub fn turn_before_answers(&mut self, now_ns: u64) -> Turned {
        self.stages(now_ns, Acks::Wait)
    }

    /// Runs a [`turn`](Self::turn) for a write of an application that has not handled all of its
    /// events. ACKs wait longer than in [`turn_before_answers`](Self::turn_before_answers).
    pub fn turn_amid_answers(&mut self, now_ns: u64) -> Turned {
        self.stages(now_ns, Acks::WaitForWriter)
    }

    fn stages(&mut self, now_ns: u64, acks: Acks) -> Turned {
        let core = &mut self.core;
        core.lap(Stage::Outside);
        self.activity.begin(now_ns);
        let parts = core.engine_mut().parts();
        parts.env.now_ns = now_ns;
        parts.flows.sockets_mut().now_ns = now_ns;
        let delays = &mut self.activity.accept_ns;
        parts.flows.listeners_mut().note_taken(now_ns, delays);
        parts.flows.sockets_mut().pack_some();
        parts.counters.turns += 1;
        judge_memory(parts.env, parts.flows);
        self.shedding
            .relieve(parts.env, parts.flows.sockets_mut(), parts.counters);
        let received = self.ports.receive(core);
        let jobs = self.requests.job_queue(core);
        if !self.requests.reports.is_empty() {
            self.answer_reports();
        }
        let core = &mut self.core;
        core.lap(Stage::JobQueue);
        fire_timers(core, &self.ports, &mut self.rounds);
        if core.engine().view().network.has_host()
            && let Some(host) = self.ports.first_mut().host()
        {
            exchange(core, host);
        }
        core.lap(Stage::Timers);
        // Nothing arrived and nothing was requested, so the application has no answer to the last
        // events.
        let is_quiet = received + jobs == 0;
        let Parts { schedule, .. } = core.engine_mut().parts();
        schedule
            .lists_mut()
            .before_output(if is_quiet { Acks::Leave } else { acks });
        let sent = self.ports.send(core, received + jobs > TX_LOOKS_MIN);
        let events = self.event_queue();
        count_refusals(self.core.engine_mut());
        self.core.lap(Stage::EventQueue);
        let batch = Batch {
            received,
            sent: sent.frames,
            jobs,
            events,
        };
        let busy = batch.is_busy();
        self.activity.end(batch);
        if self.observer_due.is_due(now_ns) {
            self.observe(now_ns);
        }
        Turned {
            busy,
            events,
            blocked: sent.is_blocked,
            behind: sent.is_behind,
        }
    }

    fn view(&self) -> View<'_> {
        self.core.engine().view()
    }

    /// Lets `observer` look at the end of the next turn, and whenever `due` has come.
    pub fn set_observer(&mut self, due: Arc<Due>, observer: Box<dyn Observer + Send>) {
        due.ask();
        self.observer_due = due;
        self.observer = Some(observer);
    }

    /// Lets the observer look at once. A caller that found the wire [gone](Self::is_gone) may turn
    /// the stack no more.
    #[cold]
    pub fn observe(&mut self, now_ns: u64) {
        if let Some(mut observer) = self.observer.take() {
            observer.observe(self, now_ns);
            self.observer = Some(observer);
        }
    }

    /// Counters, and the use of tables and pools.
    pub fn report(&self) -> Report {
        Report {
            stack: self.view().counters.clone(),
            tcp: self.view().env.tcp_counters.clone(),
            port: self.ports.counters(),
            ports: self.each_port().map(|port| port.report()).collect(),
            neighbours: *self.view().network.neighbours().counters(),
            rules: (self.core.admission().rules()).map_or(Vec::new(), |judge| judge.counts()),
            usage: self.usage(),
            pages: self.pages,
            stages: self.core.stage_cycles(),
            activity: self.activity.clone(),
        }
    }

    /// Answers a request for the counts of packet rules ([`rules::counts`](crate::rules::counts)),
    /// with at most `room` bytes. False: the request is invalid.
    pub fn answer_rules(&self, question: &[u8], room: usize, answer: &mut Vec<u8>) -> bool {
        counts::answer(self.core.admission().rules(), question, room, answer)
    }

    /// How the stack's time is used, and the sizes of its batches.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Records the length of a turn, ns. The caller measures only some turns.
    #[inline]
    pub fn note_turn(&mut self, length_ns: u64) {
        self.activity.turn_ns.add(length_ns);
    }

    /// Adds round trips of a few connections to the histogram, for an observer. Connections take
    /// turns; only those active within the last `recent_ns` count.
    pub fn sample_round_trips(&mut self, recent_ns: u64) {
        let since_ns = self.view().env.now_ns.saturating_sub(recent_ns);
        let sockets = self.core.engine().view().flows.sockets();
        let next = &mut self.round_trip_next;
        for _ in 0..ROUND_TRIPS_PER_LOOK.min(sockets.warm_slots().len()) {
            *next = (*next + 1) % sockets.warm_slots().len();
            let slot = &sockets.warm_slots()[*next];
            if let Some(conn) = slot.conn.as_ref()
                && slot.role == Role::Connection
                && conn.last_active_ns() >= since_ns
                && conn.round_trip_ns() > 0
            {
                self.activity.round_trip_ns.add(conn.round_trip_ns());
            }
        }
    }

    /// The lengths of the stack's queues. The cost grows with the number of waiting connections.
    pub fn queues(&self) -> Queues {
        let core = self.view();
        Queues {
            accept: core.flows.listeners().waiting(),
            transmit: core.schedule.lists().len_up_to(QUEUE_LOOKS_MAX),
            control: core.schedule.control_waiting(),
        }
    }

    /// The first port's name, such as `tap:mill0`.
    pub fn port_name(&self) -> &str {
        &self.ports.first().capabilities().name
    }

    /// Sizes of the tables.
    pub fn limits(&self) -> &Limits {
        &self.view().env.config.limits
    }

    #[cold]
    fn answer_reports(&mut self) {
        let report = self.report();
        for mut answer in self.requests.reports.drain(..) {
            // The thread that asked may be gone.
            let _ = answer.push(report.clone());
        }
    }

    /// Runs the last stage: refills the application's stocks and publishes events.
    fn event_queue(&mut self) -> usize {
        let app = &mut self.requests.app;
        let parts = self.core.engine_mut().parts();
        app.chunk_stock.refill(&mut parts.flows.sockets_mut().pool);
        parts.flows.sockets_mut().refill(&mut app.socket_stock);
        let has_chunks = !app.chunk_stock.is_empty();
        let told = parts.events.publish(parts.flows.sockets_mut(), has_chunks);
        parts.counters.events += told as u64;
        told
    }

    /// True if something is ready to leave now.
    fn output_is_ready(&self) -> bool {
        self.ports.has_output(self.core.engine())
    }

    /// Time at which the timer stage has something to do next, ns.
    fn stages_next_ns(&self) -> Option<u64> {
        next_timer_ns(self.core.engine(), &self.ports, &self.rounds)
    }

    /// True if anything waits for the next turn without an outside event: requests, own or handed
    /// frames, an observer, or ACKs whose answer did not come.
    fn has_work(&mut self) -> bool {
        let app = &mut self.requests.app;
        !app.jobs.is_empty()
            || !app.controls.is_empty()
            || (!self.ports.holds_input() && self.view().network.hears_itself())
            || self.ports.has_handed()
            || self.observer_due.is_asked()
            || self.view().schedule.lists().has_waiting()
    }

    /// Sleeps until a frame arrives, the application sends a request, a timer is due, one of
    /// `extra` is ready, or `until_ns` has come. Returns at once if there is work. True: a signal
    /// ended the sleep.
    ///
    /// # Errors
    /// The kernel's error from the wait.
    pub fn wait(
        &mut self,
        now_ns: u64,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
    ) -> std::io::Result<bool> {
        self.bell.prepare_sleep();
        // The wait respects the port's own deadline and polls the port first. If that deadline were
        // counted here and had passed, the port would not be polled.
        let due_ns = [self.stages_next_ns(), until_ns];
        let due_ns = due_ns.into_iter().flatten().min();
        let timeout_ns = due_ns.map(|due_ns| due_ns.saturating_sub(now_ns));
        let outcome = if self.has_work() || timeout_ns == Some(0) {
            Ok(false)
        } else {
            self.activity.sleeps();
            let mut fds = Vec::with_capacity(extra.len() + 1);
            fds.push(self.bell.fd());
            fds.extend_from_slice(extra);
            self.ports.wait(self.core.engine(), &fds, timeout_ns)
        };
        self.bell.cancel_sleep();
        outcome
    }

    /// Enables the port's wake-ups for a watcher that sleeps on copies of the descriptors without
    /// holding the stack. `None`: there is work already. [`disarm`](Self::disarm) disables them.
    ///
    /// # Errors
    /// The kernel has no descriptor left for a copy. A sleep on an incomplete set may miss input.
    pub fn arm(&mut self) -> rustix::io::Result<Option<Vec<(OwnedFd, PollFlags)>>> {
        match self.arm_again() {
            true => self.copies().map(Some),
            false => Ok(None),
        }
    }

    /// Copies of the descriptors to sleep on, for a watcher of the armed stack.
    ///
    /// # Errors
    /// As [`arm`](Self::arm); the stack is disarmed then.
    pub fn copies(&mut self) -> rustix::io::Result<Vec<(OwnedFd, PollFlags)>> {
        let mut copies = Vec::new();
        // Duplicated through libc, not by a direct system call: under `mill run` the preloaded
        // library hides the copy's number from the program.
        let mut add = |fd: BorrowedFd<'_>, flags| {
            let copy = fd.try_clone_to_owned();
            let copy = copy.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE));
            copies.push(copy.map(|copy| (copy, flags)));
        };
        add(self.bell.fd(), PollFlags::IN);
        self.ports.poll_fds(self.core.engine(), &mut add);
        let copies: rustix::io::Result<Vec<_>> = copies.into_iter().collect();
        if copies.is_err() {
            self.disarm();
        }
        copies
    }

    /// Enables wake-ups like [`arm`](Self::arm), for a watcher that still has copies. False: there
    /// is work. The copies are outdated if [`watches`](Self::watches) has changed since they were
    /// made.
    pub fn arm_again(&mut self) -> bool {
        self.bell.prepare_sleep();
        let has_work = self.has_work() || self.ports.prepare_wait(self.core.engine());
        match has_work {
            true => self.disarm(),
            false => self.activity.sleeps(),
        }
        !has_work
    }

    /// A digest of the port's descriptors and of the events to watch on each.
    pub fn watches(&mut self) -> u64 {
        let mut mark = 0_u64;
        let mut add = |fd: BorrowedFd<'_>, flags: PollFlags| {
            let one = (fd.as_raw_fd() as u64) << 16 | u64::from(flags.bits());
            mark = mark.rotate_left(7) ^ one;
        };
        self.ports.poll_fds(self.core.engine(), &mut add);
        mark
    }

    /// Disables the wake-ups that [`arm`](Self::arm) enabled; the watcher is awake.
    pub fn disarm(&mut self) {
        self.ports.finish_wait();
        self.bell.cancel_sleep();
    }

    /// True if a helper thread that moves the port's frames needs the CPU of the calling thread
    /// ([`Port::mover_shares_cpu`](packetio::Port::mover_shares_cpu)).
    #[must_use]
    pub fn mover_shares_cpu(&self) -> bool {
        self.ports.mover_shares_cpu()
    }

    /// Resets connections from number `next` (0 at first), as many as the queue of resets takes;
    /// the next turns send them. Returns where to continue. For a stack whose application is gone.
    #[must_use]
    pub fn abort_some(&mut self, next: u32) -> Option<u32> {
        abort_some(self.core.engine_mut(), next)
    }

    /// Makes the ports gain room for arriving frames, because the next turn may come late.
    pub fn drain(&mut self) {
        self.ports.drain();
    }

    /// The stack's counters so far.
    pub fn counters(&self) -> &Counters {
        self.view().counters
    }

    /// TCP's counters so far.
    pub fn tcp_counters(&self) -> &tcp::Counters {
        &self.view().env.tcp_counters
    }

    /// The neighbour cache's counters so far.
    pub fn neighbour_counters(&self) -> NeighbourCounters {
        *self.view().network.neighbours().counters()
    }

    /// The counters of all ports so far.
    pub fn port_counters(&self) -> packetio::PortCounters {
        self.ports.counters()
    }

    /// True if all ports are gone for good, for example because their interfaces were deleted.
    pub fn is_gone(&self) -> bool {
        self.ports.are_gone()
    }

    /// Use of tables and pools. All values return to zero when all connections are gone.
    pub fn usage(&self) -> Usage {
        let core = self.view();
        let pool = &core.flows.sockets().pool;
        let used = |class| {
            let stock = self.requests.app.chunk_stock.len(class) as u32;
            pool.total(class) - pool.free(class) - stock
        };
        Usage {
            sockets: core.flows.sockets().in_use(),
            dormant: core.flows.sockets().dormant(),
            packed_blocks: core.flows.sockets().packed_blocks(),
            half_open: core.flows.half_opens().len(),
            time_wait: core.flows.time_waits().len(),
            fin_wait_2: core.flows.time_waits().fin_wait_2(),
            flows: core.flows.count(),
            small_chunks: used(chunk::ChunkClass::Small),
            large_chunks: used(chunk::ChunkClass::Large),
            segment_records: core.env.records.in_use(),
            range_blocks: core.env.ranges.in_use(),
        }
    }

    /// The pages under the stack's tables and memory file.
    pub fn pages(&self) -> PagesHeld {
        self.pages
    }

    /// Time at which [`turn`](Self::turn) has something to do although nothing arrives, ns; `None`:
    /// never.
    pub fn next_timer_ns(&self) -> Option<u64> {
        [self.stages_next_ns(), self.ports.deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// True while unaccepted connections are on their way to another process, or handshakes that
    /// will go there are in progress.
    pub fn is_transferring(&self) -> bool {
        is_transferring(self.view().flows, self.core.admission().transfers())
    }

    /// True if something is ready to leave, with the next turn or when the port has room.
    pub fn has_output(&self) -> bool {
        self.output_is_ready()
            || self.view().schedule.lists().has_waiting()
            || self.view().network.hears_itself()
    }

    /// Every connection with its key, in no particular order, for simulations that look inside.
    pub fn connections(
        &self,
    ) -> impl Iterator<Item = (FlowKey, std::borrow::Cow<'_, tcp::Connection>)> {
        self.view().flows.sockets().connections()
    }

    /// Passes the next flows of a walk to `sink`, at most `rows`, and advances `cursor`. False:
    /// there are no more. Each row takes a bounded time, and nothing changes.
    pub fn survey(
        &self,
        cursor: &mut SurveyCursor,
        rows: usize,
        sink: &mut dyn FnMut(SurveyRow),
    ) -> bool {
        survey(
            self.view().flows,
            self.view().network,
            &self.view().env.config,
            self.view().env.now_ns,
            cursor,
            rows,
            sink,
        )
    }

    /// The time of the last turn, ns.
    pub fn now_ns(&self) -> u64 {
        self.view().env.now_ns
    }

    /// Answers another process's request for the next flows of a walk ([`survey::request`]), with
    /// at most `room` bytes. False: the request is invalid.
    pub fn answer_list(&self, body: &[u8], room: usize, answer: &mut Vec<u8>) -> bool {
        survey::request::list(self.core.engine(), body, room, answer)
    }

    /// Answers another process's request to end a flow. False: the request is invalid.
    pub fn answer_kill(&mut self, body: &[u8], answer: &mut Vec<u8>) -> bool {
        survey::request::kill(self.core.engine_mut(), body, answer)
    }

    /// Answers another process's request for the story of a connection ([`survey::story`]), with at
    /// most `room` bytes. False: the request is invalid.
    pub fn answer_story(&mut self, body: &[u8], room: usize, answer: &mut Vec<u8>) -> bool {
        survey::story::answer(self.core.engine_mut(), body, room, answer)
    }

    /// Ends a flow that a walk found: a connection by RST and `ECONNABORTED`, a compact entry
    /// silently. False: the flow is gone, or is a listener.
    pub fn kill_flow(&mut self, flow: SurveyId, key: &FlowKey) -> bool {
        kill_flow(self.core.engine_mut(), flow, key)
    }
}

/// Makes the empty flows of a new stack.
fn flows(
    config: &StackConfig,
    secrets: &Secrets,
    sockets: Sockets,
    now_ns: u64,
    source: &mut PageSource,
) -> Flows {
    let first_port = secrets.key(5)[0] as u32;
    let local_ports = PortSearch::new(first_port, config.local_ports, config.spread.clone());
    let hasher = FlowHasher::new(secrets.key(2));
    Flows::new(&config.limits, sockets, hasher, local_ports, now_ns, source)
}

/// The queues and memory between a stack and its application, both ends of each.
struct Shared {
    sockets: Sockets,
    events: EventQueue,
    side: StackSide,
    app: AppSide,
}

impl Shared {
    fn new(
        limits: &Limits,
        send_buffer_bytes: u32,
        bell: Option<StackBell>,
        source: &mut PageSource,
    ) -> Result<Self, ConfigError> {
        let context_limits = ContextLimits {
            sockets_max: limits.sockets_max as u32,
            small_chunks: limits.small_chunks as u32,
            large_chunks: limits.large_chunks as u32,
        };
        let (memory, mut pool) =
            chunk::create_memory(&context_limits, source).map_err(ConfigError::Memory)?;
        let (jobs_in, jobs) = spsc::queue(limits.sockets_max);
        let (controls_in, controls) = spsc::queue(CONTROLS_PER_TURN * 2);
        let (events, events_out) = spsc::queue(limits.sockets_max * 2);
        // At most a quarter of the table, even after the queue has rounded its length up: sockets
        // in the stock cannot serve accepted connections.
        let stock = SOCKET_STOCK_MAX.min(limits.sockets_max / 4).max(1);
        let stock = 1 << stock.ilog2();
        let (socket_stock, stock_out) = spsc::queue(stock);
        let mut socket_stock = Stock::new(socket_stock);
        let small = MAGAZINE_SMALL.min(limits.small_chunks / 4);
        let large = MAGAZINE_LARGE.min(limits.large_chunks / 4);
        let (mut chunk_stock, magazine) = chunk::magazine(small, large);
        chunk_stock.refill(&mut pool);
        let mut sockets = Sockets::new(memory.clone(), pool, limits, send_buffer_bytes, source);
        sockets.refill(&mut socket_stock);
        let stack_bell = match bell {
            Some(bell) => bell,
            None => StackBell::new().map_err(|errno| ConfigError::System {
                what: "eventfd",
                errno,
            })?,
        };
        let app = AppSide {
            memory,
            jobs: jobs_in,
            controls: controls_in,
            events: events_out,
            sockets: stock_out,
            magazine,
            stack_bell,
        };
        let side = StackSide {
            jobs,
            controls,
            socket_stock,
            chunk_stock,
        };
        Ok(Self {
            sockets,
            events: EventQueue::new(events, limits.sockets_max),
            side,
            app,
        })
    }
}
