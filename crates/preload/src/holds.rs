//! Holds of addresses and ports at the service of a `mux` wire, for listeners that have no
//! connections yet.
//!
//! Owns nothing; the service and its client keep the records. Called for listeners of this process,
//! and before `fork` for inherited ones.

use packetio::mux::MuxHost;
use posix::Errno;

use crate::handover::Listener;
use crate::marks::{self, Mark};
use crate::{log, memory_unsafe};

/// Holds the places of a listener for as long as descriptors of it exist.
///
/// # Errors
/// The service's error. This process then holds none of the places.
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

/// A descriptor of an entry's socket.
fn descriptor_of(key: usize) -> Result<i32, Errno> {
    let mut all = marks::marked(0, u32::MAX);
    let found =
        all.find(|(_, mark)| matches!(mark, Mark::Socket(of) | Mark::Undecided(of) if *of == key));
    found.map(|(fd, _)| fd).ok_or(Errno::BADF)
}
