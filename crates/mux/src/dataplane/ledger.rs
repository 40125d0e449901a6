//! Ledgers: lists of an application's connections, in kernel memory.
//!
//! Owns one BPF array map for each context that wants a ledger; the application maps its pages. The
//! map is pinned beside the links of the virtual port, so it survives if service and application
//! die together. The ledger of a dead application is *kept* by a second pin until its peers are
//! reset, since the virtual port goes before. The descriptor lets its holder write entries and do
//! nothing else: the map has a fixed size, and no program reads it. Called by `mod`.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use packetio::ledger::{ENTRY_BYTES, LedgerFile};
use packetio::xdp::bpf::{self, Map, MapDef};
use rustix::io::Errno;

use super::{ContextId, Dataplane, DataplaneError};
use crate::limits::LEDGER_BYTES_MAX;
use crate::plane::Ledger;

/// `BPF_MAP_TYPE_ARRAY`
const ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`: a process may map the pages of the entries, which are contiguous.
const MMAPABLE: u32 = 1 << 10;

fn map_of(entries: u32) -> MapDef {
    MapDef {
        name: "ledger".to_owned(),
        kind: ARRAY,
        key_bytes: 4,
        value_bytes: ENTRY_BYTES as u32,
        entries_max: entries,
        flags: MMAPABLE,
    }
}

/// The pin of a kept ledger is called this and its number.
const KEPT: &str = "kept_ledger";

/// The ledger with this pin.
fn open(pin: &Path) -> Option<Box<dyn Ledger>> {
    let (map, entries) = Map::open_sized(pin, &map_of(0)).ok()?;
    let bytes = u64::from(entries) * ENTRY_BYTES as u64;
    // The mapping keeps the memory after the pin is removed.
    let ledger = LedgerFile::map(map.as_fd(), bytes).ok()?;
    Some(Box::new(ledger))
}

impl Ledger for LedgerFile {
    fn entry(&self, index: u32) -> Option<[u8; ENTRY_BYTES]> {
        self.get(index)
    }
}

impl Dataplane {
    /// Makes the ledger of a context that has a virtual port.
    ///
    /// # Errors
    /// `NOBUFS` if the ledgers of all contexts would exceed their limit; other errors of the
    /// kernel.
    pub fn ledger_add(
        &mut self,
        slot: u16,
        context: u16,
        entries: u32,
    ) -> Result<OwnedFd, DataplaneError> {
        let failed = |errno| DataplaneError::io("ledger", errno);
        let device = *self
            .devices
            .get(&(slot, context))
            .ok_or_else(|| failed(Errno::NOENT))?;
        let wanted = u64::from(entries) * ENTRY_BYTES as u64;
        let others: u64 = self.devices.keys().map(|id| self.ledger_bytes(*id)).sum();
        if others + wanted > LEDGER_BYTES_MAX {
            return Err(failed(Errno::NOBUFS));
        }
        let map = Map::create(&map_of(entries)).map_err(failed)?;
        bpf::pin(&map, &self.ledger_pin(device)).map_err(failed)?;
        map.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = Errno::from_io_error(&error);
            failed(errno.unwrap_or(Errno::MFILE))
        })
    }

    /// The ledger of a context. A previous service may have made it.
    pub fn ledger(&self, slot: u16, context: u16) -> Option<Box<dyn Ledger>> {
        let device = self.devices.get(&(slot, context))?;
        open(&self.ledger_pin(*device))
    }

    /// Pins the ledger of a context a second time, so that it outlives the virtual port.
    ///
    /// # Errors
    /// `NOENT` if the context has none; other errors of the kernel.
    pub fn ledger_keep(&mut self, slot: u16, context: u16) -> Result<u32, DataplaneError> {
        let failed = |errno| DataplaneError::io("ledger", errno);
        let device = self.devices.get(&(slot, context));
        let device = *device.ok_or_else(|| failed(Errno::NOENT))?;
        let (map, _) = Map::open_sized(&self.ledger_pin(device), &map_of(0)).map_err(failed)?;
        let is_free = |number: &u32| !self.kept_ledgers.contains(number);
        let number = (0..=u32::MAX).find(is_free);
        let number = number.ok_or_else(|| failed(Errno::NOSPC))?;
        bpf::pin(&map, &self.kept_pin(number)).map_err(failed)?;
        self.kept_ledgers.insert(number);
        Ok(number)
    }

    /// A ledger that was kept, also by a previous service.
    pub fn ledger_kept(&self, number: u32) -> Option<Box<dyn Ledger>> {
        open(&self.kept_pin(number))
    }

    /// Removes a ledger that was kept.
    pub fn ledger_drop(&mut self, number: u32) {
        if self.kept_ledgers.remove(&number) {
            let _ = fs::remove_file(self.kept_pin(number));
        }
    }

    /// Finds the ledgers that a previous service kept.
    pub(super) fn recover_kept_ledgers(&mut self) {
        let pins = fs::read_dir(self.options.run_dir.join("bpf"));
        let names = pins.into_iter().flatten().flatten();
        let names = names.filter_map(|pin| pin.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_prefix(KEPT)?.parse().ok());
        self.kept_ledgers = numbers.collect();
    }

    fn kept_pin(&self, number: u32) -> PathBuf {
        self.pin(&format!("{KEPT}{number}"))
    }

    fn ledger_bytes(&self, (slot, context): ContextId) -> u64 {
        let Some(device) = self.devices.get(&(slot, context)) else {
            return 0;
        };
        let found = Map::open_sized(&self.ledger_pin(*device), &map_of(0));
        found.map_or(0, |(_, entries)| u64::from(entries) * ENTRY_BYTES as u64)
    }

    pub(super) fn ledger_pin(&self, device: u16) -> PathBuf {
        self.pin(&format!("ledger{device}"))
    }
}
