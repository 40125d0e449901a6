//! A server without a free descriptor. The limit applies to the process, so the test has its own.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/hostile.rs"]
mod hostile;

use std::time::Duration;

use common::{options, path, until};
use hostile::{HELLO, Peer};
use packetio::Port;
use packetio::memif::{Memif, MemifOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn server_that_cannot_accept_sleeps_and_greets_its_client_later() {
    let path = path("starved");
    let options = MemifOptions {
        path: path.clone(),
        ..options()
    };
    let mut victim = Memif::connect(&options).unwrap().remove(0);
    let peer = Peer::connect(&path);
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(2),
        ..before
    };
    setrlimit(Resource::Nofile, few).unwrap();
    assert!(victim.receive().unwrap().is_empty());
    let mut woken = 0;
    for _ in 0..5 {
        assert!(!victim.prepare_wait(false));
        woken += u32::from(common::poll(&victim, Duration::from_secs(1)));
        victim.finish_wait();
    }
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(woken <= 1, "who sleeps is woken {woken} times for nothing");
    assert!(until(Duration::from_secs(30), || {
        let _ = victim.receive().map(|_| ());
        peer.has_word()
    }));
    assert_eq!(peer.hear(&mut victim).0, Some(HELLO));
}
