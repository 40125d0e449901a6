//! One core's stack: a port, all that is known of its connections, and the turn that moves both.
//!
//! ```text
//! packet_in → demux → aggregation → tcp_in → job_queue → timers → tcp_out → packet_out → event_queue
//! ```
//!
//! Who turns the crank is the runtime's business: an application's own thread, a thread per stack, or a simulation. A stack never blocks but in
//! [`Stack::wait`], reads the clock only through its caller, and allocates nothing after it was made.

use std::sync::Arc;

use packetio::{Port, PortError};
use ring::doorbell::{AppBell, StackBell};
use ring::memory::{self, ContextLimits};
use ring::stock::Stock;
use ring::{chunk, spsc};
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, OwnedFd};

use crate::config::{ConfigError, StackConfig};
use crate::context::{AppSide, Report};
use crate::core::{Core, CoreParts, Secrets, StackSide};
use crate::counters::Counters;
use crate::event_queue::EventQueue;
use crate::limits::{
    CONTROLS_PER_TURN, Limits, MAGAZINE_LARGE, MAGAZINE_SMALL, SOCKET_STOCK_MAX,
    TX_FRAMES_AHEAD_MIN, TX_FRAMES_PER_TURN, TX_LOOKS_MIN,
};
use crate::network::Network;
use crate::sockets::Sockets;
use crate::stage_clock::Stage;
use crate::tx_lists::Acks;

/// What a turn did: whether to turn again at once or to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Frames received, jobs applied, frames sent or events published: another turn may find more.
    pub busy: bool,
    /// Sockets that the application was told of.
    pub events: usize,
    /// The port had no room for what is ready to leave.
    pub blocked: bool,
    /// As many frames left as one turn hands over, and the port has room for more that are ready.
    pub behind: bool,
}

/// See the module's documentation.
pub struct Stack {
    port: Box<dyn Port + Send>,
    core: Core,
    bell: StackBell,
    app_bell: AppBell,
    /// The port said that it is gone for good.
    is_gone: bool,
}

impl Stack {
    /// A stack on `port`, and the application's end of it.
    ///
    /// # Errors
    /// [`ConfigError`] says which setting cannot be obeyed, or what the kernel refused.
    pub fn new(
        config: StackConfig,
        mut port: Box<dyn Port + Send>,
        now_ns: u64,
    ) -> Result<(Self, AppSide), ConfigError> {
        config.check()?;
        let config = Arc::new(config);
        let secrets = secrets(config.seed)?;
        let has_host = port.host().is_some();
        let network = Network::new(&config, port.capabilities(), has_host, &secrets)?;
        let Shared {
            sockets,
            events,
            side,
            app,
        } = Shared::new(&config.limits, config.tcp.send_buffer.bytes_default)?;
        let (bell, app_bell) = (app.stack_bell.clone(), app.app_bell.clone());
        let parts = CoreParts {
            secrets,
            network,
            sockets,
            events,
            app: side,
        };
        let core = Core::new(config.clone(), port.capabilities(), parts, now_ns);
        let stack = Self {
            port,
            core,
            bell,
            app_bell,
            is_gone: false,
        };
        Ok((stack, app))
    }

    /// One turn: every stage once, each within its budget. `now_ns` is the time of all that happens in it.
    pub fn turn(&mut self, now_ns: u64) -> Turned {
        self.stages(now_ns, Acks::Leave)
    }

    /// As [`turn`](Self::turn), for a caller who lets the application act upon the events of this turn and then comes back at once: ACKs that could ride on
    /// its answers wait for a few turns ([`TransmitClass::Piggyback`](tcp::TransmitClass)).
    pub fn turn_before_answers(&mut self, now_ns: u64) -> Turned {
        self.stages(now_ns, Acks::Wait)
    }

