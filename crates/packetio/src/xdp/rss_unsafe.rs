//! Receive-side scaling of a card as its driver reports it: the hash's key, the table of queues,
//! and the hashed fields.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wire::toeplitz::{KEY_LEN, Toeplitz};

use super::device_unsafe::ethtool_slice;
use crate::limits::SPREAD_ENTRIES_MAX;
use crate::spread::Spread;

const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_GRXFH: u32 = 0x29;
/// Words of `struct ethtool_rxfh` before its table.
const HEADER_WORDS: usize = 6;
/// Most bytes of a driver's key.
const KEY_BYTES_MAX: usize = 256;
/// Hash function `ETH_RSS_HASH_TOP`: Toeplitz.
const TOEPLITZ: u8 = 1;
/// Words of `struct ethtool_rxnfc`.
const RXNFC_WORDS: usize = 48;
/// Flow type `TCP_V4_FLOW`.
const TCP_V4: u32 = 1;
/// Fields `RXH_IP_SRC`, `RXH_IP_DST`, `RXH_L4_B_0_1` and `RXH_L4_B_2_3`: addresses and ports.
const FOUR_TUPLE: u32 = 0xf0;

/// How the card of this interface spreads flows, in the calling thread's network namespace. `None`:
/// the driver does not tell, or its hash is not Toeplitz over addresses and ports.
#[must_use]
pub fn spread(interface: &str) -> Option<Spread> {
    if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
        return None;
    }
    read(interface).ok().flatten()
}

fn read(interface: &str) -> Result<Option<Spread>, Errno> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut sizes = [0u32; HEADER_WORDS];
    sizes[0] = ETHTOOL_GRSSH;
    // SAFETY: with sizes of zero ETHTOOL_GRSSH writes the structure's header alone.
    unsafe { ethtool_slice(&socket, interface, &mut sizes) }?;
    let (entries, key_bytes) = (sizes[2] as usize, sizes[3] as usize);
    if entries > SPREAD_ENTRIES_MAX || !(KEY_LEN..=KEY_BYTES_MAX).contains(&key_bytes) {
        return Ok(None);
    }
    let mut all = vec![0u32; HEADER_WORDS + entries + key_bytes.div_ceil(4)];
    all[..HEADER_WORDS].copy_from_slice(&[ETHTOOL_GRSSH, 0, sizes[2], sizes[3], 0, 0]);
    // SAFETY: ETHTOOL_GRSSH writes a table and a key of the sizes given behind the header, for
    // which there is room.
    unsafe { ethtool_slice(&socket, interface, &mut all) }?;
    let mut fields = [0u32; RXNFC_WORDS];
    (fields[0], fields[1]) = (ETHTOOL_GRXFH, TCP_V4);
    // SAFETY: ETHTOOL_GRXFH writes a structure of 192 bytes, which this is.
    unsafe { ethtool_slice(&socket, interface, &mut fields) }?;
    // `data` is a 64-bit word; the relevant bits are in its low half, which either word may be.
    let hashed = fields[2] | fields[3];
    Ok(parse(&all, entries).filter(|_| hashed == FOUR_TUPLE))
}

/// Parses an answer to `ETHTOOL_GRSSH` with a table of `entries` entries.
fn parse(answer: &[u32], entries: usize) -> Option<Spread> {
    let [function, transform, ..] = answer.get(4)?.to_ne_bytes();
    if function != TOEPLITZ || transform != 0 {
        return None;
    }
    let table = answer.get(HEADER_WORDS..HEADER_WORDS + entries)?;
    let key = answer.get(HEADER_WORDS + entries..)?;
    let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let key = bytes.first_chunk::<KEY_LEN>()?;
    Spread::new(Toeplitz::new(*key), table.to_vec())
}

#[cfg(test)]
mod tests {
    use wire::toeplitz::MICROSOFT_KEY;

    use super::*;

    /// The answer of a card with this hash function, table and key.
    fn answer(function: u8, table: &[u32], key: &[u8]) -> Vec<u32> {
        let mut words = vec![ETHTOOL_GRSSH, 0, table.len() as u32, key.len() as u32];
        words.extend([u32::from_ne_bytes([function, 0, 0, 0]), 0]);
        words.extend(table);
        let key = key.chunks(4).map(|word| {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            u32::from_ne_bytes(bytes)
        });
        words.extend(key);
        words
    }

    #[test]
    fn answer_of_a_card_is_read() {
        let table: Vec<u32> = (0..128).map(|entry| entry % 6).collect();
        let long = [&MICROSOFT_KEY[..], &[0; 12]].concat();
        let spread = parse(&answer(TOEPLITZ, &table, &long), 128).unwrap();
        assert_eq!(spread.queues(), 6);
        let flow = wire::FlowKey {
            local: wire::Addr::v4([161, 142, 100, 80].into()),
            remote: wire::Addr::v4([66, 9, 149, 187].into()),
            local_port: 1766,
            remote_port: 2794,
        };
        assert_eq!(spread.queue(&flow), (0x51cc_c178 % 128) % 6);
    }

    #[test]
    fn answer_that_cannot_be_computed_is_no_spread() {
        let table = [0, 1];
        for (function, table, key) in [
            (2, &table[..], &MICROSOFT_KEY[..]),
            (TOEPLITZ, &[0, 1, 2], &MICROSOFT_KEY),
            (TOEPLITZ, &[], &MICROSOFT_KEY),
            (TOEPLITZ, &table, &MICROSOFT_KEY[..36]),
        ] {
            assert!(parse(&answer(function, table, key), table.len()).is_none());
        }
        assert!(parse(&[ETHTOOL_GRSSH, 0, 9], 9).is_none());
    }

    #[test]
    fn interface_without_a_card_has_none() {
        assert!(spread("lo").is_none() && spread("").is_none());
    }
}
