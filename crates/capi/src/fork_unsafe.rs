//! `fork`: contexts stay the parent's. The child must not drop its copies of them.

use std::sync::Once;

use crate::{contexts, process};

/// Registers the handler for children, with the first context.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` is a function of this type, and exists as long as this library. If
        // memory is short, registration fails and children keep the copies.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    contexts::leave_to_parent();
    process::leave_to_parent();
}
