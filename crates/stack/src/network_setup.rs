//! Set-up of a new stack's network from its configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::Port;
use wire::MacAddr;

use crate::config::{ConfigError, PortConfig, StackConfig};
use crate::network::addresses::IpCidr;
use crate::network::layer::Network;
use crate::secrets::Secrets;

/// Makes the network of a stack on `ports`, and announces its addresses.
pub(crate) fn network(
    config: &StackConfig,
    ports: &[Box<dyn Port + Send>],
    has_host: bool,
    secrets: &Secrets,
) -> Result<Network, ConfigError> {
    let keys = [secrets.key(6), secrets.key(7), secrets.key(8)];
    let capabilities = ports.iter().map(|port| port.capabilities());
    let mut network = Network::new(capabilities, config.echo, has_host, keys);
    let first = config.first_port();
    for (index, port) in std::iter::once(&first)
        .chain(&config.further_ports)
        .enumerate()
    {
        add_port(&mut network, port, index as u8)?;
    }
    if config.loopback {
        network.add_loopback();
    }
    network.announce();
    Ok(network)
}

/// Adds a port's addresses and routes.
fn add_port(network: &mut Network, config: &PortConfig, port: u8) -> Result<(), ConfigError> {
    for &cidr in &config.addresses {
        network
            .add_first_address(cidr, port)
            .map_err(|_| ConfigError::BadAddress(cidr))?;
    }
    for &subnet in &config.on_link {
        network.add_on_link(subnet, port);
    }
    let everywhere = config.gateways.iter().map(|&gateway| {
        let any = match gateway {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let prefix = IpCidr::new(any, 0).map_err(|_| ConfigError::UnreachableGateway(gateway))?;
        Ok::<_, ConfigError>((prefix, gateway))
    });
    for route in everywhere.chain(config.routes.iter().copied().map(Ok)) {
        let (prefix, gateway) = route?;
        network
            .add_route(prefix, gateway, port)
            .map_err(|source| ConfigError::Route {
                prefix: prefix.network(),
                source,
            })?;
    }
    for &(address, mac) in &config.neighbours {
        network.add_neighbour(address, MacAddr(mac), port);
    }
    Ok(())
}
