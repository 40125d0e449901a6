//! A service in a network namespace on a data plane that only records calls, and clients that write
//! messages themselves.

#![allow(dead_code)]

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mux::{Service, ServiceOptions};
use packetio::MacAddr;
use packetio::foreign::{Closer, Foreign};
use packetio::ledger::{ENTRY_BYTES, Entry};
use packetio::mux::channel::{Channel, Received};
use packetio::mux::message::{
    Change, Claim, HOLD, Hello, Lease, Memory, Message, PROTOCOL_TCP, Query, Tuple, Welcome,
};
use packetio::text::Text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

#[path = "../../../packetio/tests/netns/mod.rs"]
pub mod netns;
mod plane;

use netns::Namespace;
pub use plane::{FakePlane, RecordedCalls};

/// Two hosts on one link: the service runs on `near`.
pub struct World {
    pub near: Namespace,
    pub far: Namespace,
    pub plane: FakePlane,
    pub run_dir: PathBuf,
    pub socket: String,
    /// The service, until a test sets it aside.
    pub service: Option<(JoinHandle<()>, OwnedFd)>,
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

    /// Shows the socket of the first context of an application from before. Returns the errno.
    pub fn come_back(&mut self, application: u16, socket: &OwnedFd) -> i32 {
        let recover = Message::Recover {
            request: 9,
            application,
            context: 0,
        };
        self.channel.send(&recover, Some(socket.as_fd())).unwrap();
        self.outcome(9)
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

/// A connection from the other host whose end here is forgotten silently, with its entry in the
/// ledger of the application that would have owned it. The kernel plays the application's stack.
pub fn forgotten(world: &World) -> (TcpStream, Entry) {
    let local = "10.9.0.1:8081";
    let listener = world.near.inside(|| TcpListener::bind(local).unwrap());
    let peer = world.far.inside(|| TcpStream::connect(local).unwrap());
    let (stream, remote) = listener.accept().unwrap();
    let local = local.parse().unwrap();
    world.far.ip("link set eth0 down");
    // A close without lingering forgets the connection at once; its reset is lost.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop((stream, listener));
    world.far.ip("link set eth0 up");
    (peer, Entry { local, remote })
}

/// Waits until the peer's connection is reset.
pub fn must_be_reset(mut peer: TcpStream) {
    let wait = Some(Duration::from_secs(20));
    peer.set_read_timeout(wait).unwrap();
    let error = loop {
        match peer.read(&mut [0]).unwrap_err() {
            // SIGCHLD from a program that another test has run.
            error if error.kind() == std::io::ErrorKind::Interrupted => {}
            error => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// The answer of the service to a command.
pub fn ask(world: &World, query: Query) -> String {
    let client = world.connect();
    client.send(&Message::Query { request: 1, query });
    let (message, descriptor) = client.next().expect("answer");
    let Message::Answer { request: 1, bytes } = message else {
        panic!("{message:?}");
    };
    let file = descriptor.keep_if("none", |_| Ok(())).unwrap();
    let mut text = vec![0; bytes as usize];
    assert_eq!(rustix::io::pread(&file, &mut text[..], 0), Ok(text.len()));
    String::from_utf8(text).unwrap()
}
