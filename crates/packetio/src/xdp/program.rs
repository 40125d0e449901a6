//! The committed objects as values: instructions, maps, and which instruction refers to which
//! map.
//!
//! Owns the parsing of the ELF files that `bpf/build.sh` makes. Called by `attach.rs` when an
//! interface is opened, and, as `packetio::xdp::bpf`, by the service `mill mux`.

use object::elf;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

/// Index in map `settings` of the word of flags.
pub(super) const SETTINGS_FLAGS: u32 = 0;
/// Flag in that word: hand over every frame.
pub(super) const FLAG_TAKE_ALL: u32 = 1;
/// Flag in that word: hand over TCP for the owned addresses, and leave the rest to the kernel.
pub(super) const FLAG_TAKE_TCP: u32 = 2;
/// Index in map `counters`: frames that were ours on a queue without a socket. They went to the
/// kernel, or with [`FLAG_TAKE_TCP`] nowhere.
pub(super) const COUNTER_NO_SOCKET: u32 = 0;

/// Bytes of one BPF instruction.
pub const INSN_BYTES: usize = 8;
/// Bytes of `struct map_def` (`bpf/bpf.h`).
const MAP_DEF_BYTES: usize = 20;
/// The opcode of a two-slot load of a 64-bit constant, the only one that refers to a map.
const OPCODE_LD_IMM64: u8 = 0x18;
/// `BPF_PSEUDO_MAP_FD`, as the source register of that load.
const PSEUDO_MAP_FD: u8 = 1;

/// Aligns an object that is built in, as parsing wants it.
#[repr(C, align(8))]
pub struct Aligned<Bytes: ?Sized>(pub Bytes);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../../bpf/xdp_port.o"));

/// `struct map_def` with the name of its symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// The symbol.
    pub name: String,
    /// `enum bpf_map_type`
    pub kind: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// The most entries.
    pub entries_max: u32,
    /// `BPF_F_*`
    pub flags: u32,
}

/// The hook that a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames that a driver received: section `xdp`.
    Xdp,
    /// Packets that an interface received, before the kernel's stack: section `tc`.
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

/// A program that waits for its maps.
#[derive(Debug)]
pub struct Program {
    /// Where it belongs.
    pub kind: Kind,
    insns: Vec<u8>,
    /// (offset in `insns`, index in `maps`)
    references: Vec<(usize, usize)>,
    /// In the order of their declaration.
    pub maps: Vec<MapDef>,
    /// With its final NUL.
    pub license: Vec<u8>,
}

impl Program {
    /// The program that is built in.
    ///
    /// # Errors
    /// The fault in the object; only a wrong build causes one.
    pub(super) fn built_in() -> Result<Self, &'static str> {
        Self::parse(&OBJECT.0)
    }

    /// Reads an object that `bpf/build.sh` made; `bytes` are aligned to 8 ([`Aligned`]).
    ///
    /// # Errors
    /// The fault in the object; only a wrong build causes one.
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

    /// The instructions with each reference to a map replaced by its descriptor, `fd_of(index in
    /// maps)`.
    pub fn link(&self, fd_of: impl Fn(usize) -> i32) -> Vec<u8> {
        let mut insns = self.insns.clone();
        for &(at, map) in &self.references {
            // The low half of the register byte is the destination, the high half the source.
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

/// Every symbol of section `maps`, with its offset there.
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

/// Where the program names a map, and which.
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
