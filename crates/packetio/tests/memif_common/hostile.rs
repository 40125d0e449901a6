//! A memif peer that sends and writes whatever a test wants: messages by hand, and shared memory
//! through `pwrite` on its file.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use packetio::Port;
use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::common::until;

pub const ACK: u16 = 1;
pub const HELLO: u16 = 2;
pub const INIT: u16 = 3;
pub const ADD_REGION: u16 = 4;
pub const ADD_RING: u16 = 5;
pub const CONNECT: u16 = 6;
pub const CONNECTED: u16 = 7;
pub const DISCONNECT: u16 = 8;

/// Slots of the hostile client's rings.
pub const SLOTS: u16 = 64;
/// Offset of the client-to-server ring.
pub const RING_C2S: u64 = 0;
/// Offset of the server-to-client ring.
pub const RING_S2C: u64 = 128 + 16 * SLOTS as u64;
/// Offset of the buffers.
pub const BUFFERS: u64 = 4096;
/// Bytes of the hostile client's region.
pub const REGION_BYTES: u64 = BUFFERS + 2 * SLOTS as u64 * 2048;

/// A message of 128 bytes: its type and packed fields.
pub fn message(kind: u16, fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    fields
        .iter()
        .for_each(|field| bytes.extend_from_slice(field));
    bytes.resize(128, 0);
    bytes
}

pub fn hello(version: u16) -> Vec<u8> {
    let v = version.to_ne_bytes();
    message(HELLO, &[&[0; 32], &v, &v, &[0; 6], &[14]])
}

pub fn init(version: u16, id: u32, mode: u8, secret: &[u8]) -> Vec<u8> {
    message(
        INIT,
        &[&version.to_ne_bytes(), &id.to_ne_bytes(), &[mode], secret],
    )
}

pub fn add_region(index: u16, size: u64) -> Vec<u8> {
    message(ADD_REGION, &[&index.to_ne_bytes(), &size.to_ne_bytes()])
}

pub fn add_ring(flags: u16, index: u16, region: u16, offset: u32, slots_log2: u8) -> Vec<u8> {
    let fields = [flags, index, region].map(u16::to_ne_bytes).concat();
    message(
        ADD_RING,
        &[&fields, &offset.to_ne_bytes(), &[slots_log2, 0, 0]],
    )
}

/// One end of a control channel.
pub struct Peer {
    pub socket: OwnedFd,
}

/// A received message: type, bytes, descriptors. Type `None`: the other end has closed.
pub type Heard = (Option<u16>, Vec<u8>, Vec<OwnedFd>);

fn new_socket() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

impl Peer {
    /// Connects as a client to the server at `path`.
    pub fn connect(path: &str) -> Self {
        let socket = new_socket();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self { socket }
    }

    /// Accepts `victim`, a client, as a server.
    pub fn accept(listener: &OwnedFd, victim: &mut MemifPort) -> Self {
        let mut socket = None;
        assert!(until(Duration::from_secs(30), || {
            let _ = victim.receive().map(|_| ());
            socket = rustix::net::accept_with(listener, SocketFlags::NONBLOCK).ok();
            socket.is_some()
        }));
        Self {
            socket: socket.unwrap(),
        }
    }

    pub fn listen(path: &str) -> OwnedFd {
        let socket = new_socket();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&socket, 4).unwrap();
        socket
    }

    pub fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        // The victim may have closed the connection already.
        let _ = rustix::net::sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
    }

    /// Receives the next message, and turns the victim meanwhile.
    pub fn hear(&self, victim: &mut MemifPort) -> Heard {
        let mut heard = None;
        assert!(
            until(Duration::from_secs(30), || {
                let _ = victim.receive().map(|_| ());
                heard = self.try_hear();
                heard.is_some()
            }),
            "no answer"
        );
        heard.unwrap()
    }

    /// True if a message has arrived.
    pub fn has_word(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.socket, &mut [0; 1], flags).is_ok()
    }

    fn try_hear(&self) -> Option<Heard> {
        let mut bytes = vec![0; 200];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = match rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::DONTWAIT,
        ) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(_) => return Some((None, Vec::new(), Vec::new())),
        };
        let descriptors = control
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
                _ => Vec::new(),
            })
            .collect();
        bytes.truncate(received.bytes);
        let kind = (received.bytes >= 2).then(|| u16::from_ne_bytes([bytes[0], bytes[1]]));
        Some((kind, bytes, descriptors))
    }

    /// Sends a message and expects one of this type in return.
    pub fn ask(
        &self,
        victim: &mut MemifPort,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        answer: u16,
    ) {
        self.say(bytes, descriptors);
        let heard = self.hear(victim);
        assert_eq!(
            heard.0,
            Some(answer),
            "{}",
            String::from_utf8_lossy(&heard.1)
        );
    }
}

/// Time that closing a descriptor of [`slow_to_close`] takes.
pub const SLOW: Duration = Duration::from_secs(60);

/// A descriptor whose last close takes long: a lingering socket whose far end does not read.
/// Dropping the returned far end stops that.
pub fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&near, Some(SLOW)).unwrap();
    (near.into(), far)
}

/// Sealed memory of huge pages; `None` if the kernel has none.
pub fn huge_memory() -> Option<OwnedFd> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let file = rustix::fs::memfd_create("huge", flags).ok()?;
    rustix::fs::ftruncate(&file, 2 << 20).ok()?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).ok()?;
    Some(file)
}

