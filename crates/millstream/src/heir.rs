//! The process that continues with connections when the application ends before they have delivered
//! their data.

/// A way for a process to end at once, as on the kernel, while a copy of it delivers its data.
///
/// A dropped context lets its connections close in order for
/// [`Config::linger_ns`](crate::Config::linger_ns). If some are still open after
/// [`after_ns`](Self::after_ns), the context calls [`take_over`](Self::take_over) once.
///
/// Only `packet:` and `tap:` wires work in a child of `fork`. Other wires have memory that is not
/// inherited, or a thread behind them.
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
    /// Time that connections get before `take_over` is called, in ns. Most deliver everything by
    /// then.
    pub after_ns: u64,
    /// Makes the process that takes over. True: another process has the stack now, and this one
    /// neither turns nor closes it. False: this process goes on, either as the heir or without one.
    ///
    /// The stack stays locked while the function runs. No thread of the library uses it.
    pub take_over: fn() -> bool,
}
