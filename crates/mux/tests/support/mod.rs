//! A service in a network namespace on a data plane that only records calls, and clients that write
//! messages themselves.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mux::plane::{Ledger, Plane, Recovered, Traffic};
use mux::{Service, ServiceOptions};
use packetio::MacAddr;
use packetio::foreign::{Closer, Foreign};
use packetio::ledger::{ENTRY_BYTES, Entry};
use packetio::mux::channel::{Channel, Received};
use packetio::mux::message::{
    Change, Claim, HOLD, Hello, Lease, Memory, Message, PROTOCOL_TCP, Tuple, Welcome,
};
use packetio::text::Text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

#[path = "../../../packetio/tests/netns/mod.rs"]
pub mod netns;

use netns::Namespace;

/// The calls that a data plane has recorded.
#[derive(Debug, Default)]
pub struct RecordedCalls {
    pub ports: BTreeMap<(u16, u16), u64>,
    pub claims: BTreeMap<SocketAddr, (u16, Vec<u16>)>,
    pub flows: BTreeMap<(SocketAddr, SocketAddr), (u16, u16)>,
    pub leases: BTreeMap<u16, (u16, u16, u16)>,
    pub addresses: Vec<IpAddr>,
    pub next_hops: Vec<MacAddr>,
    pub host: Option<(MacAddr, u32)>,
    pub ledgers: BTreeMap<(u16, u16), Arc<OwnedFd>>,
    pub is_closed: bool,
    /// Bytes a second that a context may send; 0: any number.
    pub rate: u64,
    /// How often a virtual port was made, and how long each takes.
    pub port_adds: u32,
    pub port_add_pause: Duration,
    /// How often a virtual port was removed, and how long each takes.
    pub port_removals: u32,
    pub port_removal_pause: Duration,
}

/// Entries of a ledger that are read at once.
const ENTRIES_READ: usize = 4096;

/// A ledger in a file.
#[derive(Debug)]
struct FileLedger {
    file: Arc<OwnedFd>,
    /// Entries that were read, and the index of the first.
    read: Mutex<(usize, Vec<u8>)>,
}

impl Ledger for FileLedger {
    fn entry(&self, index: u32) -> Option<[u8; ENTRY_BYTES]> {
        let mut read = self.read.lock().unwrap();
        let (first, entries) = &mut *read;
        let within = index as usize % ENTRIES_READ;
        let wanted = index as usize - within;
        if *first != wanted || entries.is_empty() {
            *first = wanted;
            entries.resize(ENTRIES_READ * ENTRY_BYTES, 0);
            let at = (wanted * ENTRY_BYTES) as u64;
            let length = rustix::io::pread(&*self.file, &mut entries[..], at).ok()?;
            entries.truncate(length);
        }
        let bytes = entries.get(within * ENTRY_BYTES..)?.get(..ENTRY_BYTES)?;
        bytes.try_into().ok()
    }
}

/// A data plane that moves no frames.
#[derive(Clone, Debug, Default)]
pub struct FakePlane(pub Arc<Mutex<RecordedCalls>>);

impl FakePlane {
    pub fn recorded<T>(&self, look: impl FnOnce(&mut RecordedCalls) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }
}

impl Plane for FakePlane {
    fn port_add(
        &mut self,
        application: u16,
        context: u16,
        _: &Memory,
        _: BorrowedFd<'_>,
    ) -> Result<(OwnedFd, u64), Errno> {
        let pause = self.recorded(|recorded| {
            recorded.port_adds += 1;
            recorded.port_add_pause
        });
        std::thread::sleep(pause);
        // Any socket will do: it has a cookie, too.
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let cookie = sockopt::socket_cookie(&socket)?;
        self.recorded(|recorded| recorded.ports.insert((application, context), cookie));
        Ok((socket, cookie))
    }

    fn bulk_add(&mut self, application: u16, context: u16) -> Result<OwnedFd, Errno> {
        match self.recorded(|recorded| recorded.ports.contains_key(&(application, context))) {
            // Any descriptor will do.
            true => memfd_create("bulk", MemfdFlags::CLOEXEC),
            false => Err(Errno::NOENT),
        }
    }

