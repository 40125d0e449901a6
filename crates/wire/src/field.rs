//! Big-endian fields at constant offsets of a header whose size is a type parameter, so that the
//! compiler removes the bounds checks.

/// The 16-bit field at `at`.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// The 32-bit field at `at`.
#[inline(always)]
pub(crate) const fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The 32-bit field at `at` in the machine's own order.
#[inline(always)]
pub(crate) const fn ne32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The `M` bytes at `at`.
#[inline(always)]
pub(crate) fn bytes<const M: usize, const N: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    let mut found = [0; M];
    found.copy_from_slice(&header[at..at + M]);
    found
}

/// Writes the 16-bit field at `at`.
#[inline(always)]
pub(crate) const fn put16<const N: usize>(header: &mut [u8; N], at: usize, value: u16) {
    let [a, b] = value.to_be_bytes();
    header[at] = a;
    header[at + 1] = b;
}

/// Writes the 32-bit field at `at`.
#[inline(always)]
pub(crate) const fn put32<const N: usize>(header: &mut [u8; N], at: usize, value: u32) {
    let [a, b, c, d] = value.to_be_bytes();
    header[at] = a;
    header[at + 1] = b;
    header[at + 2] = c;
    header[at + 3] = d;
}

/// Writes `M` bytes at `at`.
#[inline(always)]
pub(crate) fn put<const M: usize, const N: usize>(
    header: &mut [u8; N],
    at: usize,
    value: &[u8; M],
) {
    header[at..at + M].copy_from_slice(value);
}
