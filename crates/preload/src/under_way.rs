//! The table of connections that are on their way over a UNIX socket. `passes` has the rules.

/// A connection in a message.
pub struct Pass {
    /// The number in front of the socket's filter.
    pub number: u32,
    /// The connection's entry.
    pub key: usize,
    /// Our end of the message's socket, a descriptor of the library's.
    pub end: i32,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Passes {
    /// The last number that was given.
    pub last: u32,
    /// Connections whose messages may exist.
    pub under_way: Vec<Pass>,
}

impl Passes {
    /// No connection.
    pub const fn none() -> Self {
        Self {
            last: 0,
            under_way: Vec::new(),
        }
    }

    /// Our ends, which hang up when a message is gone.
    pub fn ends(&self) -> impl Iterator<Item = i32> {
        self.under_way.iter().map(|pass| pass.end)
    }
}
