//! A port that dies when it is told to. The unit tests of the crate use it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ring::published::Flag;
use rustix::event::PollFlags;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::loopback::{Loopback, LoopbackOptions, pair};
use crate::port::{Capabilities, Port, PortCounters, PortError};

/// See the module's documentation.
pub(crate) struct Mortal {
    port: Loopback,
    is_gone: Arc<Flag>,
}

/// One that lives, its peer, and what kills it.
pub(crate) fn mortal() -> (Mortal, Loopback, Arc<Flag>) {
    let (port, peer) = pair(&LoopbackOptions::default()).expect("eventfds");
    let is_gone = Arc::new(Flag::new());
    let mortal = Mortal {
        port,
        is_gone: is_gone.clone(),
    };
    (mortal, peer, is_gone)
}

impl Mortal {
    fn lives(&self) -> Result<(), PortError> {
        match self.is_gone.is_raised() {
            true => Err(PortError::Gone),
            false => Ok(()),
        }
    }
}

impl Port for Mortal {
    fn capabilities(&self) -> &Capabilities {
        self.port.capabilities()
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.lives()?;
        self.port.receive()
    }

    fn release(&mut self) {
        self.port.release();
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.port.reserve(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.port.reserved()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.lives()?;
        self.port.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.port.prepare_wait(want_tx) || self.is_gone.is_raised()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.port.poll_fds(want_tx, fds);
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}
