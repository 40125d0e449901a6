//! A flag for each thread: the thread is inside the library, that is, it holds the engine's lock or
//! is about to take it.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is inside.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// Sets whether this thread is inside.
#[inline]
pub fn set(is_inside: bool) {
    INSIDE.set(is_inside);
}
