//! Frames that the kernel does not take at once, and when the port writes them again.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::port::{ChecksumPolicy, MacAddr};

/// A descriptor whose kernel the test plays.
struct Scripted {
    fd: OwnedFd,
    arriving: usize,
    /// Number of frames that the kernel takes before it is full.
    room: usize,
    writes: usize,
}

impl FrameIo for Scripted {
    const TX_FAILED: &'static str = "tap_tx_dropped_failed";

    fn read(&mut self, into: &mut FrameBuf) -> Result<Read, PortError> {
        let Some(left) = self.arriving.checked_sub(1) else {
            return Ok(Read::Empty);
        };
        self.arriving = left;
        into.copy_bytes(&[1; 60]);
        Ok(Read::Frame)
    }

    fn write(&mut self, _frame: &FrameBuf) -> Result<Written, PortError> {
        self.writes += 1;
        let Some(left) = self.room.checked_sub(1) else {
            return Ok(Written::Full);
        };
        self.room = left;
        Ok(Written::Sent)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.fd.as_fd()
    }

    fn export(&self, _into: &mut PortCounters) {}
}

fn port() -> FdPort<Scripted> {
    let io = Scripted {
        fd: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        arriving: 0,
        room: 0,
        writes: 0,
    };
    let capabilities = Capabilities {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1_500,
        rx_checksum: ChecksumPolicy::Verify,
        tx_checksum_offload: false,
        segment_bytes_max: 0,
        batch_max: 0,
        name: "scripted".into(),
        queue: 0,
    };
    FdPort::new(io, capabilities)
}

/// Sends until the port has no slot left; returns the number of frames.
fn fill(port: &mut FdPort<Scripted>) -> usize {
    let mut sent = 0;
    loop {
        let slots = port.reserve(FD_BATCH_MAX);
        let count = slots.len();
        if count == 0 {
            return sent;
        }
        slots
            .iter()
            .for_each(|slot| slot.set_len(slot.write(0, &[2; 60])));
        port.send(count).unwrap();
        sent += count;
    }
}

#[test]
fn kernel_full_and_again_empty_gets_what_waits_while_frames_keep_arriving() {
    let mut port = port();
    assert_eq!(fill(&mut port), FD_TX_SLOTS);
    (port.io.room, port.io.arriving) = (10, 2);
    assert_eq!(port.receive().unwrap().len(), 2);
    assert_eq!(port.counters().tx_frames, 10);
    assert_eq!(port.reserve(FD_BATCH_MAX).len(), 10);
}

#[test]
fn nothing_pending_costs_no_write() {
    let mut port = port();
    port.io.arriving = 1;
    assert_eq!(port.receive().unwrap().len(), 1);
    port.io.room = 1;
    assert_eq!(port.reserve(1).len(), 1);
    port.send(0).unwrap();
    assert!(port.receive().unwrap().is_empty());
    assert_eq!(port.io.writes, 0);
}
