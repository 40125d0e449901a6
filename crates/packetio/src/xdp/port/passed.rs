//! A port over a socket that a service made and bound (`mill mux`): this process has memory and
//! rings, and no privilege.
//!
//! Owns the memory file until the socket has come. Called by `mux`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::super::device_unsafe::set_tx_budget;
use super::super::sizes::Sizes;
use super::super::umem_unsafe::Umem;
use super::{XdpPort, open};
use crate::limits::{FRAME_HEADER_MAX, XDP_BATCH_MAX, XDP_TX_SLOTS};
use crate::port::Capabilities;

/// Memory of one context, as AF_XDP takes it. The sealed memory file rides along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The context, from 0.
    pub context: u16,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of a chunk: 2,048 or 4,096.
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
    /// Connections that the context's ledger is to hold; 0: no ledger.
    pub ledger_entries: u32,
}

/// Memory of one context, in a sealed file.
#[derive(Debug)]
pub(crate) struct PassedMemory {
    umem: Umem,
    file: OwnedFd,
    sizes: Sizes,
    chunk_bytes: u32,
    /// Connections that the context's ledger is to hold.
    ledger_entries: u32,
}

impl PassedMemory {
    /// For a queue that serves `sockets` sockets with frames of `mtu`, and a ledger of so many
    /// entries; `ring_slots` is what the user asked for.
    ///
    /// # Errors
    /// Errors of making and mapping the file.
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

    /// The message about it, and the file that goes along.
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

    /// The port over the socket that a service made of this memory. Drops are those of `interface`.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub(crate) fn port(
        self,
        socket: OwnedFd,
        mut capabilities: Capabilities,
        interface: &str,
    ) -> Result<XdpPort, (&'static str, Errno)> {
        let room = open::frame_room(self.chunk_bytes) - FRAME_HEADER_MAX;
        capabilities.mtu = capabilities.mtu.min(room);
        // Only makes sending faster; an older kernel has no such option.
        let _ = set_tx_budget(&socket, XDP_BATCH_MAX as u32);
        open::over(socket, self.umem, self.sizes, capabilities, interface)
    }
}
