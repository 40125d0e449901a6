//! The secrets of a stack, and the keys derived from them, one per purpose.

use crate::config::ConfigError;

/// A random secret from the kernel for [`StackConfig::seed`](crate::StackConfig::seed), to be
/// shared by several stacks.
///
/// # Errors
/// The kernel's error.
///
/// ```
/// assert_ne!(stack::new_seed()?, stack::new_seed()?);
/// # Ok::<(), stack::ConfigError>(())
/// ```
pub fn new_seed() -> Result<[u64; 4], ConfigError> {
    Secrets::new(None).map(|secrets| secrets.words)
}

/// The secrets of a stack, from its seed or the kernel.
pub(crate) struct Secrets {
    words: [u64; 4],
}

impl Secrets {
    /// Takes the secrets from `seed`, or from the kernel without one.
    pub fn new(seed: Option<[u64; 4]>) -> Result<Self, ConfigError> {
        if let Some(words) = seed {
            return Ok(Self { words });
        }
        let mut bytes = [0; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(
            |errno| ConfigError::System {
                what: "getrandom",
                errno,
            },
        )?;
        let mut words = [0; 4];
        for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = piece
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Ok(Self { words })
    }

    /// A key for one purpose. Keys of different purposes are unrelated.
    pub fn key(&self, purpose: u64) -> [u64; 2] {
        let [a, b, c, d] = self.words;
        let half = |n: u64| wire::siphash::siphash24_words([a, b], &[c, d, purpose, n]);
        [half(0), half(1)]
    }
}
