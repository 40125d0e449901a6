//! Short texts in messages of a fixed layout.
//!
//! The messages of `memif` and `mux` use it.

/// Zero-padded text of at most `N` bytes. It comes from a peer and may not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// As much of `text` as fits before a terminating zero.
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

    /// The text for people: printable ASCII, with `?` for everything else.
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
