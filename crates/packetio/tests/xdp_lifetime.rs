//! The life of a port: back-pressure without loss, full rings, a program that goes with its owner,
//! an interface that is removed.

mod xdp_support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use packetio::xdp::XdpMode;
use packetio::{Port as _, PortError, wait};
use xdp_support::{
    LOST_IN_RINGS, Lab, NEAR, OURS, PATIENCE, SILENCE, assert_nothing_lost, frame, frames, near,
    near_with_ring, receive, send_all,
};

/// Set for a child that holds an interface until it is killed.
const HOLD: &str = "MILLSTREAM_TEST_HOLD";

#[test]
fn interface_down_pushes_back_and_loses_nothing() {
    let Some(lab) = Lab::new("down", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let interface = near(XdpMode::Native);
    let mut port = interface.port(0).unwrap();
    lab.ip_near(&["link", "set", NEAR, "down"]);

    let mut sent = Vec::new();
    loop {
        let slots = port.reserve(64);
        if slots.is_empty() {
            break;
        }
        let n = slots.len();
        for slot in slots {
            let bytes = frame(OURS, sent.len() as u32, 60);
            slot.write(0, &bytes);
            slot.set_len(bytes.len());
            sent.push(bytes);
        }
        assert_eq!(port.send(n), Err(PortError::Disconnected));
    }
    assert_eq!(sent.len(), packetio::limits::XDP_TX_SLOTS as usize);
    assert!(port.receive().unwrap().is_empty(), "receiving goes on");
    // The port wants to try again soon; otherwise this call would sleep for a minute.
    let asleep = Instant::now();
    let woken = wait(&mut [&mut port], &[], true, Some(60_000_000_000)).unwrap();
    assert!(woken.port(0), "it wants to try again");
    assert!(asleep.elapsed() < Duration::from_secs(30), "and soon");

    lab.ip_near(&["link", "set", NEAR, "up"]);
    port.receive().unwrap(); // any call tries again
    assert_eq!(receive(&mut far, sent.len(), PATIENCE), sent);
    assert!(receive(&mut far, 1, SILENCE).is_empty());
    assert_eq!(port.reserve(64).len(), 64, "all chunks are back");
    port.refresh_counters();
    let counters = port.counters();
    assert_eq!(counters.tx_frames, sent.len() as u64);
    assert_eq!(counters.value("xdp_tx_pushed_back"), Some(1));
    assert_eq!(counters.value("xdp_tx_refused"), Some(0));
    send_all(&mut port, &sent[..10]);
    assert_eq!(receive(&mut far, 10, PATIENCE), sent[..10]);
}

#[test]
fn slots_reserved_and_not_sent_return() {
    let Some(lab) = Lab::new("slots", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let interface = near(XdpMode::Native);
    let mut port = interface.port(0).unwrap();
    let bytes = frame(OURS, 7, 200);
    for _ in 0..200 {
        assert_eq!(port.reserve(usize::MAX).len(), 64);
        port.send(0).unwrap();
        let slots = port.reserve(64);
        assert!(slots.iter().all(|slot| slot.is_empty()));
        assert_eq!(slots[0].capacity(), 1518);
        assert_eq!(slots[0].write(0, &[0; 4096]), 1518);
        // An empty slot is skipped, a too short frame is dropped, and slots beyond `n` are not
        // sent.
        slots[1].set_len(13);
        slots[2].write(0, &bytes);
        slots[2].set_len(bytes.len());
        slots[3].set_len(60);
        port.send(3).unwrap();
    }
    let sent = vec![bytes; 200];
    assert_eq!(receive(&mut far, 200, PATIENCE), sent);
    assert!(receive(&mut far, 1, SILENCE).is_empty());
    assert_eq!(port.counters().value("xdp_tx_runt"), Some(200));
    assert_eq!(port.counters().tx_frames, 200);
}

#[test]
fn rx_that_ran_full_is_counted_and_goes_on() {
    let Some(lab) = Lab::new("full", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let slots = 1024;
    let interface = near_with_ring(slots as u32);
    let mut port = interface.port(0).unwrap();
    let sent: Vec<_> = (0..slots + 500)
        .map(|i| frame(OURS, i as u32, 60))
        .collect();
    send_all(&mut far, &sent);
    std::thread::sleep(SILENCE);
    assert_eq!(receive(&mut port, sent.len(), SILENCE), sent[..slots]);
    port.refresh_counters();
    let counters = port.counters();
    let lost = LOST_IN_RINGS;
    let lost: u64 = lost.iter().filter_map(|name| counters.value(name)).sum();
    assert!(lost >= 500, "{counters:?}");
    assert!(counters.value("interface_rx_dropped") >= Some(500));
    for chunk in sent.chunks(500) {
        send_all(&mut far, chunk);
        assert_eq!(receive(&mut port, chunk.len(), PATIENCE), chunk);
    }
}

#[test]
fn caller_is_away_while_a_burst_of_3000_frames_comes_and_finds_all_of_them() {
    let Some(lab) = Lab::new("burst", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = near(XdpMode::Native).port(0).unwrap();
    let sent: Vec<_> = (0..3000).map(|i| frame(OURS, i, 60)).collect();
    send_all(&mut far, &sent);
    assert_eq!(receive(&mut port, sent.len(), PATIENCE), sent);
    port.refresh_counters();
    assert_nothing_lost(&port.counters());
}

#[test]
fn rx_drained_while_the_caller_is_busy_keeps_all_frames_in_order() {
    let Some(lab) = Lab::new("drain", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = near_with_ring(256).port(0).unwrap();
    let sent = frames(OURS, 5000);
    for part in sent.chunks(200) {
        send_all(&mut far, part);
        port.drain();
    }
    let early = port.counters().value("xdp_rx_early");
    assert!(early > Some(4000), "{early:?}");
    // More frames arrive while the first ones are read.
    assert_eq!(receive(&mut port, 3200, PATIENCE), sent[..3200]);
    let more = frames(OURS, 200);
    send_all(&mut far, &more);
    let rest = [&sent[3200..], &more].concat();
    assert_eq!(receive(&mut port, rest.len(), PATIENCE), rest);
    port.refresh_counters();
    assert_nothing_lost(&port.counters());
}

#[test]
fn frames_drained_behind_a_batch_that_was_read_follow_it() {
    let Some(lab) = Lab::new("lentdrain", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = near_with_ring(64).port(0).unwrap();
    let sent = frames(OURS, 40);
    send_all(&mut far, &sent[..10]);
    let first = receive(&mut port, 10, PATIENCE);
    send_all(&mut far, &sent[10..]);
    port.drain();
    assert_eq!(port.counters().value("xdp_rx_early"), Some(30));
    assert_eq!(first, sent[..10]);
    assert_eq!(receive(&mut port, 30, PATIENCE), sent[10..]);
}

#[test]
fn store_is_full_leaves_frames_in_the_ring() {
    let Some(lab) = Lab::new("storefull", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let mut port = near_with_ring(2048).port(0).unwrap();
    // A store of 16 MiB holds 11,000 frames of this size.
    let sent: Vec<_> = (0..14_000).map(|i| frame(OURS, i, 1500)).collect();
    let mut held = 0;
    for part in sent.chunks(1000) {
        send_all(&mut far, part);
        held += part.len();
        port.drain();
        if port.counters().value("xdp_rx_store_full") > Some(0) {
            break;
        }
    }
    assert!(held > 10_000 && held < 14_000, "{held}");
    assert_eq!(receive(&mut port, held, PATIENCE), sent[..held]);
    port.refresh_counters();
    let counters = port.counters();
    let lost = LOST_IN_RINGS;
    let lost: u64 = lost.iter().filter_map(|name| counters.value(name)).sum();
    assert_eq!(lost, 0, "{counters:?}");
}

#[test]
fn frames_stay_lent_until_they_are_released() {
    let Some(lab) = Lab::new("lent", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let interface = near(XdpMode::Native);
    let mut port = interface.port(0).unwrap();
    let sent = frames(OURS, 3);
    send_all(&mut far, &sent);
    let woken = wait(&mut [&mut port], &[], false, Some(1_000_000_000)).unwrap();
    assert!(woken.port(0));
    std::thread::sleep(SILENCE);
    // More frames arrive while three are lent; those keep their bytes.
    let batch = port.receive().unwrap();
    send_all(&mut far, &frames(OURS, 500));
    for (lent, sent) in batch.iter().zip(&sent) {
        let mut bytes = vec![0; lent.len()];
        lent.copy_to(0, &mut bytes);
        assert_eq!(&bytes, sent);
        assert!(lent.slice(0, sent.len() + 1).is_none());
    }
    assert_eq!(batch.len(), 3);
    port.release();
    port.release();
    assert_eq!(receive(&mut port, 500, PATIENCE).len(), 500);
    port.refresh_counters();
    assert_nothing_lost(&port.counters());
}

#[test]
fn program_goes_with_the_last_port() {
    let Some(lab) = Lab::new("drop", 2) else {
        return;
    };
    let interface = near(XdpMode::Native);
    assert!(lab.shows_program());
    let first = interface.port(0).unwrap();
    drop(interface);
    assert!(lab.shows_program());
    let second = near(XdpMode::Auto).port(1).unwrap();
    drop(first);
    assert!(lab.shows_program());
    drop(second);
    assert!(!lab.shows_program());
    // Opening again at once, many times: the kernel releases a queue only after a while.
    for mode in [XdpMode::Native, XdpMode::Generic, XdpMode::Auto] {
        let port = near(mode).port(0).unwrap();
        assert!(lab.shows_program());
        drop(port);
        assert!(!lab.shows_program());
    }
}

#[test]
fn a_queue_has_one_port() {
    let Some(_lab) = Lab::new("twice", 1) else {
        return;
    };
    let interface = near(XdpMode::Native);
    let _port = interface.port(0).unwrap();
    let error = interface.port(0).unwrap_err().to_string();
    assert!(error.contains("xdp:mx0 queue 0"), "{error}");
}

#[test]
fn interface_that_goes_away_is_an_error() {
    let Some(lab) = Lab::new("gone", 1) else {
        return;
    };
    let interface = near(XdpMode::Native);
    let mut port = interface.port(0).unwrap();
    lab.ip_near(&["link", "del", NEAR]);
    let woken = wait(&mut [&mut port], &[], false, Some(1_000_000_000)).unwrap();
    assert!(woken.port(0), "it does not sleep on");
    assert_eq!(port.receive().unwrap_err(), PortError::Gone);
    assert_eq!(port.receive().unwrap_err(), PortError::Gone);
    let slots = port.reserve(1);
    slots[0].set_len(60);
    assert_eq!(port.send(1), Err(PortError::Gone));
    assert_eq!(port.counters().rx_frames, 0);
    // Setting addresses cannot fail without an interface.
    interface.set_owned(&[]).unwrap();
}

/// Runs as the child of the next test: holds the interface until it is killed. Without the variable
/// it does nothing.
#[test]
fn holder() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let _port = near(XdpMode::Native).port(0).unwrap();
    println!("\nheld");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn program_goes_with_a_killed_process() {
    let Some(lab) = Lab::new("kill", 1) else {
        return;
    };
    for _ in 0..3 {
        let mut child = lab
            .command_near()
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "holder", "--nocapture"])
            .env(HOLD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let held = output
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "held");
        assert!(held && lab.shows_program());
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while lab.shows_program() {
            assert!(Instant::now() < deadline, "the program outlives its owner");
        }
    }
    // The next owner can open the queue.
    let mut far = lab.far_packet();
    let mut port = near(XdpMode::Native).port(0).unwrap();
    let sent = frames(OURS, 10);
    send_all(&mut far, &sent);
    assert_eq!(receive(&mut port, 10, PATIENCE), sent);
}
