//! The process that the table of descriptors belongs to.

use ring::published::Published32;

static PID: Published32 = Published32::new(0);

/// Notes that the table belongs to this process.
pub fn note() {
    PID.store(std::process::id());
}

/// True if the library is on.
pub fn is_noted() -> bool {
    PID.load() != 0
}

/// True in a child of `vfork`: it uses the parent's memory, and no `fork` handler has run.
pub fn is_vforked() -> bool {
    PID.load() != std::process::id()
}