    fn stages(&mut self, now_ns: u64, acks: Acks) -> Turned {
        let core = &mut self.core;
        core.stages.lap(Stage::Outside);
        core.now_ns = now_ns;
        core.sockets.now_ns = now_ns;
        core.sockets.rest_some();
        core.counters.turns += 1;
        core.judge_memory();
        core.relieve_memory();
        let received = match core.packet_in(&mut *self.port) {
            Ok(received) => received,
            Err(error) => {
                self.is_gone |= error == PortError::Gone;
                0
            }
        };
        let jobs = core.job_queue();
        if !core.reports.is_empty() {
            self.answer_reports();
        }
        let core = &mut self.core;
        core.is_crowded = received + jobs > TX_LOOKS_MIN;
        core.stages.lap(Stage::JobQueue);
        core.timers();
        if core.network.has_host
            && let Some(host) = self.port.host()
        {
            core.exchange(host);
        }
        core.stages.lap(Stage::Timers);
        // Nothing arrived and nothing was asked: who was told has no answer.
        let is_quiet = received + jobs == 0;
        core.lists
            .before_output(if is_quiet { Acks::Leave } else { acks });
        let (sent, blocked) = self.packet_out();
        // What a full turn leaves for the next one says nothing about the port: ACKs have their share of each.
        self.core.is_port_short = blocked;
        let behind = sent >= TX_FRAMES_PER_TURN && !blocked && self.core.has_output();
        let events = self.event_queue();
        self.core.count_refusals();
        self.core.stages.lap(Stage::EventQueue);
        Turned {
            busy: received + jobs + sent + events > 0,
            events,
            blocked,
            behind,
        }
    }

    /// The transmit stages: batches of the driver's frames, filled and sent while there is something to send and room for it.
    fn packet_out(&mut self) -> (usize, bool) {
        let (port, core) = (&mut self.port, &mut self.core);
        let mut sent = 0;
        while core.has_output() && sent < TX_FRAMES_PER_TURN {
            let wanted = core.frames_ahead.min(port.capabilities().batch_max);
            let frames = port.reserve(wanted);
            core.stages.lap(Stage::PacketOut);
            if frames.is_empty() {
                core.counters.tx_backpressure += 1;
                // A port that took some of it has its reasons: the next turn asks again.
                if sent == 0 {
                    // What it holds of an earlier turn it may be rid of by now; while input is held nobody else calls it.
                    let _ = port.send(0);
                    core.port_refusals += 1;
                    core.port_blocked();
                }
                return (sent, true);
            }
            let used = core.fill_frames(frames);
            core.stages.lap(Stage::TcpOut);
            let bytes: usize = frames[..used].iter().map(|frame| frame.len()).sum();
            core.counters.tx_bytes += bytes as u64;
            core.counters.tx_frames += used as u64;
            let room = frames.len();
            // Slots cost their driver something, memif a descriptor in shared memory each: about as many as were used last, and more if those were too few.
            core.frames_ahead = (used + used / 2).max(TX_FRAMES_AHEAD_MIN);
            // What was lost is sent again; a failure that lasts is found by the next receive.
            let _ = port.send(used);
            core.stages.lap(Stage::PacketOut);
            sent += used;
            if used > 0 {
                (core.port_took_ns, core.port_refusals) = (core.now_ns, 0);
            }
            if used < room {
                break;
            }
        }
        (sent, false)
    }

    #[cold]
    fn answer_reports(&mut self) {
        let report = Report {
            stack: self.core.counters.clone(),
            tcp: self.core.tcp_counters.clone(),
            port: self.port.counters(),
            neighbours: *self.core.network.neighbours.counters(),
            usage: self.usage(),
            stages: self.core.stages.cycles(),
        };
        for mut answer in self.core.reports.drain(..) {
            // Who asked may have gone.
            let _ = answer.push(report.clone());
        }
        self.app_bell.wake();
    }

    /// The last stage: the application's stocks are filled, its events published, its bell rung at most once.
    fn event_queue(&mut self) -> usize {
        let core = &mut self.core;
        core.app.chunk_stock.refill(&mut core.sockets.pool);
        core.sockets.refill(&mut core.app.socket_stock);
        let has_chunks = !core.app.chunk_stock.is_empty();
        let events = core.events.publish(&mut core.sockets, has_chunks);
        if events > 0 {
            core.counters.events += events as u64;
            core.counters.doorbells += u64::from(self.app_bell.wake());
        }
        events
    }

    /// Something waits for the next turn, and for nothing else: what the application asked, or ACKs for an answer that did not come.
    fn has_work(&mut self) -> bool {
        let app = &mut self.core.app;
        !app.jobs.is_empty() || !app.controls.is_empty() || self.core.lists.has_waiting()
    }

