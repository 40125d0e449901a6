//! The ports of a stack, each with its receive and transmit stages.
//!
//! All ports share flows, network and schedule. A turn receives a batch from each port and sends
//! one by each; one wait sleeps on all ports. A port that is gone for good is skipped.

use packetio::capture_port::CapturePort;
use packetio::mesh::MeshReceiver;
use packetio::{ChecksumPolicy, Port, PortCounters, PortError};
use ring::frame_log::FrameLog;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use wire::MacAddr;

use crate::arrivals::{Arrivals, DropNotes};
use crate::config::StackConfig;
use crate::core::Core;
use crate::departures::Departures;
use crate::departures::packet_out::build_head;
use crate::departures::tcp_out::evacuate;
use crate::drop_reasons;
use crate::engine::{Engine, View, sort_control};
use crate::header_fields::LinkEnds;
use crate::limits::{HEADER_BYTES_MAX, RX_FRAMES_PER_TURN, TX_FRAMES_PER_TURN};
use crate::network::layer::Network;
use crate::port_loss::lose_port;
use crate::unsent_notes::UnsentNotes;

/// One port with the state of its stages.
pub(crate) struct PortSide {
    pub port: Box<dyn Port + Send>,
    arrivals: Arrivals,
    departures: Departures,
    /// True once the port has reported that it is gone for good.
    pub is_gone: bool,
    /// Frames of this port that were dropped, by reason. `None`: it is the only port, so the
    /// stack's counters tell.
    pub drops: Option<Box<DropCounts>>,
}

/// Counts of dropped frames, in the order of [`drop_reasons::NAMES`].
type DropCounts = [u64; drop_reasons::NAMES.len()];

impl PortSide {
    /// Covers the port with one that logs its frames and why they were dropped.
    pub fn cover(&mut self, log: FrameLog) {
        CapturePort::cover(&mut self.port, log);
        let batch_max = self.port.capabilities().batch_max;
        self.arrivals.drop_notes = Some(DropNotes::new(batch_max));
    }

    /// Receives a batch for a stack with several ports, and counts the dropped frames of this port.
    fn receive_among_others(&mut self, core: &mut Core) -> Result<usize, PortError> {
        let counts = |core: &Core| {
            let View { env, counters, .. } = core.engine().view();
            drop_reasons::counts(counters, &env.tcp_counters)
        };
        let before = counts(core);
        let outcome = self
            .arrivals
            .packet_in(core, &mut *self.port, self.departures.acceptance());
        if let Some(drops) = self.drops.as_deref_mut() {
            let grown = counts(core).into_iter().zip(before);
            for (held, (after, before)) in drops.iter_mut().zip(grown) {
                *held += after - before;
            }
        }
        outcome
    }

    /// True if something is ready to leave by this port.
    fn has_output(&self, engine: &Engine) -> bool {
        self.departures.has_output(engine) || !self.arrivals.ack_trains.is_empty()
    }
}

/// See the module's documentation.
pub(crate) struct Ports {
    each: Vec<PortSide>,
    /// Receiver of frames that other contexts hand over; `None`: the context is alone.
    handed: Option<Box<MeshReceiver>>,
}

/// The result of a turn's output.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    pub frames: usize,
    /// True if some port had no room for ready segments.
    pub is_blocked: bool,
    /// True if a full turn left ready segments although the port has room.
    pub is_behind: bool,
}

impl Ports {
    pub fn new(
        config: &StackConfig,
        ports: Vec<Box<dyn Port + Send>>,
        handed: Option<Box<MeshReceiver>>,
        now_ns: u64,
    ) -> Self {
        let is_alone = ports.len() == 1;
        let side = |(index, mut port): (usize, Box<dyn Port + Send>)| {
            port.accept_merged();
            let capabilities = port.capabilities();
            let policy: ChecksumPolicy = capabilities.rx_checksum;
            PortSide {
                arrivals: Arrivals::new(config, index as u8, policy),
                departures: Departures::new(index as u8, capabilities, now_ns),
                port,
                is_gone: false,
                drops: (!is_alone).then(|| Box::new([0; _])),
            }
        };
        Self {
            each: ports.into_iter().enumerate().map(side).collect(),
            handed,
        }
    }

    /// The first port, by shared reference.
    pub fn first(&self) -> &(dyn Port + Send) {
        &*self.each[0].port
    }

    /// The first port, by mutable reference.
    pub fn first_mut(&mut self) -> &mut (dyn Port + Send) {
        &mut *self.each[0].port
    }

    /// Every port with its stages.
    pub fn sides(&self) -> &[PortSide] {
        &self.each
    }

