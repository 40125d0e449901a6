//! The heir: a child that delivers a process's remaining data, so that the process itself can end
//! at once, as on the kernel.
//!
//! Decides whether a process may have an heir, and owns the heir's place: a socket name in the
//! network namespace, made of wire and address. The next program on that wire and address waits
//! until the name is free, since two stacks with one address would reset each other's connections.
//! [`heir_unsafe`](crate::heir_unsafe) forks the heir.

use std::os::fd::OwnedFd;

use packetio::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{geteuid, getpid};

use crate::config::Settings;
use crate::limits::{HEIR_LIFE_S, HEIR_MEMORY_BYTES_MAX};

/// Programs that can wait for an heir. Further ones do not wait.
const WAITING_MAX: i32 = 64;

/// Takes the place of an heir. `None`: the process cannot have an heir, and waits for its
/// connections itself.
pub fn place(settings: &Settings) -> Option<OwnedFd> {
    // When the first process of a PID namespace ends, the kernel kills all others in it.
    let is_first = getpid().is_init();
    let bytes = resident_bytes()?;
    if is_first || bytes > HEIR_MEMORY_BYTES_MAX {
        return None;
    }
    let place = socket().ok()?;
    bind(&place, &name(settings)?).ok()?;
    listen(&place, WAITING_MAX).ok()?;
    Some(place)
}

/// Waits for the heir of the previous program on this wire and address.
pub fn await_predecessor(settings: &Settings) {
    let Some(name) = name(settings) else { return };
    let Ok(socket) = socket() else { return };
    // Usually there is no heir.
    if connect(&socket, &name).is_err() {
        return;
    }
    let user = socket_peercred(&socket).map(|peer| peer.uid);
    if !user.is_ok_and(|user| user.is_root() || user == geteuid()) {
        return;
    }
    let time = Timespec {
        tv_sec: i64::from(HEIR_LIFE_S),
        tv_nsec: 0,
    };
    // The heir sends nothing; its end closes the connection. Signal handlers may run meanwhile.
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    while poll(&mut fds, Some(&time)) == Err(Errno::INTR) {}
}

fn socket() -> Result<OwnedFd, Errno> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::STREAM);
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// The name of the place. `None` on wires that a child of `fork` cannot drive, because their memory
/// is not inherited or a thread stands behind them.
fn name(settings: &Settings) -> Option<SocketAddrUnix> {
    let interface = match &settings.wire.backend {
        Backend::Packet(options) => &options.interface,
        Backend::Tap(options) => &options.name,
        _ => return None,
    };
    let address = settings.addresses.first()?.address();
    let name = format!("millstream-heir-{interface}-{address}");
    SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()
}

/// Resident memory of the program, which the heir keeps.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(wire: &str) -> Settings {
        Settings::parse(&format!("wire={wire}\naddr=10.9.8.7/24"), &[]).expect("settings")
    }

    #[test]
    fn place_taken_is_nobody_elses_until_its_end() {
        let name = format!("heir{}", std::process::id() % 100_000);
        let settings = settings(&format!("packet:{name}"));
        await_predecessor(&settings);
        let taken = place(&settings).expect("nobody has it");
        assert!(place(&settings).is_none());
        let waits = std::thread::spawn(move || {
            await_predecessor(&settings);
            place(&settings).is_some()
        });
        drop(taken);
        assert!(waits.join().expect("a look"));
    }

    #[test]
    fn wire_with_memory_or_threads_of_its_own_has_no_heir() {
        for wire in ["xdp:v0", "mux:", "memif:/run/m.sock", "loopback"] {
            assert!(place(&settings(wire)).is_none(), "{wire}");
        }
    }
}
