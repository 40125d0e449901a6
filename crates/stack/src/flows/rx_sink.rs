//! The receive side of a socket while one segment is processed: the receive ring, and the payload
//! in its frame.

use ring::byte_ring::RxWriter;
use ring::chunk::ChunkPool;
use ring::prefetch::Ahead;
use ring::raw::RawSlice;
use ring::socket_block::SocketBlock;
use tcp::RecvBuffer;
use wire::checksum::Sum;

pub(crate) struct RxSink<'a> {
    rx: &'a mut RxWriter,
    pool: &'a mut ChunkPool,
    block: &'a SocketBlock,
    payload: RawSlice<'a>,
    /// Payload bytes that were copied to the ring's tail and are not published.
    copied: u32,
    /// True if unpublished bytes at the tail must be published or discarded.
    stranded: bool,
    /// True if bytes were refused for want of a chunk.
    pub starved: bool,
}

impl<'a> RxSink<'a> {
    pub fn new(
        rx: &'a mut RxWriter,
        pool: &'a mut ChunkPool,
        block: &'a SocketBlock,
        payload: RawSlice<'a>,
    ) -> Self {
        Self {
            rx,
            pool,
            block,
            payload,
            copied: 0,
            stranded: false,
            starved: false,
        }
    }

    /// Copies the whole payload to the unpublished tail and sums it in the same pass. Memory
    /// `ahead` is prefetched meanwhile.
    #[inline]
    pub fn copy_in_order(&mut self, ahead: Ahead) -> Sum {
        let (stored, sum) = self
            .rx
            .write_at_sum(self.pool, self.block, 0, self.payload, ahead);
        self.stranded = stored > 0;
        if stored as usize == self.payload.len() {
            self.copied = stored;
            return Sum::from_folded(sum as u16);
        }
        // No chunk has room for all of the payload. It is verified in place first, then stored as
        // far as it fits.
        self.rx.discard_unpublished();
        Sum::from_folded(ring::checksum::sum_raw(self.payload) as u16)
    }

    /// Discards the unpublished bytes of a damaged or refused segment, and their chunk if it is
    /// otherwise empty.
    #[inline]
    pub fn clear_tail(&mut self) {
        if self.stranded {
            self.rx.discard_unpublished();
            self.rx.reclaim(self.pool, self.block);
        }
    }
}

impl RxSink<'_> {
    /// Stores bytes that were not copied to the tail before.
    #[inline(never)]
    fn store_at(&mut self, offset: u32, skip: u32, len: u32) -> u32 {
        let Some(bytes) = self.payload.sub(skip as usize, len as usize) else {
            return 0;
        };
        let stored = self.rx.write_at(self.pool, self.block, offset, bytes);
        self.starved |= stored < len;
        stored
    }
}

impl RecvBuffer for RxSink<'_> {
    #[inline(always)]
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32 {
        if self.copied > 0 {
            // The whole payload lies at the tail, and the engine wants it from its beginning.
            debug_assert_eq!((offset, skip), (0, 0));
            return self.copied.min(len);
        }
        self.store_at(offset, skip, len)
    }

    fn forget(&mut self, offset: u32) {
        self.rx.truncate(self.pool, offset);
    }

    #[inline]
    fn publish(&mut self, n: u32) {
        self.stranded = false;
        self.rx.publish(self.block, n);
    }
}
