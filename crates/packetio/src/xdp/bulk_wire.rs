//! The descriptor of a bulk lane: each `writev` passes a virtio header and one large packet to the
//! kernel.
//!
//! A [`BulkWire`] owns the descriptor and counts the fate of frames. It is a packet socket on the
//! interface of an `xdp` wire, or the TAP that a service gave for a `mux` wire. `two_lanes_unsafe`
//! calls it.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::device_unsafe::Device;
use crate::buffer_unsafe::FrameBuf;
use crate::limits::PACKET_SEND_BYTES;
use crate::packet_unsafe::{bind_to_send, raw_socket, send_room, want_virtio_header};
use crate::port::PortCounters;
use crate::virtio::header_of;

/// The counter names of one kind of lane.
#[derive(Debug)]
struct Names {
    frames: &'static str,
    bytes: &'static str,
    held: &'static str,
    refused: &'static str,
    gone: &'static str,
}

/// Counter names of the lane beside an `xdp` wire.
const PACKET_SOCKET: Names = Names {
    frames: "xdp_bulk_frames",
    bytes: "xdp_bulk_bytes",
    held: "xdp_bulk_held",
    refused: "xdp_bulk_dropped_refused",
    gone: "xdp_bulk_dropped_gone",
};

/// Counter names of the lane beside a virtual port.
const SERVICE_TAP: Names = Names {
    frames: "mux_bulk_frames",
    bytes: "mux_bulk_bytes",
    held: "mux_bulk_held",
    refused: "mux_bulk_dropped_refused",
    gone: "mux_bulk_dropped_gone",
};

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The kernel took the frame, or refused it and it was counted.
    Done,
    /// The kernel has no room at present.
    Full,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct BulkWire {
    fd: OwnedFd,
    names: &'static Names,
    frames: u64,
    bytes: u64,
    held: u64,
    refused: u64,
    gone: u64,
}

impl BulkWire {
    fn new(fd: OwnedFd, names: &'static Names) -> Self {
        Self {
            fd,
            names,
            frames: 0,
            bytes: 0,
            held: 0,
            refused: 0,
            gone: 0,
        }
    }

    /// Makes a packet socket that sends on the interface and receives nothing.
    ///
    /// # Errors
    /// The step that the kernel refused, for example a socket without the privilege.
    pub(super) fn packet_socket(device: &Device) -> Result<Self, (&'static str, Errno)> {
        let failed = |step: &'static str| move |errno| (step, errno);
        let fd = raw_socket().map_err(failed("socket(AF_PACKET)"))?;
        want_virtio_header(&fd).map_err(failed("PACKET_VNET_HDR"))?;
        // A larger buffer only helps with bursts: without the privilege, the default size serves.
        let _ = send_room(&fd, PACKET_SEND_BYTES);
        bind_to_send(&fd, device.index as i32).map_err(failed("bind"))?;
        Ok(Self::new(fd, &PACKET_SOCKET))
    }

    /// Wraps the TAP that a service made for a virtual port.
    pub(crate) fn service_tap(fd: OwnedFd) -> Self {
        Self::new(fd, &SERVICE_TAP)
    }

    /// Sends a frame as it was written.
    pub(super) fn write(&mut self, frame: &FrameBuf) -> Fate {
        let header = header_of(frame);
        let parts = [IoSlice::new(&header), IoSlice::new(frame.bytes())];
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => {
                self.frames += 1;
                self.bytes += frame.len() as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.held += 1;
                return Fate::Full;
            }
            // The interface is down, or was removed.
            Err(Errno::BADFD | Errno::NETDOWN | Errno::NODEV | Errno::NXIO) => self.gone += 1,
            Err(_) => self.refused += 1,
        }
        Fate::Done
    }

    /// Adds the lane's counters to those of its port.
    pub(super) fn export(&self, into: &mut PortCounters) {
        into.tx_frames += self.frames;
        into.tx_bytes += self.bytes;
        into.push(self.names.frames, self.frames);
        into.push(self.names.bytes, self.bytes);
        into.push(self.names.held, self.held);
        into.push(self.names.refused, self.refused);
        into.push(self.names.gone, self.gone);
    }
}
