//! Fast Open (RFC 7413), on listeners and on sockets about to connect.

use super::*;
use tcp::FastOpenKeys;

impl SocketOptions<'_> {
    /// `TCP_FASTOPEN`: a listener takes data in SYNs, for at most so many connections whose handshake is not complete; 0: it does not.
    ///
    /// # Errors
    /// `InvalidInput` once connected.
    pub fn set_fast_open(&self, backlog: u32) -> io::Result<()> {
        self.not_connected()?;
        self.change(|settings| settings.fast_open = Some(backlog));
        self.tell(SocketOption::FastOpen(backlog))
    }

    /// `TCP_FASTOPEN`; `None`: it was not set.
    #[must_use]
    pub fn fast_open(&self) -> Option<u32> {
        self.look(|settings| settings.fast_open)
    }

    /// `TCP_FASTOPEN_CONNECT`: connect waits for the first write, whose bytes go with the SYN if the peer's cookie is known. Kept for layers above.
    ///
    /// # Errors
    /// `InvalidInput` once connected or listening; `EOPNOTSUPP` while the stack's settings have Fast Open off.
    pub fn set_fast_open_connect(&self, on: bool) -> io::Result<()> {
        if !self.inner.tcp_config().fast_open.client {
            return Err(Errno::OPNOTSUPP.into());
        }
        if self.stage() != Stage::Idle {
            return Err(invalid());
        }
        self.change(|settings| settings.fast_open_connect = on);
        Ok(())
    }

    /// `TCP_FASTOPEN_CONNECT`
    #[must_use]
    pub fn fast_open_connect(&self) -> bool {
        self.look(|settings| settings.fast_open_connect)
    }

    /// `TCP_FASTOPEN_NO_COOKIE`: data in SYNs needs no cookie, here as client and as listener.
    ///
    /// # Errors
    /// `InvalidInput` once connected.
    pub fn set_fast_open_no_cookie(&self, on: bool) -> io::Result<()> {
        self.not_connected()?;
        self.change(|settings| settings.fast_open_no_cookie = on);
        self.tell(SocketOption::FastOpenNoCookie(on))
    }

    /// `TCP_FASTOPEN_NO_COOKIE`
    #[must_use]
    pub fn fast_open_no_cookie(&self) -> bool {
        self.look(|settings| settings.fast_open_no_cookie)
    }

    /// `TCP_FASTOPEN_KEY`: makes a listener's cookies in place of the stack's keys.
    ///
    /// # Errors
    /// The kernel's, should this have to wait.
    pub fn set_fast_open_keys(&self, keys: FastOpenKeys) -> io::Result<()> {
        self.change(|settings| settings.fast_open_keys = Some(keys));
        self.tell(SocketOption::FastOpenKey(keys))
    }

    /// `TCP_FASTOPEN_KEY`: its own, or those of the stack's settings.
    #[must_use]
    pub fn fast_open_keys(&self) -> Option<FastOpenKeys> {
        let own = self.look(|settings| settings.fast_open_keys);
        own.or(self.inner.tcp_config().fast_open.keys)
    }

    fn not_connected(&self) -> io::Result<()> {
        match self.stage() {
            Stage::Idle | Stage::Listening => Ok(()),
            Stage::Connection => Err(invalid()),
        }
    }
}
