//! One host of a world: its stack, the far end of its driver, its clock, and its applications.
//!
//! ```text
//!   network ──▶ far end ─ loopback ─▶ Stack ◀── jobs, events, byte rings ──▶ Ends
//!      ▲           │ Watch                │ Inspection
//!      └───────────┴──────────────────────┘ a turn when a frame or a timer is due
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use packetio::Port;
use packetio::loopback::{self, Loopback, LoopbackOptions};
use ring::socket_block::{Requests, SocketId};
use stack::{IpCidr, Stack, StackConfig, Usage};

use super::app::end::{Desk, End, Wish};
use super::app::ledger::Ledger;
use super::app::sockets::Sockets;
use super::inspect::Inspection;
use super::net::{Addresses, Net, host_mac};
use super::plan::Plan;
use super::queue::{Event, Flying, Queue};
use super::trace::{Direction, Trace};
use super::watch::Watch;

/// Most turns at one instant. A stack that is still busy then will be so for ever.
const TURNS_MAX: usize = 5_000;
const SCRATCH_BYTES: usize = 16 << 10;

/// The state that all hosts share.
pub struct Shared {
    /// The world.
    pub plan: Plan,
    /// World time in ns.
    pub now_ns: u64,
    /// Future events.
    pub queue: Queue,
    /// The network that joins the hosts.
    pub net: Net,
    /// Addresses of the hosts.
    pub addresses: Addresses,
    /// Records of what the applications did.
    pub ledger: Ledger,
    /// Trace of the events so far.
    pub trace: Trace,
    /// Buffers that applications share: one for bytes read, one for bytes expected.
    pub scratch: [Vec<u8>; 2],
}

impl Shared {
    /// The state of a world before its first instant.
    #[must_use]
    pub fn new(plan: Plan, live: bool) -> Self {
        Self {
            now_ns: 0,
            queue: Queue::default(),
            net: Net::new(&plan),
            addresses: Addresses::of(&plan),
            ledger: Ledger::new(&plan),
            trace: Trace::new(live),
            scratch: [vec![0; SCRATCH_BYTES], vec![0; SCRATCH_BYTES]],
            plan,
        }
    }
}

type Key = (u32, u32);

fn key_of(id: SocketId) -> Key {
    (id.index, id.generation)
}

/// See the module's documentation.
pub struct Host {
    number: usize,
    stack: Stack,
    sockets: Sockets,
    far: Loopback,
    /// Frames that wait for a slot of the driver.
    waiting: VecDeque<Flying>,
    /// Offset of the host's clock from the world's, in ns.
    clock_ns: u64,
    coalesce_ns: u64,
    /// World time in ns of the next turn; `u64::MAX`: none is entered.
    due_ns: u64,
    listeners: Vec<(SocketId, usize)>,
    ends: BTreeMap<Key, End>,
    /// Times at which ends want to be woken. Outdated ones are kept and do no harm.
    wakes: BTreeSet<(u64, Key)>,
    watch: Watch,
    inspection: Inspection,
    told: Vec<SocketId>,
}

impl Host {
    /// The host of this number in a plan.
    ///
    /// # Errors
    /// The request that the stack or the kernel refused.
    pub fn new(plan: &Plan, number: usize) -> Result<Self, String> {
        let host = &plan.hosts[number];
        let options = LoopbackOptions {
            mac: Some(host_mac(number)),
            mtu: host.mtu,
            slots: host.slots,
            ..LoopbackOptions::default()
        };
        let (near, far) = loopback::pair(&options).map_err(|error| error.to_string())?;
        let config = stack_config(plan, number)?;
        let (stack, side) =
            Stack::new(config, Box::new(near), host.clock_ns).map_err(|error| error.to_string())?;
        Ok(Self {
            number,
            stack,
            sockets: Sockets::new(side),
            far,
            waiting: VecDeque::new(),
            clock_ns: host.clock_ns,
            coalesce_ns: host.coalesce_ns,
            due_ns: u64::MAX,
            listeners: Vec::new(),
            ends: BTreeMap::new(),
            wakes: BTreeSet::new(),
            watch: Watch::new(plan, number),
            inspection: Inspection::new(plan, number),
            told: Vec::new(),
        })
    }

    /// Opens the listeners of the flows that this host serves.
    ///
    /// # Errors
    /// The stack has no free socket.
    pub fn listen(&mut self, shared: &mut Shared) -> Result<(), String> {
        for (number, flow) in shared.plan.flows.iter().enumerate() {
            if flow.server != self.number || flow.simultaneous {
                continue;
            }
            let backlog = shared.plan.hosts[self.number].limits.backlog_max;
            let ip = shared.addresses.host(self.number, flow.v6);
            let local = SocketAddr::new(ip, flow.port);
            let options = flow.ends[1].options.clone();
            let Some(id) = self.sockets.listen(local, backlog, options) else {
                return Err(format!("host {}: no socket to listen with", self.number));
            };
            self.listeners.push((id, number));
        }
        self.enter_turn(shared, shared.now_ns);
        Ok(())
    }