    /// The port with this number and its stages, by mutable reference.
    pub fn side_mut(&mut self, port: usize) -> Option<&mut PortSide> {
        self.each.get_mut(port)
    }

    /// Ends all captures and uncovers the ports.
    pub fn uncover_all(&mut self) {
        for side in &mut self.each {
            CapturePort::uncover(&mut side.port);
            side.arrivals.drop_notes = None;
        }
    }

    /// All ports.
    pub fn iter(&self) -> impl Iterator<Item = &(dyn Port + Send)> {
        self.each.iter().map(|side| &*side.port)
    }

    /// Receives a batch of frames from each port; returns the number of frames.
    #[inline]
    pub fn receive(&mut self, core: &mut Core) -> usize {
        let (mut received, is_alone) = (0, self.each.len() == 1);
        // Bit *n*: port *n* is lost in this turn.
        let mut lost = 0u64;
        for side in &mut self.each {
            if side.is_gone && !is_alone {
                continue;
            }
            let outcome = match is_alone {
                true => {
                    side.arrivals
                        .packet_in(core, &mut *side.port, side.departures.acceptance())
                }
                false => side.receive_among_others(core),
            };
            match outcome {
                Ok(frames) => received += frames,
                Err(PortError::Gone) if !side.is_gone => {
                    side.is_gone = true;
                    lost |= 1 << side.departures.port();
                }
                Err(_) => {}
            }
        }
        if lost != 0 && !is_alone {
            self.lose(core.engine_mut(), lost);
        }
        let View { network, .. } = core.engine().view();
        if network.hears_itself() {
            let own = &mut self.each[usize::from(network.own_port())];
            received += own.arrivals.local_in(core, own.departures.acceptance());
        }
        if self.handed.is_some() {
            received += self.handed_in(core);
        }
        received
    }

    /// Ends what belongs to ports that are gone for good: bit *n* of `lost` is port *n*.
    #[cold]
    fn lose(&self, engine: &mut Engine, mut lost: u64) {
        let next = self.each.iter().position(|side| !side.is_gone);
        while lost != 0 {
            let port = lost.trailing_zeros() as u8;
            lost &= lost - 1;
            lose_port(engine, port, next.map_or(port, |next| next as u8));
        }
    }

    /// Processes frames that other contexts handed over, as many as a turn takes from a port. Wakes
    /// the contexts to which this turn has handed frames.
    #[inline(never)]
    fn handed_in(&mut self, core: &mut Core) -> usize {
        let mut taken = 0;
        if let Some(handed) = &mut self.handed {
            while taken < RX_FRAMES_PER_TURN
                && let Some(batch) = handed.receive()
            {
                taken += batch.frames.len();
                if let Some(side) = self.each.get_mut(usize::from(batch.port)) {
                    side.arrivals.handed_in(core, &batch);
                }
            }
            handed.release();
        }
        let (_, admission) = core.split();
        if let Some(mesh) = admission.mesh() {
            mesh.ring();
        }
        taken
    }

    /// True if other contexts have handed frames over.
    pub fn has_handed(&mut self) -> bool {
        (self.handed.as_mut()).is_some_and(|handed| handed.has_frames())
    }

    /// Sends what is ready. `is_crowded`: see [`Departures`].
    #[inline]
    pub fn send(&mut self, core: &mut Core, is_crowded: bool) -> Sent {
        let (mut all, is_alone) = (Sent::default(), self.each.len() == 1);
        if !is_alone {
            sort_control(core.engine_mut());
        }
        for side in &mut self.each {
            if side.is_gone && !is_alone {
                let (engine, admission) = core.split();
                evacuate(engine, admission.isn(), side.departures.port());
                continue;
            }
            side.departures.is_crowded = is_crowded;
            let trains = &mut side.arrivals.ack_trains;
            let (sent, blocked) = side.departures.packet_out(core, trains, &mut *side.port);
            // A full turn that leaves work for the next one does not mean that the port is short of
            // room.
            side.arrivals.is_port_short = blocked;
            all.frames += sent;
            all.is_blocked |= blocked;
            all.is_behind |=
                sent >= TX_FRAMES_PER_TURN && !blocked && side.has_output(core.engine());
        }
        let parts = core.engine_mut().parts();
        if let Some(notes) = parts.unsent {
            self.log_unsent(notes, parts.network);
        }
        all
    }

