//! Calls that wait. Each keeps the entry that it began with, as a system call keeps its file: a
//! `close` by another thread takes effect when the call returns.
//!
//! A signal handler that leaves a call by `longjmp` abandons the call's wait. The stack tells: the
//! frame of an abandoned call lies below that of a later call of the same thread. A handler may
//! have a stack of its own (`sigaltstack`) anywhere in memory. A call there leaves the waits on the
//! thread's stack alone, and a call on the thread's stack comes after the end of every handler.

use crate::signals_unsafe;

/// A call that waits on an entry.
struct Wait {
    /// See [`Place`].
    place: Place,
    /// The entry.
    key: usize,
    /// The call's last descriptor was replaced by `dup2`, which ends the call.
    is_over: bool,
}

/// A call's thread, and the address of its stack frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    thread: usize,
    frame: usize,
    is_on_signal_stack: bool,
}

thread_local! {
    /// A variable whose address tells threads apart.
    static THREAD: u8 = const { 0 };
}

/// A number that tells the calling thread from others.
pub fn thread() -> usize {
    THREAD.with(|own| std::ptr::from_ref(own).addr())
}

impl Place {
    /// The place of a call of this thread with a local variable at the address `frame`.
    pub fn of(frame: usize) -> Self {
        Self {
            thread: thread(),
            frame,
            is_on_signal_stack: signals_unsafe::is_on_signal_stack(frame),
        }
    }

    /// True if a call at `self` cannot go on while the same thread makes a call at `later`.
    fn is_left_before(self, later: Self) -> bool {
        self.thread == later.thread
            && match (self.is_on_signal_stack, later.is_on_signal_stack) {
                (false, true) => false,
                (true, false) => true,
                _ => self.frame <= later.frame,
            }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct Waits(Vec<Wait>);

impl Waits {
    /// No call.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Begins the wait of a call on entries. Returns the entries of waits that the thread has
    /// abandoned.
    pub fn begin(&mut self, place: Place, keys: &[usize]) -> Vec<usize> {
        let abandoned = self.forget_abandoned(place);
        let wait = |&key: &usize| Wait {
            place,
            key,
            is_over: false,
        };
        self.0.extend(keys.iter().map(wait));
        abandoned
    }

    /// Ends the wait of a call. Returns the entries that it kept.
    pub fn end(&mut self, place: Place) -> Vec<usize> {
        let ended = self.0.extract_if(.., |wait| wait.place == place);
        ended.map(|wait| wait.key).collect()
    }

    /// Removes the waits that this thread has abandoned; returns their entries.
    pub fn forget_abandoned(&mut self, now: Place) -> Vec<usize> {
        let is_left = |wait: &mut Wait| wait.place.is_left_before(now);
        self.0
            .extract_if(.., is_left)
            .map(|wait| wait.key)
            .collect()
    }

    /// Ends all calls that wait on an entry.
    pub fn end_calls(&mut self, key: usize) {
        for wait in self.0.iter_mut().filter(|wait| wait.key == key) {
            wait.is_over = true;
        }
    }

    /// True if the call at this place has to end.
    pub fn is_over(&self, place: Place) -> bool {
        self.0
            .iter()
            .any(|wait| wait.place == place && wait.is_over)
    }

    /// True if a call waits on the entry.
    pub fn has(&self, key: usize) -> bool {
        self.0.iter().any(|wait| wait.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(thread: usize, frame: usize) -> Place {
        let is_on_signal_stack = false;
        Place {
            thread,
            frame,
            is_on_signal_stack,
        }
    }

    fn at_on_signal_stack(thread: usize, frame: usize) -> Place {
        Place {
            is_on_signal_stack: true,
            ..at(thread, frame)
        }
    }

    #[test]
    fn wait_of_a_handler_on_a_higher_stack_keeps_the_wait_beneath() {
        let mut waits = Waits::none();
        assert!(waits.begin(at(1, 900), &[7]).is_empty());
        assert!(waits.begin(at_on_signal_stack(1, 5_000), &[8]).is_empty());
        assert!(waits.has(7) && waits.has(8));
        // The handler has left by `longjmp`.
        assert_eq!(waits.begin(at(1, 800), &[9]), [8]);
        assert!(waits.has(7));
    }

    #[test]
    fn wait_within_another_keeps_both_and_one_that_was_left_is_forgotten() {
        let mut waits = Waits::none();
        assert!(waits.begin(at(1, 900), &[7]).is_empty());
        assert!(waits.begin(at(1, 500), &[8]).is_empty(), "a handler's call");
        assert!(waits.begin(at(2, 950), &[9]).is_empty(), "another thread");
        assert_eq!(waits.begin(at(1, 700), &[10]), [8]);
        assert!(waits.has(7) && !waits.has(8) && waits.has(9));
        assert_eq!(waits.end(at(1, 700)), [10]);
        assert_eq!(waits.forget_abandoned(at(1, 900)), [7]);
        assert!(waits.has(9));
    }

    #[test]
    fn wait_on_several_entries_keeps_all_until_its_end() {
        let mut waits = Waits::none();
        waits.begin(at(1, 900), &[7, 8]);
        assert!(waits.has(7) && waits.has(8));
        assert_eq!(waits.end(at(1, 900)), [7, 8]);
    }

    #[test]
    fn entry_replaced_ends_its_calls_alone() {
        let mut waits = Waits::none();
        waits.begin(at(1, 900), &[7]);
        waits.begin(at(2, 900), &[8]);
        waits.end_calls(7);
        assert!(waits.is_over(at(1, 900)) && !waits.is_over(at(2, 900)));
    }
}
