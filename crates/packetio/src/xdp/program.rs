//! The committed BPF objects as values: instructions, maps, and which instructions refer to which
//! map.
//!
//! The module parses the ELF files that `bpf/build.sh` makes. `attach.rs` calls it when an
//! interface is opened; so does the service `mill mux`, as `packetio::xdp::bpf`.

use object::elf;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

/// Index of the word of flags in the map `settings`.
pub(super) const SETTINGS_FLAGS: u32 = 0;
/// Flag in that word: take every frame.
pub(super) const FLAG_TAKE_ALL: u32 = 1;
/// Flag in that word: take TCP for the owned addresses, and leave the rest to the kernel.
pub(super) const FLAG_TAKE_TCP: u32 = 2;
/// Index in the map `counters`: frames for us on a queue without a socket. They go to the kernel,
/// or are dropped with [`FLAG_TAKE_TCP`].
pub(super) const COUNTER_NO_SOCKET: u32 = 0;

/// Bytes of one BPF instruction.
pub const INSN_BYTES: usize = 8;
/// Bytes of `struct map_def` (`bpf/bpf.h`).
const MAP_DEF_BYTES: usize = 20;
/// Opcode of the two-slot load of a 64-bit constant, the only instruction that refers to a map.
const OPCODE_LD_IMM64: u8 = 0x18;
/// Value `BPF_PSEUDO_MAP_FD` in the source register of that load.
const PSEUDO_MAP_FD: u8 = 1;

/// Wrapper that aligns a built-in object as parsing requires.
#[repr(C, align(8))]
pub struct Aligned<Bytes: ?Sized>(pub Bytes);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/xdp_port.o"));

/// A map definition (`struct map_def`) with the name of its symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Name of the map's symbol.
    pub name: String,
    /// Type of the map (`enum bpf_map_type`).
    pub kind: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Most entries of the map.
    pub entries_max: u32,
    /// Flags of the map (`BPF_F_*`).
    pub flags: u32,
}

/// The hook for which a program is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames received by a driver; section `xdp`.
    Xdp,
    /// Packets received by an interface, before the kernel's stack; section `tc`.
    Tc,
}

impl Kind {
    fn section(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

/// A program whose map references are not resolved yet.
#[derive(Debug)]
pub struct Program {
    /// The hook for which the program is made.
    pub kind: Kind,
    insns: Vec<u8>,
    /// References to maps: offset in `insns`, index in `maps`.
    references: Vec<(usize, usize)>,
    /// The maps in order of declaration.
    pub maps: Vec<MapDef>,
    /// The license, with its terminating zero.
    pub license: Vec<u8>,
}

impl Program {
    /// The built-in program.
    ///
    /// # Errors
    /// The fault in the object, which only a wrong build causes.
    pub(super) fn built_in() -> Result<Self, &'static str> {
        Self::parse(&OBJECT.0)
    }

    /// Parses an object made by `bpf/build.sh`. `bytes` must be aligned to 8 ([`Aligned`]).
    ///
    /// # Errors
    /// The fault in the object, which only a wrong build causes.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|_| "not an ELF file")?;
        if file.elf_header().e_machine.get(file.endian()) != elf::EM_BPF {
            return Err("not a BPF object");
        }
        if file.is_little_endian() != cfg!(target_endian = "little") {
            return Err("made for the other byte order");
        }
        let maps = maps(&file)?;
        let kinds = [Kind::Xdp, Kind::Tc];
        let has = |kind: &Kind| file.section_by_name(kind.section()).is_some();
        let kind = kinds.into_iter().find(has);
        let kind = kind.ok_or("neither section xdp nor section tc")?;
        let insns = section(&file, kind.section())?.to_vec();
        if insns.is_empty() || insns.len() % INSN_BYTES != 0 {
            return Err("the program is no sequence of instructions");
        }
        let references = references(&file, kind, &maps, &insns)?;
        let license = section(&file, "license")?.to_vec();
        if license.last() != Some(&0) {
            return Err("the license does not end");
        }
        Ok(Self {
            kind,
            insns,
            references,
            maps: maps.into_iter().map(|(_, map)| map).collect(),
            license,
        })
    }

    /// The instructions with each map reference replaced by the map's descriptor, `fd_of(index in
    /// maps)`.
    pub fn link(&self, fd_of: impl Fn(usize) -> i32) -> Vec<u8> {
        let mut insns = self.insns.clone();
        for &(at, map) in &self.references {
            // The low half of the register byte is the destination register, the high half the
            // source.
            insns[at + 1] = (insns[at + 1] & 0x0f) | (PSEUDO_MAP_FD << 4);
            insns[at + 4..at + 8].copy_from_slice(&fd_of(map).to_ne_bytes());
        }
        insns
    }
}

fn section<'a>(file: &ElfFile64<'a>, name: &str) -> Result<&'a [u8], &'static str> {
    file.section_by_name(name)
        .and_then(|section| section.data().ok())
        .ok_or("a section is missing")
}

/// Every symbol of the section `maps`, with its offset there.
fn maps(file: &ElfFile64<'_>) -> Result<Vec<(u64, MapDef)>, &'static str> {
    let index = file
        .section_by_name("maps")
        .ok_or("section maps is missing")?
        .index();
    let bytes = section(file, "maps")?;
    let mut maps = Vec::new();
    for symbol in file.symbols() {
        let name = symbol.name().unwrap_or_default();
        if symbol.section_index() != Some(index) || name.is_empty() {
            continue;
        }
        let at = usize::try_from(symbol.address()).map_err(|_| "a map lies outside its section")?;
        let def = bytes
            .get(at..)
            .and_then(|bytes| bytes.get(..MAP_DEF_BYTES))
            .ok_or("a map lies outside its section")?;
        let word = |i: usize| {
            u32::from_ne_bytes([def[4 * i], def[4 * i + 1], def[4 * i + 2], def[4 * i + 3]])
        };
        let map = MapDef {
            name: name.to_owned(),
            kind: word(0),
            key_bytes: word(1),
            value_bytes: word(2),
            entries_max: word(3),
            flags: word(4),
        };
        maps.push((symbol.address(), map));
    }
    maps.sort_by_key(|(at, _)| *at);
    Ok(maps)
}

/// The references to maps: offset of the instruction, index of the map.
fn references(
    file: &ElfFile64<'_>,
    kind: Kind,
    maps: &[(u64, MapDef)],
    insns: &[u8],
) -> Result<Vec<(usize, usize)>, &'static str> {
    let program = file
        .section_by_name(kind.section())
        .ok_or("a section is missing")?;
    let mut references = Vec::new();
    for (at, relocation) in program.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err("a relocation without a symbol");
        };
        let symbol = file
            .symbol_by_index(symbol)
            .map_err(|_| "a relocation to no symbol")?;
        let name = symbol.name().unwrap_or_default();
        let map = maps
            .iter()
            .position(|(_, map)| map.name == name)
            .ok_or("a relocation to something that is no map")?;
        let at = usize::try_from(at).map_err(|_| "a relocation outside the program")?;
        let fits = at % INSN_BYTES == 0 && at + 2 * INSN_BYTES <= insns.len();
        if !fits || insns[at] != OPCODE_LD_IMM64 {
            return Err("a relocation that loads no map");
        }
        references.push((at, map));
    }
    Ok(references)
}

#[cfg(test)]
mod tests;
