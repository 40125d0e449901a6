//! The readiness of a socket, from the state in its block, by the rules of Linux's `tcp_poll`.

use ring::socket_block::{SocketBlock, SocketState};

use crate::app_socket::{AppSocket, Kind};
use crate::event::Readiness;

/// True if [`of`] may return anything. A stream that is not yet connected has no readiness, and
/// each change of its state is an event.
#[inline]
pub(crate) fn may_be_any(socket: &AppSocket, block: &SocketBlock) -> bool {
    let begins = SocketState::CONNECTED
        | SocketState::FAILED
        | SocketState::CLOSED
        | SocketState::SYNS_CROSSED;
    socket.kind != Kind::Stream || block.state().intersects(begins)
}

/// The readiness of a socket. For an open connection in its usual state, it depends on the bytes to
/// read and the room to write only.
#[inline]
pub(crate) fn of(socket: &mut AppSocket, block: &SocketBlock) -> Readiness {
    let is_plain = block.state() == SocketState::CONNECTED
        && socket.kind == Kind::Stream
        && !socket.read_shut
        && !socket.write_shut
        && (socket.settings.as_ref()).is_none_or(|settings| settings.recv_lowat <= 1);
    if !is_plain {
        return of_any(socket, block);
    }
    Readiness::NONE
        .with(Readiness::READABLE, socket.rx.readable(block) > 0)
        .with(Readiness::WRITABLE, has_room(socket, block))
}

#[inline(never)]
fn of_any(socket: &mut AppSocket, block: &SocketBlock) -> Readiness {
    let state = block.state();
    if socket.kind == Kind::Listener {
        let is_waited_for = socket.queue.as_ref().is_some_and(|queue| !queue.is_empty());
        return Readiness::NONE
            .with(Readiness::READABLE, is_waited_for)
            .with(Readiness::ERROR, state.contains(SocketState::FAILED));
    }
    if matches!(socket.kind, Kind::Idle) {
        // A socket that was never connected is writable and hung up at once, as in Linux.
        return Readiness::WRITABLE.union(Readiness::HANGUP);
    }
    if matches!(socket.kind, Kind::Deferred) {
        return Readiness::WRITABLE;
    }
    let failed = state.contains(SocketState::FAILED);
    let closed = state.contains(SocketState::CLOSED);
    let is_over = failed || closed;
    if !is_over && !state.contains(SocketState::CONNECTED) {
        // After a simultaneous open (RFC 9293 3.5) either direction may have been shut already.
        return Readiness::NONE
            .with(Readiness::READABLE, socket.read_shut)
            .with(Readiness::READ_CLOSED, socket.read_shut)
            .with(Readiness::HANGUP, socket.read_shut && socket.write_shut);
    }
    let mut wanted = socket
        .settings
        .as_ref()
        .map_or(1, |settings| settings.recv_lowat.max(1));
    let mark = socket.urgent_mark(block);
    // An urgent byte that was taken out of the stream does not count as readable.
    wanted += u32::from(mark.is_some_and(|mark| mark.is_apart && mark.ahead == 0));
    let is_urgent = mark.is_some_and(|mark| mark.has_arrived && !mark.is_taken);
    let read_closed = is_over || socket.read_shut || state.contains(SocketState::EOF);
    let write_closed = is_over || socket.write_shut;
    Readiness::NONE
        .with(
            Readiness::READABLE,
            read_closed || socket.rx.readable(block) >= wanted,
        )
        .with(Readiness::WRITABLE, write_closed || has_room(socket, block))
        .with(Readiness::READ_CLOSED, read_closed)
        .with(Readiness::HANGUP, is_over || (read_closed && write_closed))
        .with(
            Readiness::ERROR,
            failed && (!socket.error_taken || state.contains(SocketState::REFUSED_BY_ICMP))
                || state.contains(SocketState::ERROR_WAITS),
        )
        .with(Readiness::URGENT, is_urgent)
}

/// True if a third of the send buffer is free, the same rule by which the stack reports room.
fn has_room(socket: &AppSocket, block: &SocketBlock) -> bool {
    socket.tx.is_writable(block)
}
