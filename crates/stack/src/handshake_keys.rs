//! The keys by which a stack recognises what it gave to peers: SYN cookies and Fast Open cookies.
//!
//! Owns the secrets from which the keys come. Every port uses the same keys, since a peer may
//! answer by another port.

use tcp::FastOpenKeys;
use tcp::syn_cookie::SynCookies;

use crate::secrets::Secrets;

/// The first use of a stack's secrets that belongs to cookies. The ones behind it follow.
const SECRET_COOKIES: u64 = 1 << 32;

/// See the module's documentation.
pub(crate) struct HandshakeKeys {
    pub cookies: SynCookies,
    /// Secrets that the cookies have used up.
    cookie_secrets: u64,
    secrets: Secrets,
    /// Makes the Fast Open cookies of listeners without keys of their own.
    pub fast_open: FastOpenKeys,
}

impl HandshakeKeys {
    pub fn new(secrets: Secrets) -> Self {
        Self {
            cookies: SynCookies::new(secrets.key(4)),
            cookie_secrets: 0,
            fast_open: FastOpenKeys::new(fast_open_key(secrets.key(9))),
            secrets,
        }
    }

    /// Gives the cookies their next secret when the present one is worn.
    pub fn rotate(&mut self, now_ns: u64) {
        if self.cookies.is_worn(now_ns) {
            // The secret comes from the seed, so a simulation repeats itself. An outsider cannot
            // derive it from earlier secrets.
            self.cookie_secrets += 1;
            let key = self.secrets.key(SECRET_COOKIES + self.cookie_secrets);
            self.cookies.rotate(key, now_ns);
        }
    }
}

fn fast_open_key(words: [u64; 2]) -> [u8; 16] {
    let number = u128::from(words[0]) << 64 | u128::from(words[1]);
    number.to_le_bytes()
}
