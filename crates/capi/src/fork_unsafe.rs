//! `fork`: contexts stay with the parent. The child has copies of all that leads to them, and must
//! let go of nothing.

use std::sync::Once;

use crate::{contexts, process};

/// From the first context on, children leave contexts to their parent.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` is a function of this type, and stays as long as this library does.
        // Without memory for it a child is as it would be without us.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    contexts::leave_to_parent();
    process::leave_to_parent();
}
