//! Entries that neither a descriptor nor a waiting call uses any more.

use posix::{Request, number};

use crate::engine::{Engine, Entry, Object};
use crate::waits::Place;
use crate::watches;

/// Begins the wait of a call on entries, which keeps the entries.
pub fn begin_wait(engine: &mut Engine, place: Place, keys: &[usize]) {
    let abandoned = engine.waits.begin(place, keys);
    close_abandoned(engine, abandoned, keys);
}

/// Closes sockets that only calls kept that the thread has left, without a wait.
pub fn close_abandoned(engine: &mut Engine, abandoned: Vec<usize>, but: &[usize]) {
    for key in abandoned.into_iter().filter(|key| !but.contains(key)) {
        let id = take_unused(engine, key).and_then(|entry| entry.what.watched_id());
        if let (Some(fd), Ok(net)) = (id, engine.open()) {
            // Off: two zeros. The program has closed the socket, so errors have no reader.
            let _ = net.call(Request::Setsockopt {
                fd,
                level: number::SOL_SOCKET,
                name: number::SO_LINGER,
                value: vec![0; 8],
            });
            let _ = net.call(Request::Close { fd });
        }
    }
}

/// Removes an entry that neither a descriptor nor a waiting call uses.
pub fn take_unused(engine: &mut Engine, key: usize) -> Option<Entry> {
    let entry = engine.entry(key).ok()?;
    let is_epoll = matches!(entry.what, Object::Epoll(_));
    if entry.refs > 0 || engine.waits.has(key) {
        return None;
    }
    if is_epoll {
        watches::forget(engine, |watch| watch.epoll == key);
    }
    watches::forget_copies(engine, key);
    let last = engine.remove(key);
    if let Some(entry) = &last
        && let (true, Some(listener)) = (entry.is_held, &entry.listener)
    {
        for place in listener.places() {
            engine.let_go(place);
        }
    }
    last
}
