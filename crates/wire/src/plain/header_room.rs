//! The destination of written headers.
//!
//! Headers are a dozen small fields. A writer that makes them in its own memory and copies them
//! from there reads with wide loads what narrow stores have just written. A core cannot forward
//! such stores before they have left its store buffer, in order, behind all earlier ones. If
//! earlier stores went to lines that another core holds (the payload, in a frame that the peer has
//! read before), the copy waits for that core. The fields therefore go straight to their
//! destination, and nothing is read back.

/// Room for headers, which are written field by field.
pub trait HeaderRoom {
    /// Writes the `M` bytes at `at`; bytes beyond the end change nothing. Every `at` of this
    /// crate's is a constant, so that nothing is left of the question.
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
