//! The secrets of a stack, and the keys that are derived from them: one for each use.

use crate::config::ConfigError;

/// A secret for [`StackConfig::seed`](crate::StackConfig::seed) that several stacks are to have in
/// common, from the kernel's random source.
///
/// # Errors
/// The kernel's refusal.
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
    /// Takes the secrets from a seed, or from the kernel if there is none.
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

    /// A key for one use. Different uses get unrelated keys.
    pub fn key(&self, purpose: u64) -> [u64; 2] {
        let [a, b, c, d] = self.words;
        let half = |n: u64| wire::siphash::siphash24_words([a, b], &[c, d, purpose, n]);
        [half(0), half(1)]
    }
}
