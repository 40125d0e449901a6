//! The client's side of the control channel: it connects to the server, makes the shared memory and
//! announces it.
//!
//! The control object owns it. Without a connection it tries again with growing pauses. Each
//! connection gets new memory, so that nothing of the last one remains. An absent server is
//! reported after a second, then ever more rarely, at once if the reason changes, and when it has
//! come.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::handover::Handover;
use super::layout::{Direction, RegionPlan};
use super::limits::{
    ABSENCE_TOLD_NS_MAX, ABSENCE_TOLD_NS_MIN, HANDSHAKE_NS_MAX, MESSAGES_PER_LOOK_MAX,
    PREFAULT_BYTES_MAX, RETRY_NS_MAX, RETRY_NS_MIN,
};
use super::link::{Buffers, Change, Link, QueuePair, RingEnd};
use super::message::{
    AddRing, Hello, Init, MODE_ETHERNET, Message, RING_FLAG_CLIENT_TO_SERVER, VERSION,
};
use super::region_unsafe::Region;
use super::ring_unsafe::{Descriptor, RingMemory};
use super::socket::{Channel, ChannelContext, Received};
use super::{MemifOptions, PROGRAM_NAME, bell};
use crate::notice;
use crate::text::Text;

/// The state of a client.
#[derive(Debug)]
pub struct Client {
    options: MemifOptions,
    context: ChannelContext,
    /// Source of connected sockets; `None`: the client connects to the path.
    handover: Option<Handover>,
    state: State,
    pause_ns: u64,
    absence: Option<Absence>,
}

/// A server that the client could not connect to.
#[derive(Debug)]
struct Absence {
    why: Errno,
    /// Time of the next report, ns.
    tell_ns: u64,
    /// Pause before the report after the next one, ns. The first report comes `ABSENCE_TOLD_NS_MIN`
    /// after the first attempt.
    pause_ns: u64,
    is_told: bool,
}

#[derive(Debug)]
enum State {
    Idle { retry_at_ns: u64 },
    Handshake(Handshake),
    Connected(Channel),
}

/// A connection whose handshake is in progress.
#[derive(Debug)]
struct Handshake {
    channel: Channel,
    deadline_ns: u64,
    /// Messages still to be sent, one after each ACK.
    outgoing: VecDeque<(Message, Option<Arc<OwnedFd>>)>,
    link: Option<Link>,
}

/// The result of processing a message.
enum Step {
    Continue,
    Up(Link),
    Failed(String),
}

impl Client {
    /// Makes a client. The first call of `service` connects as `options` say, or by a socket handed
    /// over.
    pub fn new(
        options: &MemifOptions,
        context: &ChannelContext,
        handover: Option<Handover>,
    ) -> Self {
        Self {
            options: options.clone(),
            context: context.clone(),
            handover,
            state: State::Idle { retry_at_ns: 0 },
            pause_ns: RETRY_NS_MIN,
            absence: None,
        }
    }

    /// Processes received messages, and tries to connect when it is time.
    pub fn service(&mut self, now_ns: u64) -> Option<Change> {
        match &self.state {
            State::Idle { retry_at_ns } if now_ns >= *retry_at_ns => self.try_connect(now_ns),
            _ => {}
        }
        match &mut self.state {
            State::Idle { .. } => None,
            State::Connected(channel) => {
                let reason = match channel.receive() {
                    Received::Nothing => return None,
                    Received::Message(Message::Disconnect { reason, .. }, _) => reason.printable(),
                    Received::Closed => "the server is gone".to_owned(),
                    Received::Message(..) => "Unexpected message".to_owned(),
                    Received::Malformed(error) => error.to_string(),
                };
                self.pause_ns = RETRY_NS_MIN;
                self.pause(now_ns);
                Some(Change::Down(reason))
            }
            State::Handshake(_) => self.service_handshake(now_ns),
        }
    }

    /// Ends the connection and tells the peer the reason.
    pub fn disconnect(&mut self, reason: &str, now_ns: u64) {
        if let State::Connected(channel) = &self.state {
            channel.send(&Message::disconnect(reason), None);
        }
        self.pause(now_ns);
    }

