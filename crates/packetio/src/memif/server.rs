//! The server's side of the control channel: it accepts clients, checks everything they announce,
//! and maps their memory.
//!
//! The control object owns it. Several half-open connections may exist, so a stalled client keeps
//! no other out. The first to complete gets the interface; others are refused when they complete. A
//! client's memory must be a file sealed against shrinking, because reading truncated memory would
//! kill us.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::TMPFS_MAGIC;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use super::limits::{
    ACCEPT_PAUSE_NS, HANDSHAKE_NS_MAX, HANDSHAKES_MAX, MESSAGES_PER_LOOK_MAX, REGION_BYTES_MAX,
    REGIONS_MAX, RING_SLOTS_LOG2_MAX,
};
use super::link::{Change, Link, QueuePair, RingEnd};
use super::message::{
    AddRing, Hello, Init, MODE_ETHERNET, Message, RING_FLAG_CLIENT_TO_SERVER, VERSION,
};
use super::region_unsafe::Region;
use super::ring_unsafe::RingMemory;
use super::socket::{Channel, ChannelContext, Listener, Received};
use super::{MemifOptions, PROGRAM_NAME, bell};
use crate::foreign::Foreign;
use crate::text::Text;
use crate::wait::monotonic_ns;

/// The state of a server.
#[derive(Debug)]
pub struct Server {
    options: MemifOptions,
    context: ChannelContext,
    /// The listening socket; `None`: the single connection existed from the start.
    listener: Option<Listener>,
    /// Most bytes of all regions of a client.
    region_bytes_max: u64,
    /// Time before which the server does not try to accept again, ns; `None`: it accepts.
    deaf_until_ns: Option<u64>,
    half_open: Vec<HalfOpen>,
    active: Option<Channel>,
}

/// A client whose handshake is in progress.
#[derive(Debug)]
struct HalfOpen {
    channel: Channel,
    deadline_ns: u64,
    greeted: bool,
    announced: Announced,
}

/// Announcements of a client so far.
#[derive(Debug, Default)]
struct Announced {
    peer: String,
    regions: Vec<(OwnedFd, u64)>,
    /// The rings on which we receive, by queue.
    rx: Vec<Option<(AddRing, OwnedFd)>>,
    /// The rings on which we send, by queue.
    tx: Vec<Option<(AddRing, OwnedFd)>>,
}

/// The result of processing a message.
enum Step {
    /// The message was answered; the handshake goes on.
    Continue,
    /// Everything was announced: the connection is established.
    Up(Link),
    /// The client is refused and told the reason.
    Refuse(&'static str),
    /// The client said good-bye or has gone.
    Gone,
}

impl Server {
    /// Listens as `options` say; `context` reports readiness.
    ///
    /// # Errors
    /// The errors of the socket calls.
    pub fn new(options: &MemifOptions, context: &ChannelContext) -> rustix::io::Result<Self> {
        Ok(Self {
            options: options.clone(),
            context: context.clone(),
            listener: Some(Listener::new(&options.path, context)?),
            region_bytes_max: REGION_BYTES_MAX * REGIONS_MAX as u64,
            deaf_until_ns: None,
            half_open: Vec::new(),
            active: None,
        })
    }

    /// Serves only the client at the other end of `socket`. Its regions have at most
    /// `region_bytes_max` bytes altogether.
    ///
    /// # Errors
    /// The errors of the socket calls.
    pub fn over(
        options: &MemifOptions,
        context: &ChannelContext,
        socket: OwnedFd,
        region_bytes_max: u64,
    ) -> rustix::io::Result<Self> {
        let channel = Channel::over(socket, context)?;
        let mut server = Self {
            options: options.clone(),
            context: context.clone(),
            listener: None,
            region_bytes_max,
            deaf_until_ns: None,
            half_open: Vec::new(),
            active: None,
        };
        server.greet(channel, monotonic_ns());
        Ok(server)
    }

