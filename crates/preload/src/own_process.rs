//! The process that the table of descriptors belongs to.

use ring::published::Published32;

static PID: Published32 = Published32::new(0);

/// The table is this process's.
pub fn note() {
    PID.store(std::process::id());
}

/// The library is on.
pub fn is_noted() -> bool {
    PID.load() != 0
}

/// This is a child of `vfork`: its memory is the parent's, and no handler of `fork` ran.
pub fn is_vforked() -> bool {
    PID.load() != std::process::id()
}
