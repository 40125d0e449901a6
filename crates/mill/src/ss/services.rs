//! Names of TCP services, from `/etc/services`, which is read once.

use std::collections::HashMap;
use std::sync::OnceLock;

#[derive(Default)]
struct Services {
    names: HashMap<u16, String>,
    ports: HashMap<String, u16>,
}

fn services() -> &'static Services {
    static SERVICES: OnceLock<Services> = OnceLock::new();
    SERVICES.get_or_init(|| read(&std::fs::read_to_string("/etc/services").unwrap_or_default()))
}

fn read(text: &str) -> Services {
    let mut services = Services::default();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let (Some(name), Some(place)) = (words.next(), words.next()) else {
            continue;
        };
        let Some(port) = place
            .strip_suffix("/tcp")
            .and_then(|port| port.parse().ok())
        else {
            continue;
        };
        for name in words.chain([name]) {
            services.ports.entry(name.to_owned()).or_insert(port);
        }
        services
            .names
            .entry(port)
            .or_insert_with(|| name.to_owned());
    }
    services
}

/// The name of a port.
pub fn name_of(port: u16) -> Option<&'static str> {
    services().names.get(&port).map(String::as_str)
}

/// The port of a name.
pub fn port_of(name: &str) -> Option<u16> {
    services().ports.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_those_of_tcp_with_their_other_names() {
        let text = "# names\nhttp 80/tcp www # web\ndomain 53/udp\nssh\t22/tcp\n\nbad\n";
        let services = read(text);
        assert_eq!(services.ports.get("www"), Some(&80));
        assert_eq!(services.names.get(&80).map(String::as_str), Some("http"));
        assert_eq!(services.ports.get("domain"), None);
        assert_eq!(services.names.len(), 2);
    }
}