    /// Processes what has arrived since the last call.
    pub fn service(&mut self, now_ns: u64) -> Option<Change> {
        if let Some(change) = self.service_active() {
            return Some(change);
        }
        self.accept(now_ns);
        let mut i = 0;
        while i < self.half_open.len() {
            match self.service_half_open(i, now_ns) {
                Step::Continue => i += 1,
                Step::Up(link) => {
                    self.active = Some(self.half_open.swap_remove(i).channel);
                    return Some(Change::Up(link));
                }
                Step::Refuse(reason) => self.refuse(i, reason),
                Step::Gone => drop(self.half_open.swap_remove(i)),
            }
        }
        None
    }

    /// Ends the connection and tells the peer the reason.
    pub fn disconnect(&mut self, reason: &str) {
        if let Some(channel) = self.active.take() {
            channel.send(&Message::disconnect(reason), None);
        }
    }

    /// Time at which the server acts by itself, ns: it gives up a half-open client, or accepts
    /// again after a failure.
    pub fn deadline_ns(&self) -> Option<u64> {
        let clients = self.half_open.iter().map(|client| client.deadline_ns);
        clients.chain(self.deaf_until_ns).min()
    }

    fn service_active(&mut self) -> Option<Change> {
        let reason = match self.active.as_ref()?.receive() {
            Received::Nothing => return None,
            Received::Closed => "the client is gone".to_owned(),
            Received::Message(Message::Disconnect { reason, .. }, _) => reason.printable(),
            Received::Message(..) => "Unexpected message".to_owned(),
            Received::Malformed(error) => error.to_string(),
        };
        self.disconnect(&reason);
        Some(Change::Down(reason))
    }

    fn accept(&mut self, now_ns: u64) {
        let Some(listener) = &self.listener else {
            return;
        };
        if self.deaf_until_ns.is_some_and(|until_ns| now_ns < until_ns) {
            return;
        }
        if self.deaf_until_ns.take().is_some() && listener.watch(true).is_err() {
            return self.turn_deaf(now_ns);
        }
        for _ in 0..HANDSHAKES_MAX {
            if self.context.closer.is_full() {
                return self.turn_deaf(now_ns);
            }
            let accepted = self.listener.as_ref().map(Listener::accept);
            match accepted {
                Some(Ok(Some(channel))) => self.greet(channel, now_ns),
                None | Some(Ok(None)) => return,
                Some(Err(_)) => return self.turn_deaf(now_ns),
            }
        }
    }

    /// Ignores new clients for a while: otherwise they would wake a sleeping port again and again.
    fn turn_deaf(&mut self, now_ns: u64) {
        if let Some(listener) = &self.listener {
            let _ = listener.watch(false);
        }
        self.deaf_until_ns = Some(now_ns + ACCEPT_PAUSE_NS);
    }

    fn greet(&mut self, channel: Channel, now_ns: u64) {
        if !channel.send(&Message::Hello(self.hello()), None) {
            return;
        }
        if self.half_open.len() == HANDSHAKES_MAX {
            // The oldest half-open client had the most time.
            self.refuse(0, "Too many clients");
        }
        self.half_open.push(HalfOpen {
            channel,
            deadline_ns: now_ns + HANDSHAKE_NS_MAX,
            greeted: false,
            announced: Announced::default(),
        });
    }

    fn hello(&self) -> Hello {
        let index_max = self.options.queues as u16 - 1;
        Hello {
            name: Text::new(PROGRAM_NAME),
            version_min: VERSION,
            version_max: VERSION,
            region_index_max: REGIONS_MAX as u16 - 1,
            server_to_client_index_max: index_max,
            client_to_server_index_max: index_max,
            ring_slots_log2_max: RING_SLOTS_LOG2_MAX,
        }
    }

    fn refuse(&mut self, index: usize, reason: &str) {
        let client = self.half_open.remove(index);
        client.channel.send(&Message::disconnect(reason), None);
    }