    /// Logs the headers of segments that this turn gave up, at their ports. The destination MAC
    /// address stays zero.
    #[cold]
    fn log_unsent(&mut self, notes: &mut UnsentNotes, network: &Network) {
        for one in notes.drain() {
            let side = self.each.get_mut(usize::from(one.port));
            let Some(cover) = side.and_then(|side| CapturePort::of(&mut *side.port)) else {
                continue;
            };
            let ends = LinkEnds {
                source: network.mac(one.port),
                destination: MacAddr::UNSPECIFIED,
                header: one.header,
            };
            let mut frame = [0; HEADER_BYTES_MAX];
            let head = build_head(&mut frame, &ends, &one.key, &one.segment);
            let wire_bytes = head + one.segment.payload_len as usize;
            let reason = drop_reasons::of_unsent(one.reason);
            cover.note_unsent(&frame[..head], wire_bytes, reason);
        }
    }

    /// Bit mask: bit *n* is set if something is ready to leave by port *n*.
    fn output(&self, engine: &Engine) -> u64 {
        let bit = |side: &PortSide| u64::from(side.has_output(engine)) << side.departures.port();
        self.each.iter().map(bit).sum()
    }

    /// True if something is ready to leave by any port.
    pub fn has_output(&self, engine: &Engine) -> bool {
        self.output(engine) != 0
    }

    /// True if the last turn may have left frames in the drivers.
    pub fn holds_input(&self) -> bool {
        self.each.iter().any(|side| side.arrivals.is_input_held)
    }

    /// See [`Arrivals::timers_wait`].
    pub fn timers_wait(&self, now_ns: u64) -> bool {
        let waits = |side: &PortSide| side.arrivals.timers_wait(now_ns);
        self.each.iter().any(waits)
    }

    /// True if all ports are gone for good.
    pub fn are_gone(&self) -> bool {
        self.each.iter().all(|side| side.is_gone)
    }

    /// Time at which a port itself has something to do, ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        let deadlines = self.each.iter().filter_map(|side| side.port.deadline_ns());
        deadlines.min()
    }

    /// The ports to sleep on. A port whose input is held is left out, because its frames would end
    /// the sleep at once.
    fn watched(&self) -> impl Iterator<Item = &PortSide> {
        let is_alone = self.each.len() == 1;
        let is_watched =
            move |side: &&PortSide| !side.arrivals.is_input_held && (is_alone || !side.is_gone);
        self.each.iter().filter(is_watched)
    }

    /// Sleeps until a port has work, one of `fds` is ready, or the time is over. True: a signal
    /// ended the sleep.
    pub fn wait(
        &mut self,
        engine: &Engine,
        fds: &[BorrowedFd<'_>],
        timeout_ns: Option<u64>,
    ) -> std::io::Result<bool> {
        if let [side] = &mut self.each[..]
            && !side.arrivals.is_input_held
        {
            let wants = side.has_output(engine);
            let woken = packetio::wait(&mut [&mut *side.port], fds, wants, timeout_ns)?;
            return Ok(woken.interrupted);
        }
        let (mut ports, mut wants): (Vec<&mut dyn Port>, u64) = (Vec::new(), 0);
        for side in &mut self.each {
            if side.arrivals.is_input_held || side.is_gone {
                continue;
            }
            wants |= u64::from(side.has_output(engine)) << ports.len();
            ports.push(&mut *side.port);
        }
        let woken = packetio::wait_each(&mut ports, fds, wants, timeout_ns)?;
        Ok(woken.interrupted)
    }

    /// Enables wake-ups of the ports. True: a port has work already.
    pub fn prepare_wait(&mut self, engine: &Engine) -> bool {
        let mut has_work = false;
        let is_alone = self.each.len() == 1;
        for side in &mut self.each {
            if !side.arrivals.is_input_held && (is_alone || !side.is_gone) {
                let wants = side.has_output(engine);
                has_work |= side.port.prepare_wait(wants);
            }
        }
        has_work
    }

    /// Disables wake-ups of the ports.
    pub fn finish_wait(&mut self) {
        for side in &mut self.each {
            side.port.finish_wait();
        }
    }

    /// Passes the descriptors to sleep on to `fds`.
    pub fn poll_fds<'a>(&'a self, engine: &Engine, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        for side in self.watched() {
            side.port.poll_fds(side.has_output(engine), fds);
        }
    }

    /// See [`Port::mover_shares_cpu`].
    pub fn mover_shares_cpu(&self) -> bool {
        self.iter().any(Port::mover_shares_cpu)
    }

    /// See [`Port::drain`].
    pub fn drain(&mut self) {
        self.each.iter_mut().for_each(|side| side.port.drain());
    }

    /// Sum of the counters of all ports.
    pub fn counters(&self) -> PortCounters {
        let mut all = self.first().counters();
        self.each[1..]
            .iter()
            .for_each(|side| all.merge(&side.port.counters()));
        all
    }
}
