//! The application's end of a stack, driven by hand: a minimal form of the library above
//! [`AppSide`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ring::byte_ring::{RxReader, TxWriter};
use ring::published::fence_full;
use ring::socket_block::{Name, Requests, SocketBlock, SocketId, SocketState};
use ring::spsc;
use stack::context::{
    AcceptCall, AcceptRings, Accepted, AppSide, Connect, Control, Listen, SocketOption,
};
use wire::Addr;

/// See the module's documentation.
pub struct App {
    pub side: AppSide,
    sockets: BTreeMap<u32, Socket>,
}

struct Socket {
    id: SocketId,
    rx: RxReader,
    tx: TxWriter,
    write_shut: bool,
    accepted: Option<Arc<AcceptRings>>,
}

impl Socket {
    fn new(id: SocketId) -> Self {
        Self {
            id,
            rx: RxReader::new(),
            tx: TxWriter::new(),
            write_shut: false,
            accepted: None,
        }
    }
}

impl App {
    pub fn new(side: AppSide) -> Self {
        Self {
            side,
            sockets: BTreeMap::new(),
        }
    }

    /// Takes a socket id from the stock, if there is one.
    pub fn try_socket(&mut self) -> Option<SocketId> {
        let id = self.side.sockets.pop()?;
        let before = self.sockets.insert(id.index, Socket::new(id));
        assert!(before.is_none(), "an index handed out twice");
        Some(id)
    }

    /// True if the stock has a socket id.
    pub fn has_socket(&mut self) -> bool {
        !self.side.sockets.is_empty()
    }

    pub fn socket(&mut self) -> SocketId {
        self.try_socket().expect("a socket in stock")
    }

    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> SocketId {
        self.listen_with(local, backlog, Vec::new())
    }

    pub fn listen_with(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: Vec<SocketOption>,
    ) -> SocketId {
        let socket = self.socket();
        self.begin_to_listen(socket, local, backlog, options);
        socket
    }

    /// Makes a bound socket listen.
    pub fn listen_on(&mut self, socket: SocketId, local: SocketAddr, backlog: usize) {
        self.begin_to_listen(socket, local, backlog, Vec::new());
    }

    fn begin_to_listen(
        &mut self,
        socket: SocketId,
        local: SocketAddr,
        backlog: usize,
        options: Vec<SocketOption>,
    ) {
        let (accepted, queue) = spsc::queue(backlog + 1);
        let rings = AcceptRings::new(queue);
        self.at(socket).accepted = Some(Arc::clone(&rings));
        self.control(Control::Listen(Listen {
            socket,
            local,
            accepted,
            rings,
            backlog: backlog as u32,
            options,
            answer: None,
        }));
    }

    pub fn connect(&mut self, remote: SocketAddr) -> SocketId {
        let socket = self.socket();
        let address = *Addr::from(remote.ip()).octets();
        let port = remote.port();
        self.block(socket)
            .set_names(Name::default(), Name { address, port });
        self.request(socket, Requests::CONNECT);
        socket
    }

    pub fn connect_from(&mut self, local: Option<SocketAddr>, remote: SocketAddr) -> SocketId {
        let socket = self.socket();
        self.control(Control::Connect(Connect {
            socket,
            local,
            remote,
            options: Vec::new(),
            fast_open: false,
            answer: None,
        }));
        socket
    }

    /// Connects by Fast Open, with `bytes` to send.
    pub fn connect_fast(&mut self, remote: SocketAddr, bytes: &[u8]) -> SocketId {
        let socket = self.socket();
        let written = self.write(socket, bytes);
        assert_eq!(written, bytes.len());
        self.control(Control::Connect(Connect {
            socket,
            local: None,
            remote,
            options: Vec::new(),
            fast_open: true,
            answer: None,
        }));
        socket
    }

    pub fn option(&mut self, id: SocketId, option: SocketOption) {
        self.control(Control::Option(id, option));
    }

    pub fn control(&mut self, control: Control) {
        let pushed = self.side.control(control);
        assert!(pushed.is_ok(), "room for a control request");
    }

    /// Begins a call that waits for a connection of a listener.
    pub fn begin_call(&mut self, listener: SocketId) -> AcceptCall {
        let accepted = self.at(listener).accepted.as_ref();
        accepted.expect("a listener").begin_call()
    }

