//! Clients of the same host (`mill mux --local`): a veth pair between the host's network namespace
//! and the service's.
//!
//! ```text
//!   host's namespace                                     private namespace of the service
//!   client ── lo ── mux_lo ──▶ mill-loN ══════veth══════ local ── mux_pair ──device map──▶ near ends
//!   client ◀─ kernel ◀─ mux_pair ── mill-loN ══════════ local ◀──device map── mux_egress ── near ends
//! ```
//!
//! With `path=memif` the frames' threads replace the near ends of virtual ports. The far end of
//! this pair has an AF_XDP socket for each thread.
//!
//! The kernel sends packets for its own addresses to the loopback interface, where a tc program
//! takes out those for applications. Packets from applications to addresses of the NIC return
//! through the same pair; the kernel accepts them as if a neighbour had its own address. Owns the
//! pair, its settings and the links of three programs. All of them stay when the service restarts.
//! Called by `mod` and `nic`.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use packetio::MacAddr;
use packetio::xdp::{Device, GRO, GSO, TSO, TX_CHECKSUM, bpf, set_offload};
use rustix::io::Errno;

use super::check::{check_end, segment};
use super::{Dataplane, DataplaneError, layout, nic, veth};

/// Name and interface index of the end in the service's namespace. Virtual ports have lower
/// indices.
const FAR: (&str, u32) = ("local", 1000);
/// Interface index of the loopback interface in each network namespace.
const LOOPBACK: u32 = 1;
/// `TC_ACT_REDIRECT`
const REDIRECT: u32 = 7;
/// Pins of the links: on both ends of the pair, and on the loopback interface.
const LINKS: [&str; 3] = ["link_local_near", "link_local_far", "link_local_lo"];

/// The end of the pair in the host's namespace.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    name: String,
    /// The interface index.
    pub index: u32,
    mac: MacAddr,
}

impl Dataplane {
    /// The MAC address of the next hop for the NIC's own addresses.
    pub fn own_hop(&self) -> Option<MacAddr> {
        self.local.as_ref().map(|pair| pair.mac)
    }

    fn local_name(&self) -> String {
        format!("mill-lo{}", self.nic.index)
    }

    /// Recognizes the previous service's pair if it is still wanted. If the settings did not name
    /// the pair, the kernel would reset the connections through it.
    pub(super) fn local_recover(&mut self) {
        let name = self.local_name();
        if self.options.is_local && self.is_pair_whole(&name) {
            self.local = find(&name).ok();
        }
    }

    /// Makes the pair, or takes over the previous service's. Only then takes packets off the
    /// loopback interface.
    pub(super) fn local_open(&mut self) -> Result<(), DataplaneError> {
        let name = self.local_name();
        if !self.is_pair_whole(&name) {
            self.local_close();
            self.pair_make(&name)?;
        }
        let pair = find(&name)?;
        self.local_mtu_of(pair.index, self.mtu)?;
        self.local_switch()?;
        let far = FAR.1.to_ne_bytes();
        self.namespace.run(|| {
            let way = layout::WAY_LOCAL.to_ne_bytes();
            self.maps.set("nic", &way, &far)
        })?;
        self.next_hop_set(pair.mac, true)?;
        self.local = Some(pair.clone());
        self.write_settings()?;
        self.local_attach(&pair)
    }

    /// Opens the frames' threads' sockets at the far end, if there are such threads.
    fn local_switch(&mut self) -> Result<(), DataplaneError> {
        if self.frames.is_none() {
            return Ok(());
        }
        let ports = self.namespace.run(|| self.local_sockets(&device(FAR.0)?))?;
        if let Some(frames) = &mut self.frames {
            frames.set_local(ports);
        }
        Ok(())
    }

    /// Removes the pair and its programs, if there are any.
    pub(super) fn local_close(&mut self) {
        let pair = self.local.take();
        if let Some(frames) = &mut self.frames {
            frames.set_local(Vec::new());
        }
        let _ = fs::remove_file(self.pin(LINKS[2]));
        // Until the pair is removed, frames for it must be dropped and counted by reason.
        let _ = self.write_settings();
        if let Some(pair) = pair {
            let _ = self.next_hop_set(pair.mac, false);
        }
        let _ = self.namespace.run(|| {
            veth::remove(FAR.1).map_err(|errno| DataplaneError::io("veth of --local", errno))
        });
        for pin in LINKS {
            let _ = fs::remove_file(self.pin(pin));
        }
    }

    /// Sets the pair's MTU to that of the NIC.
    pub(super) fn local_mtu(&self, mtu: u32) -> Result<(), DataplaneError> {
        match &self.local {
            Some(pair) => self.local_mtu_of(pair.index, mtu),
            None => Ok(()),
        }
    }

    fn local_mtu_of(&self, index: u32, mtu: u32) -> Result<(), DataplaneError> {
        let failed = |errno| DataplaneError::io("MTU of the pair of --local", errno);
        veth::set(index, mtu).map_err(failed)?;
        self.namespace.run(|| veth::set(FAR.1, mtu).map_err(failed))
    }

    /// True if both ends exist, with a queue for each thread.
    fn is_pair_whole(&self, name: &str) -> bool {
        let queues = Some(self.threads());
        let far = self.namespace.run(|| device(FAR.0));
        let is_far = far.is_ok_and(|far| far.index == FAR.1 && far.queues == queues);
        is_far && find(name).is_ok()
    }

