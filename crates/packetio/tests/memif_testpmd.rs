//! Memif with DPDK's testpmd as peer, in both roles. Without testpmd the tests are skipped, with
//! the reason printed.
//!
//! On Debian install `dpdk-dev` and `librte-net-memif23`, or set
//! `MILLSTREAM_TESTPMD=/path/to/dpdk-testpmd`.

#[path = "memif_common/mod.rs"]
mod common;
#[path = "memif_common/testpmd.rs"]
mod testpmd;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{fill, options, path, sleep_until_ready};
use packetio::Port;
use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use testpmd::Testpmd;

/// Lets one test run at a time, because each testpmd keeps a core busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const BOTH: [MemifRole; 2] = [MemifRole::Server, MemifRole::Client];

/// Runs `test` with our port in `role`, connected to a testpmd in the other role.
fn with_testpmd(
    name: &str,
    ours: &MemifOptions,
    device: &str,
    arguments: &[&str],
    test: impl FnOnce(&mut MemifPort) -> Option<Box<dyn Fn(&str)>>,
) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let theirs = match ours.role {
        MemifRole::Server => MemifRole::Client,
        MemifRole::Client => MemifRole::Server,
    };
    let path = path(&format!("{name}-{:?}", ours.role).to_lowercase());
    // A testpmd in the client's role looks for its server only once, so our server listens first.
    let mut port = Memif::connect(&MemifOptions {
        path: path.clone(),
        ..ours.clone()
    })
    .unwrap()
    .remove(0);
    let Some(mut testpmd) = Testpmd::start(&path, theirs, device, arguments) else {
        return;
    };
    if !testpmd.connect(&mut port) {
        return;
    }
    let check = test(&mut port);
    if let Some(check) = check {
        check(&testpmd.quit());
    } else {
        drop(testpmd);
    }
    let _ = std::fs::remove_file(path);
}

/// Sends numbered frames to a testpmd that returns each, one window at a time; verifies all bytes
/// and the order.
fn echo(port: &mut MemifPort, frames: u64, length_max: usize, swapped: bool, sleep: bool) {
    const WINDOW: u64 = 200;
    let mut bytes = vec![0; length_max];
    let mut back = vec![0; length_max + 1];
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(90);
    while received < frames {
        assert!(
            Instant::now() < deadline,
            "sent {sent}, received {received} of {frames}: {:?}",
            port.counters()
        );
        let wanted = (frames - sent).min(WINDOW - (sent - received)).min(64) as usize;
        let slots = port.reserve(wanted);
        let count = slots.len();
        for slot in slots {
            let length = fill(&mut bytes, sent, length_max);
            slot.write(0, &bytes[..length]);
            slot.set_len(length);
            sent += 1;
        }
        port.send(count).unwrap();
        let batch = port.receive().unwrap();
        let idle = batch.is_empty() && count == 0;
        for frame in batch {
            let length = fill(&mut bytes, received, length_max);
            if swapped {
                let (to, from) = bytes[..12].split_at_mut(6);
                to.swap_with_slice(from);
            }
            assert_eq!(frame.copy_to(0, &mut back), length, "frame {received}");
            assert!(back[..length] == bytes[..length], "frame {received}");
            received += 1;
        }
        port.release();
        if idle && sleep {
            sleep_until_ready(port, false);
        }
    }
    assert_eq!(
        port.counters().value("memif_rx_dropped_descriptor"),
        Some(0)
    );
    assert_eq!(port.counters().value("memif_rx_dropped_chain"), Some(0));
}

/// Receives `frames` frames of testpmd's txonly generator and verifies each: `length` bytes, IPv4,
/// header checksum, UDP port 9.
fn count(port: &mut MemifPort, frames: u64, length: usize) {
    let mut received = 0;
    let mut bytes = vec![0; length + 1];
    let deadline = Instant::now() + Duration::from_secs(90);
    while received < frames {
        assert!(
            Instant::now() < deadline,
            "received {received} of {frames}: {:?}",
            port.counters()
        );
        for frame in port.receive().unwrap() {
            assert_eq!(frame.copy_to(0, &mut bytes), length);
            assert_eq!(bytes[12..15], [0x08, 0x00, 0x45]);
            assert_eq!(
                usize::from(bytes[16]) << 8 | usize::from(bytes[17]),
                length - 14
            );
            let sum = bytes[14..34]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum::<u32>();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            assert_eq!(bytes[23], 17);
            assert_eq!(bytes[36..38], [0, 9]);
            received += 1;
        }
        port.release();
    }
    assert_eq!(
        port.counters().value("memif_rx_dropped_descriptor"),
        Some(0)
    );
    assert_eq!(port.counters().value("memif_rx_dropped_chain"), Some(0));
}

