//! The stock: how many items lie ready in a queue that one side fills and the other uses up. The
//! stock is as large as recent use asks for.
//!
//! A queue gives its oldest item first, so all that lies ready passes through the caches before
//! anything comes again. A stock of a thousand chunks, of which thirty are used between two looks,
//! is a thousand cold lines in place of a few dozen warm ones. So the stock follows its use
//! (decision 0047).

use crate::limits::STOCK_LEVEL_MIN;
use crate::spsc::Producer;

/// Use lowers the level by this share of what it is too high.
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
    /// Items in the queue after it was last filled.
    filled: usize,
}

impl<T: Send> Stock<T> {
    /// All of the queue until use says otherwise.
    pub fn new(queue: Producer<T>) -> Self {
        Self {
            level: queue.capacity(),
            queue,
            filled: 0,
        }
    }

    /// Fills it up to its level, while `more` gives any; how many went in.
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

    /// Four times of what was `used` since the last look is enough, unless that was all.
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

    /// Items in the queue now.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if all is used up.
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

    /// Uses so many, so often; what lies there in the end.
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
