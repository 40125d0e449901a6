//! The order in which the segments of many flows lie on a wire that interleaves them.

/// Bytes of a data segment's headers: IPv4, TCP and a timestamp.
const HEADER_BYTES: usize = 52;
/// Segments of the longest burst where lengths change from burst to burst.
const BURST_MAX: usize = 20;

/// Lengths of bursts, in segments.
#[derive(Clone, Debug)]
pub struct Bursts {
    /// Segments of each burst; 0 for random lengths from 2 to 20.
    len: usize,
    /// The state of a generator of lengths.
    random: u64,
}

impl Bursts {
    /// Bursts of `len` segments each, or of random lengths, which are the same for the same `seed`.
    pub fn new(len: usize, seed: u64) -> Self {
        Self { len, random: seed }
    }

    /// Segments that the next flow sends in a row.
    pub fn next_len(&mut self) -> usize {
        if self.len != 0 {
            return self.len;
        }
        let multiplied = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = multiplied.wrapping_add(1);
        2 + (self.random >> 33) as usize % (BURST_MAX - 1)
    }
}

/// Payload of a full segment.
pub fn segment_bytes(mtu: usize) -> usize {
    mtu - HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_length_that_was_asked_for_or_two_to_twenty() {
        let mut bursts = Bursts::new(1, 7);
        assert_eq!([bursts.next_len(), bursts.next_len()], [1, 1]);
        let lengths = |seed| {
            let mut bursts = Bursts::new(0, seed);
            (0..1_000).map(|_| bursts.next_len()).collect::<Vec<_>>()
        };
        let found = lengths(7);
        assert!(found.iter().all(|len| (2..=20).contains(len)));
        assert!(found.contains(&2) && found.contains(&20));
        assert_eq!(found, lengths(7));
        assert_ne!(found, lengths(8));
    }
}