#[test]
fn testpmd_io_sends_every_frame_back() {
    for role in BOTH {
        with_testpmd(
            "io",
            &MemifOptions { role, ..options() },
            "",
            &["--forward-mode=io"],
            |port| {
                echo(port, 300_000, 1500, false, false);
                None
            },
        );
    }
}

#[test]
fn testpmd_macswap_sends_every_frame_back_to_a_sleeper() {
    for role in BOTH {
        with_testpmd(
            "macswap",
            &MemifOptions { role, ..options() },
            "",
            &["--forward-mode=macswap"],
            |port| {
                echo(port, 50_000, 1500, true, true);
                None
            },
        );
    }
}

#[test]
fn testpmd_txonly_is_counted_and_verified() {
    for role in BOTH {
        with_testpmd(
            "txonly",
            &MemifOptions { role, ..options() },
            "",
            &["--forward-mode=txonly"],
            |port| {
                count(port, 2_000_000, 64);
                None
            },
        );
    }
}

#[test]
fn testpmd_rxonly_counts_what_we_sent() {
    const FRAMES: u64 = 300_000;
    for role in BOTH {
        with_testpmd(
            "rxonly",
            &MemifOptions { role, ..options() },
            "",
            &["--forward-mode=rxonly"],
            |port| {
                let mut bytes = [0; 1000];
                let mut sent = 0;
                let deadline = Instant::now() + Duration::from_secs(60);
                while sent < FRAMES {
                    assert!(Instant::now() < deadline, "sent {sent}");
                    let wanted = (FRAMES - sent).min(64) as usize;
                    let slots = port.reserve(wanted);
                    let count = slots.len();
                    for slot in slots {
                        let length = fill(&mut bytes, sent, 1000);
                        slot.write(0, &bytes[..length]);
                        slot.set_len(length);
                        sent += 1;
                    }
                    port.send(count).unwrap();
                }
                // Once testpmd has read all frames, every slot is free again.
                assert!(common::until(Duration::from_secs(20), || port
                    .reserve(256)
                    .len()
                    == 256));
                std::thread::sleep(Duration::from_millis(300));
                let bytes = port.counters().tx_bytes;
                Some(Box::new(move |output: &str| {
                    assert!(
                        output.contains(&format!("RX-packets: {FRAMES}")),
                        "{bytes} bytes:\n{output}"
                    );
                }))
            },
        );
    }
}

#[test]
fn testpmd_client_with_small_buffers_sends_and_receives_chains() {
    let ours = MemifOptions {
        role: MemifRole::Server,
        ..options()
    };
    let device = ",bsize=512,rsize=9";
    with_testpmd(
        "chain-tx",
        &ours,
        device,
        &["--forward-mode=txonly", "--txpkts=1000"],
        |port| {
            // With two slots per frame the ring never has exactly one free slot: DPDK 22.11 would
            // then run past its end.
            count(port, 100_000, 1000);
            assert!(port.counters().value("memif_rx_chained").unwrap() >= 100_000);
            None
        },
    );
    with_testpmd(
        "chain-io",
        &ours,
        device,
        &["--forward-mode=io", "--burst=16"],
        |port| {
            // All frames have one length, because DPDK 22.11 leaves old NEXT flags on the first
            // descriptor of a frame.
            let mut received = 0;
            let mut back = [0; 2048];
            let deadline = Instant::now() + Duration::from_secs(60);
            while received < 20_000 {
                assert!(
                    Instant::now() < deadline,
                    "received {received}: {:?}",
                    port.counters()
                );
                // There are no slots until testpmd polls its port for the first time.
                let [slot] = port.reserve(1) else {
                    continue;
                };
                slot.write(0, &[received as u8; 1400]);
                slot.set_len(1400);
                port.send(1).unwrap();
                let before = received;
                while received == before && Instant::now() < deadline {
                    for frame in port.receive().unwrap() {
                        assert_eq!(frame.copy_to(0, &mut back), 1400);
                        assert!(back[..1400].iter().all(|&byte| byte == received as u8));
                        received += 1;
                    }
                    port.release();
                }
            }
            assert_eq!(port.counters().value("memif_tx_staged"), Some(20_000));
            None
        },
    );
}

#[test]
fn testpmd_server_restarted_is_found_again() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path("restart");
    let ours = MemifOptions {
        path: path.clone(),
        role: MemifRole::Client,
        ..options()
    };
    let mut port = Memif::connect(&ours).unwrap().remove(0);
    for round in 0..2 {
        let Some(mut testpmd) =
            Testpmd::start(&path, MemifRole::Server, "", &["--forward-mode=io"])
        else {
            return;
        };
        if !testpmd.connect(&mut port) {
            return;
        }
        echo(&mut port, 1_000, 200, false, false);
        drop(testpmd);
        // A killed testpmd leaves its socket file, and a new one cannot listen there.
        let _ = std::fs::remove_file(&path);
        assert!(
            common::until(Duration::from_secs(30), || port.receive().is_err()),
            "round {round}"
        );
    }
}
