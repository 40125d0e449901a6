//! The application's end of a stack's sockets, without the crank: events come in, requests go out.

use std::net::IpAddr;

use ring::doorbell::StackBell;
use ring::published::fence_full;
use ring::socket_block::{Requests, SocketBlock, SocketId};
use ring::spsc::Producer;
use stack::context::AppSide;

use crate::app_socket::{AppSocket, AppSockets, Kind};
use crate::event::Readiness;
use crate::interleaving::point;
use crate::poll_set::PollSets;
use crate::readiness::of;

mod polling;
mod urgent;

/// The state that belongs to the application's thread alone.
pub(crate) struct State {
    pub side: AppSide,
    pub sockets: AppSockets,
    pub polls: PollSets,
    /// Writers that found no chunk, in the order of their attempts. The next wait looks at them
    /// first.
    pub refused: Vec<SocketId>,
    /// The last writer that found chunks for a part of its bytes only. The next wait looks at it
    /// after `refused` and before writers that filled their room.
    pub cut_short: Option<SocketId>,
    /// The last socket that wrote.
    pub last_writer: SocketId,
    /// True if the last wait found many ready sources, so each writer gets a share (decision 0035).
    pub writers_share: bool,
    /// The writer that wrote last since then, and where its send buffer ended before.
    pub share: Option<(SocketId, u32)>,
    /// The stack was told that more follows the last partial write (`Requests::WROTE_MORE`).
    pub promised_more: bool,
}

impl State {
    /// True if the peer's address is our own or a loopback address, which only this stack has.
    pub(crate) fn is_to_itself(&self, id: SocketId) -> bool {
        let (local, remote) = self.block(id).names();
        let is_loopback = IpAddr::from(remote.address).to_canonical().is_loopback();
        is_loopback || local.address == remote.address
    }

    pub fn drain_events(&mut self) -> bool {
        let mut any = false;
        loop {
            point();
            let mut batch = [SocketId::default(); 64];
            let mut count = 0;
            self.side.events.pop_batch(batch.len(), |id| {
                batch[count] = id;
                count += 1;
            });
            if count == 0 {
                return any;
            }
            any = true;
            point();
            // Pairs with the stack's fence in `event_queue`: take events first, then look at the
            // sockets.
            fence_full();
            point();
            for id in &batch[..count] {
                self.sockets.prefetch(*id);
                if let Some(block) = self.side.memory.block(id.index) {
                    block.prefetch();
                }
            }
            for id in &batch[..count] {
                if let Some(socket) = self.sockets.current(*id) {
                    self.polls.socket_changed(socket.registrations);
                }
            }
        }
    }

    /// The block of a socket that this application opened.
    #[inline]
    pub fn block(&self, id: SocketId) -> &SocketBlock {
        self.side
            .memory
            .block(id.index)
            .expect("ids come from the stack")
    }

    /// Sets request bits of a socket and queues its job.
    #[inline]
    pub fn request(&mut self, id: SocketId, wanted: Requests) {
        let AppSide {
            memory,
            jobs,
            stack_bell,
            ..
        } = &mut self.side;
        let block = memory.block(id.index).expect("ids come from the stack");
        ask(block, jobs, stack_bell, id, wanted);
    }

    /// Wakes the stack's own thread, or the watchdog, if it sleeps.
    #[inline]
    pub fn ring(&self) {
        self.side.stack_bell.ring();
    }

    /// Changes the kind of a socket, as when an idle one connects or listens.
    pub fn become_kind(&mut self, id: SocketId, kind: Kind) {
        let socket = self.sockets.at(id);
        socket.kind = kind;
        let first = socket.registrations;
        self.polls.state_changed(first);
    }

    /// Closes a socket: its registrations go, and the stack gets the request `how`.
    pub fn close(&mut self, id: SocketId, how: Requests) {
        let first = self.sockets.at(id).registrations;
        self.polls.forget_socket(first);
        self.sockets.close(id);
        self.request(id, how);
    }
}

/// Like [`State::request`], for a caller that has the block.
#[inline]
pub(crate) fn ask(
    block: &SocketBlock,
    jobs: &mut Producer<SocketId>,
    stack_bell: &StackBell,
    id: SocketId,
    wanted: Requests,
) {
    if block.request(wanted) {
        // The queue has a slot for each socket, and each socket is queued once at most.
        let pushed = jobs.push(id);
        debug_assert!(
            pushed.is_ok(),
            "the job queue is as long as the socket table"
        );
        stack_bell.ring();
    }
}

impl State {
    /// The readiness of a socket. If it has no room to write, the stack will report room.
    pub(crate) fn readiness(&mut self, id: SocketId) -> Readiness {
        let Some(block) = self.side.memory.block(id.index) else {
            return Readiness::NONE;
        };
        readiness_or_want(self.sockets.at(id), block)
    }

    /// Lists the socket after a change of `SO_RCVLOWAT`: bytes that arrived earlier may now
    /// suffice, which no event reports. As in Linux this is news even if they sufficed before.
    pub(crate) fn lowat_changed(&mut self, id: SocketId) {
        let Some(block) = self.side.memory.block(id.index) else {
            return;
        };
        let socket = self.sockets.at(id);
        if socket.kind == Kind::Stream && of(socket, block).contains(Readiness::READABLE) {
            self.polls.input_changed(socket.registrations);
        }
    }
}

/// The readiness of a socket. If it has no room to write, the stack will report room.
pub(crate) fn readiness_or_want(socket: &mut AppSocket, block: &SocketBlock) -> Readiness {
    let mut ready = Readiness::NONE;
    block.look_or_want(|| {
        ready = of(socket, block);
        ready.contains(Readiness::WRITABLE).then_some(())
    });
    ready
}
