//! The server's side of the control channel: accepts clients, checks all that they announce, maps their memory.
//!
//! Owned by the control object. A few half-open connections may stand side by side, so that a client that stalls keeps no other out; the first that completes gets
//! the interface. The client's memory must be a file that cannot shrink (sealed), or reading it could kill us.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use super::control::Change;
use super::limits::{
    HANDSHAKE_NS_MAX, HANDSHAKES_MAX, MESSAGES_PER_LOOK_MAX, REGION_BYTES_MAX, REGIONS_MAX,
    RING_SLOTS_LOG2_MAX,
};
use super::link::{Link, QueuePair, RingEnd};
use super::message::{
    AddRing, Hello, Init, MODE_ETHERNET, Message, RING_FLAG_CLIENT_TO_SERVER, Text, VERSION,
};
use super::region_unsafe::Region;
use super::ring_unsafe::RingMemory;
use super::socket::{Listener, Received, receive, send};
use super::{MemifOptions, PROGRAM_NAME, bell};

/// The server's side.
#[derive(Debug)]
pub struct Server {
    options: MemifOptions,
    epoll: Arc<OwnedFd>,
    listener: Listener,
    half_open: Vec<HalfOpen>,
    active: Option<OwnedFd>,
}

/// A client in its handshake.
#[derive(Debug)]
struct HalfOpen {
    socket: OwnedFd,
    deadline_ns: u64,
    greeted: bool,
    announced: Announced,
}

/// What a client has announced so far.
#[derive(Debug, Default)]
struct Announced {
    peer: String,
    regions: Vec<(OwnedFd, u64)>,
    /// By queue: where we receive.
    rx: Vec<Option<(AddRing, OwnedFd)>>,
    /// By queue: where we send.
    tx: Vec<Option<(AddRing, OwnedFd)>>,
}

/// What a message led to.
enum Step {
    /// Answered, go on.
    Continue,
    /// All is there: the connection is up.
    Up(Link),
    /// The client is refused, and told why.
    Refuse(&'static str),
    /// The client said good-bye or is gone.
    Gone,
}

impl Server {
    /// Listens as `options` say; readiness is reported by `epoll`.
    ///
    /// # Errors
    /// Those of the socket calls.
    pub fn new(options: &MemifOptions, epoll: &Arc<OwnedFd>) -> rustix::io::Result<Self> {
        let listener = Listener::new(&options.path)?;
        super::control::watch(epoll, listener.as_fd())?;
        Ok(Self {
            options: options.clone(),
            epoll: Arc::clone(epoll),
            listener,
            half_open: Vec::new(),
            active: None,
        })
    }

    /// Handles what has come since the last call.
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
                    self.active = Some(self.half_open.swap_remove(i).socket);
                    return Some(Change::Up(link));
                }
                Step::Refuse(reason) => self.refuse(i, reason),
                Step::Gone => drop(self.half_open.swap_remove(i)),
            }
        }
        None
    }

    /// Ends the connection, and tells the peer why.
    pub fn disconnect(&mut self, reason: &str) {
        if let Some(socket) = self.active.take() {
            send(socket.as_fd(), &Message::disconnect(reason), None);
        }
    }

    /// When a half-open client's time is up.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.half_open.iter().map(|client| client.deadline_ns).min()
    }

    fn service_active(&mut self) -> Option<Change> {
        let socket = self.active.as_ref()?;
        let reason = match receive(socket.as_fd()) {
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
        for _ in 0..HANDSHAKES_MAX {
            let Some(socket) = self.listener.accept() else {
                return;
            };
            let hello = Message::Hello(self.hello());
            if super::control::watch(&self.epoll, socket.as_fd()).is_err()
                || !send(socket.as_fd(), &hello, None)
            {
                continue;
            }
            if self.half_open.len() == HANDSHAKES_MAX {
                // The oldest had the most time.
                self.refuse(0, "Too many clients");
            }
            let deadline_ns = now_ns + HANDSHAKE_NS_MAX;
            self.half_open.push(HalfOpen {
                socket,
                deadline_ns,
                greeted: false,
                announced: Announced::default(),
            });
        }
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
        send(client.socket.as_fd(), &Message::disconnect(reason), None);
    }

    fn service_half_open(&mut self, index: usize, now_ns: u64) -> Step {
        let occupied = self.active.is_some();
        let client = &mut self.half_open[index];
        for _ in 0..MESSAGES_PER_LOOK_MAX {
            let (message, descriptor) = match receive(client.socket.as_fd()) {
                Received::Nothing if now_ns >= client.deadline_ns => {
                    return Step::Refuse("Handshake timed out");
                }
                Received::Nothing => return Step::Continue,
                Received::Closed => return Step::Gone,
                Received::Malformed(error) => return Step::Refuse(malformed(error)),
                Received::Message(message, descriptor) => (message, descriptor),
            };
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
        descriptor: Option<OwnedFd>,
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
            Message::Connect { .. } => return self.connect(options),
            _ => Err("Unexpected message"),
        };
        match done {
            Err(reason) => Step::Refuse(reason),
            Ok(()) if send(self.socket.as_fd(), &Message::Ack, None) => Step::Continue,
            Ok(()) => Step::Gone,
        }
    }

    fn connect(&mut self, options: &MemifOptions) -> Step {
        let link = match std::mem::take(&mut self.announced).build() {
            Ok(link) => link,
            Err(reason) => return Step::Refuse(reason),
        };
        let interface = Text::new(&format!("memif{}", options.id));
        match send(self.socket.as_fd(), &Message::Connected { interface }, None) {
            true => Step::Up(link),
            false => Step::Gone,
        }
    }
}

fn malformed(error: super::message::MessageError) -> &'static str {
    match error {
        super::message::MessageError::Length => "Invalid message size",
        super::message::MessageError::Type => "Unknown message type",
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

/// Compares in a time that depends on the lengths only.
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

    fn add_region(
        &mut self,
        index: u16,
        size: u64,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), &'static str> {
        let descriptor = descriptor.ok_or("Missing region fd")?;
        if usize::from(index) != self.regions.len() || self.regions.len() == REGIONS_MAX {
            return Err("Invalid region index");
        }
        if !fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err("Region is not sealed against shrinking");
        }
        // Sealed, so what holds now holds as long as it is mapped.
        let file_size = fstat(&descriptor).map_or(0, |stat| stat.st_size);
        if size == 0 || u64::try_from(file_size).unwrap_or(0) < size {
            return Err("Region is larger than its file");
        }
        self.regions.push((descriptor, size));
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, descriptor: Option<OwnedFd>) -> Result<(), &'static str> {
        let descriptor = descriptor.ok_or("Missing interrupt fd")?;
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
        if !bell::adopt(descriptor.as_fd()) {
            return Err("Interrupt fd is not an eventfd");
        }
        *slot = Some((ring, descriptor));
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