    fn service_half_open(&mut self, index: usize, now_ns: u64) -> Step {
        let occupied = self.active.is_some();
        let region_bytes_max = self.region_bytes_max;
        let client = &mut self.half_open[index];
        for _ in 0..MESSAGES_PER_LOOK_MAX {
            let (message, descriptor) = match client.channel.receive() {
                Received::Nothing if now_ns >= client.deadline_ns => {
                    return Step::Refuse("Handshake timed out");
                }
                Received::Nothing => return Step::Continue,
                Received::Closed => return Step::Gone,
                Received::Malformed(error) => return Step::Refuse(malformed(error)),
                Received::Message(message, descriptor) => (message, descriptor),
            };
            if client.announced.would_pass(&message, region_bytes_max) {
                return Step::Refuse("Too much memory");
            }
            let step = client.on_message(message, descriptor, &self.options, occupied);
            if !matches!(step, Step::Continue) {
                return step;
            }
        }
        Step::Continue
    }
}

impl HalfOpen {
    fn on_message(
        &mut self,
        message: Message,
        descriptor: Foreign,
        options: &MemifOptions,
        occupied: bool,
    ) -> Step {
        let done = match message {
            Message::Disconnect { .. } => return Step::Gone,
            Message::Init(init) if !self.greeted => {
                check_init(&init, options, occupied).map(|()| {
                    self.greeted = true;
                    self.announced = Announced::new(init.name.printable(), options.queues);
                })
            }
            _ if !self.greeted => Err("Unexpected message"),
            Message::AddRegion { index, size } => {
                self.announced.add_region(index, size, descriptor)
            }
            Message::AddRing(ring) => self.announced.add_ring(ring, descriptor),
            Message::Connect { .. } if occupied => Err("Already connected"),
            Message::Connect { .. } => return self.connect(options),
            _ => Err("Unexpected message"),
        };
        match done {
            Err(reason) => Step::Refuse(reason),
            Ok(()) if self.channel.send(&Message::Ack, None) => Step::Continue,
            Ok(()) => Step::Gone,
        }
    }

    fn connect(&mut self, options: &MemifOptions) -> Step {
        let link = match std::mem::take(&mut self.announced).build() {
            Ok(link) => link,
            Err(reason) => return Step::Refuse(reason),
        };
        let interface = Text::new(&format!("memif{}", options.id));
        match self.channel.send(&Message::Connected { interface }, None) {
            true => Step::Up(link),
            false => Step::Gone,
        }
    }
}

fn malformed(error: super::message::MessageError) -> &'static str {
    match error {
        super::message::MessageError::Length => "Invalid message size",
        super::message::MessageError::Type => "Unknown message type",
        super::message::MessageError::Descriptors => "Unexpected descriptors",
    }
}

fn check_init(init: &Init, options: &MemifOptions, occupied: bool) -> Result<(), &'static str> {
    if init.version != VERSION {
        return Err("Incompatible memif version");
    }
    if init.id != options.id {
        return Err("ID not found");
    }
    if occupied {
        return Err("Already connected");
    }
    if init.mode != MODE_ETHERNET {
        return Err("Only ethernet mode supported");
    }
    match options.secret.as_deref() {
        None => Ok(()),
        Some(_) if init.secret.bytes().is_empty() => Err("Secret required"),
        Some(secret) if same_secret(secret.as_bytes(), init.secret.bytes()) => Ok(()),
        Some(_) => Err("Incorrect secret"),
    }
}

/// Compares secrets in a time that depends on their lengths only.
fn same_secret(ours: &[u8], theirs: &[u8]) -> bool {
    ours.len() == theirs.len()
        && ours
            .iter()
            .zip(theirs)
            .fold(0, |difference, (a, b)| difference | (a ^ b))
            == 0
}

impl Announced {
    fn new(peer: String, queues: usize) -> Self {
        let none = || std::iter::repeat_with(|| None).take(queues).collect();
        Self {
            peer,
            regions: Vec::new(),
            rx: none(),
            tx: none(),
        }
    }

