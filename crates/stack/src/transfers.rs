//! Connections that nobody has accepted, on their way between the stacks of two processes that
//! share a place.
//!
//! A listener is closed while handshakes and connections wait behind it. Linux has one queue for
//! all processes, so another one accepts them. Here the stack sends each connection to the other
//! process: its handshake, the bytes that arrived, and perhaps a FIN, which is all there is to a
//! connection that no application has used. A handshake in progress stays until it completes.
//!
//! ```text
//!   close ──▶ closed ──▶ shared? ─┬─ no ──▶ reset, as always
//!                                 └─ yes ─▶ sent ──▶ the other stack ──▶ its accept queue, an ACK
//!   final ACK of a handshake whose listener left ──┘        └─ nobody takes it ──▶ reset
//! ```
//!
//! The ACK that the other stack sends brings the flow's segments to it. Until then they arrive
//! here, and nobody may answer them: a place that was left stays quiet for a while. The peer sends
//! again what was dropped.

use std::net::SocketAddr;

use packetio::host::{Host, Transfer};
use ring::byte_ring::RxReader;
use ring::raw::RawSlice;
use tcp::{Handshake, TransmitClass, Untouched};
use wire::FlowKey;
use wire::tcp::{Flags, Timestamp};

use crate::core::Core;
use crate::flows::flow_table::FlowEntry;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::flows::rx_sink::RxSink;
use crate::header_fields::HeaderFields;
use crate::limits::{LEFT_PLACE_QUIET_NS, TRANSFERS_OUT_MAX};
use crate::settle::door;
use crate::transfer_lists::{LeftPlace, Parcel, Sent};

impl Core {
    /// Sends and receives connections, once per turn.
    pub(crate) fn exchange_transfers(&mut self, host: &mut dyn Host) {
        while let Some(transfer) = host.next_transfer() {
            self.transfer_came(host, transfer);
        }
        let transfers = &self.transfers;
        if transfers.closed.is_empty() && transfers.ready.is_empty() && transfers.left.is_empty() {
            return;
        }
        for (id, listener) in std::mem::take(&mut self.transfers.closed) {
            let place = SocketAddr::new(listener.address().to_ip(), listener.port());
            match host.is_shared(place) {
                true => self.leave_to_others(host, (id, &listener), place),
                false => self.forget_listener(id, &listener),
            }
        }
        for (place, parcel) in std::mem::take(&mut self.transfers.ready) {
            self.send_parcel(host, place, parcel);
        }
        let now_ns = self.env.now_ns;
        let half_opens = &self.flows.half_opens;
        let waits = |listener| {
            let mut all = 0..half_opens.span();
            all.any(|at| {
                half_opens
                    .at(at)
                    .is_some_and(|one| one.listener == listener)
            })
        };
        self.transfers
            .left
            .retain(|left| now_ns < left.quiet_until_ns || waits(left.listener));
    }

    /// Connections are on their way, or handshakes that belong to another process are in progress.
    pub(crate) fn is_transferring(&self) -> bool {
        let transfers = &self.transfers;
        let is_moving = !transfers.sent.is_empty() || !transfers.ready.is_empty();
        let half_opens = &self.flows.half_opens;
        let mut entries = (0..half_opens.span()).filter_map(|at| half_opens.at(at));
        is_moving
            || !transfers.closed.is_empty()
            || entries.any(|entry| transfers.place_of(entry.listener).is_some())
    }

    /// Sends the connections that wait for `accept`. Handshakes in progress stay.
    fn leave_to_others(
        &mut self,
        host: &mut dyn Host,
        (id, listener): (ListenerId, &Listener),
        local: SocketAddr,
    ) {
        self.transfers.left.push(LeftPlace {
            local,
            listener: id,
            quiet_until_ns: self.env.now_ns + LEFT_PLACE_QUIET_NS,
        });
        let waiting: Vec<_> = listener.queue.waiting().collect();
        for id in waiting {
            let Some(socket) = self.flows.sockets.resolve(id) else {
                continue;
            };
            match self.parcel_of(socket) {
                Some(parcel) if self.transfers.sent.len() < TRANSFERS_OUT_MAX => {
                    self.forget_silently(socket);
                    self.send_parcel(host, local, parcel);
                }
                _ => self.disown(socket),
            }
        }
    }