    /// Closes the listeners, since nobody will connect any more.
    pub fn end_listeners(&mut self, shared: &mut Shared) {
        for (id, _) in self.listeners.drain(..) {
            self.sockets.close(id, Requests::CLOSE);
        }
        self.enter_turn(shared, shared.now_ns);
    }

    /// Begins this host's end of a connection that it opens. False: no socket is free.
    pub fn begin(&mut self, shared: &mut Shared, flow: usize, side: usize, number: u32) -> bool {
        let plan = &shared.plan.flows[flow];
        let hosts = [plan.client, plan.server];
        let ip = |side: usize| shared.addresses.host(hosts[side], plan.v6);
        let (local, port) = if plan.simultaneous {
            let ports = [plan.port + 10_000, plan.port + 20_000];
            (
                Some(SocketAddr::new(ip(side), ports[side])),
                ports[1 - side],
            )
        } else {
            (None, plan.port)
        };
        let remote = SocketAddr::new(ip(1 - side), port);
        let options = plan.ends[side].options.clone();
        let Some(id) = self.sockets.connect(local, remote, options, plan.fast_open) else {
            return false;
        };
        let early = plan.fast_open;
        let mut end = End::new(id, flow, side, Some(number));
        if let Some(name) = end.name() {
            shared.ledger.begin(name, side);
        }
        if early {
            end.write_early(&mut self.desk(shared));
        }
        self.ends.insert(key_of(id), end);
        self.enter_turn(shared, shared.now_ns);
        true
    }

    /// Moves the host's clock forward by `by_ns`.
    pub fn jump(&mut self, shared: &mut Shared, by_ns: u64) {
        self.clock_ns += by_ns;
        shared
            .trace
            .note(shared.now_ns, self.number, "the clock jumps", [by_ns, 0]);
        self.enter_turn(shared, shared.now_ns);
    }

    /// Lets a frame arrive at the driver, where it may wait for a slot.
    pub fn arrive(&mut self, shared: &mut Shared, frame: Flying) {
        self.waiting.push_back(frame);
        self.fill_driver(shared);
        self.enter_turn(shared, shared.now_ns + self.coalesce_ns);
    }

    fn fill_driver(&mut self, shared: &mut Shared) {
        while !self.waiting.is_empty() {
            let Some(slot) = self.far.reserve(1).first() else {
                return;
            };
            let Some(frame) = self.waiting.pop_front() else {
                return;
            };
            if slot.capacity() < frame.bytes.len() {
                continue;
            }
            slot.write(0, &frame.bytes);
            slot.set_len(frame.bytes.len());
            // Cannot fail, since the other end lives as long as this one.
            let _ = self.far.send(1);
            let direction = if frame.forged {
                Direction::Forged
            } else {
                Direction::In
            };
            shared
                .trace
                .frame(shared.now_ns, self.number, direction, &frame.bytes);
            if frame.forged {
                self.watch.lied_to(&frame.bytes);
            } else {
                self.watch.inward(&frame.bytes);
            }
        }
    }

    fn enter_turn(&mut self, shared: &mut Shared, at_ns: u64) {
        if at_ns < self.due_ns {
            self.due_ns = at_ns;
            shared.queue.enter(at_ns, Event::Turn(self.number));
        }
    }

    /// Runs the turn that was entered for now, unless it was already run.
    ///
    /// # Errors
    /// A fault that an observer found.
    pub fn turn(&mut self, shared: &mut Shared) -> Result<(), String> {
        if shared.now_ns < self.due_ns {
            return Ok(());
        }
        self.due_ns = u64::MAX;
        let local_ns = shared.now_ns + self.clock_ns;
        for _ in 0..TURNS_MAX {
            self.inspection.before(&self.stack);
            let turned = self.stack.turn(local_ns);
            if self.stack.counters().syn_cookies_sent > 0 {
                shared.ledger.note_cookies(self.number);
                self.watch.note_cookies();
            }
            let sent = self.send(shared)?;
            self.inspection
                .after(&self.stack, &self.watch.take_new_data())
                .map_err(|cause| format!("host {}: {cause}", self.number))?;
            let acted = self.act(shared)?;
            self.fill_driver(shared);
            if !turned.busy && sent == 0 && !acted {
                self.plan_next_turn(shared);
                return Ok(());
            }
        }
        Err(format!("host {}: the stack finds no rest", self.number))
    }

    fn plan_next_turn(&mut self, shared: &mut Shared) {
        let timer_ns = self
            .stack
            .next_timer_ns()
            .map(|local_ns| local_ns.saturating_sub(self.clock_ns));
        let wake_ns = self.wakes.first().map(|(at_ns, _)| *at_ns);
        if let Some(at_ns) = [timer_ns, wake_ns].into_iter().flatten().min() {
            self.enter_turn(shared, at_ns.max(shared.now_ns + 1));
        }
    }