    /// True if a message announces more memory than all regions may have.
    fn would_pass(&self, message: &Message, region_bytes_max: u64) -> bool {
        let Message::AddRegion { size, .. } = message else {
            return false;
        };
        let sizes = self.regions.iter().map(|(_, size)| *size).chain([*size]);
        sizes.fold(0, u64::saturating_add) > region_bytes_max
    }

    fn add_region(
        &mut self,
        index: u16,
        size: u64,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let memory =
            descriptor.keep_if("Missing region fd", |memory| check_memory(memory, size))?;
        if usize::from(index) != self.regions.len() || self.regions.len() == REGIONS_MAX {
            return Err("Invalid region index");
        }
        self.regions.push((memory, size));
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, descriptor: Foreign) -> Result<(), &'static str> {
        let bell = descriptor.keep_if("Missing interrupt fd", bell::adopt)?;
        let rings = match ring.flags & RING_FLAG_CLIENT_TO_SERVER {
            0 => &mut self.tx,
            _ => &mut self.rx,
        };
        let slot = rings
            .get_mut(usize::from(ring.index))
            .ok_or("Invalid ring index")?;
        if slot.is_some() {
            return Err("Ring announced twice");
        }
        if ring.slots_log2 > RING_SLOTS_LOG2_MAX {
            return Err("Ring too large");
        }
        *slot = Some((ring, bell));
        Ok(())
    }

    fn build(self) -> Result<Link, &'static str> {
        let mut regions = Vec::with_capacity(self.regions.len());
        for (descriptor, size) in &self.regions {
            let bytes = size.min(&REGION_BYTES_MAX);
            let bytes = usize::try_from(*bytes).map_err(|_| "Region too large")?;
            regions.push(
                Region::map(descriptor.as_fd(), bytes, false).map_err(|_| "Cannot map region")?,
            );
        }
        let mut queues = Vec::with_capacity(self.rx.len());
        for (rx, tx) in self.rx.into_iter().zip(self.tx) {
            let rx = rx.map(|ring| ring_end(&regions, ring)).transpose()?;
            let tx = tx.map(|ring| ring_end(&regions, ring)).transpose()?;
            queues.push(QueuePair { rx, tx });
        }
        Ok(Link {
            regions: regions.into(),
            queues: queues.into(),
            peer: self.peer,
        })
    }
}

/// Checks that a region of `size` bytes may be mapped from `memory`. What holds now holds as long
/// as it is mapped.
fn check_memory(memory: BorrowedFd<'_>, size: u64) -> Result<(), &'static str> {
    // This check comes first: only the kernel's own memory files have seals, and any other file
    // system might block the next call.
    if !fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err("Region is not sealed against shrinking");
    }
    // The peer may punch a hole even in sealed memory. An ordinary page comes back when touched.
    // Without a free huge page the access would kill us.
    if !fstatfs(memory).is_ok_and(|system| system.f_type == TMPFS_MAGIC) {
        return Err("Region is not of ordinary pages");
    }
    let file_size = fstat(memory).map_or(0, |stat| stat.st_size);
    if size == 0 || u64::try_from(file_size).unwrap_or(0) < size {
        return Err("Region is larger than its file");
    }
    Ok(())
}

fn ring_end(
    regions: &[Arc<Region>],
    (ring, bell): (AddRing, OwnedFd),
) -> Result<RingEnd, &'static str> {
    let region = regions
        .get(usize::from(ring.region))
        .ok_or("Ring in no region")?;
    let memory =
        RingMemory::new(region, ring.offset, ring.slots_log2).ok_or("Ring outside its region")?;
    if !memory.has_cookie() {
        return Err("Wrong ring cookie");
    }
    memory.set_tail(0);
    Ok(RingEnd {
        ring: memory,
        bell: Arc::new(bell),
        buffers: None,
    })
}
