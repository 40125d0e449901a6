//! Holds of places at the service of a `mux` wire: for a listener whose connections are still to
//! come.
//!
//! Owns nothing; the service and its client keep the books. Called for listeners of this process,
//! and before it forks for those that it has inherited.

use packetio::mux::MuxHost;
use posix::Errno;

use crate::handover::Listener;
use crate::marks::{self, Mark};
use crate::{log, memory_unsafe};

/// Holds the places of a listener, which descriptors stand for.
///
/// # Errors
/// The service's; then this process holds none of them.
pub fn hold(host: &MuxHost, key: usize, listener: &Listener) -> Result<(), Errno> {
    let mut held = Vec::new();
    for place in listener.places() {
        let outcome = match listener.is_both {
            true => descriptor_of(key).and_then(|fd| {
                memory_unsafe::with_high_numbers(|| {
                    memory_unsafe::with_borrowed(fd, |socket| host.hold_bound(place, socket))
                })
            }),
            false => host.hold(place),
        };
        if let Err(errno) = outcome {
            log::once(&format!(
                "{place}: `mill mux` refuses the listener: {errno}"
            ));
            for place in held {
                host.let_go(place);
            }
            return Err(errno);
        }
        held.push(place);
    }
    Ok(())
}

/// A descriptor that stands for a socket.
fn descriptor_of(key: usize) -> Result<i32, Errno> {
    let mut all = marks::marked(0, u32::MAX);
    let found =
        all.find(|(_, mark)| matches!(mark, Mark::Socket(of) | Mark::Undecided(of) if *of == key));
    found.map(|(fd, _)| fd).ok_or(Errno::BADF)
}
