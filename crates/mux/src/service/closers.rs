//! Descriptors that clients sent and that wait to be closed, by user.
//!
//! A descriptor may take hours to close: a TCP socket that lingers, a file whose file system is a
//! program of the client's. So each user has a closer, and with it a thread while something waits.
//! Users whose descriptors are slow are refused, and no other user. Called by `clients`.

use std::collections::BTreeMap;

use packetio::foreign::Closer;

use crate::limits::CLOSING_USERS_MAX;

/// The closers of all users.
#[derive(Debug, Default)]
pub(super) struct Closers {
    of_users: BTreeMap<u32, Closer>,
    /// The closer of all users who found no room.
    others: Closer,
}

impl Closers {
    /// Where a refused socket goes that must not be closed here.
    pub(super) fn for_refused(&self, uid: u32) -> &Closer {
        self.of_users.get(&uid).unwrap_or(&self.others)
    }

    /// The closer of a user; `None` if it has no room, or if too many users have one. Root always
    /// has one.
    pub(super) fn with_room(&mut self, uid: u32) -> Option<Closer> {
        if !self.of_users.contains_key(&uid) && self.of_users.len() >= CLOSING_USERS_MAX {
            self.of_users.retain(|_, closer| !closer.is_unused());
        }
        let is_known = self.of_users.contains_key(&uid);
        let has_room = uid == 0 || is_known || self.of_users.len() < CLOSING_USERS_MAX;
        let closer = has_room.then(|| self.of_users.entry(uid).or_default().clone())?;
        (uid == 0 || !closer.is_full()).then_some(closer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_beyond_the_limit_wait_until_one_is_done() {
        let mut closers = Closers::default();
        let all: Vec<Closer> = (1..=CLOSING_USERS_MAX as u32)
            .map(|uid| closers.with_room(uid).unwrap())
            .collect();
        assert!(closers.with_room(5000).is_none());
        assert!(closers.with_room(1).is_some(), "one that is known");
        assert!(closers.with_room(0).is_some(), "root");
        drop(all);
        assert!(closers.with_room(5000).is_some());
    }
}
