//! The full fence: what we stored before it is visible before we load after it.
//!
//! On x86-64 it is a locked instruction on the top of the stack. `mfence`, which the compiler would
//! make of a fence, orders device memory too and keeps later instructions waiting. It takes about
//! twice as long, and nothing here needs more than the order of memory.

/// A sequentially consistent fence.
#[inline(always)]
pub(crate) fn full() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: the word at the top of the stack is this thread's own, and stays what it is. The
    // compiler takes it that all memory may be read and written here, so it moves no access across.
    unsafe {
        core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(all(any(not(target_arch = "x86_64"), miri), not(loom)))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}
