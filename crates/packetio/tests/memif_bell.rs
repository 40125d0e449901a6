//! A peer that does to a bell what it can.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/hostile.rs"]
mod hostile;

use std::time::Duration;

use common::{options, path};
use hostile::{Client, RING_S2C, SLOTS};
use packetio::Port;
use packetio::memif::{Memif, MemifOptions};

/// The bell's flags and counter are the peer's as much as ours: made blocking and full, it would
/// have a `write` wait until somebody reads. (That the kernel adds to it in another way is shown
/// beside `memif/bell.rs`: here what it falls back on would do.)
#[test]
fn bell_that_is_full_and_waits_does_not_hold_up_who_rings_it() {
    let path = path("full-bell");
    let options = MemifOptions {
        path: path.clone(),
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let client = Client::connect(&path, &mut victim);
    let bell = &client.bells[1];
    rustix::fs::fcntl_setfl(bell, rustix::fs::OFlags::empty()).unwrap();
    rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // The kernel remembers fewer results of asynchronous writes than this, and refuses more
        // until somebody has taken them.
        for round in 0..1000 {
            client.memory.set_head(RING_S2C, SLOTS + round);
            let slots = victim.reserve(1);
            slots[0].set_len(slots[0].write(0, &[7; 60]));
            victim.send(1).unwrap();
        }
        done.send(victim.counters().value("memif_tx_bells"))
            .unwrap();
    });
    assert_eq!(
        is_done.recv_timeout(Duration::from_secs(20)),
        Ok(Some(1000))
    );
}
