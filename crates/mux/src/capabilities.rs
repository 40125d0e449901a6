//! Capabilities of the service's threads after the start.
//!
//! The start needs `CAP_SYS_ADMIN`, for the private namespace and two mounts, and
//! `CAP_SYS_RESOURCE`, for the limit of descriptors. Nothing needs them afterwards: the thread in
//! the namespace makes virtual ports, and `mill mux stop` unmounts. Each thread has capabilities of
//! its own and inherits those of its creator, so each thread that starts earlier calls this module
//! too.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Capabilities that the service needs while it runs.
///
/// * `NET_ADMIN`: virtual ports, programs on interfaces, managed neighbours.
/// * `NET_RAW`: AF_XDP sockets, resets, announcements.
/// * `BPF`: access to maps and programs.
/// * `NET_BIND_SERVICE`: reservation of low ports.
/// * `IPC_LOCK`: memory of applications, which the kernel pins.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::IPC_LOCK);

/// Takes from the calling thread all capabilities but those that the running service needs.
///
/// # Errors
/// The kernel's, for example of a filter of system calls.
pub fn drop_those_of_the_start() -> io::Result<()> {
    let own = capabilities(None)?.permitted;
    match own.contains(CapabilitySet::BPF) {
        true => keep(KEPT),
        // `SYS_ADMIN` includes `BPF`, and some container engines grant only the former.
        false => keep(KEPT | CapabilitySet::SYS_ADMIN),
    }
}

/// Takes all capabilities from the calling thread.
///
/// # Errors
/// As [`drop_those_of_the_start`].
pub fn drop_all() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    // A program that root executes would have all capabilities again.
    set_no_new_privs(true)?;
    let own = capabilities(None)?;
    let sets = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: own.inheritable & kept,
    };
    set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_drops_has_no_more_than_the_service_needs() {
        let before = capabilities(None).unwrap();
        let thread = std::thread::spawn(|| {
            drop_those_of_the_start().unwrap();
            capabilities(None).unwrap()
        });
        let after = thread.join().unwrap();
        assert_eq!(after.permitted, before.permitted & KEPT);
        assert_eq!(after.effective, before.effective & KEPT);
        assert_eq!(capabilities(None).unwrap(), before, "another thread's");
    }
}
