//! One queue of a DPDK port as a [`Port`].

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use super::plugin_unsafe::{DeviceCounters, Queue};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{
    DPDK_BATCH_MAX, DPDK_INTERRUPT_SLEEP_NS_MAX, DPDK_LOOK_NS, DPDK_LOOK_RECEIVES,
    DPDK_SLEEP_NS_MAX, DPDK_SLEEP_NS_MIN,
};
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, Port, PortCounters, PortError};
use crate::wait::monotonic_ns;

/// One queue of a DPDK port.
pub struct DpdkPort {
    queue: Queue,
    capabilities: Capabilities,
    has_interrupts: bool,
    /// Length of the next sleep that nothing else ends, ns.
    sleep_ns: u64,
    /// Time to look for what no descriptor announces, ns; 0 while no thread sleeps.
    wake_at_ns: u64,
    /// Last values of the device's counters. Only queue 0 has them.
    device: DeviceCounters,
    looked_at_ns: u64,
    receives: u32,
}

impl DpdkPort {
    pub(super) fn new(queue: Queue, wire: String, index: usize) -> Self {
        let device = queue.device();
        let capabilities = Capabilities {
            mac: MacAddr(device.mac),
            mtu: device.mtu,
            rx_checksum: ChecksumPolicy::Verify,
            tx_checksum_offload: device.has_tx_checksum,
            segment_bytes_max: device.segment_bytes_max,
            batch_max: DPDK_BATCH_MAX,
            name: wire,
            queue: index,
        };
        Self {
            has_interrupts: device.has_interrupts,
            queue,
            capabilities,
            sleep_ns: DPDK_SLEEP_NS_MIN,
            wake_at_ns: 0,
            device: DeviceCounters::default(),
            looked_at_ns: 0,
            receives: 0,
        }
    }

    /// Reads the device's counters, which may take system calls.
    #[cold]
    fn read_device_counters(&mut self) {
        if self.capabilities.queue == 0 {
            self.device = self.queue.device_counters();
        }
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone != 0
    }

    fn sleep_ns_max(&self) -> u64 {
        match self.has_interrupts {
            true => DPDK_INTERRUPT_SLEEP_NS_MAX,
            false => DPDK_SLEEP_NS_MAX,
        }
    }
}

impl Port for DpdkPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(DPDK_LOOK_RECEIVES) {
            self.read_device_counters();
        }
        let is_gone = self.is_gone();
        let frames = self.queue.receive();
        if !frames.is_empty() {
            self.sleep_ns = DPDK_SLEEP_NS_MIN;
        } else if is_gone {
            return Err(PortError::Gone);
        }
        Ok(frames)
    }

    fn release(&mut self) {
        self.queue.release();
    }

    fn accept_merged(&mut self) -> bool {
        self.queue.accept_merged();
        true
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.queue.reserve(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.queue.reserved()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        if n > 0 {
            // An answer may arrive soon, so the next sleep is short.
            self.sleep_ns = DPDK_SLEEP_NS_MIN;
        }
        self.queue.send(n);
        Ok(())
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let now_ns = monotonic_ns();
        if now_ns.wrapping_sub(self.looked_at_ns) >= DPDK_LOOK_NS {
            self.looked_at_ns = now_ns;
            self.read_device_counters();
        }
        let (has_frames, has_room) = self.queue.prepare_wait();
        if has_frames || (want_tx && has_room) || self.is_gone() {
            return true;
        }
        // No event announces that the driver has room again.
        let is_behind = want_tx || !has_room;
        let sleep_ns = match is_behind {
            true => DPDK_SLEEP_NS_MIN,
            false => self.sleep_ns,
        };
        self.wake_at_ns = now_ns + sleep_ns;
        self.sleep_ns = (self.sleep_ns * 2).min(self.sleep_ns_max());
        false
    }

    fn finish_wait(&mut self) {
        // An interrupt may come before its frame can be received: the TAP driver delivers frames
        // after a signal that any thread may get. The interrupt does not come again, so the next
        // sleep is short.
        if self.has_interrupts && monotonic_ns() < self.wake_at_ns {
            self.sleep_ns = DPDK_SLEEP_NS_MIN;
        }
        self.wake_at_ns = 0;
        self.queue.finish_wait();
    }

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        if let Some(fd) = self.queue.wait_fd() {
            fds(fd, PollFlags::IN);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        (self.wake_at_ns != 0).then_some(self.wake_at_ns)
    }

    fn counters(&self) -> PortCounters {
        let own = self.queue.counters();
        let mut all = PortCounters::default();
        all.rx_frames = own.rx_frames;
        all.rx_bytes = own.rx_bytes;
        all.tx_frames = own.tx_frames;
        all.tx_bytes = own.tx_bytes;
        all.push("dpdk_rx_dropped_runt", own.rx_runt);
        all.push("dpdk_rx_dropped_too_long", own.rx_too_long);
        all.push("dpdk_rx_dropped_chained", own.rx_chained);
        all.push("dpdk_tx_dropped_runt", own.tx_runt);
        all.push("dpdk_tx_dropped_refused", own.tx_refused);
        all.push("dpdk_tx_pushed_back", own.tx_pushed_back);
        all.push("dpdk_buffers_free", own.buffers_free);
        all.push("dpdk_rx_merged", own.rx_merged);
        all.push("dpdk_rx_cut", own.rx_cut);
        all.push("dpdk_tx_large", own.tx_large);
        all.push("dpdk_tx_cut", own.tx_cut);
        all.push("dpdk_tx_no_large", own.tx_no_large);
        if self.capabilities.queue == 0 {
            all.push("dpdk_device_rx_missed", self.device.rx_missed);
            all.push("dpdk_device_rx_errors", self.device.rx_errors);
            all.push("dpdk_device_rx_no_buffer", self.device.rx_no_buffer);
            all.push("dpdk_device_tx_errors", self.device.tx_errors);
        }
        all
    }
}
