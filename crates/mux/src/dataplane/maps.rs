//! The programs and their maps, loaded once for each NIC and pinned.
//!
//! Owns the objects that `bpf/build.sh` makes. Maps of the same name in several programs are one
//! map. A service takes over pinned maps, so that running programs keep their state. Called by
//! `mod`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use packetio::xdp::bpf::{self, Aligned, Map, MapDef, Program};
use rustix::io::Errno;

use super::DataplaneError;

static INGRESS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_ingress.o"));
static SWITCH: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_switch.o"));
static EGRESS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_egress.o"));
static BULK: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_bulk.o"));
static BULK_OUT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_bulk_out.o"));
static FAR: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_far.o"));
static PAIR: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_pair.o"));
static PAIR_SWITCH: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_pair_switch.o"));
static PAIR_BACK: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_pair_back.o"));
static LO: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/mux_lo.o"));

/// Programs and maps of one NIC.
#[derive(Debug)]
pub(super) struct Maps {
    /// The NIC's program if virtual ports are veth pairs.
    pub ingress: OwnedFd,
    /// The NIC's program with `path=memif`.
    pub switch: OwnedFd,
    pub egress: OwnedFd,
    pub far: OwnedFd,
    /// The egress check of bulk lanes, or one line with the reason why the kernel does not load it.
    pub bulk: Result<OwnedFd, DataplaneError>,
    /// The program that sends the packets which `bulk` has checked.
    pub bulk_out: Result<OwnedFd, DataplaneError>,
    /// The programs for clients of the same host, if wanted.
    pub local: Option<LocalPrograms>,
    maps: BTreeMap<String, Map>,
    /// The previous service pinned the maps.
    pub are_recovered: bool,
}

/// The programs for clients of the same host.
#[derive(Debug)]
pub(super) struct LocalPrograms {
    /// The program of both ends if virtual ports are veth pairs.
    pub pair: OwnedFd,
    /// The far end's program with `path=memif`.
    pub pair_switch: OwnedFd,
    /// The near end's program with `path=memif`.
    pub pair_back: OwnedFd,
    pub lo: OwnedFd,
}

impl Maps {
    /// Loads the programs, including those for clients of the same host if `local`. Uses the maps
    /// that are pinned in `pins`; makes and pins missing ones.
    pub fn load(pins: &Path, local: bool) -> Result<Self, DataplaneError> {
        let mut maps = BTreeMap::new();
        let mut are_recovered = false;
        let mut load = |bytes: &[u8], title: &'static str| {
            let program = Program::parse(bytes)
                .map_err(|why| DataplaneError::refused(title, why.to_owned()))?;
            for def in &program.maps {
                if !maps.contains_key(&def.name) {
                    let (map, was_pinned) = open_or_create(def, &pins.join(&def.name))?;
                    are_recovered |= was_pinned;
                    maps.insert(def.name.clone(), map);
                }
            }
            let fd_of = |index: usize| {
                let def: Option<&MapDef> = program.maps.get(index);
                def.and_then(|def| maps.get(&def.name))
                    .map_or(-1, Map::raw_fd)
            };
            bpf::load_kind(program.kind, &program.link(fd_of), &program.license, title).map_err(
                |refused| match refused.verifier.as_str() {
                    "" => DataplaneError::io(format!("BPF_PROG_LOAD of {title}"), refused.errno),
                    words => DataplaneError::refused(title, words.to_owned()),
                },
            )
        };
        Ok(Self {
            ingress: load(&INGRESS.0, "mux_ingress")?,
            switch: load(&SWITCH.0, "mux_switch")?,
            egress: load(&EGRESS.0, "mux_egress")?,
            far: load(&FAR.0, "mux_far")?,
            bulk: load(&BULK.0, "mux_bulk"),
            bulk_out: load(&BULK_OUT.0, "mux_bulk_out"),
            local: match local {
                true => Some(LocalPrograms {
                    pair: load(&PAIR.0, "mux_pair")?,
                    pair_switch: load(&PAIR_SWITCH.0, "mux_pair_switch")?,
                    pair_back: load(&PAIR_BACK.0, "mux_pair_back")?,
                    lo: load(&LO.0, "mux_lo")?,
                }),
                false => None,
            },
            maps,
            are_recovered,
        })
    }

    /// The map of this name, which must be one in `bpf/mux_*.c`.
    pub fn map(&self, name: &'static str) -> Result<&Map, DataplaneError> {
        self.maps
            .get(name)
            .ok_or_else(|| DataplaneError::io(format!("map {name}"), Errno::NOENT))
    }

    /// Sets an entry.
    pub fn set(&self, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), DataplaneError> {
        self.map(name)?
            .update(key, value)
            .map_err(|errno| DataplaneError::io(format!("update of map {name}"), errno))
    }

    /// Removes an entry, if there is one.
    pub fn remove(&self, name: &'static str, key: &[u8]) -> Result<(), DataplaneError> {
        match self.map(name)?.delete(key) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(DataplaneError::io(format!("delete in map {name}"), errno)),
        }
    }

    /// A 64-bit counter; 0 if it does not exist.
    pub fn counter(&self, name: &'static str, index: u32) -> u64 {
        let mut value = [0; 8];
        let found = self
            .map(name)
            .map(|map| map.lookup(&index.to_ne_bytes(), &mut value));
        match found {
            Ok(Ok(())) => u64::from_ne_bytes(value),
            _ => 0,
        }
    }
}

fn open_or_create(def: &MapDef, pin: &Path) -> Result<(Map, bool), DataplaneError> {
    let failed = |step: &str, errno| DataplaneError::io(format!("{step} {}", def.name), errno);
    match Map::open(pin, def) {
        Ok(map) => return Ok((map, true)),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("pinned map", errno)),
    }
    let map = Map::create(def).map_err(|errno| failed("BPF_MAP_CREATE", errno))?;
    bpf::pin(&map, pin).map_err(|errno| failed("BPF_OBJ_PIN", errno))?;
    Ok((map, false))
}
