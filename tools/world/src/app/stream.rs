//! The bytes of a stream. The client's begin with the connection's name, so that a server knows
//! which one it has. The others follow from the seed and their position.

use crate::random::mix;

/// Bytes of a name, with which a client's stream begins.
pub const NAME_BYTES: u64 = 8;

/// One direction of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: u64,
    name: Option<[u8; NAME_BYTES as usize]>,
}

/// The name of a connection: its flow, and its number in the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The flow's number.
    pub flow: usize,
    /// The connection's number in its flow.
    pub number: u32,
}

impl Name {
    fn bytes(self, seed: u64) -> [u8; 8] {
        let word = (self.flow as u64) << 32 | u64::from(self.number);
        let seal = mix(seed ^ word) >> 48;
        (seal << 48 | word).to_be_bytes()
    }

    /// The name that `bytes` encode; `None` if they encode none.
    #[must_use]
    pub fn parse(seed: u64, bytes: [u8; 8]) -> Option<Self> {
        let word = u64::from_be_bytes(bytes);
        let name = Self {
            flow: (word >> 32 & 0xffff) as usize,
            number: word as u32,
        };
        (name.bytes(seed) == bytes).then_some(name)
    }
}

impl Stream {
    /// The bytes that the end `side` (0: the client) of a connection sends.
    #[must_use]
    pub fn new(seed: u64, name: Name, side: usize) -> Self {
        let word = (name.flow as u64) << 40 | u64::from(name.number) << 1 | side as u64;
        Self {
            key: mix(seed ^ mix(word)),
            name: (side == 0).then(|| name.bytes(seed)),
        }
    }

    /// Writes the stream's bytes from `position` on to `out`.
    pub fn fill(&self, position: u64, out: &mut [u8]) {
        let (mut at, mut rest) = (position, out);
        // The bytes up to the next word, then whole words, then the remaining bytes.
        let head = rest.len().min((8 - at % 8) as usize);
        self.fill_within(at, &mut rest[..head]);
        (at, rest) = (at + head as u64, &mut rest[head..]);
        let (whole, tail) = rest.split_at_mut(rest.len() / 8 * 8);
        for (place, word) in whole.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.word(at / 8 + place as u64));
        }
        at += whole.len() as u64;
        self.fill_within(at, tail);
    }

    /// Writes bytes that lie within one word.
    fn fill_within(&self, position: u64, out: &mut [u8]) {
        let within = (position % 8) as usize;
        out.copy_from_slice(&self.word(position / 8)[within..within + out.len()]);
    }

    fn word(&self, index: u64) -> [u8; 8] {
        if index == 0
            && let Some(name) = self.name
        {
            return name;
        }
        (index ^ self.key)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .swap_bytes()
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole() {
        let name = Name {
            flow: 3,
            number: 70,
        };
        let stream = Stream::new(9, name, 0);
        let mut whole = [0; 100];
        stream.fill(0, &mut whole);
        for (from, to) in [(0, 5), (5, 6), (6, 64), (64, 100)] {
            let mut piece = vec![0; to - from];
            stream.fill(from as u64, &mut piece);
            assert_eq!(piece, whole[from..to]);
        }
        let head: [u8; 8] = whole[..8].try_into().unwrap();
        assert_eq!(Name::parse(9, head), Some(name));
        assert_eq!(Name::parse(8, head), None);
    }
}