    /// Accepts the next connection of a listener.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.accept_named(listener).map(|accepted| accepted.socket)
    }

    pub fn accept_named(&mut self, listener: SocketId) -> Option<Accepted> {
        let accepted = self.at(listener).accepted.as_ref()?.pop()?;
        let id = accepted.socket;
        let before = self.sockets.insert(id.index, Socket::new(id));
        assert!(before.is_none(), "an index handed out twice");
        Some(accepted)
    }

    /// Reads everything that has arrived.
    pub fn read(&mut self, id: SocketId) -> Vec<u8> {
        self.read_up_to(id, usize::MAX)
    }

    pub fn read_up_to(&mut self, id: SocketId, max: usize) -> Vec<u8> {
        let memory = self.side.memory.clone();
        let block = memory.block(id.index).unwrap();
        let socket = self.at(id);
        let mut bytes = vec![0; (socket.rx.readable(block) as usize).min(max)];
        let n = socket.rx.read(&memory, block, &mut bytes);
        assert_eq!(n, bytes.len());
        if n > 0 {
            self.request(id, Requests::READ);
        }
        bytes
    }

    pub fn readable(&mut self, id: SocketId) -> u32 {
        let memory = self.side.memory.clone();
        let block = memory.block(id.index).unwrap();
        self.at(id).rx.readable(block)
    }

    /// Writes as many bytes as fit; if that was not all, asks for an event when there is room.
    pub fn write(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        let memory = self.side.memory.clone();
        let block = memory.block(id.index).unwrap();
        let magazine = &mut self.side.magazine;
        let socket = self.sockets.get_mut(&id.index).expect("an open socket");
        let mut n = socket.tx.write(&memory, block, magazine, bytes);
        if n < bytes.len() {
            block.set_want_writable();
            n += socket.tx.write(&memory, block, magazine, &bytes[n..]);
        }
        if !bytes.is_empty() {
            self.request(id, Requests::WROTE);
        }
        n
    }

    /// [`write`](Self::write), which returns 0 where the library would return an error.
    pub fn write_if_open(&mut self, id: SocketId, bytes: &[u8]) -> usize {
        if !self.is_open_for_writing(id) {
            return 0;
        }
        self.write(id, bytes)
    }

    /// [`shutdown`](Self::shutdown), which does nothing where the library would return an error.
    pub fn shutdown_if_open(&mut self, id: SocketId) {
        if self.is_open_for_writing(id) {
            self.at(id).write_shut = true;
            self.shutdown(id);
        }
    }

    fn is_open_for_writing(&mut self, id: SocketId) -> bool {
        let state = self.state(id);
        state.contains(SocketState::CONNECTED)
            && !state.intersects(SocketState::FAILED | SocketState::CLOSED)
            && !self.at(id).write_shut
    }

    pub fn shutdown(&mut self, id: SocketId) {
        self.request(id, Requests::SHUTDOWN_WRITE);
    }

    pub fn close(&mut self, id: SocketId) {
        self.end(id, Requests::CLOSE);
    }

    pub fn abort(&mut self, id: SocketId) {
        self.end(id, Requests::ABORT);
    }

    fn end(&mut self, id: SocketId, how: Requests) {
        let gone = self.sockets.remove(&id.index).expect("an open socket");
        assert_eq!(gone.id, id);
        self.request(id, how);
    }

    /// Aborts all sockets. The stack ends a listener's unaccepted connections itself.
    pub fn abort_all(&mut self) {
        let ids: Vec<SocketId> = self.sockets.values().map(|socket| socket.id).collect();
        for id in ids {
            self.abort(id);
        }
    }

    /// Sets request bits of a socket, and queues it as the library would.
    pub fn request(&mut self, id: SocketId, wanted: Requests) {
        if self.block(id).request(wanted) {
            self.push_job(id);
        }
    }

    pub fn push_job(&mut self, id: SocketId) {
        let pushed = self.side.jobs.push(id);
        assert!(
            pushed.is_ok(),
            "the job queue is as long as the socket table"
        );
    }

    /// Takes the stack's events, without those of sockets closed meanwhile.
    pub fn take_events(&mut self) -> Vec<SocketId> {
        let mut ids = Vec::new();
        self.side.events.pop_batch(usize::MAX, |id| ids.push(id));
        fence_full();
        ids.retain(|id| self.is_open(*id));
        ids
    }

    pub fn is_open(&self, id: SocketId) -> bool {
        self.sockets
            .get(&id.index)
            .is_some_and(|socket| socket.id == id)
    }

    /// True if the generation in `id` is not the current one.
    pub fn is_stale(&self, id: SocketId) -> bool {
        self.side.memory.resolve(id).is_none()
    }

    pub fn sockets_open(&self) -> Vec<SocketId> {
        self.sockets.values().map(|socket| socket.id).collect()
    }

    pub fn is_listener(&self, id: SocketId) -> bool {
        self.sockets
            .get(&id.index)
            .is_some_and(|socket| socket.accepted.is_some())
    }

    pub fn block(&self, id: SocketId) -> &SocketBlock {
        self.side.memory.block(id.index).unwrap()
    }

    pub fn state(&self, id: SocketId) -> SocketState {
        self.block(id).state()
    }

    pub fn has(&self, id: SocketId, state: SocketState) -> bool {
        self.state(id).contains(state)
    }

    /// The errno of a failed socket.
    pub fn errno(&self, id: SocketId) -> Option<rustix::io::Errno> {
        let state = self.state(id);
        state
            .contains(SocketState::FAILED)
            .then(|| rustix::io::Errno::from_raw_os_error(state.errno().into()))
    }

    /// Counts of the edges of readiness for reading and for writing, as edge-triggered waiting uses
    /// them.
    pub fn edges(&self, id: SocketId) -> (u32, u32) {
        (self.block(id).in_edges(), self.block(id).out_edges())
    }

    fn at(&mut self, id: SocketId) -> &mut Socket {
        let socket = self.sockets.get_mut(&id.index).expect("an open socket");
        assert_eq!(socket.id, id, "this use of the socket is over");
        socket
    }
}
