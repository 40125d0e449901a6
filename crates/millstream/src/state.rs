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
    /// Writers that found no chunk, in the order in which they tried. The next wait looks at them
    /// first.
    pub refused: Vec<SocketId>,
    /// The last writer that found a chunk, and none for the rest of what it wanted. The next wait
    /// looks at it after those, and before others that wrote all that they had room for.
    pub cut_short: Option<SocketId>,
    /// Who wrote last.
    pub last_writer: SocketId,
    /// The last write that was cut short was announced to the stack as a part of more.
    pub is_piece: bool,
}

impl State {
    /// The peer has our own address, or a loopback one, which only this stack has.
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
            // The counterpart of the stack's fence in `event_queue`: taken out first, looked at
            // second.
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

    /// The block of a socket of ours.
    #[inline]
    pub fn block(&self, id: SocketId) -> &SocketBlock {
        self.side
            .memory
            .block(id.index)
            .expect("ids come from the stack")
    }

    /// Asks the stack for something.
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

    /// A socket that was neither connected nor listening has become so.
    pub fn become_kind(&mut self, id: SocketId, kind: Kind) {
        let socket = self.sockets.at(id);
        socket.kind = kind;
        let first = socket.registrations;
        self.polls.state_changed(first);
    }

    /// The application lets go of a socket.
    pub fn close(&mut self, id: SocketId, how: Requests) {
        let first = self.sockets.at(id).registrations;
        self.polls.forget_socket(first);
        self.sockets.close(id);
        self.request(id, how);
    }
}

/// Like [`State::request`], where the block is at hand.
#[inline]
pub(crate) fn ask(
    block: &SocketBlock,
    jobs: &mut Producer<SocketId>,
    stack_bell: &StackBell,
    id: SocketId,
    wanted: Requests,
) {
    if block.request(wanted) {
        // There are as many slots as sockets, and each socket is queued once at most.
        let pushed = jobs.push(id);
        debug_assert!(
            pushed.is_ok(),
            "the job queue is as long as the socket table"
        );
        stack_bell.ring();
    }
}

impl State {
    /// The things that can be done with a socket now. If there is no room to write, the stack will
    /// tell of some.
    pub(crate) fn readiness(&mut self, id: SocketId) -> Readiness {
        let Some(block) = self.side.memory.block(id.index) else {
            return Readiness::NONE;
        };
        readiness_or_want(self.sockets.at(id), block)
    }

    /// `SO_RCVLOWAT` changed, so earlier bytes may now be enough to read, which no event reports.
    /// As in Linux this is news, whether or not they were enough before.
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

/// The things that can be done with a socket now. If writing is not one, the stack will tell of
/// room.
pub(crate) fn readiness_or_want(socket: &mut AppSocket, block: &SocketBlock) -> Readiness {
    let mut ready = Readiness::NONE;
    block.look_or_want(|| {
        ready = of(socket, block);
        ready.contains(Readiness::WRITABLE).then_some(())
    });
    ready
}
