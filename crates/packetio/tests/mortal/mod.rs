//! A port that a test can make fail for good. The crate's unit tests use it.

use std::sync::Arc;

use ring::published::Flag;

use crate::frame_unsafe::RxFrame;
use crate::loopback::{Loopback, LoopbackOptions, pair};
use crate::port::{Port, PortError};

/// See the module's documentation.
pub(crate) struct Mortal {
    port: Loopback,
    is_gone: Arc<Flag>,
}

/// A working port, its peer, and the flag that makes it fail.
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
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.lives()?;
        self.port.receive()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.lives()?;
        self.port.send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.port.prepare_wait(want_tx) || self.is_gone.is_raised()
    }

    crate::forward_port!(self => self.port; capabilities release reserve reserved finish_wait
        poll_fds counters);
}
