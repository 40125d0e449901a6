//! The sizes of an AF_XDP port's rings and memory.
//!
//! The module derives sizes from the number of sockets, when a port is opened.
//!
//! The kernel pins a whole UMEM when it is registered. Each receiving chunk thus costs 2 KiB (4 KiB
//! with an MTU above 1774) from then on, even if it is never used. The rings hold frames that
//! arrive while the stack's thread does not run. Frames that arrive while it is busy move to the
//! frame store, whose memory is touched only by frames.

use crate::limits::{
    XDP_RX_CHUNKS_MAX, XDP_RX_CHUNKS_MIN, XDP_SOCKETS_DEFAULT, XDP_STORE_BYTES_MAX,
    XDP_STORE_BYTES_MIN, XDP_STORE_BYTES_PER_SOCKET,
};

/// The sizes of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Slots of the RX ring and of the fill ring: a power of two, at least `rx_chunks`.
    pub rx_slots: u32,
    /// Number of receiving chunks.
    pub rx_chunks: u32,
    /// Size of the frame store, bytes.
    pub store_bytes: usize,
}

impl Sizes {
    /// The sizes for a queue that serves `sockets` sockets. `ring_slots`: the user's choice.
    pub(super) fn of(sockets: Option<usize>, ring_slots: Option<u32>) -> Self {
        let sockets = sockets.unwrap_or(XDP_SOCKETS_DEFAULT);
        // Three chunks per 32 sockets: 3,072 chunks (6 MiB) for the default limits.
        let wanted = u32::try_from(sockets / 32 * 3).unwrap_or(u32::MAX);
        let rx_chunks =
            ring_slots.unwrap_or_else(|| wanted.clamp(XDP_RX_CHUNKS_MIN, XDP_RX_CHUNKS_MAX));
        let store_bytes = sockets
            .saturating_mul(XDP_STORE_BYTES_PER_SOCKET)
            .clamp(XDP_STORE_BYTES_MIN, XDP_STORE_BYTES_MAX);
        Self {
            rx_slots: rx_chunks.next_power_of_two(),
            rx_chunks,
            store_bytes: store_bytes.next_multiple_of(4096),
        }
    }

    /// Number of frames in the RX ring from which on they move to the store: a quarter of the ring.
    pub(super) fn drain_at(self) -> u32 {
        (self.rx_chunks / 4).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_ask_for_no_more_pinned_memory_than_4096_chunks_with_those_that_send() {
        let sizes = Sizes::of(None, None);
        assert_eq!((sizes.rx_slots, sizes.rx_chunks), (4096, 3072));
        assert_eq!(sizes.store_bytes, 16 << 20);
        assert_eq!(sizes, Sizes::of(Some(32_768), None));
    }

    #[test]
    fn sizes_follow_the_sockets_between_their_bounds() {
        let chunks = |sockets| Sizes::of(Some(sockets), None).rx_chunks;
        assert_eq!(chunks(0), XDP_RX_CHUNKS_MIN);
        assert_eq!(chunks(21_000), XDP_RX_CHUNKS_MIN);
        assert_eq!(chunks(65_536), 6144);
        assert_eq!(chunks(1 << 20), XDP_RX_CHUNKS_MAX);
        assert_eq!(chunks(usize::MAX), XDP_RX_CHUNKS_MAX);
        assert_eq!(
            Sizes::of(Some(usize::MAX), None).store_bytes,
            XDP_STORE_BYTES_MAX
        );
        assert_eq!(Sizes::of(Some(0), None).store_bytes, XDP_STORE_BYTES_MIN);
    }

    #[test]
    fn rings_hold_all_chunks_and_are_a_power_of_two() {
        for sockets in [0, 21_846, 30_000, 65_536, 100_000, 1 << 20] {
            let sizes = Sizes::of(Some(sockets), None);
            assert!(sizes.rx_slots.is_power_of_two() && sizes.rx_slots >= sizes.rx_chunks);
            assert!(sizes.drain_at() < sizes.rx_chunks);
        }
    }

    #[test]
    fn ring_that_the_user_asks_for_is_the_ring_there_is() {
        for slots in [64, 2048, 65_536] {
            let sizes = Sizes::of(Some(32_768), Some(slots));
            assert_eq!((sizes.rx_slots, sizes.rx_chunks), (slots, slots));
        }
    }
}
