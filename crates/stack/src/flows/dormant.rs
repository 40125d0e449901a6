//! Packed sockets: a quiet connection and its slot, stored in a chain of small blocks.
//!
//! ```text
//!   place of a socket ──▶ names, then what `tcp::pack` writes ──▶ the rest of it ──▶ …      64 bytes each, four of them the link
//! ```
//!
//! The socket table owns the blocks and decides which sockets are packed
//! ([`sockets`](crate::flows::sockets)). At the limit
//! ([`Limits::packed_blocks`](crate::limits::Limits)) a socket stays unpacked.

use ring::byte_ring::{RxWriter, TxReader};
use ring::huge_pages::PageSource;
use ring::tables::Table;
use tcp::pack::{Packer, Packing, Unpacker};
use wire::{Addr, FlowKey};

use crate::flows::lane::Lane;
use crate::flows::slot::{Role, Slot};
use crate::header_fields::{DontFragment, HeaderFields};
use crate::limits::PACKED_BYTES_MAX;

const NONE: u32 = u32::MAX;
const BLOCK_BYTES: usize = 60;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block {
    bytes: [u8; BLOCK_BYTES],
    next: u32,
}

/// Bytes of a block with its link.
pub(crate) const BLOCK_BYTES_ALL: usize = size_of::<Block>();
const _: () = assert!(BLOCK_BYTES_ALL == 64);

/// See the module's documentation.
pub(crate) struct PackedBlocks {
    blocks: Table<Block>,
    /// First free block; free blocks are linked.
    free: u32,
    in_use: usize,
    capacity: usize,
    /// Number of times that packing found no room.
    refused: u64,
}

impl PackedBlocks {
    pub fn new(capacity: usize, source: &mut PageSource) -> Self {
        Self {
            blocks: Table::with_capacity(capacity, source),
            free: NONE,
            in_use: 0,
            capacity,
            refused: 0,
        }
    }

    /// Number of blocks in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Number of times that a socket stayed unpacked for want of blocks.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Packs `slot`. `None`: the slot cannot be packed or there is no room; it is unchanged.
    pub fn store(&mut self, slot: &mut Slot, generation: u32) -> Option<u32> {
        let mut bytes = [0; PACKED_BYTES_MAX];
        let names = write_key(&mut bytes, &slot.key);
        let mut packer = Packer::new(&mut bytes[names..]);
        pack(slot, &mut packer, generation);
        let len = names + packer.finish()?;
        let count = len.div_ceil(BLOCK_BYTES);
        if self.in_use + count > self.capacity {
            self.refused += 1;
            return None;
        }
        // The chain is built from its end, so that each block links to one that exists.
        let mut next = NONE;
        for piece in bytes[..len].chunks(BLOCK_BYTES).rev() {
            next = self.take(piece, next);
        }
        Some(next)
    }

    /// Unpacks the socket stored at `at` into `slot`, and sets all its fields. The blocks stay in
    /// use.
    pub fn read(&self, at: u32, slot: &mut Slot, generation: u32) {
        let mut bytes = [0; PACKED_BYTES_MAX];
        let (mut at, mut len) = (at, 0);
        while let Some(block) = self.blocks.get(at as usize) {
            let Some(place) = bytes.get_mut(len..len + BLOCK_BYTES) else {
                break;
            };
            place.copy_from_slice(&block.bytes);
            len += BLOCK_BYTES;
            at = block.next;
        }
        let (key, names) = read_key(&bytes);
        slot.key = key;
        pack(slot, &mut Unpacker::new(&bytes[names..]), generation);
    }

    /// Frees the blocks of the socket stored at `at`.
    pub fn free(&mut self, at: u32) {
        let mut at = at;
        while let Some(block) = self.blocks.get_mut(at as usize) {
            let next = std::mem::replace(&mut block.next, self.free);
            self.free = at;
            self.in_use -= 1;
            at = next;
        }
    }

    /// True if the packed connection at `at` belongs to this flow.
    #[inline]
    pub fn is_of(&self, at: u32, key: &FlowKey) -> bool {
        self.key(at) == *key
    }

    /// The flow of the socket stored at `at`.
    #[inline]
    pub fn key(&self, at: u32) -> FlowKey {
        read_key(&self.blocks[at as usize].bytes).0
    }

    fn take(&mut self, piece: &[u8], next: u32) -> u32 {
        let mut block = Block {
            bytes: [0; BLOCK_BYTES],
            next,
        };
        block.bytes[..piece.len()].copy_from_slice(piece);
        self.in_use += 1;
        match self.blocks.get_mut(self.free as usize) {
            Some(place) => {
                let at = std::mem::replace(&mut self.free, place.next);
                *place = block;
                at
            }
            None => {
                let has_room = self.blocks.push(block);
                debug_assert!(has_room, "counted before a socket is packed");
                self.blocks.len() as u32 - 1
            }
        }
    }
}

