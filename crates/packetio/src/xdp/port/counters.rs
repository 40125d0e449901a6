//! Counters of a port: its own, and those that the kernel keeps for it.
//!
//! The port owns them; `refresh` updates the copy of the kernel's part.

use std::os::fd::OwnedFd;

use rustix::net::sockopt;
use rustix::net::xdp::XdpStatistics;

use super::super::interface::Shared;
use crate::interface_drops::InterfaceDrops;
use crate::port::PortCounters;

#[derive(Debug)]
pub(super) struct Counters {
    pub rx_frames: u64,
    pub rx_bytes: u64,
    pub tx_frames: u64,
    pub tx_bytes: u64,
    /// Descriptors from the kernel that name no valid chunk.
    pub bad_descriptor: u64,
    /// Frames longer than a chunk that were cut for the link; not a drop.
    pub rx_cut: u64,
    /// Frames dropped because they are longer than a chunk and not TCP.
    pub rx_too_long: u64,
    /// Frames that went through the store; not a drop.
    pub rx_early: u64,
    /// Times that the store had no room, so that frames stayed in the ring; not a drop.
    pub rx_store_full: u64,
    /// Frames dropped because they are shorter than an Ethernet header.
    pub tx_runt: u64,
    /// Frames that the interface refused and dropped.
    pub tx_refused: u64,
    /// Times that `reserve` granted fewer slots than asked for.
    pub tx_pushed_back: u64,
    /// Frames for us that arrived on a queue of this interface without a port.
    no_socket: u64,
    kernel: Option<XdpStatistics>,
    drops: InterfaceDrops,
}

impl Counters {
    /// Makes counters at zero, for a queue of `interface`.
    pub(super) fn of(interface: &str) -> Self {
        Self {
            rx_frames: 0,
            rx_bytes: 0,
            tx_frames: 0,
            tx_bytes: 0,
            bad_descriptor: 0,
            rx_cut: 0,
            rx_too_long: 0,
            rx_early: 0,
            rx_store_full: 0,
            tx_runt: 0,
            tx_refused: 0,
            tx_pushed_back: 0,
            no_socket: 0,
            kernel: None,
            drops: InterfaceDrops::of(interface),
        }
    }

    pub(super) fn refresh(&mut self, socket: &OwnedFd, interface: Option<&Shared>) {
        // An interface that is gone keeps its last values.
        if let Ok(statistics) = sockopt::xdp_statistics(socket) {
            self.kernel = Some(statistics);
        }
        self.no_socket = interface.map_or(0, |interface| interface.loaded.no_socket());
    }

    pub(super) fn look_at_interface(&mut self) {
        self.drops.read();
    }

    pub(super) fn look_at_interface_if_due(&mut self) {
        self.drops.refresh();
    }

    pub(super) fn report(&self) -> PortCounters {
        let mut report = PortCounters::default();
        report.rx_frames = self.rx_frames;
        report.rx_bytes = self.rx_bytes;
        report.tx_frames = self.tx_frames;
        report.tx_bytes = self.tx_bytes;
        report.push("xdp_bad_descriptor", self.bad_descriptor);
        report.push("xdp_rx_cut", self.rx_cut);
        report.push("xdp_rx_too_long", self.rx_too_long);
        report.push("xdp_rx_early", self.rx_early);
        report.push("xdp_rx_store_full", self.rx_store_full);
        report.push("xdp_tx_runt", self.tx_runt);
        report.push("xdp_tx_refused", self.tx_refused);
        report.push("xdp_tx_pushed_back", self.tx_pushed_back);
        report.push("xdp_rx_no_port", self.no_socket);
        // Readers learn the names once, when the port is open, so the kernel's counters are listed
        // before the first query.
        let kernel = |of: fn(&XdpStatistics) -> u64| self.kernel.as_ref().map_or(0, of);
        report.push("xdp_rx_dropped", kernel(|all| all.rx_dropped));
        let (of_rx, of_tx) = (
            kernel(|all| all.rx_invalid_descs),
            kernel(|all| all.tx_invalid_descs),
        );
        report.push("xdp_rx_invalid_descriptor", of_rx);
        report.push("xdp_tx_invalid_descriptor", of_tx);
        let full = kernel(|all| all.rx_ring_full.unwrap_or(0));
        report.push("xdp_rx_ring_full", full);
        let dry = kernel(|all| all.rx_fill_ring_empty_descs.unwrap_or(0));
        report.push("xdp_rx_fill_ring_empty", dry);
        self.drops.export(&mut report);
        report
    }
}