    /// Sleeps until a frame arrives, the application has asked for something, a timer is due, one of `extra` is ready, or `until_ns` has come. Returns at
    /// once if there is work already.
    ///
    /// # Errors
    /// The kernel's, from the wait itself.
    pub fn wait(
        &mut self,
        now_ns: u64,
        until_ns: Option<u64>,
        extra: &[BorrowedFd<'_>],
    ) -> std::io::Result<bool> {
        self.bell.prepare_sleep();
        let wants_tx = self.core.has_output();
        // The port's own deadline is the wait's to heed, which asks the port first: one that has passed would keep it from being asked.
        let due_ns = [self.core.next_timer_ns(), until_ns];
        let due_ns = due_ns.into_iter().flatten().min();
        let timeout_ns = due_ns.map(|due_ns| due_ns.saturating_sub(now_ns));
        let outcome = if self.has_work() || timeout_ns == Some(0) {
            Ok(false)
        } else {
            let mut fds = Vec::with_capacity(extra.len() + 1);
            fds.push(self.bell.fd());
            fds.extend_from_slice(extra);
            // Frames that are not wanted yet would end the sleep at once.
            match self.core.is_input_held {
                true => packetio::wait(&mut [], &fds, false, timeout_ns),
                false => packetio::wait(&mut [&mut *self.port], &fds, wants_tx, timeout_ns),
            }
            .map(|woken| woken.interrupted)
        };
        self.bell.cancel_sleep();
        outcome
    }

    /// Enables the port's wake-ups on behalf of a watcher who will sleep on copies of its descriptors, without holding the stack. `None`: there is work
    /// already. [`disarm`](Self::disarm) ends it.
    ///
    /// # Errors
    /// The kernel's: it has no descriptor left for a copy, and who sleeps on those that were made may sleep through what comes.
    pub fn arm(&mut self) -> rustix::io::Result<Option<Vec<(OwnedFd, PollFlags)>>> {
        self.bell.prepare_sleep();
        let wants_tx = self.core.has_output();
        let is_held = self.core.is_input_held;
        if self.has_work() || (!is_held && self.port.prepare_wait(wants_tx)) {
            self.disarm();
            return Ok(None);
        }
        let mut copies = Vec::new();
        let mut add = |fd: BorrowedFd<'_>, flags| {
            copies.push(rustix::io::fcntl_dupfd_cloexec(fd, 0).map(|copy| (copy, flags)));
        };
        add(self.bell.fd(), PollFlags::IN);
        if !is_held {
            self.port.poll_fds(wants_tx, &mut add);
        }
        let copies: rustix::io::Result<Vec<_>> = copies.into_iter().collect();
        if copies.is_err() {
            self.disarm();
        }
        copies.map(Some)
    }

    /// The watcher is awake.
    pub fn disarm(&mut self) {
        self.port.finish_wait();
        self.bell.cancel_sleep();
    }

    /// A helper thread moves the port's frames, and it needs the CPU of the calling thread for that
    /// ([`Port::mover_shares_cpu`](packetio::Port::mover_shares_cpu)).
    #[must_use]
    pub fn mover_shares_cpu(&self) -> bool {
        self.port.mover_shares_cpu()
    }

    /// Resets connections from number `next` on (0 at first), as many as the queue of resets takes: the next turns tell their peers. Who is next after these. For a stack that is about
    /// to end, its application being gone.
    #[must_use]
    pub fn abort_some(&mut self, next: u32) -> Option<u32> {
        self.core.abort_some(next)
    }