    /// Puts the frames that the stack sent onto the wire.
    fn send(&mut self, shared: &mut Shared) -> Result<usize, String> {
        let mut sent = 0;
        loop {
            let Ok(frames) = self.far.receive() else {
                return Err(format!("host {}: its port is gone", self.number));
            };
            if frames.is_empty() {
                return Ok(sent);
            }
            for frame in frames {
                let mut bytes = vec![0; frame.len()];
                frame.copy_to(0, &mut bytes);
                shared
                    .trace
                    .frame(shared.now_ns, self.number, Direction::Out, &bytes);
                self.watch
                    .outward(&bytes)
                    .map_err(|cause| format!("host {}, on the wire: {cause}", self.number))?;
                let flying = Flying {
                    bytes,
                    forged: false,
                    damaged: false,
                };
                let now_ns = shared.now_ns;
                shared
                    .net
                    .send(&mut shared.queue, now_ns, self.number, 0, flying);
                sent += 1;
            }
        }
    }

    /// Lets the applications act upon events and their own clocks. True: they asked the stack for
    /// something.
    fn act(&mut self, shared: &mut Shared) -> Result<bool, String> {
        let mut told = std::mem::take(&mut self.told);
        self.sockets.take_events(&mut told);
        let mut keys: BTreeSet<Key> = told.drain(..).map(key_of).collect();
        self.told = told;
        while let Some((at_ns, key)) = self.wakes.first().copied()
            && at_ns <= shared.now_ns
        {
            self.wakes.pop_first();
            keys.insert(key);
        }
        self.accept(&mut keys);
        for key in keys {
            if let Some(mut end) = self.ends.remove(&key) {
                match end.attend(&mut self.desk(shared))? {
                    Wish::Over => note_over(shared, self.number, &end),
                    Wish::Wait(wake_ns) => {
                        self.wakes.extend(wake_ns.map(|wake_ns| (wake_ns, key)));
                        self.ends.insert(key, end);
                    }
                }
            }
        }
        Ok(self.sockets.has_asked())
    }

    fn accept(&mut self, keys: &mut BTreeSet<Key>) {
        for at in 0..self.listeners.len() {
            let (listener, flow) = self.listeners[at];
            while let Some(id) = self.sockets.accept(listener) {
                keys.insert(key_of(id));
                self.ends.insert(key_of(id), End::new(id, flow, 1, None));
            }
        }
    }

    fn desk<'a>(&'a mut self, shared: &'a mut Shared) -> Desk<'a> {
        Desk {
            now_ns: shared.now_ns,
            plan: &shared.plan,
            ledger: &mut shared.ledger,
            sockets: &mut self.sockets,
            scratch: &mut shared.scratch,
        }
    }

    /// Number of ends that are not over.
    #[must_use]
    pub fn open(&self) -> usize {
        self.ends.len()
    }

    /// Ends the host's connections when the world's time is up. An end that waits for a departed
    /// peer is abandoned. Any other end is stuck.
    ///
    /// # Errors
    /// The stuck end.
    pub fn abandon(&mut self, shared: &mut Shared) -> Result<(), String> {
        self.inspection
            .nothing_waits(&self.stack)
            .map_err(|cause| format!("host {}: {cause}", self.number))?;
        for (_, mut end) in std::mem::take(&mut self.ends) {
            if let Some(name) = end.name() {
                let peer = shared.ledger.look(name, 1 - end.side());
                if peer.begun && peer.over.is_none() {
                    let own = shared.ledger.look(name, end.side());
                    return Err(format!(
                        "{name:?} sticks: end {} is {own:?}, its peer {peer:?}",
                        end.side()
                    ));
                }
            }
            end.abandon(&mut self.desk(shared));
        }
        self.enter_turn(shared, shared.now_ns);
        Ok(())
    }

    /// Memory that the stack holds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.stack.usage()
    }

    /// The observer on the host's wire. It knows the sequence numbers that a liar must not guess.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}

fn note_over(shared: &mut Shared, host: usize, end: &End) {
    let number = end.name().map_or(u64::MAX, |name| u64::from(name.number));
    let flow = end.name().map_or(u64::MAX, |name| name.flow as u64);
    shared.trace.note(
        shared.now_ns,
        host,
        "an end is over: flow, number",
        [flow, number],
    );
}

fn stack_config(plan: &Plan, number: usize) -> Result<StackConfig, String> {
    let addresses = Addresses::of(plan);
    let has_v6 = plan.flows.iter().any(|flow| flow.v6);
    let families: &[bool] = if has_v6 { &[false, true] } else { &[false] };
    let cidr = |v6: &bool| {
        let ip: IpAddr = addresses.host(number, *v6);
        let prefix = if *v6 { 64 } else { 24 };
        format!("{ip}/{prefix}").parse::<IpCidr>()
    };
    let own: Result<Vec<IpCidr>, _> = families.iter().map(cidr).collect();
    let gateways = families.iter().map(|v6| addresses.gateway(number, *v6));
    Ok(StackConfig {
        addresses: own.map_err(|error| error.to_string())?,
        gateways: if addresses.is_routed {
            gateways.collect()
        } else {
            Vec::new()
        },
        limits: plan.hosts[number].limits.clone(),
        tcp: plan.hosts[number].tcp.clone(),
        seed: Some([plan.seed, number as u64, 3, 4]),
        ..StackConfig::default()
    })
}
