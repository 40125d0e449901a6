//! The reasons why a runtime or a context cannot be had: one line with cause and place.

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wire cannot be opened.
    #[error("{0}")]
    Wire(#[from] packetio::OpenError),
    /// A stack cannot be configured so.
    #[error("{0}")]
    Stack(#[from] stack::ConfigError),
    /// More or fewer contexts than can be.
    #[error("contexts: {0}: must lie between 1 and {max}", max = crate::limits::CONTEXTS_MAX)]
    Contexts(usize),
    /// A context that was taken already, or that the runtime has not.
    #[error("context {0}: {1}")]
    Context(usize, &'static str),
    /// A stack thread cannot wait for a virtual clock.
    #[error("clock: a virtual one needs the inline crank")]
    VirtualClock,
    /// A thread or a descriptor was refused by the kernel.
    #[error("{what}: {source}")]
    System {
        /// The call that was refused.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// The line of `mill doctor` that matches a wire which does not open, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Wire(error) => error.remedy().map(|remedy| remedy.to_string()),
            _ => None,
        }
    }
}
