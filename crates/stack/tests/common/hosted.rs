//! A port with a host behind it (`packetio::host`), which a test plays. The host answers for next
//! hops by itself. It keeps the wishes of the stack, and the connections that the stack hands over
//! until the test takes them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use packetio::host::{Change, Host, NoPorts, Transfer, Wish};
use packetio::ledger::LedgerFile;
use packetio::{MacAddr, Port};

/// Messages between the stack and the test.
#[derive(Default)]
pub struct Talk {
    /// Wishes of the stack, but those for next hops.
    pub wishes: Vec<Wish>,
    pub changes: VecDeque<Change>,
    pub leases: VecDeque<Result<(u16, u16), NoPorts>>,
    pub ledger: Option<LedgerFile>,
    /// Neighbours whose MAC address is not that of all others.
    pub mac_of: HashMap<IpAddr, MacAddr>,
    /// Other processes listen at the stack's places.
    pub is_shared: bool,
    /// Connections, and answers about some, from the stack.
    pub sent: VecDeque<Transfer>,
    /// The same, for the stack.
    pub coming: VecDeque<Transfer>,
    /// How often the stack prepared to sleep on the port.
    pub sleeps: u32,
}

/// The test's end.
#[derive(Clone, Default)]
pub struct HostEnd(Arc<Mutex<Talk>>);

impl HostEnd {
    pub fn talk(&self) -> MutexGuard<'_, Talk> {
        self.0.lock().unwrap()
    }

    /// A host with other processes that listen at the stack's places.
    pub fn shared() -> Self {
        let end = Self::default();
        end.talk().is_shared = true;
        end
    }

    /// The wishes since the last look.
    pub fn wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut self.talk().wishes)
    }

    /// The port with this host behind it; all its neighbours have `mac`.
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
