//! Keys and values of the BPF maps as bytes: the structures of `bpf/mux.h`.
//!
//! Owns nothing. Addresses and ports are in network order, everything else in host order. Called by
//! `maps` and `mod`.

use std::net::{IpAddr, SocketAddr};

use packetio::MacAddr;

use crate::limits::LISTENERS_PER_PLACE_MAX;

/// Number of devices, and of entries in every map with one entry for each device.
pub const SLOTS: u32 = 256;
/// Contexts of one application that can listen at the same endpoint (`struct claim`).
pub const MEMBERS_MAX: usize = LISTENERS_PER_PLACE_MAX;
/// Entries of `port_counters` for each device.
pub const COUNTS_EACH: u32 = 32;
/// Index of the first drop counter; add the reason's number.
pub const COUNT_DROPS: u32 = 8;
/// Index of the counter of frames for a closed socket.
pub const COUNT_NO_SOCKET: u32 = 4;
/// Index of the counter of packets that left through the bulk lane; the next one counts their
/// bytes.
pub const COUNT_BULK_FRAMES: u32 = 5;
/// Interface index of the bulk lane of device 0; add the device's number.
pub const BULK_FIRST_INDEX: u32 = 1024;
/// Interface index of the veth end through which all bulk lanes' packets leave the namespace.
pub const BULK_HOP_INDEX: u32 = 1023;
/// Least burst of a token bucket, in bytes: a packet of the bulk lane has up to 64 KiB.
const BURST_BYTES_MIN: u64 = 128 * 1024;
/// Greatest size of a rate's bucket, in bytes: the programs multiply it by the nanoseconds of a
/// second.
const BURST_BYTES_MAX: u64 = 8 << 30;
/// Index in `nic` of the NIC.
pub const WAY_NIC: u32 = 0;
/// Index in `nic` of the veth pair for clients of the same host.
pub const WAY_LOCAL: u32 = 1;
/// TCP's protocol number.
const TCP: u8 = 6;

/// Value in `addresses`: an address of the NIC.
pub const ADDRESS_LOCAL: u32 = 1;
/// Value in `addresses`: the broadcast address of a subnet.
pub const ADDRESS_BROADCAST: u32 = 2;

fn words(address: IpAddr) -> ([u8; 16], u8) {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(v4) => {
            octets[..4].copy_from_slice(&v4.octets());
            (octets, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 6),
    }
}

/// `struct address`
pub fn address(of: IpAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let (octets, family) = words(of);
    key[..16].copy_from_slice(&octets);
    key[16..].copy_from_slice(&u32::from(family).to_ne_bytes());
    key
}

/// The address of a key of `addresses`; `None` if the key has no family.
pub fn address_of(key: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = key.get(..16)?.try_into().ok()?;
    let family = u32::from_ne_bytes(key.get(16..20)?.try_into().ok()?);
    match family {
        4 => Some(IpAddr::from([octets[0], octets[1], octets[2], octets[3]])),
        6 => Some(IpAddr::from(octets)),
        _ => None,
    }
}

/// `struct endpoint`
pub fn endpoint(of: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    let (octets, family) = words(of.ip());
    key[..16].copy_from_slice(&octets);
    key[16..18].copy_from_slice(&of.port().to_be_bytes());
    key[18] = TCP;
    key[19] = family;
    key
}

