//! The end of watches: an epoll's watches on sockets of Millstream's, and the copies in `posix`
//! that they are made for.

use posix::Request;

use crate::engine::{Engine, Watch};

/// The `id` of a one-shot watch that has reported: nothing is watched until the watch is changed.
pub const SPENT: i32 = -1;

/// Closes a copy in `posix` that was made for a watch.
pub fn close_copy(engine: &mut Engine, own: i32, id: i32) {
    if id != own
        && id != SPENT
        && let Ok(net) = engine.open()
    {
        // Another number refers to the socket, so this close cannot wait.
        let _ = net.call(Request::Close { fd: id });
    }
}

/// Closes the copies that epolls watch, before the socket is closed.
pub fn forget_copies(engine: &mut Engine, key: usize) {
    forget_of(engine, key, &|_| true);
}

/// Removes the watches of an epoll, before the epoll is closed.
pub fn forget(engine: &mut Engine, is_over: impl Fn(&Watch) -> bool) {
    for place in 0..engine.entries_count() {
        if let Some(key) = engine.key_at(place) {
            forget_of(engine, key, &is_over);
        }
    }
}

/// Removes the watches of an entry for which `is_over` is true, and their copies.
pub fn forget_of(engine: &mut Engine, key: usize, is_over: &impl Fn(&Watch) -> bool) {
    let over = engine.take_watches(key, is_over);
    let entry = engine.entry(key).ok();
    if let Some(own) = entry.and_then(|entry| entry.what.watched_id()) {
        for watch in over {
            close_copy(engine, own, watch.id);
        }
    }
}
