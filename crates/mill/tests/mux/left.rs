//! All that a service holds for its applications: nothing of it is left when they are dead.

use std::path::PathBuf;

use packetio::xdp::bpf::{Map, MapDef};

use crate::{Service, run_directory};

/// `BPF_MAP_TYPE_HASH`, `BPF_MAP_TYPE_ARRAY` and `BPF_MAP_TYPE_DEVMAP`.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const DEVMAP: u32 = 14;

/// Numbers of what a service holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// Files that the service has open: sockets of reservations among them.
    descriptors: usize,
    /// Interfaces in its namespace: ends of virtual ports and bulk lanes.
    interfaces: usize,
    /// Links and ledgers that are pinned.
    pub pins: usize,
    claims: usize,
    pub slots: usize,
    devices: usize,
    /// Ports that are claimed or leased.
    ports: usize,
}

impl Left {
    pub fn of(service: &Service) -> Self {
        let process = format!("/proc/{}", service.pid());
        let count = |path: PathBuf| std::fs::read_dir(path).unwrap().count();
        let netns = format!("--net={}", run_directory().join("netns").display());
        let words = [&netns, "ip", "-o", "link"];
        let links = std::process::Command::new("nsenter").args(words).output();
        let links = String::from_utf8_lossy(&links.unwrap().stdout).into_owned();
        // The pair of all bulk lanes stays for the next one.
        let is_of_one = |line: &&str| {
            let kinds = [" near", " far", " bulk"];
            kinds.iter().any(|kind| line.contains(kind))
        };
        let pins = std::fs::read_dir(run_directory().join("bpf")).unwrap();
        let pins = pins.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_pin_of_one = |pin: &String| {
            let kinds = [
                "link_near",
                "link_far",
                "link_bulk",
                "ledger",
                "kept_ledger",
            ];
            pin != "link_bulk_out" && kinds.iter().any(|kind| pin.starts_with(kind))
        };
        Self {
            descriptors: count(PathBuf::from(process).join("fd")),
            interfaces: links.lines().filter(is_of_one).count(),
            pins: pins.filter(is_pin_of_one).count(),
            claims: entries("claims", (HASH, 20, 40)),
            slots: entries("slots", (ARRAY, 4, 48)),
            devices: entries("devices", (DEVMAP, 4, 4)),
            ports: entries("port_uses", (ARRAY, 4, 4)),
        }
    }
}

/// Entries of a pinned map that say something. A slot says so by its owner, its first word.
fn entries(name: &str, (kind, key_bytes, value_bytes): (u32, u32, u32)) -> usize {
    let def = MapDef {
        name: name.to_owned(),
        kind,
        key_bytes,
        value_bytes,
        entries_max: 0,
        flags: 0,
    };
    let (map, _) = Map::open_sized(&run_directory().join("bpf").join(name), &def).unwrap();
    let keys = map.keys().unwrap();
    let says = |key: &Vec<u8>| {
        let mut value = vec![0; value_bytes as usize];
        map.lookup(key, &mut value).is_ok() && value[..4] != [0; 4]
    };
    keys.iter().filter(|key| says(key)).count()
}
