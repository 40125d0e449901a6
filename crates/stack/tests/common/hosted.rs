//! A port with a host behind it (`packetio::host`), whose part a test plays. The host resolves next
//! hops by itself. It keeps the stack's other wishes, and connections that the stack hands over,
//! for the test.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use packetio::host::{Change, Host, NoPorts, Transfer, Wish};
use packetio::ledger::LedgerFile;
use packetio::{MacAddr, Port};

/// Messages between stack and test, exchanged through the host.
#[derive(Default)]
pub struct Talk {
    /// Wishes of the stack, except those for next hops.
    pub wishes: Vec<Wish>,
    pub changes: VecDeque<Change>,
    pub leases: VecDeque<Result<(u16, u16), NoPorts>>,
    pub ledger: Option<LedgerFile>,
    /// MAC addresses of neighbours that differ from the common one.
    pub mac_of: HashMap<IpAddr, MacAddr>,
    /// True if other processes listen at the stack's addresses.
    pub is_shared: bool,
    /// Transfers from the stack: connections, and answers.
    pub sent: VecDeque<Transfer>,
    /// Transfers for the stack: connections, and answers.
    pub coming: VecDeque<Transfer>,
    /// Number of times that the stack prepared to sleep on the port.
    pub sleeps: u32,
}

/// The test's end of the host.
#[derive(Clone, Default)]
pub struct HostEnd(Arc<Mutex<Talk>>);

impl HostEnd {
    pub fn talk(&self) -> MutexGuard<'_, Talk> {
        self.0.lock().unwrap()
    }

    /// A host on which other processes listen at the stack's addresses.
    pub fn shared() -> Self {
        let end = Self::default();
        end.talk().is_shared = true;
        end
    }

    /// Takes the wishes since the last call.
    pub fn wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut self.talk().wishes)
    }

    /// Wraps a port with this host; all its neighbours have `mac`.
    pub fn port(&self, port: Box<dyn Port + Send>, mac: MacAddr) -> Box<dyn Port + Send> {
        let talk = Arc::clone(&self.0);
        Box::new(Hosted { port, talk, mac })
    }
}

struct Hosted {
    port: Box<dyn Port + Send>,
    talk: Arc<Mutex<Talk>>,
    mac: MacAddr,
}

impl Host for Hosted {
    fn ask(&mut self, wish: Wish) -> bool {
        let mut talk = self.talk.lock().unwrap();
        match wish {
            Wish::NextHop(address) => {
                let mac = talk.mac_of.get(&address).copied().or(Some(self.mac));
                talk.changes.push_back(Change::NextHop { address, mac });
            }
            wish => talk.wishes.push(wish),
        }
        true
    }

    fn next_change(&mut self) -> Option<Change> {
        self.talk.lock().unwrap().changes.pop_front()
    }

    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.talk.lock().unwrap().leases.pop_front()
    }

    fn take_ledger(&mut self) -> Option<LedgerFile> {
        self.talk.lock().unwrap().ledger.take()
    }

    fn is_shared(&self, _: SocketAddr) -> bool {
        self.talk.lock().unwrap().is_shared
    }

    fn transfer(&mut self, transfer: Transfer) {
        self.talk.lock().unwrap().sent.push_back(transfer);
    }

    fn next_transfer(&mut self) -> Option<Transfer> {
        self.talk.lock().unwrap().coming.pop_front()
    }
}

impl Port for Hosted {
    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let mut talk = self.talk.lock().unwrap();
        talk.sleeps += 1;
        self.port.prepare_wait(want_tx) || !talk.changes.is_empty()
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        Some(self)
    }

    packetio::forward_port!(self => self.port; capabilities receive release drain waiting
        reserve reserved send finish_wait poll_fds counters);
}