    /// The next turn may be long in coming: the port makes room for what arrives until then.
    pub fn drain(&mut self) {
        self.port.drain();
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// What TCP counted so far.
    pub fn tcp_counters(&self) -> &tcp::Counters {
        &self.core.tcp_counters
    }

    /// What the port counted so far.
    pub fn port_counters(&self) -> packetio::PortCounters {
        self.port.counters()
    }

    /// The port is gone for good, as when its interface was deleted: nothing will arrive or leave any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// How much is in use: what must be back at zero when all connections are gone.
    pub fn usage(&self) -> Usage {
        let core = &self.core;
        let used = |class| {
            let stock = core.app.chunk_stock.len(class) as u32;
            core.sockets.pool.total(class) - core.sockets.pool.free(class) - stock
        };
        Usage {
            sockets: core.sockets.in_use(),
            dormant: core.sockets.dormant(),
            rest_blocks: core.sockets.rest_blocks(),
            half_open: core.half_opens.len(),
            time_wait: core.time_waits.len(),
            fin_wait_2: core.time_waits.fin_wait_2(),
            flows: core.flows.len(),
            small_chunks: used(chunk::ChunkClass::Small),
            large_chunks: used(chunk::ChunkClass::Large),
            segment_records: core.records.in_use(),
            range_blocks: core.ranges.in_use(),
        }
    }

    /// When [`turn`](Self::turn) has something to do although nothing arrives; `None`: never.
    pub fn next_timer_ns(&self) -> Option<u64> {
        [self.core.next_timer_ns(), self.port.deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Something is ready to leave and waits for room in the port, or will leave with the next turn.
    pub fn has_output(&self) -> bool {
        self.core.has_output() || self.core.lists.has_waiting()
    }

    /// Every connection with its names, in no particular order: for a simulation that looks inside.
    pub fn connections(
        &self,
    ) -> impl Iterator<Item = (wire::FlowKey, std::borrow::Cow<'_, tcp::Connection>)> {
        self.core.sockets.connections()
    }

    /// The port, for tests that look at what it did.
    pub fn port_mut(&mut self) -> &mut (dyn Port + Send) {
        &mut *self.port
    }
}

/// What a stack holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections, listeners, and sockets whose connection has ended while the application holds them.
    pub sockets: usize,
    /// Of these, the quiet ones that are packed.
    pub dormant: usize,
    /// Blocks that packed ones take.
    pub rest_blocks: usize,
    /// Handshakes in progress.
    pub half_open: usize,
    /// Entries of connections in TIME_WAIT, and of closed ones in FIN_WAIT_2.
    pub time_wait: usize,
    /// Of these, the ones in FIN_WAIT_2.
    pub fin_wait_2: usize,
    /// Flows in the table: the sum of connections, handshakes and entries.
    pub flows: usize,
    /// Small chunks in streams.
    pub small_chunks: u32,
    /// Large chunks in streams.
    pub large_chunks: u32,
    /// Records of segments in flight.
    pub segment_records: usize,
    /// Blocks of ranges that are held out of order.
    pub range_blocks: usize,
}

/// What a stack and its application share, each with its ends.
struct Shared {
    sockets: Sockets,
    events: EventQueue,
    side: StackSide,
    app: AppSide,
}

impl Shared {
    fn new(limits: &Limits, send_buffer_bytes: u32) -> Result<Self, ConfigError> {
        let context_limits = ContextLimits {
            sockets_max: limits.sockets_max as u32,
            small_chunks: limits.small_chunks as u32,
            large_chunks: limits.large_chunks as u32,
            hugetlb: false,
        };
        let (memory, mut pool) = memory::create(&context_limits).map_err(ConfigError::Memory)?;
        let (jobs_in, jobs) = spsc::queue(limits.sockets_max);
        let (controls_in, controls) = spsc::queue(CONTROLS_PER_TURN * 2);
        let (events, events_out) = spsc::queue(limits.sockets_max * 2);
        // A quarter of the table at most, also after the queue has rounded its length: what lies in the stock cannot be accepted into.
        let stock = SOCKET_STOCK_MAX.min(limits.sockets_max / 4).max(1);
        let stock = 1 << stock.ilog2();
        let (socket_stock, stock_out) = spsc::queue(stock);
        let mut socket_stock = Stock::new(socket_stock);
        let small = MAGAZINE_SMALL.min(limits.small_chunks / 4);
        let large = MAGAZINE_LARGE.min(limits.large_chunks / 4);
        let (mut chunk_stock, magazine) = chunk::magazine(small, large);
        chunk_stock.refill(&mut pool);
        let mut sockets = Sockets::new(memory.clone(), pool, limits, send_buffer_bytes);
        sockets.refill(&mut socket_stock);
        let stack_bell = StackBell::new().map_err(|errno| ConfigError::System {
            what: "eventfd",
            errno,
        })?;
        let app = AppSide {
            memory,
            jobs: jobs_in,
            controls: controls_in,
            events: events_out,
            sockets: stock_out,
            magazine,
            stack_bell,
            app_bell: AppBell::new(),
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

fn secrets(seed: Option<[u64; 4]>) -> Result<Secrets, ConfigError> {
    if let Some(words) = seed {
        return Ok(Secrets { words });
    }
    let mut bytes = [0; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(
        |errno| ConfigError::System {
            what: "getrandom",
            errno,
        },
    )?;
    let mut words = [0; 4];
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = piece
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    Ok(Secrets { words })
}
