//! Forwarding of [`Port`](crate::Port)'s methods, for a port that stands around another one.
//!
//! A wrapper implements the methods in which it differs and lists those to forward. Methods that
//! are neither implemented nor listed have the trait's default. Wrappers of this crate and of tests
//! use it.

/// Generates methods of an `impl Port` that call the same method of another port.
///
/// ```
/// use packetio::{Port, PortError, RxFrame};
///
/// /// Counts the batches that are asked for.
/// struct Counting<P> {
///     inner: P,
///     batches: u64,
/// }
///
/// impl<P: Port> Port for Counting<P> {
///     fn receive(&mut self) -> Result<&[RxFrame], PortError> {
///         self.batches += 1;
///         self.inner.receive()
///     }
///
///     packetio::forward_port!(self => self.inner; capabilities release reserve reserved send
///         prepare_wait finish_wait poll_fds deadline_ns counters);
/// }
/// ```
#[macro_export]
macro_rules! forward_port {
    ($me:ident => $port:expr; $($method:ident)+) => {
        $($crate::forward_port!(@ $method $me $port);)+
    };
    (@ capabilities $me:ident $port:expr) => {
        fn capabilities(&$me) -> &$crate::Capabilities {
            $port.capabilities()
        }
    };
    (@ receive $me:ident $port:expr) => {
        fn receive(&mut $me) -> ::std::result::Result<&[$crate::RxFrame], $crate::PortError> {
            $port.receive()
        }
    };
    (@ release $me:ident $port:expr) => {
        fn release(&mut $me) {
            $port.release();
        }
    };
    (@ drain $me:ident $port:expr) => {
        fn drain(&mut $me) {
            $port.drain();
        }
    };
    (@ waiting $me:ident $port:expr) => {
        fn waiting(&mut $me) -> usize {
            $port.waiting()
        }
    };
    (@ accept_merged $me:ident $port:expr) => {
        fn accept_merged(&mut $me) -> bool {
            $port.accept_merged()
        }
    };
    (@ reserve $me:ident $port:expr) => {
        fn reserve(&mut $me, n: usize) -> &[$crate::TxFrame] {
            $port.reserve(n)
        }
    };
    (@ reserved $me:ident $port:expr) => {
        fn reserved(&$me) -> &[$crate::TxFrame] {
            $port.reserved()
        }
    };
    (@ send $me:ident $port:expr) => {
        fn send(&mut $me, n: usize) -> ::std::result::Result<(), $crate::PortError> {
            $port.send(n)
        }
    };
    (@ prepare_wait $me:ident $port:expr) => {
        fn prepare_wait(&mut $me, want_tx: bool) -> bool {
            $port.prepare_wait(want_tx)
        }
    };
    (@ finish_wait $me:ident $port:expr) => {
        fn finish_wait(&mut $me) {
            $port.finish_wait();
        }
    };
    (@ poll_fds $me:ident $port:expr) => {
        fn poll_fds<'a>(
            &'a $me,
            want_tx: bool,
            fds: &mut dyn FnMut(::std::os::fd::BorrowedFd<'a>, $crate::PollFlags),
        ) {
            $port.poll_fds(want_tx, fds);
        }
    };
    (@ deadline_ns $me:ident $port:expr) => {
        fn deadline_ns(&$me) -> ::std::option::Option<u64> {
            $port.deadline_ns()
        }
    };
    (@ counters $me:ident $port:expr) => {
        fn counters(&$me) -> $crate::PortCounters {
            $port.counters()
        }
    };
    (@ host $me:ident $port:expr) => {
        fn host(&mut $me) -> ::std::option::Option<&mut dyn $crate::host::Host> {
            $port.host()
        }
    };
    (@ mover_shares_cpu $me:ident $port:expr) => {
        fn mover_shares_cpu(&$me) -> bool {
            $port.mover_shares_cpu()
        }
    };
    (@ wrapper $me:ident $port:expr) => {
        fn wrapper(&mut $me) -> ::std::option::Option<&mut dyn ::std::any::Any> {
            $port.wrapper()
        }
    };
}
