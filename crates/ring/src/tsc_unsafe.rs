//! The processor's time-stamp counter. Builds with the profiling feature measure with it how long
//! each stage of a turn takes.

/// Cycles of the time-stamp counter; 0 where there is none. The read is not serialised: a few
/// neighbouring instructions may fall on either side of it.
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
