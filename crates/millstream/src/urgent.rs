//! The urgent mark of a connection (RFC 9293 3.8.5), as a reader sees it.
//!
//! Urgent bytes stay in the stream (RFC 6093); the mark only says where the last one is. Programs
//! written for BSD sockets may want that byte apart from the stream, and reads that stop before it.
//! [`Context::set_urgent_apart`](crate::Context::set_urgent_apart) chooses that for new sockets. A
//! reader then asks for the mark before each read, as `posix` does.

/// The position of the last urgent byte, until it has been read or passed over.
///
/// ```
#[doc = include_str!("doc/connected.txt")]
/// if let Some(UrgentMark { ahead: 0, has_arrived: true, .. }) = server.urgent_mark() {
///     println!("the next byte is urgent");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentMark {
    /// Bytes to read before the urgent byte.
    pub ahead: usize,
    /// The byte has arrived.
    pub has_arrived: bool,
    /// The byte was taken; reads still have to skip its place.
    pub is_taken: bool,
    /// The byte is not part of the stream.
    pub is_apart: bool,
}

/// A socket's record of its urgent mark.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgent {
    /// The socket takes urgent bytes out of the stream.
    pub is_apart: bool,
    /// The position after the byte that `is_taken` refers to; `None`: there was no mark.
    pub end: Option<u32>,
    pub is_taken: bool,
}

impl Urgent {
    pub fn new(is_apart: bool) -> Self {
        Self {
            is_apart,
            ..Self::default()
        }
    }
}
