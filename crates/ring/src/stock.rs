//! The stock: the items that lie ready in a queue that one side fills and the other uses up. Its
//! size follows recent use.
//!
//! A queue returns its oldest item first, so all items that lie ready pass through the caches
//! before one comes again. If thirty of a thousand chunks are used between two looks, the thirty
//! come from a thousand cold lines instead of a few dozen warm ones. So the stock follows its use
//! (decision 0047).

use crate::limits::STOCK_LEVEL_MIN;
use crate::spsc::Producer;

/// Each look lowers a level that is too high by one part in this many of the excess.
const LOWERED_BY: usize = 64;

/// The filling side of a stock: a queue, and the level to which it is filled.
///
/// ```
/// # #[cfg(not(loom))] {
/// let (producer, mut consumer) = ring::spsc::queue(256);
/// let mut stock = ring::stock::Stock::new(producer);
/// let mut fresh = 0..;
/// assert_eq!(stock.fill(|| fresh.next()), 256);
/// assert_eq!(consumer.pop(), Some(0));
/// # }
/// ```
pub struct Stock<T> {
    queue: Producer<T>,
    level: usize,
    /// Items in the queue when it was last filled.
    filled: usize,
}

impl<T: Send> Stock<T> {
    /// A stock whose level is the whole queue until use lowers it.
    pub fn new(queue: Producer<T>) -> Self {
        Self {
            level: queue.capacity(),
            queue,
            filled: 0,
        }
    }

    /// Fills the queue up to its level, while `more` returns items; returns how many went in.
    #[inline]
    pub fn fill(&mut self, more: impl FnMut() -> Option<T>) -> usize {
        let left = self.queue.len();
        if left < self.filled {
            self.follow(self.filled - left, left);
        }
        let count = match self.level.saturating_sub(left) {
            0 => 0,
            room => self
                .queue
                .push_batch(&mut core::iter::from_fn(more).take(room)),
        };
        self.filled = left + count;
        count
    }

    /// Moves the level to four times the items `used` since the last look. If none was `left`, the
    /// level at least doubles.
    #[inline]
    fn follow(&mut self, used: usize, left: usize) {
        let enough = (4 * used).max(STOCK_LEVEL_MIN);
        if left == 0 {
            self.level = enough.max(2 * self.level);
        } else if self.level > enough {
            self.level -= (self.level - enough).div_ceil(LOWERED_BY);
        } else {
            self.level = enough;
        }
        self.level = self.level.min(self.queue.capacity());
    }

    /// Number of items in the queue.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::spsc::{self, Consumer};

    fn stock() -> (Stock<u32>, Consumer<u32>) {
        let (producer, consumer) = spsc::queue(256);
        let mut stock = Stock::new(producer);
        assert_eq!(stock.fill(|| Some(0)), 256);
        (stock, consumer)
    }

    /// Uses `used` items in each of `times` rounds; returns the items in stock in the end.
    fn use_up(
        stock: &mut Stock<u32>,
        user: &mut Consumer<u32>,
        used: usize,
        times: usize,
    ) -> usize {
        for _ in 0..times {
            (0..used).map_while(|_| user.pop()).for_each(drop);
            stock.fill(|| Some(0));
        }
        stock.len()
    }

    #[test]
    fn stock_little_used_sinks_to_some_times_its_use() {
        let (mut stock, mut user) = stock();
        assert_eq!(use_up(&mut stock, &mut user, 20, 150), 80);
        assert_eq!(use_up(&mut stock, &mut user, 1, 40), STOCK_LEVEL_MIN);
        assert_eq!(use_up(&mut stock, &mut user, 0, 10), STOCK_LEVEL_MIN);
    }

    #[test]
    fn stock_used_up_grows_to_all_of_its_queue() {
        let (mut stock, mut user) = stock();
        use_up(&mut stock, &mut user, 1, 250);
        for level in [64, 256, 256] {
            assert_eq!(stock.len(), level);
            use_up(&mut stock, &mut user, 256, 1);
        }
    }

    #[test]
    fn stock_that_cannot_be_filled_keeps_its_level() {
        let (mut stock, mut user) = stock();
        user.pop_batch(200, |_| ());
        assert_eq!(stock.fill(|| None), 0);
        assert_eq!(stock.fill(|| Some(0)), 200);
    }
}
