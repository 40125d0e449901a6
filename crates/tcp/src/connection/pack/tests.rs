//! Packing: its size, and that unpacking restores every value.

use super::{Packer, Packing, Unpacker};
use crate::Connection;
use crate::buffers::Buffers;
use crate::ecn::EcnGrant;
use crate::handshake::{Handshake, WindowScales};
use crate::test_stack::{IRS, ISS, TS_OFFSET, World};

/// A connection after the three-way handshake with a Linux peer over a short path.
fn accepted(world: &mut World) -> Connection {
    let handshake = Handshake {
        iss: ISS,
        irs: IRS,
        una: ISS + 1,
        mss: 1460,
        peer_mss: 1460,
        snd_wnd: 502 << 7,
        ts_offset: TS_OFFSET,
        ts_recent: 77_000_000,
        timestamps: true,
        sack: true,
        window_scales: Some(WindowScales { ours: 7, peers: 7 }),
        rtt_ns: Some(30_000),
        syn_ack_lost: false,
        repetitions: crate::SynAckRepetitions::default(),
        ecn: EcnGrant::default(),
    };
    let buffers = Buffers::of(&world.config);
    Connection::accept(&mut world.cx(), &handshake, &buffers)
}

#[test]
fn numbers_of_every_size_come_out_as_they_went_in() {
    let mut bytes = [0; 256];
    let mut wanted: [u64; 16] = core::array::from_fn(|at| u64::MAX >> (4 * at));
    let mut packer = Packer::new(&mut bytes);
    for (at, field) in wanted.iter_mut().enumerate() {
        packer.u64(field, at as u64 * 7);
    }
    let len = packer.finish().expect("there is room");
    let mut unpacker = Unpacker::new(&bytes[..len]);
    for (at, wanted) in wanted.into_iter().enumerate() {
        let mut found = 99;
        unpacker.u64(&mut found, at as u64 * 7);
        assert_eq!(found, wanted);
    }
}

#[test]
fn too_few_bytes_and_refusals_are_told() {
    let mut bytes = [0; 2];
    let mut packer = Packer::new(&mut bytes);
    packer.u32(&mut (1 << 20), 0);
    assert_eq!(packer.finish(), None);
    let mut packer = Packer::new(&mut bytes);
    packer.refuse();
    assert_eq!(packer.finish(), None);
}

#[test]
fn established_packs_into_a_tenth_of_its_size() {
    let mut world = World::new();
    let conn = accepted(&mut world);
    let len = conn.check_packing().expect("it is quiet");
    std::eprintln!("{len} bytes of {}", size_of::<Connection>());
    assert!(len <= 100, "{len}");
}

/// A reader may begin with any connection, not only with the packed one.
#[test]
fn established_is_read_into_another_connection() {
    let mut world = World::new();
    let mut conn = accepted(&mut world);
    conn.set_recv_buffer(&mut world.cx(), 9000);
    let mut bytes = [0; 1024];
    let mut packer = Packer::new(&mut bytes);
    conn.pack(&mut packer);
    let len = packer.finish().expect("there is room");
    let mut found = accepted(&mut world);
    found.pack(&mut Unpacker::new(&bytes[..len]));
    assert_eq!(std::format!("{found:?}"), std::format!("{conn:?}"));
}
