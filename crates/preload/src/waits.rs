//! Calls that wait. Each keeps the entry that it began with, as a system call keeps its file: a
//! `close` by another thread takes effect when the call returns.
//!
//! A signal handler that leaves a call by `longjmp` abandons the call's wait. The stack tells: the
//! frame of an abandoned call lies below that of a later call of the same thread.

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
}

thread_local! {
    /// A variable whose address tells threads apart.
    static THREAD: u8 = const { 0 };
}

impl Place {
    /// The place of a call of this thread with a local variable at `local`.
    pub fn of(local: &u8) -> Self {
        Self {
            thread: THREAD.with(|own| std::ptr::from_ref(own).addr()),
            frame: std::ptr::from_ref(local).addr(),
        }
    }

    /// True if a call at `self` cannot go on while the same thread makes a call at `later`.
    fn is_left_before(self, later: Self) -> bool {
        self.thread == later.thread && self.frame <= later.frame
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

    /// Begins the wait of a call. Returns the entries of waits that the thread has abandoned.
    pub fn begin(&mut self, place: Place, key: usize) -> Vec<usize> {
        let abandoned = self.forget_abandoned(place);
        self.0.push(Wait {
            place,
            key,
            is_over: false,
        });
        abandoned
    }

    /// Ends the wait of a call.
    pub fn end(&mut self, place: Place) {
        self.0.retain(|wait| wait.place != place);
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
        Place { thread, frame }
    }

    #[test]
    fn wait_within_another_keeps_both_and_one_that_was_left_is_forgotten() {
        let mut waits = Waits::none();
        assert!(waits.begin(at(1, 900), 7).is_empty());
        assert!(waits.begin(at(1, 500), 8).is_empty(), "a handler's call");
        assert!(waits.begin(at(2, 950), 9).is_empty(), "another thread");
        assert_eq!(waits.begin(at(1, 700), 10), [8]);
        assert!(waits.has(7) && !waits.has(8) && waits.has(9));
        waits.end(at(1, 700));
        assert_eq!(waits.forget_abandoned(at(1, 900)), [7]);
        assert!(waits.has(9));
    }

    #[test]
    fn entry_replaced_ends_its_calls_alone() {
        let mut waits = Waits::none();
        waits.begin(at(1, 900), 7);
        waits.begin(at(2, 900), 8);
        waits.end_calls(7);
        assert!(waits.is_over(at(1, 900)) && !waits.is_over(at(2, 900)));
    }
}
