//! A data plane that records calls and moves no frames.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mux::plane::{Ledger, Plane, Recovered, Traffic};
use packetio::MacAddr;
use packetio::ledger::ENTRY_BYTES;
use packetio::mux::message::Memory;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

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
    pub kept_ledgers: BTreeMap<u32, Arc<OwnedFd>>,
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

impl FileLedger {
    fn boxed(file: Arc<OwnedFd>) -> Box<dyn Ledger> {
        let read = Mutex::default();
        Box::new(Self { file, read })
    }
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
        found.map(FileLedger::boxed)
    }

    fn ledger_keep(&mut self, application: u16, context: u16) -> Option<u32> {
        self.recorded(|recorded| {
            let file = recorded.ledgers.get(&(application, context))?.clone();
            let last = recorded.kept_ledgers.keys().last().copied();
            let number = last.map_or(0, |last| last + 1);
            recorded.kept_ledgers.insert(number, file);
            Some(number)
        })
    }

    fn ledgers_kept(&self) -> Vec<u32> {
        self.recorded(|recorded| recorded.kept_ledgers.keys().copied().collect())
    }

    fn ledger_kept(&self, number: u32) -> Option<Box<dyn Ledger>> {
        let found = self.recorded(|recorded| recorded.kept_ledgers.get(&number).cloned());
        found.map(FileLedger::boxed)
    }

    fn ledger_drop(&mut self, number: u32) {
        self.recorded(|recorded| recorded.kept_ledgers.remove(&number));
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