    fn port_remove(&mut self, application: u16, context: u16) {
        let pause = self.recorded(|recorded| recorded.port_removal_pause);
        std::thread::sleep(pause);
        self.recorded(|recorded| {
            recorded.port_removals += 1;
            recorded.ports.remove(&(application, context));
            recorded.ledgers.remove(&(application, context));
        });
    }

    fn ledger_add(
        &mut self,
        application: u16,
        context: u16,
        entries: u32,
    ) -> Result<OwnedFd, Errno> {
        let file = memfd_create("ledger", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, u64::from(entries) * ENTRY_BYTES as u64)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&file, 0)?;
        let id = (application, context);
        self.recorded(|recorded| recorded.ledgers.insert(id, Arc::new(file)));
        Ok(copy)
    }

    fn ledger(&self, application: u16, context: u16) -> Option<Box<dyn Ledger>> {
        let found =
            self.recorded(|recorded| recorded.ledgers.get(&(application, context)).cloned());
        found.map(|file| {
            let read = Mutex::default();
            Box::new(FileLedger { file, read }) as Box<dyn Ledger>
        })
    }

    fn claim_set(
        &mut self,
        endpoint: SocketAddr,
        application: u16,
        contexts: &[u16],
    ) -> Result<(), Errno> {
        let entry = (application, contexts.to_vec());
        self.recorded(|recorded| recorded.claims.insert(endpoint, entry));
        Ok(())
    }

    fn own_hop(&self) -> Option<MacAddr> {
        None
    }

    fn rate(&self) -> u64 {
        self.recorded(|recorded| recorded.rate)
    }

    fn flow_set(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr)) {
        self.recorded(|recorded| recorded.flows.insert(ends, (application, context)));
    }

    fn flow_forget(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr)) {
        self.recorded(|recorded| {
            if recorded.flows.get(&ends) == Some(&(application, context)) {
                recorded.flows.remove(&ends);
            }
        });
    }

    fn claim_remove(&mut self, endpoint: SocketAddr) {
        self.recorded(|recorded| recorded.claims.remove(&endpoint));
    }

    fn lease_add(
        &mut self,
        ports: RangeInclusive<u16>,
        application: u16,
        context: u16,
    ) -> Result<(), Errno> {
        let entry = (*ports.end(), application, context);
        self.recorded(|recorded| recorded.leases.insert(*ports.start(), entry));
        Ok(())
    }

    fn lease_remove(&mut self, ports: RangeInclusive<u16>) {
        self.recorded(|recorded| recorded.leases.remove(ports.start()));
    }

    fn address_add(&mut self, address: IpAddr, broadcast: Option<IpAddr>) {
        self.recorded(|recorded| {
            recorded.addresses.push(address);
            recorded.addresses.extend(broadcast);
        });
    }

    fn address_remove(&mut self, address: IpAddr) {
        self.recorded(|recorded| recorded.addresses.retain(|one| *one != address));
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.recorded(|recorded| recorded.addresses.clone())
    }

    fn next_hops(&self) -> Vec<MacAddr> {
        self.recorded(|recorded| recorded.next_hops.clone())
    }

    fn next_hop_set(&mut self, mac: MacAddr, on: bool) {
        self.recorded(|recorded| {
            recorded.next_hops.retain(|one| *one != mac);
            if on {
                recorded.next_hops.push(mac);
            }
        });
    }

    fn host_set(&mut self, mac: MacAddr, mtu: u32) {
        self.recorded(|recorded| recorded.host = Some((mac, mtu)));
    }

    fn nic_back(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn recovered(&self) -> Vec<Recovered> {
        self.recorded(|recorded| {
            let ports = recorded.ports.iter();
            ports
                .map(|(&(application, context), &cookie)| Recovered {
                    application,
                    context,
                    cookie,
                })
                .collect()
        })
    }

    fn traffic(&self, _: u16, _: u16) -> Traffic {
        Traffic {
            drops: vec![("foreign_port", 3), ("runt", 0)],
            ..Traffic::default()
        }
    }

    fn ingress_drops(&self) -> Vec<(&'static str, u64)> {
        vec![("fragment", 1)]
    }

    fn check(&mut self) -> Vec<(String, Result<(), String>)> {
        Vec::new()
    }

    fn mode(&self) -> String {
        "recorded".into()
    }

    fn close(self) {
        self.recorded(|recorded| recorded.is_closed = true);
    }
}

