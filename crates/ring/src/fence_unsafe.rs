//! The full fence: stores before it are visible before loads after it are executed.
//!
//! On x86-64 it is a locked instruction on the top of the stack. The compiler would turn a fence
//! into `mfence`, which also orders device memory, delays later instructions, and takes about twice
//! as long. This crate needs only the order of ordinary memory.

/// A sequentially consistent fence.
#[inline(always)]
pub(crate) fn full() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: the word at the top of the stack is this thread's own, and its value does not change.
    // The compiler assumes that the instruction may read and write all memory, so it moves no
    // access across.
    unsafe {
        core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(all(any(not(target_arch = "x86_64"), miri), not(loom)))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}
