//! A set of indices as bits: cheap to fill in any order, and cheap to read in the order of the
//! indices.

/// A set of the indices below a limit.
pub(super) struct IndexSet {
    words: Vec<u64>,
    count: u32,
    /// No word before this one has a bit set.
    first: usize,
}

const WORD_BITS: u32 = u64::BITS;

/// The bits of `len` indices from `start` on, all within one word.
#[inline]
fn mask(start: u32, len: u32) -> u64 {
    let ones = u64::MAX >> (WORD_BITS - len);
    ones << (start % WORD_BITS)
}

/// The range in pieces that lie within one word each: the word's index and the bits.
fn pieces(start: u32, len: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = start + len;
    let mut at = start;
    core::iter::from_fn(move || {
        let len = (end - at).min(WORD_BITS - at % WORD_BITS);
        let piece = (len > 0).then(|| ((at / WORD_BITS) as usize, mask(at, len)));
        at += len;
        piece
    })
}

impl IndexSet {
    /// The empty set, for indices below `limit`.
    pub fn new(limit: u32) -> Self {
        Self {
            words: vec![0; limit.div_ceil(WORD_BITS) as usize],
            count: 0,
            first: 0,
        }
    }

    /// Indices in the set.
    #[cfg(test)]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Adds an index that is not in the set.
    pub fn insert(&mut self, index: u32) {
        self.insert_all(index, 1);
    }

    /// Adds `len` indices from `start` on, none of which is in the set.
    pub fn insert_all(&mut self, start: u32, len: u32) {
        for (word, bits) in pieces(start, len) {
            debug_assert!(self.words[word] & bits == 0, "index in the set already");
            self.words[word] |= bits;
        }
        self.first = self.first.min((start / WORD_BITS) as usize);
        self.count += len;
    }

    /// True if all `len` indices from `start` on are in the set.
    pub fn has_all(&self, start: u32, len: u32) -> bool {
        pieces(start, len).all(|(word, bits)| self.words[word] & bits == bits)
    }

    /// Removes `len` indices from `start` on, all of which are in the set.
    pub fn remove_all(&mut self, start: u32, len: u32) {
        for (word, bits) in pieces(start, len) {
            debug_assert!(self.words[word] & bits == bits, "index not in the set");
            self.words[word] &= !bits;
        }
        self.count -= len;
    }

    /// The first place to look for indices from `start` on: `start`, or the beginning of the first
    /// word with any. `None`: there are none.
    pub fn next_word(&self, start: u32) -> Option<u32> {
        let from = (start / WORD_BITS) as usize;
        let words = self.words.get(from..)?;
        let skipped = words.iter().position(|&word| word != 0)?;
        Some(((from + skipped) as u32 * WORD_BITS).max(start))
    }

    /// Removes up to `max` indices, the lowest first, and hands each to `each`; returns how many.
    pub fn take_some(&mut self, max: u32, mut each: impl FnMut(u32)) -> u32 {
        let wanted = max.min(self.count);
        for _ in 0..wanted {
            while self.words[self.first] == 0 {
                self.first += 1;
            }
            let word = &mut self.words[self.first];
            each(self.first as u32 * WORD_BITS + word.trailing_zeros());
            *word &= *word - 1;
        }
        self.count -= wanted;
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_over_several_words_is_added_found_and_removed() {
        let mut set = IndexSet::new(300);
        set.insert_all(60, 140);
        assert!(set.has_all(60, 140) && !set.has_all(59, 2) && !set.has_all(199, 2));
        assert_eq!((set.len(), set.next_word(0)), (140, Some(0)));
        set.remove_all(60, 100);
        assert_eq!((set.len(), set.next_word(0)), (40, Some(128)));
        assert_eq!((set.next_word(130), set.next_word(256)), (Some(130), None));
        set.insert_all(64, 64);
        assert!(set.has_all(64, 64));
    }

    #[test]
    fn lowest_are_taken_first_also_after_a_lower_one_came() {
        let mut set = IndexSet::new(200);
        for index in [190, 70, 130] {
            set.insert(index);
        }
        let mut taken = Vec::new();
        assert_eq!(set.take_some(2, |index| taken.push(index)), 2);
        set.insert(5);
        assert_eq!(set.take_some(9, |index| taken.push(index)), 2);
        assert_eq!((taken, set.len()), (vec![70, 130, 5, 190], 0));
    }
}
