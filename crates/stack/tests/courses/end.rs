//! One stack with an application that acts at random. Everything that the application sees enters
//! the digest.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ring::frame_log::FrameLogReader;
use ring::socket_block::{SocketId, SocketState};
use ring::spsc::Consumer;
use stack::context::{Accepted, Connect, Control, Report};
use stack::{Stack, Usage};

use crate::card::CardEnd;
use crate::common::{App, MILLIS};
use crate::digest::Digest;
use crate::draw::{Manner, Random, Settings};
use crate::hosts::HostSide;
use crate::options;

/// The application's state of a connection.
pub struct Stream {
    pub id: SocketId,
    pub written: u32,
    pub read: u32,
    is_shut: bool,
}

/// A request whose answer is outstanding.
pub trait Pending {
    /// Adds the answer to the digest. True: it had arrived.
    fn answered(&mut self, digest: &mut Digest) -> bool;
}

impl<T: std::fmt::Debug + Send> Pending for Consumer<T> {
    fn answered(&mut self, digest: &mut Digest) -> bool {
        let answer = self.pop();
        if let Some(answer) = &answer {
            digest.debug(answer);
        }
        answer.is_some()
    }
}

pub struct End {
    pub number: usize,
    pub stack: Stack,
    pub app: App,
    pub cards: Vec<CardEnd>,
    /// The host behind the first port.
    pub host: Option<HostSide>,
    pub digest: Digest,
    /// True to leave differences between both ways out of the digest: segments per visit, paths
    /// taken, and the size of packed connections, which hold one more flag in the twin.
    pub compares_ways: bool,
    pub random: Random,
    pub streams: BTreeMap<(u32, u32), Stream>,
    pub listeners: Vec<(SocketId, SocketAddr)>,
    /// Bound sockets, neither connected nor listening.
    pub bound: Vec<SocketId>,
    pub pending: Vec<Box<dyn Pending>>,
    pub capture: Option<FrameLogReader>,
    /// Addresses that the application connects to.
    pub remotes: Vec<SocketAddr>,
}

const TEXT_BYTES: usize = 128 * 1_024;

