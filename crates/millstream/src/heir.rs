//! The process that goes on with connections when the application ends before they have delivered
//! what they hold.

/// A way for a process to end at once, as on the kernel, while a copy of it delivers.
///
/// A dropped context lets its connections close in order for
/// [`Config::linger_ns`](crate::Config::linger_ns). If they have not closed after
/// [`after_ns`](Self::after_ns), it asks [`take_over`](Self::take_over), once.
///
/// Wires of which a copy can be driven by a child of `fork` are `packet:` and `tap:`. The memory of
/// others is not inherited, or a thread stands behind them.
///
/// ```
/// use millstream::{Config, Heir};
/// let mut config = Config::new("packet:eth0".parse()?);
/// // Nobody takes over: the process waits for its connections.
/// config.heir = Some(Heir {
///     after_ns: 20_000_000,
///     take_over: || false,
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Heir {
    /// Time that connections get before, in ns. Most have delivered everything by then.
    pub after_ns: u64,
    /// Makes the process that takes over. True: another process has the stack now, and this one
    /// neither turns nor closes it. False: this process goes on; it is the heir, or there is none.
    ///
    /// The stack stays locked while the function runs. No thread of the library's uses it.
    pub take_over: fn() -> bool,
}
