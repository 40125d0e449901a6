//! Generated MAC addresses for ends without one.

use std::hash::{BuildHasher, RandomState};

use crate::port::MacAddr;

/// A random, locally administered unicast address. `salt` keeps two calls of one process apart.
pub(crate) fn local_mac(salt: &str) -> MacAddr {
    let [_, _, a, b, c, d, e, _] = RandomState::new().hash_one(salt).to_be_bytes();
    MacAddr([0x02, a, b, c, d, e])
}
