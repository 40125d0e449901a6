//! Bulk lanes: a TAP for each context that wants one. The NIC cuts the packets that leave through a
//! lane into segments.
//!
//! ```text
//!   host's namespace                                 private namespace of the service
//!   NIC ◀── mux_bulk_out ── mill-bulkN ═══veth═══ hop ◀── mux_bulk ── TAP ◀── application
//! ```
//!
//! The TAP of device *n* has the interface index 1024 + n, which tells the program the sender. A tc
//! program cannot redirect out of its namespace except to the other end of a veth pair, so one pair
//! leads to the NIC's namespace. The first lane makes the pair. Owns these devices and the pins of
//! their programs. Called by `mod`.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};

use packetio::tap::open_lane;
use packetio::xdp::{Device, bpf};
use rustix::io::Errno;

use super::check::check_end;
use super::layout::{BULK_FIRST_INDEX, BULK_HOP_INDEX};
use super::namespace_unsafe::errno_of;
use super::{Dataplane, DataplaneError, veth};

/// The pin of the program that sends packets through the NIC.
const OUT_PIN: &str = "link_bulk_out";
/// The pair's end in the private namespace.
const HOP: &str = "hop";

/// Interface index of a device's bulk lane.
pub(super) fn bulk_index(device: u16) -> u32 {
    BULK_FIRST_INDEX + u32::from(device)
}

/// The pin of a lane's program.
pub(super) fn bulk_pin(device: u16) -> String {
    format!("link_bulk{device}")
}

impl Dataplane {
    /// Makes the bulk lane of a context that has a virtual port: a TAP for the application only.
    /// Replaces a lane that the context already has.
    ///
    /// # Errors
    /// `NOENT` without a virtual port. `OPNOTSUPP` if the options forbid lanes or the kernel has no
    /// links of tc programs (before 6.6). Other errors of the kernel.
    pub fn bulk_add(&mut self, slot: u16, context: u16) -> Result<OwnedFd, DataplaneError> {
        let failed = |step: &'static str| move |errno| DataplaneError::io(step, errno);
        if !self.options.has_bulk {
            return Err(failed("bulk lane")(Errno::OPNOTSUPP));
        }
        // The frames' thread and the lane's program would each have a token bucket, so the
        // application could send at twice the rate.
        if self.frames.is_some() && self.options.rate_bytes > 0 {
            return Err(failed("bulk lane beside a memif channel with a rate")(
                Errno::OPNOTSUPP,
            ));
        }
        let device = self.devices.get(&(slot, context)).copied();
        let device = device.ok_or_else(|| failed("bulk lane")(Errno::NOENT))?;
        let program = self.maps.bulk.as_ref().map_err(Clone::clone)?;
        self.bulk_hop()?;
        let pin = self.pin(&bulk_pin(device));
        // The context may already have a lane, or a killed service may have left one.
        let _ = fs::remove_file(&pin);
        let mtu = self.mtu;
        self.namespace.run(|| {
            let index = bulk_index(device);
            let _ = veth::remove(index);
            let tap = open_lane(&format!("bulk{device}"), index).map_err(failed("TAP"))?;
            let link =
                bpf::link_ingress(program.as_fd(), index).map_err(failed("tc on the TAP"))?;
            bpf::pin(&link, &pin).map_err(failed("BPF_OBJ_PIN of the TAP's link"))?;
            // The TAP comes up only now, so nothing passes before the program is attached.
            veth::set(index, mtu).map_err(failed("TAP up"))?;
            Ok(tap)
        })
    }

    /// Removes the bulk lane of a device, if there is one, even a TAP that the application made
    /// persistent.
    pub(super) fn bulk_remove(&self, device: u16) {
        if fs::remove_file(self.pin(&bulk_pin(device))).is_err() {
            return;
        }
        let _ = self.namespace.run(|| {
            veth::remove(bulk_index(device)).map_err(|errno| DataplaneError::io("TAP", errno))
        });
    }

    /// True if the device has a bulk lane.
    pub(super) fn has_bulk(&self, device: u16) -> bool {
        self.pin(&bulk_pin(device)).exists()
    }

    /// Replaces the programs that the previous service attached by this one's.
    pub(super) fn bulk_recover(&self, device: Option<u16>) {
        let (pin, program) = match device {
            Some(device) => (bulk_pin(device), &self.maps.bulk),
            None => (OUT_PIN.to_owned(), &self.maps.bulk_out),
        };
        let link = bpf::open_pinned(&self.pin(&pin));
        if let (Ok(link), Ok(program)) = (link, program) {
            // A link without its device is useless; the lane then drops everything.
            let _ = bpf::update_link(link.as_fd(), program.as_fd());
        }
    }

    /// Removes the veth pair and all lanes.
    pub(super) fn bulk_close(&self) {
        if fs::remove_file(self.pin(OUT_PIN)).is_err() {
            return;
        }
        let _ = self
            .namespace
            .run(|| veth::remove(BULK_HOP_INDEX).map_err(|errno| DataplaneError::io("hop", errno)));
    }

    /// Checks the lane of a device, for `mill mux check`.
    pub(super) fn bulk_check(&self, device: u16) -> Result<(), String> {
        self.check_link(&bulk_pin(device), Some(bulk_index(device)))?;
        // The pair keeps the name that it got beside an earlier interface.
        self.check_link(OUT_PIN, None)?;
        let name = format!("bulk{device}");
        let checked = self.namespace.run(|| {
            let tap = check_end(&name, bulk_index(device));
            Ok(tap.and_then(|()| check_end(HOP, BULK_HOP_INDEX)))
        });
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Makes the veth pair that leads to the NIC's namespace, unless it exists.
    fn bulk_hop(&self) -> Result<(), DataplaneError> {
        let failed = |step: &'static str| move |errno| DataplaneError::io(step, errno);
        let pin = self.pin(OUT_PIN);
        if bpf::open_pinned(&pin).is_ok() {
            return Ok(());
        }
        let program = self.maps.bulk_out.as_ref().map_err(Clone::clone)?;
        let home = File::open("/proc/thread-self/ns/net")
            .map_err(|error| failed("namespace of the NIC")(errno_of(&error)))?;
        let far = format!("mill-bulk{}", self.nic.index);
        let mtu = self.mtu;
        self.namespace.run(|| {
            let _ = veth::remove(BULK_HOP_INDEX);
            veth::add_across((HOP, BULK_HOP_INDEX), (&far, home.as_fd()), (mtu, 1))
                .and_then(|()| veth::set(BULK_HOP_INDEX, mtu))
                .map_err(failed("veth of the bulk lanes"))
        })?;
        let found = Device::find(&far).map_err(|(step, errno)| DataplaneError::io(step, errno))?;
        let link =
            bpf::link_ingress(program.as_fd(), found.index).map_err(failed("tc on the pair"))?;
        veth::set(found.index, mtu).map_err(failed("pair up"))?;
        bpf::pin(&link, &pin).map_err(failed("BPF_OBJ_PIN of the pair's link"))
    }
}