    /// Time of the next attempt, or of the end of the server's time for the handshake, ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.state {
            State::Idle { retry_at_ns } => Some(*retry_at_ns),
            State::Handshake(handshake) => Some(handshake.deadline_ns),
            State::Connected(_) => None,
        }
    }

    fn try_connect(&mut self, now_ns: u64) {
        if self.context.closer.is_full() {
            return self.pause(now_ns);
        }
        let connected = match &self.handover {
            Some(handover) => match handover.take() {
                Some(socket) => Channel::over(socket, &self.context),
                // The thread that hands sockets over reports the absence.
                None => return self.pause(now_ns),
            },
            None => Channel::connect(&self.options.path, &self.context),
        };
        match connected {
            Ok(channel) => {
                self.state = State::Handshake(Handshake {
                    channel,
                    deadline_ns: now_ns + HANDSHAKE_NS_MAX,
                    outgoing: VecDeque::new(),
                    link: None,
                });
            }
            Err(why) => {
                self.tell_absence(why, now_ns);
                self.pause(now_ns);
            }
        }
    }

    fn tell_absence(&mut self, why: Errno, now_ns: u64) {
        let absence = self.absence.get_or_insert(Absence {
            why,
            tell_ns: now_ns + ABSENCE_TOLD_NS_MIN,
            pause_ns: ABSENCE_TOLD_NS_MIN,
            is_told: false,
        });
        let is_news = absence.is_told && absence.why != why;
        absence.why = why;
        if now_ns < absence.tell_ns && !is_news {
            return;
        }
        absence.tell_ns = now_ns + absence.pause_ns;
        absence.pause_ns = (absence.pause_ns * 2).min(ABSENCE_TOLD_NS_MAX);
        absence.is_told = true;
        let path = &self.options.path;
        notice::tell(|| format!("memif:{path}: waiting for the server (role=server): {why}"));
    }

    fn tell_presence(&mut self) {
        if self.absence.take().is_some_and(|absence| absence.is_told) {
            let path = &self.options.path;
            notice::tell(|| format!("memif:{path}: the server is there"));
        }
    }

    fn pause(&mut self, now_ns: u64) {
        self.state = State::Idle {
            retry_at_ns: now_ns + self.pause_ns,
        };
        self.pause_ns = (self.pause_ns * 2).min(RETRY_NS_MAX);
    }

    fn service_handshake(&mut self, now_ns: u64) -> Option<Change> {
        let State::Handshake(handshake) = &mut self.state else {
            return None;
        };
        let mut step = Step::Continue;
        for _ in 0..MESSAGES_PER_LOOK_MAX {
            let message = match handshake.channel.receive() {
                Received::Nothing if now_ns >= handshake.deadline_ns => {
                    step = Step::Failed("Handshake timed out".to_owned());
                    break;
                }
                Received::Nothing => break,
                Received::Closed => {
                    step = Step::Failed("the server closed".to_owned());
                    break;
                }
                Received::Malformed(error) => {
                    step = Step::Failed(error.to_string());
                    break;
                }
                Received::Message(message, _) => message,
            };
            step = handshake.on_message(message, &self.options);
            if !matches!(step, Step::Continue) {
                break;
            }
        }
        match step {
            Step::Continue => None,
            Step::Failed(reason) => {
                handshake.channel.send(&Message::disconnect(&reason), None);
                self.pause(now_ns);
                Some(Change::Refused(reason))
            }
            Step::Up(link) => {
                self.tell_presence();
                self.pause_ns = RETRY_NS_MIN;
                let idle = State::Idle {
                    retry_at_ns: now_ns,
                };
                if let State::Handshake(handshake) = std::mem::replace(&mut self.state, idle) {
                    self.state = State::Connected(handshake.channel);
                }
                Some(Change::Up(link))
            }
        }
    }
}

impl Handshake {
    fn on_message(&mut self, message: Message, options: &MemifOptions) -> Step {
        match message {
            Message::Hello(hello) if self.link.is_none() => match offer(&hello, options) {
                Ok((link, outgoing)) => {
                    self.link = Some(link);
                    self.outgoing = outgoing;
                    self.say_next()
                }
                Err(reason) => Step::Failed(reason),
            },
            Message::Ack if self.link.is_some() => self.say_next(),
            Message::Connected { .. } if self.outgoing.is_empty() => match self.link.take() {
                Some(link) => Step::Up(link),
                None => Step::Failed("Unexpected message".to_owned()),
            },
            Message::Disconnect { reason, .. } => Step::Failed(reason.printable()),
            _ => Step::Failed("Unexpected message".to_owned()),
        }
    }

