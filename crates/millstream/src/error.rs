//! The reasons why a runtime or a context cannot be made: one line with cause and place.

/// See the module's documentation.
///
/// ```
/// use millstream::{Config, Error, Runtime};
/// let mut config = Config::new("loopback:".parse().unwrap());
/// config.contexts = 0;
/// assert!(matches!(Runtime::new(config), Err(Error::Contexts(0))));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wire cannot be opened.
    #[error("{0}")]
    Wire(#[from] packetio::OpenError),
    /// The stack's settings are invalid.
    #[error("{0}")]
    Stack(#[from] stack::ConfigError),
    /// Number of contexts out of bounds.
    #[error("contexts: {0}: must lie between 1 and {max}", max = crate::limits::CONTEXTS_MAX)]
    Contexts(usize),
    /// Number of CPUs ([`Config::cores`](crate::Config::cores)) that differs from that of contexts.
    #[error("cores: {0} CPUs for {1} contexts: each context has one")]
    Cores(usize, usize),
    /// A CPU that this process cannot use.
    #[error("cores: CPU {cpu}: {why}")]
    Cpu {
        /// The CPU's number.
        cpu: usize,
        /// The reason, in words.
        why: String,
    },
    /// A context that was taken already, or that the runtime does not have.
    #[error("context {0}: {1}")]
    Context(usize, &'static str),
    /// A `mux:` or `mirror` wire beside others. Its addresses and routes are the host's, which does
    /// not know the other wires.
    #[error("wires: mux: and mirror stand alone, since the host owns their addresses and routes")]
    HostBesideOthers,
    /// The congestion control of new connections is not built in and was not registered.
    #[error("tcp.congestion: {0} is not registered; Config::add_congestion_control does that")]
    Congestion(&'static str),
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
    /// The machine has too little memory: not enough reserved huge pages, or none for sockets and
    /// buffers.
    ///
    /// ```
    /// assert!(!millstream::Error::Contexts(0).lacks_memory());
    /// ```
    #[must_use]
    pub fn lacks_memory(&self) -> bool {
        use stack::ConfigError::{HugePages, Memory};
        matches!(self, Self::Stack(HugePages(_) | Memory(_)))
    }

    /// The line of `mill doctor` that matches a wire which does not open; `None`: no line does.
    ///
    /// ```
    /// use millstream::{Config, Runtime};
    /// let config = Config::new("xdp:no-such-nic".parse().unwrap());
    /// let error = Runtime::new(config).err().expect("there is no such interface");
    /// if let Some(line) = error.remedy() {
    ///     eprintln!("{line}");
    /// }
    /// ```
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Wire(error) => error.remedy().map(|remedy| remedy.to_string()),
            _ => None,
        }
    }
}
