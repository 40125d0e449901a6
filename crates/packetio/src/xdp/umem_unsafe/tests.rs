//! No descriptor, however invalid, yields a frame outside its chunk.

use super::*;

const CHUNK: u32 = 2048;

fn umem() -> Umem {
    Umem::new(CHUNK, 4, 2).unwrap()
}

#[test]
fn descriptor_inside_a_receiving_chunk_is_a_frame() {
    let umem = umem();
    let frame = umem.rx_frame(u64::from(CHUNK) + 256, 60).unwrap();
    assert_eq!(frame.len(), 60);
    let mut bytes = [1u8; 64];
    assert_eq!(frame.copy_to(0, &mut bytes), 60);
    assert_eq!(bytes[..60], [0; 60]);
    assert!(umem.rx_frame(0, CHUNK).is_some());
    assert!(umem.rx_frame(4 * u64::from(CHUNK) - 1, 1).is_some());
}

#[test]
fn odd_descriptors_are_no_frames() {
    let umem = umem();
    let chunk = u64::from(CHUNK);
    for (addr, len) in [
        (0, CHUNK + 1),
        (1, CHUNK),
        (chunk - 1, 2),
        (4 * chunk, 1),
        (6 * chunk, 0),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
        (0, u32::MAX),
        (1 << 48, 60),
    ] {
        assert!(umem.rx_frame(addr, len).is_none(), "{addr:#x}+{len}");
    }
}

#[test]
fn transmit_slots_keep_headroom_and_stay_in_their_chunk() {
    let umem = umem();
    let chunk = u64::from(CHUNK);
    assert_eq!(
        umem.tx_offsets().collect::<Vec<_>>(),
        [4 * chunk, 5 * chunk]
    );
    let frame = umem.tx_frame(4 * chunk, u32::MAX).unwrap();
    assert_eq!(frame.capacity(), (CHUNK - XDP_TX_HEADROOM_BYTES) as usize);
    assert_eq!(frame.write(0, &[7; 4096]), frame.capacity());
    assert!(umem.tx_frame(3 * chunk, 60).is_none());
    assert!(umem.tx_frame(6 * chunk, 60).is_none());
    assert!(umem.tx_frame(u64::MAX, 60).is_none());
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    assert!(Umem::new(2000, 4, 2).is_err());
    assert!(Umem::new(2048, 0, 0).is_err());
    assert!(Umem::new(64, 4, 2).is_err());
}
