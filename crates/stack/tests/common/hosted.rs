//! A wire with a host behind it that stands for `mill mux`: it knows the peer, and keeps the
//! connections that the stack hands over until the test takes them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use packetio::host::{Change, Host, NoPorts, Transfer, Wish};
use packetio::ledger::LedgerFile;
use packetio::{Capabilities, MacAddr, Port, PortCounters, PortError, RxFrame, TxFrame};
use rustix::event::PollFlags;

/// What host and test share.
#[derive(Clone, Default)]
pub struct Desk(Arc<Mutex<Papers>>);

#[derive(Default)]
pub struct Papers {
    /// Other processes listen at the stack's places.
    pub is_shared: bool,
    /// From the stack.
    pub sent: VecDeque<Transfer>,
    /// For the stack.
    pub coming: VecDeque<Transfer>,
    changes: VecDeque<Change>,
}

impl Desk {
    pub fn shared() -> Self {
        let desk = Self::default();
        desk.papers().is_shared = true;
        desk
    }

    pub fn papers(&self) -> MutexGuard<'_, Papers> {
        self.0.lock().expect("a test that goes on")
    }
}

pub struct Hosted {
    pub port: Box<dyn Port + Send>,
    pub desk: Desk,
    pub peer: MacAddr,
}

impl Host for Hosted {
    fn ask(&mut self, wish: Wish) -> bool {
        if let Wish::NextHop(address) = wish {
            let mac = Some(self.peer);
            let hop = Change::NextHop { address, mac };
            self.desk.papers().changes.push_back(hop);
        }
        true
    }

    fn next_change(&mut self) -> Option<Change> {
        self.desk.papers().changes.pop_front()
    }

    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        None
    }

    fn take_ledger(&mut self) -> Option<LedgerFile> {
        None
    }

    fn is_shared(&self, _: SocketAddr) -> bool {
        self.desk.papers().is_shared
    }

    fn transfer(&mut self, transfer: Transfer) {
        self.desk.papers().sent.push_back(transfer);
    }

    fn next_transfer(&mut self) -> Option<Transfer> {
        self.desk.papers().coming.pop_front()
    }
}

impl Port for Hosted {
    fn capabilities(&self) -> &Capabilities {
        self.port.capabilities()
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.port.receive()
    }

    fn release(&mut self) {
        self.port.release();
    }

    fn drain(&mut self) {
        self.port.drain();
    }

    fn waiting(&mut self) -> usize {
        self.port.waiting()
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.port.reserve(n)
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.port.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.port.prepare_wait(want_tx)
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.port.poll_fds(want_tx, fds);
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        Some(self)
    }
}
