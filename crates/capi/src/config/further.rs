//! The ports after the first, as in `port = dpdk0 dpdk1`.
//!
//! Each port has one address: the interface's own, or the one at the same position in `ip_addr`.
//! Gateways and neighbours belong to the port whose subnet contains them.

use std::net::IpAddr;

use millstream::{FurtherWire, IpCidr, PortConfig};

use super::build::interface_of;
use super::{Problem, Settings};
use crate::interfaces_unsafe;

impl Settings {
    /// Adds the wires of the ports after the first. `given`: the addresses in the file, in order.
    pub fn add_further_ports(&mut self, given: &[IpCidr]) -> Result<(), Problem> {
        let ports = match &self.wire {
            Some(_) => Vec::new(),
            None => self.ports.get(1..).unwrap_or_default().to_vec(),
        };
        if ports.is_empty() {
            return Ok(());
        }
        if !given.is_empty() && given.len() != self.ports.len() {
            let why = format!(
                "ip_addr: {} addresses for {} ports: each port has one",
                given.len(),
                self.ports.len()
            );
            return Err(self.problem(self.port_line, why));
        }
        if let Some(&first) = given.first() {
            self.addresses = vec![first];
        }
        for (index, port) in ports.iter().enumerate() {
            let (spec, line) = self.spec_of(port)?;
            let wire = self.parse(&spec, line)?;
            if wire.has_host() {
                let why = format!("port: {wire}: the host owns its addresses: it stands alone");
                return Err(self.problem(line, why));
            }
            let addresses = match given.get(index + 1) {
                Some(&address) => vec![address],
                None => self.addresses_of(&wire, line)?,
            };
            let gateway = interface_of(&wire).and_then(interfaces_unsafe::default_gateway);
            let gateway = gateway.filter(|_| self.gateways.is_empty());
            let port = PortConfig {
                gateways: gateway
                    .filter(|&one| is_near(&addresses, one))
                    .into_iter()
                    .collect(),
                addresses,
                ..PortConfig::default()
            };
            self.further.push(FurtherWire { wire, port });
        }
        self.share_out();
        Ok(())
    }

    /// Assigns gateways and neighbours to the ports whose subnets contain them.
    fn share_out(&mut self) {
        for further in &mut self.further {
            let port = &mut further.port;
            let own = port.addresses.clone();
            let gateways = self.gateways.extract_if(.., |one| is_near(&own, *one));
            port.gateways.extend(gateways);
            let neighbours = self.neighbours.extract_if(.., |(ip, _)| is_near(&own, *ip));
            port.neighbours.extend(neighbours);
        }
    }
}

fn is_near(subnets: &[IpCidr], address: IpAddr) -> bool {
    subnets.iter().any(|subnet| subnet.contains(address))
}
