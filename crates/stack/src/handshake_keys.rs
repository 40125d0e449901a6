//! The keys by which a stack recognises what it gave to peers: SYN cookies and Fast Open cookies.
//!
//! Owns the secrets from which the keys come. Every port uses the same keys, since a peer may
//! answer by another port.

use tcp::FastOpenKeys;
use tcp::syn_cookie::SynCookies;

use crate::secrets::Secrets;

/// The first use of a stack's secrets that belongs to cookies. There is one for each hour.
const SECRET_COOKIES: u64 = 1 << 32;

/// See the module's documentation.
pub(crate) struct HandshakeKeys {
    cookies: SynCookies,
    secrets: Secrets,
    /// Makes the Fast Open cookies of listeners without keys of their own.
    pub fast_open: FastOpenKeys,
}

impl HandshakeKeys {
    pub fn new(secrets: Secrets, now_ns: u64) -> Self {
        Self {
            cookies: SynCookies::by_the_hour(|hour| secrets.cookies_of(hour), now_ns),
            fast_open: FastOpenKeys::new(fast_open_key(secrets.key(9))),
            secrets,
        }
    }

    /// The maker of SYN cookies, with the secrets of this hour. They come from the seed, so a
    /// simulation repeats itself, and contexts that share the seed have them in common. An outsider
    /// cannot derive them from earlier secrets.
    #[inline]
    pub fn cookies(&mut self, now_ns: u64) -> &mut SynCookies {
        if self.cookies.is_worn(now_ns) {
            let secrets = &self.secrets;
            self.cookies.renew(|hour| secrets.cookies_of(hour), now_ns);
        }
        &mut self.cookies
    }
}

impl Secrets {
    fn cookies_of(&self, hour: u64) -> [u64; 2] {
        self.key(SECRET_COOKIES + hour)
    }
}

fn fast_open_key(words: [u64; 2]) -> [u8; 16] {
    let number = u128::from(words[0]) << 64 | u128::from(words[1]);
    number.to_le_bytes()
}
