//! Values of socket options as bytes in Linux's layout (x86-64), and back.

/// An `int`.
#[must_use]
pub fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// A `struct linger`.
#[must_use]
pub fn linger(on: bool, seconds: i32) -> Vec<u8> {
    [int(on.into()), int(seconds)].concat()
}

/// A `struct timeval`.
#[must_use]
pub fn timeval(seconds: i64, micros: i64) -> Vec<u8> {
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

/// A `struct timespec`.
#[must_use]
pub fn timespec(seconds: i64, nanos: i64) -> Vec<u8> {
    [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat()
}

/// The `int` that a value begins with; `None` if it is shorter.
#[must_use]
pub fn to_int(value: &[u8]) -> Option<i32> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
