//! A virtual port: an AF_XDP socket from the service or a memif queue to it, a bulk lane beside it,
//! and the host behind both.
//!
//! Frames arrive by the socket or queue. They also leave there unless their writer chose the bulk
//! lane ([`TxFrame::take_bulk_lane`](crate::TxFrame::take_bulk_lane)). The two lanes are not
//! ordered; the caller keeps the segments of one connection in one lane. The port owns its end of
//! the queues to the control thread, which never handles frames.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::PollFlags;

use super::host::{MuxHost, Opened, host};
use super::message::Change;
use super::options::MuxOptions;
use crate::host::host_queues::HostQueues;
use crate::host::{NoPorts, Transfer, Wish};
use crate::ledger::LedgerFile;
use crate::open_error::OpenError;
use crate::port::{Host, Port, PortCounters};
use crate::xdp::{BulkWire, TwoLanes};

/// Opens the port of context `context`.
///
/// # Errors
/// One line: the service refused, or it does not answer.
pub fn open(options: &MuxOptions, context: usize) -> Result<MuxPort, OpenError> {
    let host = host(options)?;
    let Opened {
        port,
        bulk,
        host_queues,
        ledger,
    } = host.open_context(options, context)?;
    Ok(MuxPort {
        port: TwoLanes::new(port, bulk.map(BulkWire::service_tap)),
        host_queues,
        host,
        ledger,
    })
}

/// One context's port of a service.
pub struct MuxPort {
    port: TwoLanes<Box<dyn Port + Send>>,
    host_queues: HostQueues,
    host: Arc<MuxHost>,
    ledger: Option<LedgerFile>,
}

impl std::fmt::Debug for MuxPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.port.capabilities().name;
        f.debug_tuple("MuxPort").field(name).finish()
    }
}

impl Host for MuxPort {
    fn ask(&mut self, wish: Wish) -> bool {
        self.host_queues.ask(wish)
    }

    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>> {
        self.host_queues.next_lease()
    }

    fn next_change(&mut self) -> Option<Change> {
        self.host_queues.next_change()
    }

    fn take_ledger(&mut self) -> Option<LedgerFile> {
        self.ledger.take()
    }

    fn is_shared(&self, local: SocketAddr) -> bool {
        self.host.is_shared(local)
    }

    fn transfer(&mut self, transfer: Transfer) {
        let context = self.port.capabilities().queue;
        self.host.transfer(context, transfer);
    }

    fn next_transfer(&mut self) -> Option<Transfer> {
        self.host_queues.next_transfer()
    }
}

impl Port for MuxPort {
    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.port.prepare_wait(want_tx) || self.host_queues.has_news()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
        self.host_queues.silence();
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.port.poll_fds(want_tx, fds);
        fds(self.host_queues.bell(), PollFlags::IN);
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        counters.push("mux_changes_lost", self.host_queues.lost());
        counters
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        Some(self)
    }

    crate::forward_port!(self => self.port; capabilities receive release drain waiting reserve
        reserved send deadline_ns);
}

impl Drop for MuxPort {
    fn drop(&mut self) {
        self.host.forget(self.port.capabilities().queue);
    }
}
