//! The processor's time-stamp counter: what a stage of a turn took, for who builds with the feature
//! that asks.

/// Cycles of the time-stamp counter; 0 where there is none. Not serialised: a few instructions
/// around it may fall to the one side or the other.
#[inline(always)]
#[must_use]
#[allow(unused_unsafe)]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        0
    }
}