    fn pair_make(&self, name: &str) -> Result<(), DataplaneError> {
        let failed = |errno| DataplaneError::io(format!("veth {name}"), errno);
        let host = fs::File::open("/proc/thread-self/ns/net")
            .map_err(|error| failed(super::errno_of(&error)))?;
        let there = (name, host.as_fd());
        let queues = self.threads() as u32;
        self.namespace
            .run(|| veth::add_across(FAR, there, (self.mtu, queues)).map_err(failed))?;
        // By default the kernel drops packets from its own addresses.
        for (setting, value) in [("accept_local", "1"), ("rp_filter", "0")] {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/{setting}");
            fs::write(&path, value)
                .map_err(|error| DataplaneError::io(path, super::errno_of(&error)))?;
        }
        // Applications must get segments with complete checksums and without offloads. Their own
        // packets are merged.
        for offload in [TX_CHECKSUM, TSO, GSO] {
            set_offload(name, offload, false)
                .map_err(|errno| DataplaneError::io(format!("offloads of {name}"), errno))?;
        }
        // An error only costs the kernel work.
        let _ = set_offload(name, GRO, true);
        Ok(())
    }

    /// Attaches the programs, or updates the links of the previous service.
    fn local_attach(&self, pair: &Pair) -> Result<(), DataplaneError> {
        let Some(programs) = &self.maps.local else {
            return Ok(());
        };
        let xdp = |index| move |program: BorrowedFd<'_>| bpf::link(program, index, nic::NATIVE);
        let (near, far) = match self.frames {
            Some(_) => (&programs.pair_back, &programs.pair_switch),
            None => (&programs.pair, &programs.pair),
        };
        self.local_link(LINKS[0], near, xdp(pair.index))?;
        self.namespace
            .run(|| self.local_link(LINKS[1], far, xdp(FAR.1)))?;
        let lo = self.local_link(LINKS[2], &programs.lo, |program| {
            bpf::link_egress(program, LOOPBACK)
        });
        lo.map_err(|error| match error.errno() {
            Errno::INVAL => DataplaneError::refused("--local", "it needs Linux 6.6".to_owned()),
            _ => error,
        })
    }

    fn local_link(
        &self,
        name: &str,
        program: &OwnedFd,
        make: impl FnOnce(BorrowedFd<'_>) -> Result<OwnedFd, Errno>,
    ) -> Result<(), DataplaneError> {
        let pin = self.pin(name);
        if let Ok(link) = bpf::open_pinned(&pin)
            && bpf::update_link(link.as_fd(), program.as_fd()).is_ok()
        {
            return Ok(());
        }
        let _ = fs::remove_file(&pin);
        let failed = |errno| DataplaneError::io(name, errno);
        let link = make(program.as_fd()).map_err(failed)?;
        bpf::pin(&link, &pin).map_err(failed)
    }

    /// Checks the hops for clients of the same host, by name.
    pub(super) fn check_local(&self) -> Vec<(String, Result<(), String>)> {
        let Some(pair) = &self.local else {
            return Vec::new();
        };
        let ends = self.check_local_ends(pair);
        let mut hops = vec![("same host: both ends of its pair".to_owned(), ends)];
        let places = [
            ("near end", pair.index),
            ("far end", FAR.1),
            ("loopback", LOOPBACK),
        ];
        for (pin, (place, index)) in LINKS.iter().zip(places) {
            let name = format!("same host: program on the {place}");
            hops.push((name, self.check_link(pin, Some(index))));
        }
        let name = "same host: the kernel takes what applications send";
        hops.push((name.to_owned(), check_settings(&pair.name)));
        let name = "same host: redirect off the loopback interface";
        hops.push((name.to_owned(), self.check_lo()));
        hops
    }

    fn check_local_ends(&self, pair: &Pair) -> Result<(), String> {
        if !self.is_pair_whole(&pair.name) {
            return Err(format!("{} or its other end is gone", pair.name));
        }
        check_end(&pair.name, pair.index)?;
        let far = self.namespace.run(|| Ok(check_end(FAR.0, FAR.1)));
        far.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// A segment from an address of the NIC to itself, to an endpoint that is owned, of each
    /// version of IP, if there is any.
    fn check_lo(&self) -> Result<(), String> {
        let Some(programs) = &self.maps.local else {
            return Ok(());
        };
        let endpoints = self.reachable(self.claims.keys().copied());
        for endpoint in endpoints.into_iter().flatten() {
            let frame = segment(endpoint.ip(), endpoint);
            match bpf::dry_run(programs.lo.as_fd(), &frame, 0) {
                Ok(REDIRECT) => {}
                other => {
                    return Err(format!(
                        "the program says {other:?} to a segment for {endpoint}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The interface with this name in the calling thread's network namespace.
fn device(name: &str) -> Result<Device, DataplaneError> {
    Device::find(name).map_err(|(step, errno)| DataplaneError::io(format!("{name}: {step}"), errno))
}

/// The pair's end with this name in the calling thread's network namespace.
fn find(name: &str) -> Result<Pair, DataplaneError> {
    let device = device(name)?;
    Ok(Pair {
        name: device.name,
        index: device.index,
        mac: device.mac,
    })
}

/// Checks `rp_filter` and `accept_local`. The kernel uses the stricter `rp_filter` of the interface
/// and of `all`.
fn check_settings(name: &str) -> Result<(), String> {
    let read = |of: &str, setting: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{of}/{setting}");
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok::<_, String>(text.trim().to_owned())
    };
    for (of, setting, wanted) in [
        (name, "accept_local", "1"),
        (name, "rp_filter", "0"),
        ("all", "rp_filter", "0"),
    ] {
        let found = read(of, setting)?;
        if found != wanted {
            return Err(format!(
                "net.ipv4.conf.{of}.{setting} is {found}, so the kernel drops packets from its own \
                 addresses: set it to {wanted}"
            ));
        }
    }
    Ok(())
}