    fn send_parcel(&mut self, host: &mut dyn Host, local: SocketAddr, parcel: Parcel) {
        let transfers = &mut self.transfers;
        transfers.next_number = transfers.next_number.wrapping_add(1);
        let number = transfers.next_number;
        transfers.sent.push(Sent {
            number,
            key: parcel.key,
            seq: parcel.handshake.una,
        });
        self.counters.transfers_sent += 1;
        host.transfer(Transfer::Connection {
            number,
            local,
            bytes: parcel.encode(),
        });
    }

    /// The connection of a socket that nobody has accepted. `None`: it is not to be moved.
    fn parcel_of(&mut self, socket: u32) -> Option<Parcel> {
        let (slot, _, _) = self.flows.sockets.parts(socket);
        let key = slot.key;
        slot.live_mut()?;
        let (memory, block) = self.flows.sockets.memory_of(socket);
        let mut reader = RxReader::new();
        let mut bytes = vec![0; reader.readable(block) as usize];
        let read = reader.peek(memory, block, &mut bytes);
        if read < bytes.len() {
            return None;
        }
        let conn = self.flows.sockets.slot(socket).live_mut()?;
        let Untouched { handshake, has_fin } = conn.untouched(read as u32)?;
        Some(Parcel {
            key,
            handshake,
            has_fin,
            bytes,
        })
    }

    /// Forgets a connection of which the peer hears from another stack.
    fn forget_silently(&mut self, socket: u32) {
        self.flows.sockets.orphan(socket);
        let Some(conn) = self.flows.sockets.slot(socket).live_mut() else {
            return self.release_socket(socket);
        };
        let mut cx = self.env.cx();
        let effects = conn.abort(&mut cx);
        // The reset is for nobody.
        while conn.due() != TransmitClass::None
            && conn.poll_transmit(&mut cx, &mut self.segment_out)
        {}
        self.settle(socket, effects);
    }

    /// The final ACK of a handshake whose listener was closed: true if another process gets the
    /// connection. Data of that segment comes again.
    pub(crate) fn handshake_left(
        &mut self,
        index: u32,
        listener: ListenerId,
        key: &FlowKey,
        handshake: &Handshake,
    ) -> bool {
        let Some(place) = self.transfers.place_of(listener) else {
            return false;
        };
        self.remove_half_open(index);
        let parcel = Parcel {
            key: *key,
            handshake: *handshake,
            has_fin: false,
            bytes: Vec::new(),
        };
        self.transfers.ready.push((place, parcel));
        true
    }

    #[cold]
    fn transfer_came(&mut self, host: &mut dyn Host, transfer: Transfer) {
        match transfer {
            Transfer::Connection {
                number,
                local,
                bytes,
            } => {
                let is_taken = Parcel::decode(&bytes)
                    .is_some_and(|parcel| self.take_parcel(local, &parcel).is_some());
                host.transfer(match is_taken {
                    true => Transfer::Taken { number },
                    false => Transfer::Refused { number },
                });
            }
            Transfer::Taken { number } => {
                self.transfers.sent.retain(|sent| sent.number != number);
            }
            Transfer::Refused { number } => {
                let sent = &mut self.transfers.sent;
                if let Some(at) = sent.iter().position(|sent| sent.number == number) {
                    let sent = sent.swap_remove(at);
                    self.counters.transfers_refused += 1;
                    self.counters.resets_sent += 1;
                    let reset = tcp::reset::refuse(sent.seq);
                    self.reply(&sent.key, &reset, HeaderFields::default());
                }
            }
        }
    }

