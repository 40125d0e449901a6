//! A port over a socket that a service (`mill mux`) made and bound: this process has memory and
//! rings but needs no privilege.
//!
//! A [`PassedMemory`] owns the memory file until the socket arrives. `mux` calls the module.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::super::device_unsafe::set_tx_budget;
use super::super::sizes::Sizes;
use super::super::umem_unsafe::Umem;
use super::{XdpPort, open};
use crate::limits::{FRAME_HEADER_MAX, XDP_BATCH_MAX, XDP_TX_SLOTS};
use crate::port::Capabilities;

/// Description of one context's memory for AF_XDP. The sealed memory file accompanies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Number of the context, from 0.
    pub context: u16,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Size of a chunk, bytes: 2,048 or 4,096.
    pub chunk_bytes: u32,
    /// Bytes kept free before a received frame.
    pub headroom_bytes: u32,
    /// Slots of the fill ring.
    pub fill_slots: u32,
    /// Slots of the completion ring.
    pub completion_slots: u32,
    /// Slots of the receive ring.
    pub rx_slots: u32,
    /// Slots of the transmit ring.
    pub tx_slots: u32,
    /// Number of connections for the context's ledger; 0: no ledger.
    pub ledger_entries: u32,
}

/// Memory of one context in a sealed file.
#[derive(Debug)]
pub(crate) struct PassedMemory {
    umem: Umem,
    file: OwnedFd,
    sizes: Sizes,
    chunk_bytes: u32,
    /// Number of connections for the context's ledger.
    ledger_entries: u32,
}

impl PassedMemory {
    /// Makes the memory for a queue that serves `sockets` sockets with frames of `mtu`, and a
    /// ledger with this many entries. `ring_slots`: the user's choice.
    ///
    /// # Errors
    /// The errors of making and mapping the file.
    pub(crate) fn new(
        mtu: usize,
        sockets: Option<usize>,
        ring_slots: Option<u32>,
        ledger_entries: u32,
    ) -> Result<Self, Errno> {
        let chunk_bytes = open::chunk_bytes(mtu);
        let sizes = Sizes::of(sockets, ring_slots);
        let (umem, file) = Umem::in_file(chunk_bytes, sizes.rx_chunks, XDP_TX_SLOTS)?;
        Ok(Self {
            umem,
            file,
            sizes,
            chunk_bytes,
            ledger_entries,
        })
    }

    /// The message that describes the memory, and the file that accompanies it.
    pub(crate) fn describe(&self, context: u16) -> (Memory, BorrowedFd<'_>) {
        let memory = Memory {
            context,
            bytes: self.umem.region().1,
            chunk_bytes: self.chunk_bytes,
            headroom_bytes: 0,
            fill_slots: self.sizes.rx_slots,
            completion_slots: XDP_TX_SLOTS,
            rx_slots: self.sizes.rx_slots,
            tx_slots: XDP_TX_SLOTS,
            ledger_entries: self.ledger_entries,
        };
        (memory, self.file.as_fd())
    }

    /// Makes the port over the socket that a service made for this memory. Drop counters are those
    /// of `interface`.
    ///
    /// # Errors
    /// The step that failed, and its error.
    pub(crate) fn port(
        self,
        socket: OwnedFd,
        mut capabilities: Capabilities,
        interface: &str,
    ) -> Result<XdpPort, (&'static str, Errno)> {
        let room = open::frame_room(self.chunk_bytes) - FRAME_HEADER_MAX;
        capabilities.mtu = capabilities.mtu.min(room);
        capabilities.batch_max = XDP_BATCH_MAX;
        // The option only makes sending faster; older kernels do not have it.
        let _ = set_tx_budget(&socket, XDP_BATCH_MAX as u32);
        open::over(socket, self.umem, self.sizes, capabilities, interface)
    }
}
