//! A hostile peer and its bell.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/hostile.rs"]
mod hostile;

use std::time::Duration;

use common::{options, path};
use hostile::{Client, RING_S2C, SLOTS};
use packetio::Port;
use packetio::memif::{Memif, MemifOptions};

/// The peer shares the bell's flags and counter: if it makes the bell blocking and full, a `write`
/// would wait for a reader. The tests in `memif/bell.rs` show that the kernel adds in another way;
/// here the fallback would suffice too.
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
        // The kernel stores fewer results of asynchronous operations than this, and then refuses
        // more until some are fetched.
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
