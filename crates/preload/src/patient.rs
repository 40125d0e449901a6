//! A mutex whose holders do not sleep, taken with some patience.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::limits::{LOCK_PAUSES, LOCK_TRIES};

/// Takes the mutex. The thread looks for a while before it sleeps: two switches of threads cost
/// more than a turn of the stack.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOCK_TRIES {
        match mutex.try_lock() {
            Ok(held) => return held,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        (0..LOCK_PAUSES).for_each(|_| std::hint::spin_loop());
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn mutex_held_for_long_is_taken_when_it_is_free() {
        let mutex = Mutex::new(0);
        let (begins, begun) = channel();
        std::thread::scope(|scope| {
            let held = lock(&mutex);
            scope.spawn(|| {
                begins.send(()).expect("the test waits");
                *lock(&mutex) += 1;
            });
            begun.recv().expect("the thread begins");
            drop(held);
        });
        assert_eq!(*lock(&mutex), 1);
    }
}