/// The address and port in a key of `claims`; `None` if the family is unknown.
pub fn place_of(key: &[u8]) -> Option<SocketAddr> {
    let octets: [u8; 16] = key.get(..16)?.try_into().ok()?;
    let port = u16::from_be_bytes(key.get(16..18)?.try_into().ok()?);
    let ip = match key.get(19)? {
        4 => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        6 => IpAddr::from(octets),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// `struct claim`. Members beyond the limit are omitted.
pub fn claim(owner: u32, members: &[u16], tracks: bool) -> [u8; 40] {
    let mut value = [0; 40];
    let members = &members[..members.len().min(MEMBERS_MAX)];
    value[..4].copy_from_slice(&owner.to_ne_bytes());
    value[4..6].copy_from_slice(&(members.len() as u16).to_ne_bytes());
    value[6..8].copy_from_slice(&u16::from(tracks).to_ne_bytes());
    for (room, member) in value[8..].chunks_exact_mut(2).zip(members) {
        room.copy_from_slice(&member.to_ne_bytes());
    }
    value
}

/// `struct flow`, the key of `flows`.
pub fn flow(local: SocketAddr, remote: SocketAddr) -> [u8; 40] {
    let mut key = [0; 40];
    let ((ours, family), (theirs, _)) = (words(local.ip()), words(remote.ip()));
    key[..16].copy_from_slice(&ours);
    key[16..32].copy_from_slice(&theirs);
    key[32..34].copy_from_slice(&local.port().to_be_bytes());
    key[34..36].copy_from_slice(&remote.port().to_be_bytes());
    key[36..].copy_from_slice(&u32::from(family).to_ne_bytes());
    key
}

/// The value in `flows` of a flow that has not ended.
pub fn flow_value(device: u16) -> [u8; 4] {
    u32::from(device).to_ne_bytes()
}

/// The device in a value of `flows` (its lower half).
pub fn flow_device(value: [u8; 4]) -> u16 {
    u32::from_ne_bytes(value) as u16
}

/// `struct port_use`
pub fn port_use(leased_to: Option<u16>, claims: u16) -> [u8; 4] {
    let mut value = [0; 4];
    value[..2].copy_from_slice(&leased_to.map_or(0, |slot| slot + 1).to_ne_bytes());
    value[2..].copy_from_slice(&claims.to_ne_bytes());
    value
}

/// `struct slot`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotValue {
    /// The owner: the slot plus 1, or 0 for none.
    pub owner: u32,
    /// The context in the upper half, the application's number in the lower half, for a service
    /// that recovers.
    pub note: u32,
    /// `SO_COOKIE` of the context's socket.
    pub cookie: u64,
    /// Rate limit in bytes per second; 0: none.
    pub rate: u64,
}

impl SlotValue {
    /// Size of the value in bytes.
    pub const BYTES: usize = 48;

    /// Bytes that may be sent at once: those of a tenth of a second, but at least a packet.
    pub fn burst(self) -> u64 {
        (self.rate / 10).clamp(BURST_BYTES_MIN, BURST_BYTES_MAX)
    }

    /// The value in the map, with a full bucket.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let burst = self.burst();
        let mut value = [0; Self::BYTES];
        value[..4].copy_from_slice(&self.owner.to_ne_bytes());
        value[4..8].copy_from_slice(&self.note.to_ne_bytes());
        // A bucket is full whose rate was never used.
        let used_ns = i64::MIN.cast_unsigned();
        let words = [self.cookie, self.rate, burst, 0, used_ns];
        for (room, word) in value[8..].chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_ne_bytes());
        }
        value
    }

    /// The fields that BPF programs do not change.
    pub fn decode(value: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&value[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        let first = word(0).to_ne_bytes();
        Self {
            owner: u32::from_ne_bytes([first[0], first[1], first[2], first[3]]),
            note: u32::from_ne_bytes([first[4], first[5], first[6], first[7]]),
            cookie: word(8),
            rate: word(16),
        }
    }
}

/// Size of `struct settings` in bytes.
pub const SETTINGS_BYTES: usize = 40;

/// `struct settings`. `local`: interface index of the veth pair for clients of the same host; 0:
/// none.
pub fn settings(
    mac: MacAddr,
    note: u16,
    mtu: u32,
    key: [u64; 2],
    local: u32,
) -> [u8; SETTINGS_BYTES] {
    let mut value = [0; SETTINGS_BYTES];
    value[..6].copy_from_slice(&mac.0);
    value[6..8].copy_from_slice(&note.to_ne_bytes());
    value[8..16].copy_from_slice(&u64::from(mtu).to_ne_bytes());
    value[16..24].copy_from_slice(&key[0].to_ne_bytes());
    value[24..32].copy_from_slice(&key[1].to_ne_bytes());
    value[32..36].copy_from_slice(&local.to_ne_bytes());
    value
}

/// `struct next_hop`
pub fn next_hop(mac: MacAddr) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [a, b, c, d, e, f, 0, 0]
}

/// The MAC address of a key of `next_hops`.
pub fn next_hop_of(key: &[u8]) -> Option<MacAddr> {
    Some(MacAddr(key.get(..6)?.try_into().ok()?))
}

/// The owner's slot and the listening devices in a value of `claims`.
pub fn claim_of(value: &[u8; 40]) -> (u16, Vec<u16>) {
    let half = |at: usize| u16::from_ne_bytes([value[at], value[at + 1]]);
    let members = usize::from(half(4)).min(MEMBERS_MAX);
    let devices = (0..members).map(|member| half(8 + 2 * member)).collect();
    let owner = u32::from_ne_bytes([value[0], value[1], value[2], value[3]]);
    (owner.saturating_sub(1) as u16, devices)
}

/// True if flows of a claim keep their context when listeners come and go.
pub fn tracks(value: &[u8; 40]) -> bool {
    value[6..8] != [0, 0]
}