/// Two hosts on one link: the service runs on `near`.
pub struct World {
    pub near: Namespace,
    pub far: Namespace,
    pub plane: FakePlane,
    pub run_dir: PathBuf,
    pub socket: String,
    service: Option<(JoinHandle<()>, OwnedFd)>,
}

/// Lines of all services of the program.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a log line of the service, which is shown if a test fails.
fn say(line: &str) {
    println!("mux: {line}");
    SAID.lock().unwrap().push(line.to_owned());
}

/// True if a service has said something with these words.
pub fn was_said(words: &str) -> bool {
    SAID.lock().unwrap().iter().any(|line| line.contains(words))
}

impl World {
    pub fn new(test: &str) -> Self {
        Self::new_with(test, |_| {})
    }

    /// A world whose service has other options.
    pub fn new_with(test: &str, change: impl FnOnce(&mut ServiceOptions)) -> Self {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        near.ip(&format!(
            "link add eth0 type veth peer name eth0 netns {}",
            far.name
        ));
        for (host, address) in [(&near, "10.9.0.1/24"), (&far, "10.9.0.2/24")] {
            host.ip(&format!("address add {address} dev eth0"));
            host.ip("link set eth0 up");
        }
        let run_dir = std::env::temp_dir().join(format!("mux-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&run_dir).unwrap();
        let mut world = Self {
            near,
            far,
            plane: FakePlane::default(),
            socket: run_dir.join("sock").to_str().unwrap().to_owned(),
            run_dir,
            service: None,
        };
        world.start_with(change);
        world
    }

    /// Starts the first or the next service.
    pub fn start(&mut self) {
        self.start_with(|_| {});
    }

    pub fn start_with(&mut self, change: impl FnOnce(&mut ServiceOptions)) {
        let mut options = ServiceOptions {
            interface: "eth0".into(),
            socket: self.socket.clone(),
            run_dir: self.run_dir.clone(),
            rules: vec!["uid=1234:80".parse().unwrap()],
            leases: 20_000..=20_127,
            ports: 4,
            memory_per_user: 1 << 30,
        };
        change(&mut options);
        let plane = self.plane.clone();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let thread = self.near.inside(|| {
            let service = Service::new(options, plane, say).expect("service");
            std::thread::spawn(move || service.run(reader.as_fd()).expect("run"))
        });
        self.service = Some((thread, writer));
    }

    /// Ends the service as a signal does: the data plane stays.
    pub fn leave(&mut self) {
        if let Some((thread, writer)) = self.service.take() {
            rustix::io::write(&writer, &[1]).unwrap();
            thread.join().unwrap();
        }
    }

    /// Waits for the end of a service that was told to stop.
    pub fn join(&mut self) {
        if let Some((thread, _writer)) = self.service.take() {
            thread.join().unwrap();
        }
    }

    pub fn connect(&self) -> Client {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match Channel::connect(&self.socket, &Closer::default()) {
                Ok(channel) => return Client::new(channel),
                // The service's queue is full, and it is about to empty it.
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("connect: {error}"),
            }
        }
    }

    /// A connection of another user.
    pub fn connect_as(&self, uid: u32) -> Client {
        std::thread::scope(|scope| {
            let connect = scope.spawn(|| {
                // Of this thread alone, which ends with the call.
                let uid = rustix::process::Uid::from_raw(uid);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                self.connect()
            });
            connect.join().unwrap()
        })
    }

    /// An application with one context and its virtual port.
    pub fn application(&self) -> Client {
        let mut client = self.connect();
        client.hello(1);
        client.port(0);
        client
    }

    /// Waits until the recorded calls satisfy `found`.
    pub fn until(&self, what: &str, found: impl Fn(&mut RecordedCalls) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.plane.recorded(&found) {
            assert!(Instant::now() < end, "not in the recorded: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the kernel can bind the endpoint again. A program that another test starts may
    /// keep copies of the service's descriptors for a moment.
    pub fn must_be_free(&self, endpoint: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.near.inside(|| TcpListener::bind(endpoint)).is_err() {
            assert!(Instant::now() < end, "{endpoint} is not free");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some((thread, writer)) = self.service.take() {
            let _ = rustix::io::write(&writer, &[1]);
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

/// An application that writes its messages itself.
pub struct Client {
    pub channel: Channel,
    request: u32,
    /// Changes and revocations that arrived while it waited for an answer.
    pub news: Vec<Message>,
    /// The ledger of the last opened context.
    pub ledger: Option<OwnedFd>,
}

impl Client {
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            request: 0,
            news: Vec::new(),
            ledger: None,
        }
    }

    pub fn send(&self, message: &Message) {
        self.channel.send(message, None).expect("send");
    }

    /// The next message; `None` if the connection has ended.
    pub fn next(&self) -> Option<(Message, Foreign)> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match self.channel.receive() {
                Received::Message(message, descriptor) => return Some((message, descriptor)),
                Received::Closed => return None,
                Received::Malformed(error) => panic!("{error}"),
                Received::Nothing => {}
            }
            assert!(Instant::now() < end, "no message");
            let wait = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let _ = poll(
                &mut [PollFd::new(&self.channel, PollFlags::IN)],
                Some(&wait),
            );
        }
    }

    /// The next message that is not news, with its descriptor.
    fn answer_with_descriptor(&mut self) -> Option<(Message, Foreign)> {
        loop {
            let (message, descriptor) = self.next()?;
            match message {
                Message::Change(_) | Message::Revoke { .. } => self.news.push(message),
                other => return Some((other, descriptor)),
            }
        }
    }

    /// The next message that is not news, with its descriptor.
    pub fn next_answer(&mut self) -> (Message, Foreign) {
        self.answer_with_descriptor().expect("an answer")
    }

    /// The next message that is not news.
    pub fn answer(&mut self) -> Option<Message> {
        self.answer_with_descriptor().map(|(message, _)| message)
    }

    /// Waits for a news message.
    pub fn news(&mut self, found: impl Fn(&Message) -> bool) -> Message {
        if let Some(at) = self.news.iter().position(&found) {
            return self.news.remove(at);
        }
        loop {
            let (message, _) = self.next().expect("the connection has ended");
            if found(&message) {
                return message;
            }
            self.news.push(message);
        }
    }

    pub fn is_disconnected(&mut self) -> bool {
        while let Some((message, _)) = self.next() {
            self.news.push(message);
        }
        true
    }

    pub fn hello(&mut self, contexts: u16) -> Welcome {
        self.send(&Message::Hello(Hello {
            name: Text::new("test"),
            contexts,
        }));
        let Some(Message::Welcome(welcome)) = self.answer() else {
            panic!("no welcome");
        };
        self.news(|message| *message == Message::Change(Change::Complete));
        welcome
    }

    /// Asks for a virtual port.
    pub fn ask_port(&self, memory: Memory) {
        let file = sealed(memory.bytes);
        let message = Message::Memory(memory);
        self.channel.send(&message, Some(file.as_fd())).unwrap();
    }

    /// Says hello, and is refused.
    pub fn is_too_many(&mut self, contexts: u16) -> bool {
        let name = Text::new("test");
        self.send(&Message::Hello(Hello { name, contexts }));
        let errno = Errno::BUSY.raw_os_error() as u16;
        self.answer() == Some(Message::Refused { request: 0, errno })
    }

    pub fn port(&mut self, context: u16) -> (OwnedFd, u64) {
        self.ask_port(memory(context));
        let (ledger, memory) = self.answer_with_descriptor().expect("ledger");
        let bytes = u64::from(LEDGER_ENTRIES) * ENTRY_BYTES as u64;
        assert_eq!(ledger, Message::Ledger { context, bytes });
        self.ledger = Some(memory.keep_if("none", |_| Ok(())).unwrap());
        let (message, descriptor) = self.answer_with_descriptor().expect("port");
        let Message::Port(port) = message else {
            panic!("no port: {message:?}");
        };
        let socket = descriptor.keep_if("none", |_| Ok(())).unwrap();
        (socket, port.cookie)
    }

    /// Claims an endpoint; returns 0 or an errno.
    pub fn claim(&mut self, endpoint: &str) -> i32 {
        let claim = self.claim_of(endpoint);
        self.send(&Message::Claim(claim));
        self.outcome(claim.request)
    }

    /// A claim of a context other than the first.
    pub fn claim_for(&mut self, context: u16, endpoint: &str) -> i32 {
        let claim = Claim {
            context,
            ..self.claim_of(endpoint)
        };
        self.send(&Message::Claim(claim));
        self.outcome(claim.request)
    }

    pub fn release(&mut self, endpoint: &str) -> i32 {
        let claim = self.claim_of(endpoint);
        self.send(&Message::Release(claim));
        self.outcome(claim.request)
    }

    /// Holds an endpoint without listening there.
    pub fn hold(&mut self, endpoint: &str) -> i32 {
        let context = HOLD;
        let claim = Claim {
            context,
            ..self.claim_of(endpoint)
        };
        self.send(&Message::Claim(claim));
        self.outcome(claim.request)
    }

    /// Ends a hold.
    pub fn let_go(&mut self, endpoint: &str) -> i32 {
        let context = HOLD;
        let claim = Claim {
            context,
            ..self.claim_of(endpoint)
        };
        self.send(&Message::Release(claim));
        self.outcome(claim.request)
    }

    pub fn lease(&mut self, ports: u16) -> Result<RangeInclusive<u16>, i32> {
        self.request += 1;
        self.send(&Message::Lease(Lease {
            request: self.request,
            context: 0,
            first: 0,
            ports,
        }));
        match self.answer() {
            Some(Message::Leased(lease)) => Ok(lease.first..=lease.first + (lease.ports - 1)),
            Some(Message::Refused { errno, .. }) => Err(i32::from(errno)),
            other => panic!("{other:?}"),
        }
    }

    /// Returns leased ports; returns 0 or an errno.
    pub fn give_back(&mut self, ports: RangeInclusive<u16>) -> i32 {
        self.request += 1;
        self.send(&Message::Return(Lease {
            request: self.request,
            context: 0,
            first: *ports.start(),
            ports: ports.len() as u16,
        }));
        self.outcome(self.request)
    }

    /// Writes the application's only connection into the ledger, as its stack would.
    pub fn write_ledger(&self, entry: &Entry) {
        self.write_ledger_at(0, entry);
    }

    pub fn write_ledger_at(&self, index: u32, entry: &Entry) {
        let ledger = self.ledger.as_ref().unwrap();
        let at = u64::from(index) * ENTRY_BYTES as u64;
        rustix::io::pwrite(ledger, &entry.encode(), at).unwrap();
    }

    pub fn resolve(&mut self, address: &str) -> Result<MacAddr, i32> {
        self.request += 1;
        self.send(&Message::Resolve {
            request: self.request,
            address: address.parse().unwrap(),
        });
        match self.answer() {
            Some(Message::NextHop { mac, .. }) => Ok(mac),
            Some(Message::Refused { errno, .. }) => Err(i32::from(errno)),
            other => panic!("{other:?}"),
        }
    }

    pub fn outcome(&mut self, request: u32) -> i32 {
        match self.answer() {
            Some(Message::Granted { request: answered }) if answered == request => 0,
            Some(Message::Refused {
                request: answered,
                errno,
            }) if answered == request => i32::from(errno),
            other => panic!("{other:?}"),
        }
    }

    pub fn claim_of(&mut self, endpoint: &str) -> Claim {
        let endpoint: SocketAddr = endpoint.parse().unwrap();
        self.request += 1;
        Claim {
            request: self.request,
            context: 0,
            tuple: Tuple {
                protocol: PROTOCOL_TCP,
                address: endpoint.ip(),
                port: endpoint.port(),
            },
        }
    }
}

/// Entries of a context's ledger.
const LEDGER_ENTRIES: u32 = 8;

pub fn memory(context: u16) -> Memory {
    Memory {
        context,
        bytes: 4 << 20,
        chunk_bytes: 2048,
        headroom_bytes: 0,
        fill_slots: 1024,
        completion_slots: 1024,
        rx_slots: 1024,
        tx_slots: 1024,
        ledger_entries: LEDGER_ENTRIES,
    }
}

/// A memory file with all seals.
pub fn sealed(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    file
}