/// First byte of a packed IPv4 flow, whose addresses take four bytes each.
const V4_MARK: u8 = 4;
const V6_MARK: u8 = 6;

/// Writes both ends of a flow; returns the number of bytes.
fn write_key(bytes: &mut [u8; PACKED_BYTES_MAX], key: &FlowKey) -> usize {
    let [a, b] = key.local_port.to_be_bytes();
    let [c, d] = key.remote_port.to_be_bytes();
    bytes[1..5].copy_from_slice(&[a, b, c, d]);
    let is_v4 = key.local.is_v4() && key.remote.is_v4();
    bytes[0] = if is_v4 { V4_MARK } else { V6_MARK };
    let skipped = if is_v4 { 12 } else { 0 };
    let mut len = 5;
    for address in [key.local, key.remote] {
        let octets = address.octets();
        let octets = &octets[skipped..];
        bytes[len..len + octets.len()].copy_from_slice(octets);
        len += octets.len();
    }
    len
}

/// Reads both ends of a flow; returns also the number of bytes.
#[inline]
fn read_key(bytes: &[u8]) -> (FlowKey, usize) {
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let wide = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[at..at + 16]);
        Addr::from_octets(octets)
    };
    let is_v4 = bytes[0] == V4_MARK;
    let (local, remote, len) = match is_v4 {
        true => (Addr::v4(word(5).into()), Addr::v4(word(9).into()), 13),
        false => (wide(5), wide(21), 37),
    };
    let key = FlowKey {
        local,
        remote,
        local_port: half(1),
        remote_port: half(3),
    };
    (key, len)
}

/// Packs or unpacks all fields of a slot but its key, as [`tcp::pack`] does for a connection.
/// `generation`: that of the socket's block.
fn pack(slot: &mut Slot, p: &mut impl Packing, generation: u32) {
    let Slot {
        conn,
        key: _,
        hash,
        rx,
        tx,
        neighbour,
        header,
        stamps,
        story,
        has_observers,
        role,
        app_gone,
        bound,
        awaits_neighbour,
        fast_opened_by,
        lane,
        pending_events,
        event_position,
        event_generation,
        socket: _,
    } = slot;
    p.u64(hash, 0);
    pack_streams(rx, tx, p);
    // Time stamps and stories are kept in the slot, so a connection with either is not packed.
    if p.must(!*has_observers && *role == Role::Connection && !*awaits_neighbour) {
        (*stamps, *story, *has_observers) = (None, 0, false);
        (*role, *awaits_neighbour) = (Role::Connection, false);
        // The neighbour is looked up again when the connection sends.
        *neighbour = None;
    }
    if p.must(fast_opened_by.is_none() && *pending_events == 0) {
        // Everything is acknowledged, so the next segment may use either lane.
        (*fast_opened_by, *pending_events, *lane) = (None, 0, Lane::default());
    }
    lane.pack(p);
    pack_header(header, p);
    p.bool(app_gone);
    p.bool(bound);
    p.u64(event_position, 0);
    p.u32(event_generation, generation);
    conn.take().pack(p);
}

/// Packs streams that hold no chunk: everything was read and acknowledged.
fn pack_streams(rx: &mut RxWriter, tx: &mut TxReader, p: &mut impl Packing) {
    let (received, sent) = (rx.at_rest(), tx.at_rest());
    let is_reading = p.must(received.is_some() && sent.is_some());
    let [mut tail, mut restarts] = received.unwrap_or_default();
    p.u32(&mut tail, 0);
    p.u32(&mut restarts, 0);
    let [mut una, mut end, mut changes] = sent.unwrap_or_default();
    p.u32(&mut una, 0);
    p.u32(&mut end, una);
    p.u32(&mut changes, 0);
    if is_reading {
        *rx = RxWriter::resting([tail, restarts]);
        *tx = TxReader::resting([una, end, changes]);
    }
}

fn pack_header(header: &mut HeaderFields, p: &mut impl Packing) {
    if !p.is_there(header, HeaderFields::default()) {
        return;
    }
    let HeaderFields {
        dscp,
        hop_limit,
        discovers_mtu,
        dont_fragment,
        retransmits_for_mtu,
        heeds_mtu_v6,
        ident,
        too_narrow_until,
    } = header;
    p.u8(dscp, 0);
    p.u8(hop_limit, 64);
    p.bool(discovers_mtu);
    let (mut never, mut always) = (
        *dont_fragment == DontFragment::Never,
        *dont_fragment == DontFragment::Always,
    );
    p.bool(&mut never);
    p.bool(&mut always);
    *dont_fragment = match (never, always) {
        (true, _) => DontFragment::Never,
        (_, true) => DontFragment::Always,
        _ => DontFragment::OnBelievablePaths,
    };
    p.bool(retransmits_for_mtu);
    p.bool(heeds_mtu_v6);
    p.u16(ident, 0);
    p.u32(too_narrow_until, 0);
}
