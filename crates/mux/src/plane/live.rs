//! The data plane of `mill mux` as the service calls it.
//!
//! Owns nothing. Errors of the data plane become an errno for the application. What cannot be undone
//! (removing something that is gone already) is left out.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};

use packetio::MacAddr;
use packetio::mux::message::Memory;
use packetio::xdp::XdpMode;
use rustix::io::Errno;

use super::{Plane, Recovered, Traffic};
use crate::dataplane::{Dataplane, DataplaneError};
use crate::reason::Reason;

impl Plane for Dataplane {
    fn port_add(
        &mut self,
        application: u16,
        context: u16,
        memory: &Memory,
        file: BorrowedFd<'_>,
    ) -> Result<(OwnedFd, u64), Errno> {
        let made = Dataplane::port_add(self, application, context, memory, file);
        let port = made.map_err(|error| error.errno())?;
        Ok((port.socket, port.cookie))
    }

    fn port_remove(&mut self, application: u16, context: u16) {
        Dataplane::port_remove(self, application, context);
    }

    fn claim_set(
        &mut self,
        place: SocketAddr,
        application: u16,
        contexts: &[u16],
    ) -> Result<(), Errno> {
        Dataplane::claim_set(self, place, application, contexts).map_err(|error| error.errno())
    }

    fn claim_remove(&mut self, place: SocketAddr) {
        let _ = Dataplane::claim_remove(self, place);
    }

    fn lease_add(
        &mut self,
        ports: RangeInclusive<u16>,
        application: u16,
        context: u16,
    ) -> Result<(), Errno> {
        Dataplane::lease_add(self, ports, application, context).map_err(|error| error.errno())
    }

    fn lease_remove(&mut self, ports: RangeInclusive<u16>) {
        let _ = Dataplane::lease_remove(self, ports);
    }

    fn address_add(&mut self, address: IpAddr, broadcast: Option<IpAddr>) {
        let _ = Dataplane::address_add(self, address, broadcast);
    }

    fn address_remove(&mut self, address: IpAddr) {
        let _ = Dataplane::address_remove(self, address);
    }

    fn next_hop_set(&mut self, mac: MacAddr, on: bool) {
        let _ = Dataplane::next_hop_set(self, mac, on);
    }

    fn host_set(&mut self, mac: MacAddr, mtu: u32) {
        let _ = Dataplane::host_set(self, mac, mtu);
    }

    fn nic_back(&mut self) -> Result<(), String> {
        let attached = self.nic_attach();
        attached.map_err(|error: DataplaneError| error.to_string())
    }

    fn recovered(&self) -> Vec<Recovered> {
        let ports = Dataplane::recovered(self).into_iter();
        ports
            .map(|port| Recovered {
                application: port.slot,
                context: port.context,
                cookie: port.cookie,
            })
            .collect()
    }

    fn traffic(&self, application: u16, context: u16) -> Traffic {
        let counters = self.counters(application, context);
        let drops = Reason::ALL.iter().zip(&counters.drops);
        let drops = drops.map(|(reason, count)| (reason.name(), *count));
        Traffic {
            rx_frames: counters.rx_frames,
            rx_bytes: counters.rx_bytes,
            tx_frames: counters.tx_frames,
            tx_bytes: counters.tx_bytes,
            drops: drops.chain([("no_socket", counters.no_socket)]).collect(),
        }
    }

    fn ingress_drops(&self) -> Vec<(&'static str, u64)> {
        let counters = self.ingress_counters();
        vec![
            ("fragment", counters.fragment),
            ("ipv6_unparsed", counters.ipv6_unparsed),
            ("no_port", counters.no_port),
        ]
    }

    fn check(&mut self) -> Vec<(String, Result<(), String>)> {
        self.check_hops()
    }

    fn mode(&self) -> String {
        match Dataplane::mode(self) {
            XdpMode::Native => "native XDP".to_owned(),
            XdpMode::Generic => "generic XDP".to_owned(),
            XdpMode::Auto => "XDP".to_owned(),
        }
    }

    fn close(self) {
        Dataplane::close(self);
    }
}
