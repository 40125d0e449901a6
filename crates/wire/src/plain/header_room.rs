//! The destination of written headers.
//!
//! Headers are a dozen small fields. A writer that assembles them in local memory and then copies
//! them reads, with wide loads, bytes that narrow stores have just written. A core cannot forward
//! such stores: it waits until they have left its store buffer, in order, behind all earlier ones.
//! If an earlier store went to a line that another core holds (payload in a frame that the peer has
//! read before), the copy waits for that core. The fields are therefore written to their
//! destination directly, and nothing is read back.

/// Room for headers, which are written field by field.
pub trait HeaderRoom {
    /// Writes the `M` bytes at `at`. A write beyond the end changes nothing; this crate passes
    /// constant offsets only, so the compiler removes the check.
    fn put<const M: usize>(&mut self, at: usize, bytes: &[u8; M]);

    /// Writes the 16-bit field at `at`, big-endian.
    #[inline(always)]
    fn put16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_be_bytes());
    }

    /// Writes the 32-bit field at `at`, big-endian.
    #[inline(always)]
    fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }
}

impl<const N: usize> HeaderRoom for [u8; N] {
    #[inline(always)]
    fn put<const M: usize>(&mut self, at: usize, bytes: &[u8; M]) {
        if let Some(field) = self.get_mut(at..at + M) {
            field.copy_from_slice(bytes);
        }
    }
}
