//! A test of every hop, for `mill mux check`: programs attached, maps and sockets filled, ends of
//! virtual ports up.
//!
//! Frames are shown to the programs in the kernel without any leaving (`BPF_PROG_TEST_RUN`).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;

use packetio::xdp::{Device, bpf};

use super::layout::{self, ADDRESS_LOCAL};
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
                self.check_link("link_nic", Some(self.nic.index)),
            ),
            (
                "what nobody owns goes to the kernel".to_owned(),
                self.check_pass(),
            ),
        ];
        if self.frames.is_none() {
            let name = "applications send to it".to_owned();
            hops.push((name, self.check_way()));
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

    /// The veth pair of a device, and the application's socket behind it.
    fn check_pair(&self, name: &str, device: u16, hops: &mut Vec<(String, Result<(), String>)>) {
        hops.push((format!("{name}: ends are up"), self.check_ends(device)));
        let ends = [("near", near_index(device)), ("far", far_index(device))];
        for (end, index) in ends {
            let link = self.check_link(&format!("link_{end}{device}"), Some(index));
            hops.push((format!("{name}: program on the {end} end"), link));
        }
        hops.push((format!("{name}: socket"), self.check_socket(device)));
    }

    fn check_nic(&self) -> Result<(), String> {
        let found =
            Device::find(&self.nic.name).map_err(|(step, errno)| format!("{step}: {errno}"))?;
        match found.index == self.nic.index {
            true => Ok(()),
            false => Err("it was removed and added again".to_owned()),
        }
    }

    /// The program that is pinned here runs on the interface of this index, or on any.
    pub(super) fn check_link(&self, pin: &str, index: Option<u32>) -> Result<(), String> {
        let failed = |errno| format!("no link {pin}: {errno}");
        let link = bpf::open_pinned(&self.pin(pin)).map_err(failed)?;
        match (bpf::attached_to(&link).map_err(failed)?, index) {
            (0, _) => Err("its interface is gone".to_owned()),
            (found, Some(index)) if found != index => {
                Err(format!("it is on interface {found} in place of {index}"))
            }
            _ => Ok(()),
        }
    }

    /// The egress check finds the NIC.
    fn check_way(&self) -> Result<(), String> {
        let mut index = [0; 4];
        let way = layout::WAY_NIC.to_ne_bytes();
        let map = self.maps.map("nic").map_err(|error| error.to_string())?;
        match map.lookup(&way, &mut index) {
            Ok(()) if u32::from_ne_bytes(index) == self.nic.index => Ok(()),
            Ok(()) => Err("applications send to another interface".to_owned()),
            Err(errno) => Err(format!("map nic: {errno}")),
        }
    }

    /// A frame at the far end finds the application's socket.
    fn check_socket(&self, device: u16) -> Result<(), String> {
        let action = self.namespace.run(|| {
            bpf::dry_run(self.maps.far.as_fd(), &[0; 64], far_index(device))
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        match action {
            Ok(XDP_REDIRECT) => Ok(()),
            Ok(_) => Err("it is closed".to_owned()),
            Err(error) => Err(error.to_string()),
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
        let ends = [
            (format!("near{device}"), near_index(device)),
            (format!("far{device}"), far_index(device)),
        ];
        let checked = self.namespace.run(|| {
            let checked = ends.iter().map(|(name, index)| check_end(name, *index));
            Ok(checked.collect::<Result<(), String>>())
        });
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// A segment for a port of the device, of each version of IP, if it has any.
    fn check_redirect(&self, device: u16) -> Result<(), String> {
        let is_here = |(slot, context)| self.devices.get(&(slot, context)) == Some(&device);
        let owned = self.claims.iter().filter(|(_, entry)| {
            let mut contexts = entry.contexts.iter();
            contexts.any(|context| is_here((entry.slot, *context)))
        });
        let endpoints = self.reachable(owned.map(|(endpoint, _)| *endpoint));
        for endpoint in endpoints.into_iter().flatten() {
            let mut frame = segment(far_peer(endpoint), endpoint);
            frame[..6].copy_from_slice(&self.mac.0);
            match bpf::dry_run(self.nic_program(), &frame, 0) {
                Ok(XDP_REDIRECT) => {}
                other => {
                    return Err(format!(
                        "the program says {other:?} to a segment for {endpoint}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The first endpoint of each version of IP. An address of the NIC stands for all of them; a
    /// endpoint for all addresses of a version of which the NIC has none cannot be reached.
    pub(super) fn reachable(
        &self,
        endpoints: impl Iterator<Item = SocketAddr>,
    ) -> [Option<SocketAddr>; 2] {
        let own = self.own_addresses();
        let mut found = [None, None];
        for endpoint in endpoints {
            let mut own = own.iter().copied();
            let address = match endpoint.ip().is_unspecified() {
                true => own.find(|one| one.is_ipv4() == endpoint.is_ipv4()),
                false => Some(endpoint.ip()),
            };
            let room = &mut found[usize::from(endpoint.is_ipv6())];
            *room = room.or(address.map(|address| SocketAddr::new(address, endpoint.port())));
        }
        found
    }

    /// Addresses of the NIC, as the programs know them, but those that mean something on their own
    /// link only.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let keys = self.maps.map("addresses").map(|map| map.keys());
        let Ok(Ok(keys)) = keys else {
            return Vec::new();
        };
        let is_own = |key: &Vec<u8>| {
            let mut kind = [0; 4];
            let map = self.maps.map("addresses");
            let found = map.is_ok_and(|map| map.lookup(key, &mut kind).is_ok());
            found && u32::from_ne_bytes(kind) == ADDRESS_LOCAL
        };
        let own = keys.iter().filter(|key| is_own(key));
        own.filter_map(|key| layout::address_of(key))
            .filter(|address| !is_link_local(*address))
            .collect()
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The interface of this name is up and has this index, in the calling thread's network namespace.
pub(super) fn check_end(name: &str, index: u32) -> Result<(), String> {
    let found = Device::find(name).map_err(|(step, errno)| format!("{name}: {step}: {errno}"))?;
    match (found.index == index, found.is_up) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("{name} is down")),
        (false, _) => Err(format!("{name} has another index")),
    }
}

/// An address for documentation, of the version of `endpoint`.
fn far_peer(endpoint: SocketAddr) -> IpAddr {
    match endpoint.is_ipv4() {
        true => IpAddr::from([192, 0, 2, 1]),
        false => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    }
}

/// The frame of a segment to `endpoint` from a peer of the same version of IP.
pub(super) fn segment(from: IpAddr, endpoint: SocketAddr) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match endpoint {
        SocketAddr::V4(_) => frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]),
        SocketAddr::V6(_) => frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]),
    }
    for end in [from, endpoint.ip()] {
        match end {
            IpAddr::V4(v4) => frame.extend(v4.octets()),
            IpAddr::V6(v6) => frame.extend(v6.octets()),
        }
    }
    frame.extend([0, 9]);
    frame.extend(endpoint.port().to_be_bytes());
    let header_bytes = if endpoint.is_ipv4() { 20 } else { 40 };
    frame.resize((14 + header_bytes + 20).max(60), 0);
    frame
}
