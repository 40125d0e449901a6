//! A handle that ends a context's waits from another thread or from a signal handler.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ring::doorbell::StackBell;
use ring::published::Flag;

use crate::error::Error;

/// Ends the current or the next wait of its context with `Interrupted`
/// ([`Context::set_interrupter`](crate::Context::set_interrupter)). Clones are the same
/// interrupter, which serves one context at a time.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let interrupter = Interrupter::new()?;
/// context.set_interrupter(interrupter.clone());
/// let helper = std::thread::spawn(move || interrupter.interrupt());
/// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
/// let error = listener.accept().map(|_| ()).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Interrupter {
    inner: Arc<Inner>,
}

struct Inner {
    flag: Flag,
    bell: StackBell,
}

impl Interrupter {
    /// Makes an interrupter that serves no context yet.
    ///
    /// # Errors
    /// The error of `eventfd`.
    ///
    /// ```
    /// let interrupter = millstream::Interrupter::new().unwrap();
    /// ```
    pub fn new() -> Result<Self, Error> {
        let bell = StackBell::new().map_err(|errno| Error::System {
            what: "eventfd",
            source: errno.into(),
        })?;
        let flag = Flag::new();
        Ok(Self {
            inner: Arc::new(Inner { flag, bell }),
        })
    }

    /// Ends the wait. Safe in a signal handler: a store, and a write to an eventfd if a thread
    /// sleeps.
    ///
    /// ```
    /// let interrupter = millstream::Interrupter::new().unwrap();
    /// // The next wait of the interrupter's context fails with `Interrupted`.
    /// interrupter.interrupt();
    /// ```
    pub fn interrupt(&self) {
        self.inner.flag.raise();
        self.inner.bell.ring();
    }

    /// Forgets an interruption that no wait has noticed. Call this before another context gets the
    /// interrupter.
    ///
    /// ```
    /// let interrupter = millstream::Interrupter::new().unwrap();
    /// interrupter.interrupt();
    /// interrupter.forget();
    /// ```
    pub fn forget(&self) {
        self.inner.flag.take();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.inner.flag.is_raised()
    }

    /// Sleeps unless an interruption waits. `None`: interrupted before or during the sleep. Each
    /// interruption is reported once.
    pub(crate) fn sleep_unless_raised<R>(
        &self,
        sleep: impl FnOnce(BorrowedFd<'_>) -> R,
    ) -> Option<R> {
        let (flag, bell) = (&self.inner.flag, &self.inner.bell);
        let slept = bell.sleep_unless(|| (!flag.is_raised()).then(|| bell.fd()), sleep);
        let was_raised = flag.take();
        slept.filter(|_| !was_raised)
    }
}
