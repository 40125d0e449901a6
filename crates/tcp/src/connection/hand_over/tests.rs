//! A connection is made again from the result of `untouched`, and takes the next segment as the
//! original would.

use super::*;
use crate::buffers::Buffers;
use crate::recv_buffer::RecvBuffer;
use crate::test_stack::{IRS, ISS, TS_OFFSET, World, seg, with_ts};

#[derive(Default)]
struct Counted(u32);

impl RecvBuffer for Counted {
    fn write_at(&mut self, _offset: u32, _skip: u32, len: u32) -> u32 {
        len
    }

    fn publish(&mut self, n: u32) {
        self.0 += n;
    }

    fn forget(&mut self, _offset: u32) {}
}

const PEER_TS: u32 = 77_000_000;

fn handshake() -> Handshake {
    Handshake {
        iss: ISS,
        irs: IRS,
        una: ISS + 1,
        mss: 1460,
        peer_mss: 1400,
        snd_wnd: 1000 << 7,
        ts_offset: TS_OFFSET,
        ts_recent: PEER_TS,
        timestamps: true,
        sack: true,
        window_scales: Some(WindowScales { ours: 7, peers: 7 }),
        rtt_ns: Some(8_000_000),
        syn_ack_lost: false,
        repetitions: SynAckRepetitions::default(),
        ecn: EcnGrant::Classic,
    }
}

fn accepted(world: &mut World, handshake: &Handshake) -> Connection {
    let buffers = Buffers::of(&world.config);
    Connection::accept(&mut world.cx(), handshake, &buffers)
}

#[test]
fn accepted_connection_is_its_handshake() {
    let mut world = World::new();
    let connection = accepted(&mut world, &handshake());
    let untouched = connection.untouched(0).expect("nothing was sent");
    assert_eq!(untouched.handshake, handshake());
    assert!(!untouched.has_fin);
}

#[test]
fn connection_with_bytes_and_a_fin_is_made_anew_before_them() {
    let mut world = World::new();
    let mut connection = accepted(&mut world, &handshake());
    let mut sink = Counted::default();
    for (flags, seq, len) in [("PA", 1, 100), ("FPA", 101, 20)] {
        let data = with_ts(seg(flags, seq, 1, len), PEER_TS + seq, world.ts());
        let _ = connection.on_segment(&mut world.cx(), &data, &mut sink);
    }
    let untouched = connection.untouched(sink.0).expect("nothing was sent");
    assert_eq!(sink.0, 120);
    assert_eq!(untouched.handshake.irs, IRS);
    assert_eq!(
        untouched.handshake.ts_recent,
        PEER_TS + 1,
        "no ACK left in between"
    );
    assert!(untouched.has_fin);
    let mut other = accepted(&mut world, &untouched.handshake);
    let again = with_ts(seg("FPA", 1, 1, 120), PEER_TS + 1, world.ts());
    let mut second = Counted::default();
    let _ = other.on_segment(&mut world.cx(), &again, &mut second);
    assert_eq!(second.0, 120);
    assert_eq!(other.untouched(120), connection.untouched(120));
}

#[test]
fn connection_that_has_sent_is_not_handed_over() {
    let mut world = World::new();
    let mut connection = accepted(&mut world, &handshake());
    let _ = connection.on_write(&mut world.cx(), 10);
    assert_eq!(connection.untouched(0), None);
}