/// Shared memory, accessed through its file.
pub struct Memory(pub OwnedFd);

impl Memory {
    /// Makes memory of `bytes` bytes, sealed against shrinking or not.
    pub fn new(bytes: u64, sealed: bool) -> Self {
        let file = rustix::fs::memfd_create("hostile", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        if sealed {
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        }
        Self(file)
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(rustix::io::pwrite(&self.0, bytes, at).unwrap(), bytes.len());
    }

    pub fn u16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        rustix::io::pread(&self.0, &mut bytes, at).unwrap();
        u16::from_ne_bytes(bytes)
    }

    pub fn set_head(&self, ring: u64, head: u16) {
        self.put(ring + 6, &head.to_ne_bytes());
    }

    pub fn set_tail(&self, ring: u64, tail: u16) {
        self.put(ring + 64, &tail.to_ne_bytes());
    }

    pub fn tail(&self, ring: u64) -> u16 {
        self.u16(ring + 64)
    }

    pub fn set_descriptor(
        &self,
        ring: u64,
        slot: u16,
        flags: u16,
        region: u16,
        length: u32,
        offset: u32,
    ) {
        let at = ring + 128 + 16 * u64::from(slot);
        let bytes = [
            &flags.to_ne_bytes()[..],
            &region.to_ne_bytes(),
            &length.to_ne_bytes(),
            &offset.to_ne_bytes(),
        ];
        self.put(at, &bytes.concat());
    }

    /// Writes the headers and descriptors of a well-behaved client.
    pub fn lay_out(&self) {
        for (ring, first) in [(RING_C2S, 0), (RING_S2C, SLOTS)] {
            self.put(ring, &0x03E3_1F20u32.to_ne_bytes());
            for slot in 0..SLOTS {
                self.set_descriptor(ring, slot, 0, 0, 2048, buffer(first + slot));
            }
        }
    }
}

/// Offset of buffer `number` of the hostile client.
pub fn buffer(number: u16) -> u32 {
    BUFFERS as u32 + u32::from(number) * 2048
}

/// A client that has behaved so far and is connected to the server `victim`.
pub struct Client {
    pub peer: Peer,
    pub memory: Memory,
    pub bells: [OwnedFd; 2],
}

impl Client {
    pub fn connect(path: &str, victim: &mut MemifPort) -> Self {
        Self::over(Peer::connect(path), victim)
    }

    /// Performs a client's handshake over the victim's control channel.
    pub fn over(peer: Peer, victim: &mut MemifPort) -> Self {
        let client = Self {
            peer,
            memory: Memory::new(REGION_BYTES, true),
            bells: std::array::from_fn(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()),
        };
        client.memory.lay_out();
        let peer = &client.peer;
        assert_eq!(peer.hear(victim).0, Some(HELLO));
        peer.ask(victim, &init(0x0200, 0, 0, &[]), &[], ACK);
        peer.ask(
            victim,
            &add_region(0, REGION_BYTES),
            &[client.memory.0.as_fd()],
            ACK,
        );
        peer.ask(
            victim,
            &add_ring(1, 0, 0, RING_C2S as u32, 6),
            &[client.bells[0].as_fd()],
            ACK,
        );
        peer.ask(
            victim,
            &add_ring(0, 0, 0, RING_S2C as u32, 6),
            &[client.bells[1].as_fd()],
            ACK,
        );
        peer.ask(victim, &message(CONNECT, &[]), &[], CONNECTED);
        // The port notices the connection at its next look.
        let _ = victim.receive().map(|_| ());
        assert!(victim.is_connected(), "{}", victim.last_reason());
        client
    }

    /// Publishes the descriptor of one frame at the head.
    pub fn publish(&self, head: &mut u16, flags: u16, region: u16, length: u32, offset: u32) {
        self.memory
            .set_descriptor(RING_C2S, *head % SLOTS, flags, region, length, offset);
        *head = head.wrapping_add(1);
        self.memory.set_head(RING_C2S, *head);
    }
}

/// A hostile server that has behaved so far, and the memory that the victim gave it.
pub fn hostile_server(name: &str) -> (MemifPort, Peer, Memory) {
    let path = crate::common::path(name);
    let listener = Peer::listen(&path);
    let options = MemifOptions {
        path: path.clone(),
        role: MemifRole::Client,
        ring_slots: Some(64),
        ..MemifOptions::default()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let peer = Peer::accept(&listener, &mut victim);
    peer.say(&hello(0x0200), &[]);
    assert_eq!(peer.hear(&mut victim).0, Some(INIT));
    peer.say(&message(ACK, &[]), &[]);
    let (kind, _, mut descriptors) = peer.hear(&mut victim);
    assert_eq!(kind, Some(ADD_REGION));
    for expected in [ADD_RING, ADD_RING, CONNECT] {
        peer.say(&message(ACK, &[]), &[]);
        assert_eq!(peer.hear(&mut victim).0, Some(expected));
    }
    peer.say(&message(CONNECTED, &[]), &[]);
    assert!(until(Duration::from_secs(30), || victim
        .receive()
        .unwrap()
        .is_empty()
        && victim.is_connected()));
    let _ = std::fs::remove_file(path);
    (victim, peer, Memory(descriptors.remove(0)))
}
