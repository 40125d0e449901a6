//! The keys with which a stack makes and recognises SYN cookies and Fast Open cookies.
//!
//! The module owns the secrets from which the keys derive. All ports share the keys, because a peer
//! may answer by another port.

use tcp::FastOpenKeys;
use tcp::syn_cookie::SynCookies;

use crate::secrets::Secrets;

/// Purpose of the first secret for SYN cookies; the purposes behind it belong to later hours.
const SECRET_COOKIES: u64 = 1 << 32;

/// See the module's documentation.
pub(crate) struct HandshakeKeys {
    cookies: SynCookies,
    secrets: Secrets,
    /// Keys for the Fast Open cookies of listeners without keys of their own.
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

    /// The maker of SYN cookies, with this hour's secrets. They derive from the seed, so a
    /// simulation repeats itself, and contexts with one seed share them. An outsider cannot derive
    /// them from earlier secrets.
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
