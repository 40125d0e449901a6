//! Unaccepted connections that leave for another process: what they hold, and how the stack forgets
//! and sends them.
//!
//! [`transfers`](crate::transfers) sends those of closed listeners,
//! [`accept_search`](crate::accept_search) those that wait too long.

use std::net::SocketAddr;

use packetio::host::{Host, Transfer};
use ring::byte_ring::RxReader;
use tcp::{SegmentOut, TransmitClass, Untouched};
use wire::FlowKey;

use crate::effects::{apply_effects, release_socket};
use crate::engine::{Engine, Parts};
use crate::flows::Flows;
use crate::transfer_lists::{Parcel, Sent, Transfers};

/// Sends a connection of the address `local`. `comes_back`: its listener stays, and takes the
/// connection back if no other process does.
pub(crate) fn send_parcel(
    (engine, transfers): (&mut Engine, &mut Transfers),
    host: &mut dyn Host,
    (local, comes_back): (SocketAddr, bool),
    parcel: Parcel,
) {
    let number = transfers.new_number();
    host.transfer(Transfer::Connection {
        number,
        local,
        ends: ends_of(&parcel.key),
        bytes: parcel.encode(),
        comes_back,
    });
    transfers.sent.push(Sent {
        number,
        key: parcel.key,
        seq: parcel.handshake.una,
        back: comes_back.then(|| Box::new((local, parcel))),
    });
    let Parts { counters, .. } = engine.parts();
    counters.transfers_sent += 1;
}

/// Both ends of a flow, our end first.
pub(crate) fn ends_of(key: &FlowKey) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::new(key.local.to_ip(), key.local_port),
        SocketAddr::new(key.remote.to_ip(), key.remote_port),
    )
}

/// The parcel of an unaccepted connection. `None`: the connection cannot be moved.
pub(crate) fn parcel_of(flows: &mut Flows, socket: u32) -> Option<Parcel> {
    let (slot, _, _) = flows.socket_parts(socket);
    let key = slot.key;
    slot.live_mut()?;
    let (memory, block) = flows.sockets().memory_of(socket);
    let mut reader = RxReader::new();
    let mut bytes = vec![0; reader.readable(block) as usize];
    let read = reader.peek(memory, block, &mut bytes);
    if read < bytes.len() {
        return None;
    }
    let conn = flows.slot(socket).live_mut()?;
    let Untouched { handshake, has_fin } = conn.untouched(read as u32)?;
    Some(Parcel {
        key,
        handshake,
        has_fin,
        bytes,
    })
}

/// Removes a connection without a reset, because another stack serves the peer now.
pub(crate) fn forget_silently(engine: &mut Engine, socket: u32) {
    let parts = engine.parts();
    parts.flows.sockets_mut().orphan(socket);
    let Some(conn) = parts.flows.slot(socket).live_mut() else {
        return release_socket(engine, socket);
    };
    let mut cx = parts.env.cx();
    let effects = conn.abort(&mut cx);
    // The reset is discarded.
    let mut reset = SegmentOut::default();
    while conn.due() != TransmitClass::None && conn.poll_transmit(&mut cx, &mut reset) {}
    apply_effects(engine, socket, effects);
}
