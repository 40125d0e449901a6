//! Tests of every hop, for `mill mux check`: attached programs, entries of maps, links of virtual
//! ports.
//!
//! Programs get test frames in the kernel, and none of these leaves (`BPF_PROG_TEST_RUN`).

use std::net::{IpAddr, SocketAddr};

use packetio::xdp::{Device, bpf};

use super::{Dataplane, DataplaneError, far_index, near_index};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

impl Dataplane {
    /// The hops by name, each with its fault if there is one.
    pub fn check_hops(&mut self) -> Vec<(String, Result<(), String>)> {
        let mut hops = vec![
            (format!("{} is there", self.nic.name), self.check_nic()),
            (
                "its program is attached".to_owned(),
                self.check_link("link_nic"),
            ),
            (
                "what nobody owns goes to the kernel".to_owned(),
                self.check_pass(),
            ),
        ];
        if self.frames.is_none() {
            let name = "its other end takes what applications send".to_owned();
            hops.push((name, self.check_peer()));
        }
        hops.extend(self.check_local());
        let mut contexts: Vec<_> = self
            .devices
            .iter()
            .map(|(id, device)| (*id, *device))
            .collect();
        contexts.sort_unstable();
        for ((slot, context), device) in contexts {
            let name = format!("application {slot} context {context}");
            match self.frames {
                Some(_) => hops.push((format!("{name}: channel"), self.check_channel(device))),
                None => self.check_pair(&name, device, &mut hops),
            }
            if self.has_bulk(device) {
                hops.push((format!("{name}: bulk lane"), self.bulk_check(device)));
            }
            hops.push((
                format!("{name}: redirect to it"),
                self.check_redirect(device),
            ));
        }
        hops
    }

    /// Checks the veth pair of a device.
    fn check_pair(&self, name: &str, device: u16, hops: &mut Vec<(String, Result<(), String>)>) {
        hops.push((format!("{name}: ends are up"), self.check_ends(device)));
        for end in ["near", "far"] {
            let link = self.check_link(&format!("link_{end}{device}"));
            hops.push((format!("{name}: program on the {end} end"), link));
        }
    }

    fn check_nic(&self) -> Result<(), String> {
        let found =
            Device::find(&self.nic.name).map_err(|(step, errno)| format!("{step}: {errno}"))?;
        match found.index == self.nic.index {
            true => Ok(()),
            false => Err("it was removed and added again".to_owned()),
        }
    }

    pub(super) fn check_link(&self, pin: &str) -> Result<(), String> {
        match bpf::open_pinned(&self.pin(pin)) {
            Ok(_) => Ok(()),
            Err(errno) => Err(format!("no link {pin}: {errno}")),
        }
    }

    /// Checks that a frame with an unclaimed ethertype passes to the kernel.
    fn check_pass(&self) -> Result<(), String> {
        let mut frame = [0; 64];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        match bpf::dry_run(self.nic_program(), &frame, 0) {
            Ok(XDP_PASS) => Ok(()),
            other => Err(format!("the program says {other:?}")),
        }
    }

    fn check_ends(&self, device: u16) -> Result<(), String> {
        let (near, far) = (format!("near{device}"), format!("far{device}"));
        let found = self.namespace.run(|| {
            let find = |name: &str| {
                Device::find(name).map_err(|(step, errno)| DataplaneError::io(step, errno))
            };
            Ok((find(&near)?.index, find(&far)?.index))
        });
        match found {
            Ok(indices) if indices == (near_index(device), far_index(device)) => Ok(()),
            Ok(_) => Err("the ends have other indices".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks that a segment for a port of the device is redirected, if the device has a port.
    fn check_redirect(&self, device: u16) -> Result<(), String> {
        let owned = self.claims.iter().find(|(place, entry)| {
            let is_here = entry
                .contexts
                .iter()
                .any(|context| self.devices.get(&(entry.slot, *context)) == Some(&device));
            place.is_ipv4() && !place.ip().is_unspecified() && is_here
        });
        let Some((place, _)) = owned else {
            return Ok(());
        };
        let mut frame = segment(IpAddr::from([192, 0, 2, 1]), *place);
        frame[..6].copy_from_slice(&self.mac.0);
        match bpf::dry_run(self.nic_program(), &frame, 0) {
            Ok(XDP_REDIRECT) => Ok(()),
            other => Err(format!("the program says {other:?}")),
        }
    }
}

/// An IPv4 frame with a segment to `place`. For IPv6 the frame has no owner.
pub(super) fn segment(from: IpAddr, place: SocketAddr) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    for end in [from, place.ip()] {
        match end {
            IpAddr::V4(v4) => frame.extend(v4.octets()),
            IpAddr::V6(_) => frame.extend([0; 4]),
        }
    }
    frame.extend([0, 9]);
    frame.extend(place.port().to_be_bytes());
    frame.resize(60, 0);
    frame
}
