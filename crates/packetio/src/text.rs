//! Short text in messages of a fixed layout.
//!
//! Owns nothing. Called by the messages of `memif` and `mux`.

/// Zero-padded text of at most `N` bytes; not necessarily UTF-8, for the peer wrote it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// As much of `text` as fits with a terminating zero.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let n = text.len().min(N - 1);
        bytes[..n].copy_from_slice(&text.as_bytes()[..n]);
        Self(bytes)
    }

    /// The bytes before the first zero.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(N);
        &self.0[..end]
    }

    /// For messages to people: printable ASCII, all else as `?`.
    pub fn printable(&self) -> String {
        self.bytes()
            .iter()
            .map(|&b| {
                if (0x20..0x7f).contains(&b) {
                    b as char
                } else {
                    '?'
                }
            })
            .collect()
    }
}

impl<const N: usize> std::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.printable())
    }
}
