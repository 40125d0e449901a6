//! The socket that the processes of a program share on a `mux` wire, for the programs that they
//! start.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::OnceLock;

/// The variable with the numbers of the memory file and the family's socket.
pub const STATE: &CStr = c"MILLSTREAM_STATE";

/// The family's socket, with the variable that names it to a program that gets no memory file.
pub struct Family {
    /// The socket's number.
    pub fd: RawFd,
    /// The variable.
    pub variable: CString,
}

static FAMILY: OnceLock<Family> = OnceLock::new();

impl Family {
    /// The variable for a copy of the socket.
    pub fn named(fd: RawFd) -> Option<Self> {
        let name = STATE.to_str().ok()?;
        let variable = CString::new(format!("{name}=-,{fd}")).ok()?;
        Some(Self { fd, variable })
    }
}

/// Notes the family's socket for children of `vfork` and of `posix_spawn`.
pub fn note() {
    let family = packetio::mux::family().and_then(|family| Family::named(family.as_raw_fd()));
    if let Some(family) = family {
        // The socket stays the same as long as the process.
        let _ = FAMILY.set(family);
    }
}

/// The family's socket. Neither locks nor allocates.
pub fn get() -> Option<&'static Family> {
    FAMILY.get()
}
