//! The committed object agrees with the loader and the C source.

use super::*;

fn map(name: &str, kind: u32, key_bytes: u32, value_bytes: u32, entries_max: u32) -> MapDef {
    MapDef {
        name: name.to_owned(),
        kind,
        key_bytes,
        value_bytes,
        entries_max,
        flags: 0,
    }
}

#[test]
fn built_in_object_has_the_maps_the_loader_fills() {
    let program = Program::built_in().unwrap();
    let queues = u32::try_from(crate::limits::XDP_QUEUES_MAX).unwrap();
    let owned = u32::try_from(crate::limits::XDP_OWNED_MAX).unwrap();
    let want = [
        map("sockets", 17, 4, 4, queues),
        map("owned_v4", 1, 4, 4, owned),
        map("owned_v6", 1, 16, 4, owned),
        map("settings", 2, 4, 4, 1),
        map("counters", 2, 4, 8, 1),
    ];
    assert_eq!(program.maps, want);
    assert!(program.license.starts_with(b"Dual MIT/GPL\0"));
}

#[test]
fn every_reference_becomes_a_descriptor() {
    let program = Program::built_in().unwrap();
    let linked = program.link(|map| 100 + i32::try_from(map).unwrap());
    assert_eq!(linked.len() % INSN_BYTES, 0);
    assert!(!program.references.is_empty());
    for &(at, map) in &program.references {
        assert_eq!(linked[at], OPCODE_LD_IMM64);
        assert_eq!(linked[at + 1] >> 4, PSEUDO_MAP_FD);
        let fd = i32::from_ne_bytes(linked[at + 4..at + 8].try_into().unwrap());
        assert_eq!(fd, 100 + i32::try_from(map).unwrap());
    }
}

#[test]
fn damaged_object_is_an_error_and_no_panic() {
    let good = &OBJECT.0;
    for len in 0..good.len() {
        let _ = Program::parse(&good[..len]);
    }
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 0xff;
        let _ = Program::parse(&bad);
    }
}
