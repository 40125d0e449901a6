//! The queues of a packet wire: several packet sockets on one interface, among which the kernel
//! spreads flows by their hash (`PACKET_FANOUT`).
//!
//! The first socket of a wire makes a group. The kernel chooses its number, so that no other
//! process or wire has the same. The number is kept for the wire's further sockets.

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::packet_unsafe::{fanout_join, fanout_make};

/// Identifies an interface: device and inode of its network namespace, and its index.
type Key = (u64, u64, i32);

/// The last group made for each interface.
static GROUPS: Mutex<Vec<(Key, u16)>> = Mutex::new(Vec::new());

/// Adds a bound socket to the wire's group, which queue 0 makes.
///
/// # Errors
/// The kernel's error; `NOENT`: queue 0 has not been opened.
pub(super) fn join(fd: impl AsFd, index: i32, queue: usize) -> Result<(), Errno> {
    let namespace = rustix::fs::stat("/proc/thread-self/ns/net")?;
    let key = (namespace.st_dev, namespace.st_ino, index);
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = groups.iter().position(|(of, _)| *of == key);
    if queue == 0 {
        let group = fanout_make(fd)?;
        match known {
            Some(at) => groups[at].1 = group,
            None => groups.push((key, group)),
        }
        return Ok(());
    }
    let at = known.ok_or(Errno::NOENT)?;
    fanout_join(fd, groups[at].1)
}