/// The text that all applications write.
pub fn text() -> Vec<u8> {
    let word = |at: usize| {
        (at as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes()
    };
    (0..TEXT_BYTES / 8).flat_map(word).collect()
}

impl End {
    pub fn new(number: usize, settings: &Settings, cards: Vec<CardEnd>, now_ns: u64) -> End {
        let mut ports = Vec::new();
        for (at, card) in cards.iter().enumerate() {
            let mac = crate::mac(number, at);
            ports.push(card.driver(mac, at as u16, &settings.abilities[number]));
        }
        let config = settings.configs[number].clone();
        let host = settings.hosted[number].then(|| HostSide::new(&config.limits));
        if let Some(host) = &host {
            let port = ports.remove(0);
            ports.insert(0, host.end.port(port, crate::mac(1 - number, 0)));
        }
        let (stack, side) = Stack::with_ports(config, ports, now_ns).unwrap();
        let mut end = End {
            number,
            stack,
            app: App::new(side),
            cards,
            host,
            digest: Digest::new(),
            compares_ways: settings.compares_ways,
            random: Random::new(settings.seed * 2 + number as u64),
            streams: BTreeMap::new(),
            listeners: Vec::new(),
            bound: Vec::new(),
            pending: Vec::new(),
            capture: None,
            remotes: remotes(number, settings),
        };
        for which in 0..3 {
            end.listen(which);
        }
        end
    }

    /// Runs one turn, and adds its outcome to the digest.
    pub fn turn(&mut self, now_ns: u64, manner: &Manner) -> bool {
        let turned = match manner.answers {
            true => self.stack.turn_before_answers(now_ns),
            false => self.stack.turn(now_ns),
        };
        self.digest.debug(&turned);
        self.digest.word(self.stack.next_timer_ns().unwrap_or(0));
        let digest = &mut self.digest;
        self.pending.retain_mut(|one| !one.answered(digest));
        if turned.events > 0 && self.random.chance(manner.prompt) {
            self.take_events();
            if self.random.chance(manner.accepts) {
                self.accept(8);
            }
        }
        turned.busy
    }

    pub fn take_events(&mut self) {
        for id in self.app.take_events() {
            self.digest
                .word(u64::from(id.index) << 32 | u64::from(id.generation));
            self.note_state(id);
        }
    }

    fn note_state(&mut self, id: SocketId) {
        let state = self.app.state(id);
        let (reads, writes) = self.app.edges(id);
        self.digest.word(u64::from(state.0));
        if !self.compares_ways {
            self.digest.word(u64::from(reads) << 32 | u64::from(writes));
        }
    }

    pub fn accept(&mut self, most: usize) {
        let listeners: Vec<SocketId> = self.listeners.iter().map(|one| one.0).collect();
        for listener in listeners {
            for _ in 0..most {
                let Some(accepted) = self.app.accept_named(listener) else {
                    break;
                };
                self.note_accepted(&accepted);
            }
        }
    }

    fn note_accepted(&mut self, accepted: &Accepted) {
        self.digest.debug(accepted);
        self.adopt(accepted.socket);
    }

    fn adopt(&mut self, id: SocketId) {
        let stream = Stream {
            id,
            written: 0,
            read: 0,
            is_shut: false,
        };
        self.streams.insert((id.index, id.generation), stream);
    }

    /// Lets the application look at its sockets and act.
    pub fn look(&mut self, manner: &Manner, text: &[u8]) {
        if let Some(host) = &mut self.host {
            host.look(&mut self.random, &mut self.digest, self.number);
        }
        if self.random.chance(80) {
            self.take_events();
            if self.random.chance(manner.accepts) {
                let most = 1 + self.random.below(6) as usize;
                self.accept(most);
            }
        }
        let may_open = self.number == 0 || manner.both;
        while may_open
            && self.streams.len() < manner.connections_max
            && self.random.chance(manner.opens)
        {
            if !self.open(manner, text) {
                break;
            }
        }
        let keys: Vec<(u32, u32)> = self.streams.keys().copied().collect();
        for key in keys {
            if let Some(mut stream) = self.streams.remove(&key)
                && self.attend(&mut stream, manner, text)
            {
                self.streams.insert(key, stream);
            }
        }
        if self.random.chance(manner.listeners) {
            self.change_listener();
        }
        if self.random.chance(manner.listeners) {
            self.bind();
        }
        if self.random.chance(manner.fast) {
            let remote = self.remote(manner);
            options::ask_fast_open(self, remote);
        }
    }

    /// Performs random actions on a connection. False: the connection is closed.
    fn attend(&mut self, stream: &mut Stream, manner: &Manner, text: &[u8]) -> bool {
        let id = stream.id;
        let state = self.app.state(id);
        if state.intersects(SocketState::FAILED | SocketState::CLOSED) {
            self.note_state(id);
            self.app.close(id);
            return false;
        }
        if self.random.chance(manner.reads) {
            let most = 1 + self.random.below(manner.read_max) as usize;
            let bytes = self.app.read_up_to(id, most);
            stream.read = stream.read.wrapping_add(bytes.len() as u32);
            if !bytes.is_empty() {
                self.digest.bytes(&bytes);
            }
        }
        if !stream.is_shut && self.random.chance(manner.writes) {
            let most = 1 + self.random.below(manner.write_max) as usize;
            let at = stream.written as usize % (text.len() / 2);
            let written = self.app.write_if_open(id, &text[at..at + most]);
            stream.written = stream.written.wrapping_add(written as u32);
            self.digest.word(written as u64);
        }
        if self.random.chance(manner.options) {
            options::set(self, stream);
        }
        if self.random.chance(manner.questions) {
            options::ask(self, stream);
        }
        let is_over = state.contains(SocketState::EOF) && self.app.readable(id) == 0;
        if is_over && self.random.chance(40) {
            self.app.close(id);
            return false;
        }
        if state.contains(SocketState::CONNECTED) && self.random.chance(manner.ends) {
            return self.end(stream);
        }
        true
    }

    fn end(&mut self, stream: &mut Stream) -> bool {
        match self.random.below(8) {
            0..4 => {
                stream.is_shut = true;
                self.app.shutdown_if_open(stream.id);
                true
            }
            4..7 => {
                self.app.close(stream.id);
                false
            }
            _ => {
                self.app.abort(stream.id);
                false
            }
        }
    }

    /// Opens a connection in a random way. False: no socket is free.
    fn open(&mut self, manner: &Manner, text: &[u8]) -> bool {
        if !self.app.has_socket() {
            return false;
        }
        let remote = self.remote(manner);
        let id = if self.random.chance(manner.fast) {
            let bytes = 1 + self.random.below(2_000) as usize;
            options::connect_fast(self, remote, &text[..bytes])
        } else if let Some(id) = self.bound.pop() {
            options::connect_bound(self, id, remote);
            id
        } else {
            match self.random.below(6) {
                0 => {
                    let port = 20_000 + self.random.below(6) as u16;
                    let local = crate::unspecified(remote, port);
                    self.app.connect_from(Some(local), remote)
                }
                1 => {
                    let options = options::some(&mut self.random);
                    let socket = self.app.socket();
                    self.app.control(Control::Connect(Connect {
                        socket,
                        local: None,
                        remote,
                        options,
                        fast_open: false,
                        answer: None,
                    }));
                    socket
                }
                _ => self.app.connect(remote),
            }
        };
        self.adopt(id);
        true
    }

    fn remote(&mut self, manner: &Manner) -> SocketAddr {
        let is_v6 = self.random.chance(manner.v6);
        let fitting = self.remotes.iter().filter(|one| one.is_ipv6() == is_v6);
        let fitting: Vec<SocketAddr> = fitting.copied().collect();
        // The first address is that of the other stack.
        let mut remote = match self.random.chance(70) {
            true => fitting[0],
            false => self.random.one_of(&fitting),
        };
        remote.set_port(self.random.one_of(&[80, 80, 81, 81, 82, 83]));
        remote
    }

    fn listen(&mut self, which: u64) {
        let own = self.number + 1;
        let local = match which % 3 {
            0 => format!("10.0.0.{own}:80"),
            1 => "[::]:81".to_owned(),
            _ => "0.0.0.0:82".to_owned(),
        };
        let local: SocketAddr = local.parse().unwrap();
        if self.app.has_socket() {
            let backlog = self.random.one_of(&[1, 4, 16]);
            let options = options::of_listener(&mut self.random, which);
            let id = self.app.listen_with(local, backlog, options);
            self.listeners.push((id, local));
        }
    }

    fn change_listener(&mut self) {
        match self.random.below(3) {
            0 if !self.listeners.is_empty() => {
                let at = self.random.below(self.listeners.len() as u64) as usize;
                let (id, local) = self.listeners.remove(at);
                self.app.close(id);
                if self.random.chance(60) {
                    self.listen(u64::from(local.port() % 80));
                }
            }
            1 if !self.listeners.is_empty() => {
                let at = self.random.below(self.listeners.len() as u64) as usize;
                let socket = self.listeners[at].0;
                let option = options::one_of_listener(&mut self.random);
                self.app.option(socket, option);
                self.app.control(Control::Backlog(stack::context::Backlog {
                    socket,
                    backlog: 1,
                    longer: None,
                }));
            }
            _ => {
                let which = self.random.below(3);
                self.listen(which);
            }
        }
    }

    fn bind(&mut self) {
        if self.bound.len() < 2 && self.app.has_socket() {
            let id = options::bind(self);
            self.bound.push(id);
        } else if let Some(id) = self.bound.pop() {
            if self.random.chance(50) {
                self.app.close(id);
            } else {
                let local: SocketAddr = "0.0.0.0:90".parse().unwrap();
                self.app.listen_on(id, local, 2);
                self.listeners.push((id, local));
            }
        }
    }

    /// Closes everything.
    pub fn close_all(&mut self) {
        for (_, stream) in std::mem::take(&mut self.streams) {
            match self.random.chance(50) {
                true => self.app.close(stream.id),
                false => self.app.abort(stream.id),
            }
        }
        self.app.abort_all();
        self.listeners.clear();
        self.bound.clear();
    }

    pub fn usage(&self) -> Usage {
        self.stack.usage()
    }

    /// Adds the counters and reports of the stack to the digest.
    pub fn note_report(&mut self) {
        let report = self.stack.report();
        self.note(report);
        if let Some(host) = &self.host {
            host.note_ledger(&mut self.digest);
        }
    }

    /// Adds a report to the digest, except cycles and pages, which depend on the machine.
    pub fn note(&mut self, mut report: Report) {
        report.stages = Default::default();
        report.pages = Default::default();
        if self.compares_ways {
            let stack = &mut report.stack;
            (
                stack.rx_verified_bytes,
                stack.rx_fused_bytes,
                stack.rx_merged,
            ) = (0, 0, 0);
            report.tcp.predicted_in = 0;
            report.usage.packed_blocks = 0;
        }
        self.digest.debug(&report);
    }

    pub fn note_usage(&mut self) {
        let mut usage = self.usage();
        if self.compares_ways {
            usage.packed_blocks = 0;
        }
        self.digest.debug(&usage);
        let queues = self.stack.queues();
        self.digest.debug(&queues);
    }
}

/// Addresses of the other stack, of this one, and of hosts that exist or not.
fn remotes(number: usize, settings: &Settings) -> Vec<SocketAddr> {
    let (own, other) = (number + 1, 2 - number);
    let mut all = vec![
        format!("10.0.0.{other}:0"),
        format!("[fd00::{other}]:0"),
        format!("192.0.2.{other}:0"),
        "10.0.0.60:0".to_owned(),
        "10.0.0.99:0".to_owned(),
        "198.51.100.5:0".to_owned(),
        format!("10.0.0.{own}:0"),
        "[fd00::60]:0".to_owned(),
        "[fd00::99]:0".to_owned(),
        "203.0.113.1:0".to_owned(),
    ];
    if settings.ports == 2 {
        all.push(format!("10.0.1.{other}:0"));
        all.push(format!("10.0.1.{other}:0"));
        all.push(format!("[fd01::{other}]:0"));
    }
    if settings.configs[number].loopback {
        all.push("127.0.0.1:0".to_owned());
        all.push("[::1]:0".to_owned());
    }
    all.iter().map(|text| text.parse().unwrap()).collect()
}

/// The interval of keep-alive probes in a course.
pub const KEEP_ALIVE_NS: u64 = 50 * MILLIS;