    fn say_next(&mut self) -> Step {
        let Some((message, descriptor)) = self.outgoing.pop_front() else {
            return Step::Failed("Unexpected message".to_owned());
        };
        let descriptor = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
        match self.channel.send(&message, descriptor) {
            true => Step::Continue,
            false => Step::Failed("the server is gone".to_owned()),
        }
    }
}

type Outgoing = VecDeque<(Message, Option<Arc<OwnedFd>>)>;

/// Makes memory that fits the server's hello, and the messages that announce it.
fn offer(hello: &Hello, options: &MemifOptions) -> Result<(Link, Outgoing), String> {
    if hello.version_min > VERSION || hello.version_max < VERSION {
        return Err("Incompatible memif version".to_owned());
    }
    let index_max = hello
        .client_to_server_index_max
        .min(hello.server_to_client_index_max);
    let plan = RegionPlan {
        queues: options.queues.min(usize::from(index_max) + 1),
        slots_log2: (options.slots().trailing_zeros() as u8).min(hello.ring_slots_log2_max),
        buffer_bytes: options.buffer_bytes,
    };
    let bytes = plan.region_bytes();
    let file = make_file(bytes).map_err(|errno| format!("Cannot make the region: {errno}"))?;
    let region = Region::map(file.as_fd(), bytes, bytes <= PREFAULT_BYTES_MAX)
        .map_err(|errno| format!("Cannot map the region: {errno}"))?;
    let mut outgoing = VecDeque::new();
    let init = Init {
        version: VERSION,
        id: options.id,
        mode: MODE_ETHERNET,
        secret: Text::new(options.secret.as_deref().unwrap_or("")),
        name: Text::new(PROGRAM_NAME),
    };
    outgoing.push_back((Message::Init(init), None));
    outgoing.push_back((
        Message::AddRegion {
            index: 0,
            size: bytes as u64,
        },
        Some(Arc::new(file)),
    ));
    let mut queues: Vec<QueuePair> = Vec::new();
    queues.resize_with(plan.queues, QueuePair::default);
    for direction in [Direction::ClientToServer, Direction::ServerToClient] {
        for (index, queue) in queues.iter_mut().enumerate() {
            let end = make_ring(&region, &plan, direction, index)?;
            outgoing.push_back((
                announce_ring(&plan, direction, index),
                Some(Arc::clone(&end.bell)),
            ));
            match direction {
                Direction::ClientToServer => queue.tx = Some(end),
                Direction::ServerToClient => queue.rx = Some(end),
            }
        }
    }
    outgoing.push_back((
        Message::Connect {
            interface: Text::new(&format!("memif{}", options.id)),
        },
        None,
    ));
    let link = Link {
        regions: [region].into(),
        queues: queues.into(),
        peer: hello.name.printable(),
    };
    Ok((link, outgoing))
}

fn make_file(bytes: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create(
        "millstream-memif",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Lays out an empty ring whose slots have their buffers. No slot is lent before the connection is
/// up.
fn make_ring(
    region: &Arc<Region>,
    plan: &RegionPlan,
    direction: Direction,
    index: usize,
) -> Result<RingEnd, String> {
    let too_large = || "the region is too large".to_owned();
    let offset = u32::try_from(plan.ring_offset(direction, index)).map_err(|_| too_large())?;
    let ring = RingMemory::new(region, offset, plan.slots_log2).ok_or_else(too_large)?;
    let buffers = Buffers {
        offset: u32::try_from(plan.buffers_offset(direction, index)).map_err(|_| too_large())?,
        stride: plan.buffer_stride() as u32,
        bytes: plan.buffer_bytes as u32,
    };
    for slot in 0..ring.slots() {
        ring.set_descriptor(
            slot,
            Descriptor {
                flags: 0,
                region: 0,
                length: buffers.bytes,
                offset: buffers.at(slot),
            },
        );
    }
    ring.initialise();
    let bell = bell::new().map_err(|errno| format!("Cannot make an eventfd: {errno}"))?;
    Ok(RingEnd {
        ring,
        bell: Arc::new(bell),
        buffers: Some(buffers),
    })
}

fn announce_ring(plan: &RegionPlan, direction: Direction, index: usize) -> Message {
    let flags = match direction {
        Direction::ClientToServer => RING_FLAG_CLIENT_TO_SERVER,
        Direction::ServerToClient => 0,
    };
    Message::AddRing(AddRing {
        flags,
        index: index as u16,
        region: 0,
        offset: plan.ring_offset(direction, index) as u32,
        slots_log2: plan.slots_log2,
        private_header_bytes: 0,
    })
}
