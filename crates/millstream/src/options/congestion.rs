//! `TCP_CONGESTION`: names of congestion controls, built in or added by the application.

use std::io;

use rustix::io::Errno;
use tcp::CongestionAlgorithm;

use super::{SocketOptions, invalid};

/// Longest name of a congestion control, with the terminating 0 (`TCP_CA_NAME_MAX`).
const NAME_BYTES: usize = tcp::limits::ALGORITHM_NAME_BYTES_MAX + 1;

impl SocketOptions<'_> {
    /// `TCP_CONGESTION` by name: a built-in algorithm, or one that
    /// [`Config::add_congestion_control`](crate::Config::add_congestion_control) has added.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name. Errors of waiting for room in the queue of requests.
    #[doc = example!("", "socket.options().set_congestion_named(\"reno\")?;\nlet reno = millstream::CongestionAlgorithm::NewReno;\nassert_eq!(socket.options().congestion(), Some(reno));\nassert!(socket.options().set_congestion_named(\"tahoe\").is_err());")]
    pub fn set_congestion_named(&self, name: &str) -> io::Result<()> {
        self.set_congestion(Some(self.congestion_of(name)?))
    }

    /// The algorithm of this name; `ENOENT` if the runtime does not have it.
    pub(super) fn congestion_of(&self, name: &str) -> io::Result<CongestionAlgorithm> {
        let choice = self.inner.tcp_config().congestion_named(name);
        choice.ok_or_else(|| Errno::NOENT.into())
    }

    /// `ENOENT` for an algorithm that the runtime does not have.
    pub(super) fn knows_congestion(&self, choice: Option<CongestionAlgorithm>) -> io::Result<()> {
        match choice {
            Some(choice) if !self.inner.tcp_config().knows_congestion(choice) => {
                Err(Errno::NOENT.into())
            }
            _ => Ok(()),
        }
    }
}

/// The name in an option's value, up to the first 0, as in Linux.
pub(super) fn algorithm_name_in(value: &[u8]) -> io::Result<&str> {
    if value.is_empty() {
        return Err(invalid());
    }
    let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(name).map_err(|_| Errno::NOENT.into())
}

/// The value of the option: the name, padded with zeros.
pub(super) fn algorithm_name(choice: Option<CongestionAlgorithm>) -> Vec<u8> {
    let name = choice.map_or("", CongestionAlgorithm::name);
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    bytes
}
