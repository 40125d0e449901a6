//! The heir of a process that ends before its connections have delivered what they hold: a child
//! that goes on with them, so that the process itself ends at once, as on the kernel.
//!
//! Owns who may have an heir, and the place that an heir takes: a name in the network namespace,
//! for its wire and address. The next program there waits until the name is free, since two stacks
//! with one address would reset each other's connections. What an heir sheds is in
//! [`heir_unsafe`](crate::heir_unsafe).

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

/// The next programs that wait for an heir; more of them look once and go on.
const WAITING_MAX: i32 = 64;

/// Takes the place of an heir. `None`: this process has none, and waits for its connections itself.
pub fn place(settings: &Settings) -> Option<OwnedFd> {
    // The end of the first process of a PID namespace is that of all others.
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

/// Waits for the heir of the program that was on this wire with this address before.
pub fn await_predecessor(settings: &Settings) {
    let Some(name) = name(settings) else { return };
    let Ok(socket) = socket() else { return };
    // Most times nobody is there.
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
    // It says nothing, and its end closes the connection. A signal's handler runs meanwhile.
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    while poll(&mut fds, Some(&time)) == Err(Errno::INTR) {}
}

fn socket() -> Result<OwnedFd, Errno> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::STREAM);
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// The name of the place; `None` on wires that a child of `fork` cannot drive: its memory is not
/// inherited, or a thread stands behind it.
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

/// Memory that the heir keeps: the program's.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(wire: &str) -> Settings {
        Settings::parse(&format!("wire={wire}\naddr=10.9.8.7/24")).expect("settings")
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
