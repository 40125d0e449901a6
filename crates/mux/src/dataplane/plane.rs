//! The implementation of [`Plane`] by the data path.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};

use packetio::MacAddr;
use packetio::mux::message::{Memory, PortKind};
use packetio::xdp::XdpMode;
use rustix::io::Errno;

use super::{Dataplane, layout};
use crate::plane::{Ledger, Plane, Recovered, Traffic};
use crate::reason::Reason;

impl Plane for Dataplane {
    fn port_add(
        &mut self,
        application: u16,
        context: u16,
        memory: &Memory,
        file: BorrowedFd<'_>,
    ) -> Result<(OwnedFd, u64), Errno> {
        Dataplane::port_add(self, application, context, memory, file)
            .map(|port| (port.socket, port.cookie))
            .map_err(|error| error.errno())
    }

    fn kind(&self) -> PortKind {
        match self.frames {
            Some(_) => PortKind::Memif,
            None => PortKind::Xdp,
        }
    }

    fn channel_add(&mut self, application: u16, context: u16) -> Result<(OwnedFd, u64), Errno> {
        Dataplane::channel_add(self, application, context)
            .map(|port| (port.socket, port.cookie))
            .map_err(|error| error.errno())
    }

    fn ledger_add(
        &mut self,
        application: u16,
        context: u16,
        entries: u32,
    ) -> Result<OwnedFd, Errno> {
        Dataplane::ledger_add(self, application, context, entries).map_err(|error| error.errno())
    }

    fn ledger(&self, application: u16, context: u16) -> Option<Box<dyn Ledger>> {
        Dataplane::ledger(self, application, context)
    }

    fn ledger_keep(&mut self, application: u16, context: u16) -> Option<u32> {
        // Without it the peers are reset all the same, unless the service dies meanwhile.
        Dataplane::ledger_keep(self, application, context).ok()
    }

    fn ledgers_kept(&self) -> Vec<u32> {
        self.kept_ledgers.iter().copied().collect()
    }

    fn ledger_kept(&self, number: u32) -> Option<Box<dyn Ledger>> {
        Dataplane::ledger_kept(self, number)
    }

    fn ledger_drop(&mut self, number: u32) {
        Dataplane::ledger_drop(self, number);
    }

    fn bulk_add(&mut self, application: u16, context: u16) -> Result<OwnedFd, Errno> {
        Dataplane::bulk_add(self, application, context).map_err(|error| error.errno())
    }

    fn port_remove(&mut self, application: u16, context: u16) {
        Dataplane::port_remove(self, application, context);
    }

    fn claim_set(
        &mut self,
        endpoint: SocketAddr,
        application: u16,
        contexts: &[u16],
    ) -> Result<(), Errno> {
        Dataplane::claim_set(self, endpoint, application, contexts).map_err(|error| error.errno())
    }

    fn claim_remove(&mut self, endpoint: SocketAddr) {
        // An entry that cannot be removed from a map is not there.
        let _ = Dataplane::claim_remove(self, endpoint);
    }

    fn flow_set(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr)) {
        // Errors are ignored: the next segment that the owner sends writes the flow again.
        let _ = Dataplane::flow_set(self, application, context, ends);
    }

    fn flow_forget(&mut self, application: u16, context: u16, ends: (SocketAddr, SocketAddr)) {
        // Errors are ignored: the context repeats this at the next SYN.
        let _ = Dataplane::flow_forget(self, application, context, ends);
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
        // If the table is full, the kernel keeps the address, and the egress check drops what
        // applications send from it.
        let _ = Dataplane::address_add(self, address, broadcast);
    }

    fn address_remove(&mut self, address: IpAddr) {
        let _ = Dataplane::address_remove(self, address);
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.keys_of("addresses", layout::address_of)
    }

    fn next_hops(&self) -> Vec<MacAddr> {
        self.keys_of("next_hops", layout::next_hop_of)
    }

    fn next_hop_set(&mut self, mac: MacAddr, on: bool) {
        // If the table is full, frames for the next hop are dropped and counted.
        let _ = Dataplane::next_hop_set(self, mac, on);
    }

    fn host_set(&mut self, mac: MacAddr, mtu: u32) {
        // Virtual ports that keep an older MTU drop longer frames, and count them.
        let _ = Dataplane::host_set(self, mac, mtu);
    }

    fn nic_back(&mut self) -> Result<(), String> {
        self.nic_attach().map_err(|error| error.to_string())
    }

    fn own_hop(&self) -> Option<MacAddr> {
        Dataplane::own_hop(self)
    }

    fn rate(&self) -> u64 {
        self.options.rate_bytes
    }

    fn recovered(&self) -> Vec<Recovered> {
        let ports = Dataplane::recovered(self);
        let recovered = ports.iter().map(|port| Recovered {
            application: port.slot,
            context: port.context,
            cookie: port.cookie,
        });
        recovered.collect()
    }

    fn traffic(&self, application: u16, context: u16) -> Traffic {
        let counters = self.counters(application, context);
        let mut drops: Vec<(&'static str, u64)> = Reason::ALL
            .iter()
            .map(|reason| reason.name())
            // A context without a port has counted nothing, for any reason.
            .zip(counters.drops.into_iter().chain(std::iter::repeat(0)))
            .collect();
        drops.push(("rx_no_socket", counters.no_socket));
        drops.push(("rx_no_room", counters.no_room));
        drops.push(("rx_too_long", counters.too_long));
        drops.push(("tx_other_queue", counters.other_queue));
        Traffic {
            rx_frames: counters.rx_frames,
            rx_bytes: counters.rx_bytes,
            tx_frames: counters.tx_frames,
            tx_bytes: counters.tx_bytes,
            bulk_frames: counters.bulk_frames,
            bulk_bytes: counters.bulk_bytes,
            drops,
        }
    }

    fn ingress_drops(&self) -> Vec<(&'static str, u64)> {
        let counters = self.ingress_counters();
        vec![
            ("rx_fragment", counters.fragment),
            ("rx_ipv6_unparsed", counters.ipv6_unparsed),
            ("rx_no_port", counters.no_port),
            ("rx_forged", counters.forged),
        ]
    }

    fn check(&mut self) -> Vec<(String, Result<(), String>)> {
        self.check_hops()
    }

    fn mode(&self) -> String {
        let mode = match Dataplane::mode(self) {
            XdpMode::Generic => "generic XDP",
            _ => "native XDP",
        };
        let path = match self.frames {
            Some(_) => "memif",
            None => "veth",
        };
        format!("{mode}, path {path}")
    }

    fn close(self) {
        Dataplane::close(self);
    }
}