    /// Makes a connection of one that comes from another stack, and puts it into the accept queue.
    /// `None`: there is no listener, no room, or the flow is known.
    fn take_parcel(&mut self, local: SocketAddr, parcel: &Parcel) -> Option<()> {
        let key = parcel.key;
        let hash = self.flows.hasher.hash(&key);
        let listener = self.flows.listeners.find(key.local, key.local_port, hash)?;
        let is_right = local.port() == key.local_port;
        let has_room = self.flows.listeners.at_mut(listener)?.has_room();
        if !is_right || !has_room || self.flows.find(&key, hash).is_some() {
            return None;
        }
        let id = self.flows.sockets.reserve()?;
        let entry = FlowEntry::Connection(id.index);
        if self.flows.table.insert(hash, entry).is_err() {
            self.counters.flow_table_full += 1;
            self.flows.sockets.release(id.index);
            return None;
        }
        let buffers = self.buffers_to_accept(listener);
        let (slot, _, block) = self.flows.sockets.parts(id.index);
        let mut cx = self.env.cx();
        slot.become_connection(key, hash)
            .accept_in(&mut cx, &parcel.handshake, &buffers);
        door!(self, cx).settle_accepted(id.index, slot, block);
        self.flows.ledger.begin(id.index, &key);
        self.tell_path(id.index);
        self.replay(id.index, parcel);
        if !self.is_whole_again(id.index, parcel) {
            self.forget_silently(id.index);
            return None;
        }
        self.announce_accepted(listener, id, &key);
        self.tell(id.index);
        self.counters.transfers_taken += 1;
        Some(())
    }

    /// Gives a new connection what its peer has sent before, and lets it answer: the ACK shows the
    /// peer's segments the way.
    fn replay(&mut self, socket: u32, parcel: &Parcel) {
        let handshake = &parcel.handshake;
        let shift = handshake.window_scales.map_or(0, |scales| scales.peers);
        let mut segment = tcp::Segment {
            seq: handshake.irs + 1,
            ack: handshake.una,
            flags: Flags::ACK | Flags::PSH,
            window: (handshake.snd_wnd >> shift).min(u16::MAX.into()) as u16,
            urgent: 0,
            len: parcel.bytes.len() as u32,
            options: wire::tcp::Options::default(),
            ecn: wire::Ecn::NotEct,
        };
        if handshake.timestamps {
            let (value, echo) = (handshake.ts_recent, 0);
            segment.options.timestamp = Some(Timestamp { value, echo });
        }
        let mut probe = segment.clone();
        if parcel.has_fin {
            segment.flags |= Flags::FIN;
        }
        self.segment_again(socket, &segment, &parcel.bytes);
        // A byte before what is expected, as a keep-alive probe has it, is answered at once.
        (probe.seq, probe.len) = (parcel.end() - 1, 0);
        self.segment_again(socket, &probe, &[]);
    }

    /// All that the peer has had acknowledged is there. Too little memory cuts bytes off that the
    /// peer would never send again.
    fn is_whole_again(&mut self, socket: u32, parcel: &Parcel) -> bool {
        let conn = self.flows.sockets.slot(socket).live_mut();
        let found = conn.and_then(|conn| conn.untouched(parcel.bytes.len() as u32));
        found.is_some_and(|found| {
            found.handshake.irs == parcel.handshake.irs && found.has_fin == parcel.has_fin
        })
    }

    fn segment_again(&mut self, socket: u32, segment: &tcp::Segment, bytes: &[u8]) {
        let (slot, pool, block) = self.flows.sockets.parts(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut sink = RxSink::new(&mut slot.rx, pool, block, RawSlice::from(bytes));
        let effects = conn.on_segment(&mut self.env.cx(), segment, &mut sink);
        sink.clear_tail();
        self.counters.rx_no_buffer += u64::from(sink.starved);
        self.settle(socket, effects);
    }
}
