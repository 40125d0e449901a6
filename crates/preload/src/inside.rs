//! Whether a thread is inside the library: it holds the engine's lock, or is about to.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is inside.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// This thread goes in, or comes out.
#[inline]
pub fn set(is_inside: bool) {
    INSIDE.set(is_inside);
}
