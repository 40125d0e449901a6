//! The application's side of a stack. It does with an `AppSide` what the library does, for
//! applications that never block.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ring::byte_ring::{RxReader, TxWriter};
use ring::published::fence_full;
use ring::socket_block::{Name, Requests, SocketBlock, SocketId, SocketState};
use ring::spsc;
use stack::context::{AcceptRings, AppSide, Connect, Control, Listen, SocketOption};
use wire::Addr;

/// See the module's documentation.
pub struct Sockets {
    side: AppSide,
    open: BTreeMap<u32, Socket>,
    /// The stack was asked for something since the last [`has_asked`](Self::has_asked).
    has_asked: bool,
}

struct Socket {
    id: SocketId,
    rx: RxReader,
    tx: TxWriter,
    accepted: Option<Arc<AcceptRings>>,
}

impl Socket {
    fn new(id: SocketId) -> Self {
        Self {
            id,
            rx: RxReader::new(),
            tx: TxWriter::new(),
            accepted: None,
        }
    }
}

impl Sockets {
    /// The sockets of one stack.
    #[must_use]
    pub fn new(side: AppSide) -> Self {
        Self {
            side,
            open: BTreeMap::new(),
            has_asked: false,
        }
    }

    fn socket(&mut self) -> Option<SocketId> {
        let id = self.side.sockets.pop()?;
        self.open.insert(id.index, Socket::new(id));
        Some(id)
    }

    /// Asks for a listener. `None`: no socket is free.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: Vec<SocketOption>,
    ) -> Option<SocketId> {
        let socket = self.socket()?;
        let (accepted, queue) = spsc::queue(backlog + 1);
        let rings = AcceptRings::new(queue);
        if let Some(open) = self.open.get_mut(&socket.index) {
            open.accepted = Some(Arc::clone(&rings));
        }
        let listen = Listen {
            socket,
            local,
            accepted,
            rings,
            backlog: backlog as u32,
            options,
            answer: None,
        };
        self.control(socket, Control::Listen(listen))
    }

    /// Asks for a connection. `None`: no socket is free.
    pub fn connect(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: Vec<SocketOption>,
        fast_open: bool,
    ) -> Option<SocketId> {
        let socket = self.socket()?;
        if local.is_none() && options.is_empty() && !fast_open {
            self.connect_plainly(socket, remote);
            return Some(socket);
        }
        let connect = Connect {
            socket,
            local,
            remote,
            options,
            fast_open,
            answer: None,
        };
        self.control(socket, Control::Connect(connect))
    }

    /// Asks for a connection in the way of `TcpStream::connect`.
    fn connect_plainly(&mut self, socket: SocketId, remote: SocketAddr) {
        let (address, port) = (*Addr::from(remote.ip()).octets(), remote.port());
        if let Some(block) = self.side.memory.block(socket.index) {
            block.set_names(Name::default(), Name { address, port });
        }
        self.request(socket, Requests::CONNECT);
    }

    fn control(&mut self, socket: SocketId, control: Control) -> Option<SocketId> {
        self.has_asked = true;
        if self.side.control(control).is_ok() {
            return Some(socket);
        }
        self.close(socket, Requests::CLOSE);
        None
    }

    /// Takes the next accepted connection of a listener.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        let accepted = self
            .open
            .get_mut(&listener.index)?
            .accepted
            .as_ref()?
            .pop()?;
        let id = accepted.socket;
        self.open.insert(id.index, Socket::new(id));
        Some(id)
    }

    /// Reads into `into`. Returns the number of bytes.
    pub fn read(&mut self, id: SocketId, into: &mut [u8]) -> usize {
        let Some(open) = self.open.get_mut(&id.index) else {
            return 0;
        };
        let Some(block) = self.side.memory.block(id.index) else {
            return 0;
        };
        let n = open.rx.read(&self.side.memory, block, into);
        if n > 0 {
            self.request(id, Requests::READ);
        }
        n
    }

    /// Writes as much as fits, and asks for an event at new room if not all fitted.
    pub fn write(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        let Some(open) = self.open.get_mut(&id.index) else {
            return 0;
        };
        let Some(block) = self.side.memory.block(id.index) else {
            return 0;
        };
        let (memory, magazine) = (&self.side.memory, &mut self.side.magazine);
        let mut n = open.tx.write(memory, block, magazine, bytes);
        if n < bytes.len() {
            block.set_want_writable();
            n += open.tx.write(memory, block, magazine, &bytes[n..]);
        }
        self.request(id, Requests::WROTE);
        n
    }

    /// Asks for a FIN behind the bytes written.
    pub fn shutdown(&mut self, id: SocketId) {
        self.request(id, Requests::SHUTDOWN_WRITE);
    }

    /// Closes a socket, in order (`CLOSE`) or with a reset (`ABORT`).
    pub fn close(&mut self, id: SocketId, how: Requests) {
        if self.open.remove(&id.index).is_some() {
            self.request(id, how);
        }
    }

    fn request(&mut self, id: SocketId, wanted: Requests) {
        let is_new = self.block(id).is_some_and(|block| block.request(wanted));
        if is_new {
            self.has_asked = true;
            let pushed = self.side.jobs.push(id);
            debug_assert!(pushed.is_ok(), "the job queue is as long as the table");
        }
    }

    /// Takes the stack's events. Sockets that are closed by now are left out.
    pub fn take_events(&mut self, into: &mut Vec<SocketId>) {
        self.side.events.pop_batch(usize::MAX, |id| into.push(id));
        if !into.is_empty() {
            fence_full();
        }
        let open = &self.open;
        into.retain(|id| open.get(&id.index).is_some_and(|socket| socket.id == *id));
    }

    fn block(&self, id: SocketId) -> Option<&SocketBlock> {
        self.side.memory.block(id.index)
    }

    /// The state of a socket, as the stack reports it.
    #[must_use]
    pub fn state(&self, id: SocketId) -> SocketState {
        self.block(id)
            .map_or(SocketState::default(), SocketBlock::state)
    }

    /// The local port of a connection.
    #[must_use]
    pub fn local_port(&self, id: SocketId) -> u16 {
        self.block(id).map_or(0, |block| block.names().0.port)
    }

    /// Whether the stack was asked for something since the last such call.
    pub fn has_asked(&mut self) -> bool {
        std::mem::take(&mut self.has_asked)
    }
}
