//! Ledgers: lists of an application's connections, in kernel memory.
//!
//! Owns one BPF array map for each context that wants a ledger; the application maps its pages. The
//! map is pinned beside the links of the virtual port, so it survives if service and application
//! die together. The descriptor lets its holder write entries and do nothing else: the map has a
//! fixed size, and no program reads it. Called by `mod`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

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
        let pin = self.ledger_pin(*device);
        let (map, entries) = Map::open_sized(&pin, &map_of(0)).ok()?;
        let bytes = u64::from(entries) * ENTRY_BYTES as u64;
        // The mapping keeps the memory after the pin is removed.
        let ledger = LedgerFile::map(map.as_fd(), bytes).ok()?;
        Some(Box::new(ledger))
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
