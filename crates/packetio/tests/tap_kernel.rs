//! TAP and packet ports with the kernel as peer: what opening does, and how a port ends. Needs
//! root.

mod netns;

use netns::{Namespace, can_run};
use packetio::{OpenError, Port, PortError, WireSpec, open, wait};

type AnyPort = Box<dyn Port + Send>;

fn try_open(spec: &str, queue: usize) -> Result<AnyPort, OpenError> {
    let spec: WireSpec = spec.parse().unwrap_or_else(|e| panic!("{e}"));
    open(&spec, queue)
}

fn opened(spec: &str) -> AnyPort {
    try_open(spec, 0).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(spec: &str) -> String {
    match try_open(spec, 0) {
        Ok(_) => panic!("{spec} was opened"),
        Err(e) => e.to_string(),
    }
}

/// Sends one broadcast frame of an experimental type.
fn send_one(port: &mut AnyPort) {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&port.capabilities().mac.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let slots = port.reserve(1);
    slots[0].set_len(slots[0].write(0, &frame));
    port.send(1).expect("sent");
}

#[test]
fn tap_opened_has_the_mtu_asked_for_and_is_up_only_if_asked() {
    if !can_run("tap_opened_has_the_mtu_asked_for_and_is_up_only_if_asked") {
        return;
    }
    let space = Namespace::new("tap");
    let plain = space.inside(|| opened("tap:t0"));
    let shaped = space.inside(|| opened("tap:t1,mtu=9000,up=yes,mac=02:00:00:00:00:07"));
    assert_eq!(plain.capabilities().mtu, 1500);
    assert_eq!(shaped.capabilities().mtu, 9000);
    assert_eq!(shaped.capabilities().mac.0, [2, 0, 0, 0, 0, 7]);
    assert!(!space.ip("link show t0").contains("UP"));
    assert!(space.ip("link show t1").contains("UP"));
    // A crowd's frames wait in this queue while the port's owner is away.
    assert!(space.ip("link show t1").contains("qlen 16384"));
    drop((plain, shaped));
    // A child of another test may hold the descriptor a little longer, between its fork and its
    // exec.
    let gone = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        !space.ip("link").contains("t1")
    });
    assert!(gone, "it goes with its port");
}

#[test]
fn tap_link_down_drops_and_counts() {
    if !can_run("tap_link_down_drops_and_counts") {
        return;
    }
    let space = Namespace::new("tap");
    let mut port = space.inside(|| opened("tap:t0"));
    send_one(&mut port);
    assert_eq!(port.counters().value("tap_tx_dropped_link_down"), Some(1));
    space.ip("link set t0 up");
    send_one(&mut port);
    assert_eq!(port.counters().tx_frames, 1);
    let woken = wait(&mut [&mut port], &[], false, Some(30_000_000_000)).expect("slept");
    assert!(woken.port(0), "the kernel announces itself");
    assert!(!port.receive().expect("received").is_empty());
}

#[test]
fn tap_deleted_is_gone() {
    if !can_run("tap_deleted_is_gone") {
        return;
    }
    let space = Namespace::new("tap");
    let mut port = space.inside(|| opened("tap:t0,up=yes"));
    space.ip("link del t0");
    assert_eq!(port.receive().err(), Some(PortError::Gone));
}

#[test]
fn tap_taken_or_missing_is_refused_in_one_line() {
    if !can_run("tap_taken_or_missing_is_refused_in_one_line") {
        return;
    }
    let space = Namespace::new("tap");
    let _held = space.inside(|| opened("tap:t0"));
    let error = space.inside(|| refused("tap:t0"));
    assert!(error.starts_with("tap:t0: TUNSETIFF: "), "{error}");
    let error = space.inside(|| refused("packet:none"));
    assert!(
        error.starts_with("packet:none: find interface: "),
        "{error}"
    );
}

#[test]
fn tap_with_queues_opens_each_once() {
    if !can_run("tap_with_queues_opens_each_once") {
        return;
    }
    let space = Namespace::new("tap");
    let spec = "tap:t0,queues=2,up=yes";
    let first = space.inside(|| opened(spec));
    let second = space
        .inside(|| try_open(spec, 1))
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        (first.capabilities().queue, second.capabilities().queue),
        (0, 1)
    );
    assert!(space.inside(|| try_open(spec, 2)).is_err());
}

#[test]
fn packet_ports_of_a_veth_hear_each_other() {
    if !can_run("packet_ports_of_a_veth_hear_each_other") {
        return;
    }
    let space = veth();
    let (mut a, mut b) = space.inside(|| (opened("packet:v0"), opened("packet:v1")));
    send_one(&mut a);
    assert_eq!(hear(&mut b), Ok(1));
    assert_eq!(
        a.receive().map(|f| f.len()),
        Ok(0),
        "what we send is not heard"
    );
}

/// The owner is away for so long that the socket runs out of room.
#[test]
fn packet_port_left_alone_counts_the_frames_that_found_no_room() {
    const FRAMES_MAX: u32 = 400_000;
    if !can_run("packet_port_left_alone_counts_the_frames_that_found_no_room") {
        return;
    }
    let space = veth();
    let (mut a, b) = space.inside(|| (opened("packet:v0"), opened("packet:v1")));
    let has_lost = |port: &AnyPort| port.counters().value("packet_rx_dropped_no_room") > Some(0);
    let mut sent = 0;
    while !has_lost(&b) {
        assert!(sent < FRAMES_MAX, "the socket has no end");
        (0..1_000).for_each(|_| send_one(&mut a));
        sent += 1_000;
    }
    assert!(sent > 20_000, "it has room for {sent} frames only");
}

/// A namespace with a veth whose ends `v0` and `v1` are up and silent.
fn veth() -> Namespace {
    let space = Namespace::new("veth");
    space.ip("link add v0 type veth peer name v1");
    for device in ["v0", "v1"] {
        space.exec(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        space.ip(&format!("link set {device} up"));
    }
    await_up(&space);
    space
}

/// Waits for a kernel worker to tell an end that the other is up; until then the end drops frames.
fn await_up(space: &Namespace) {
    let is_up = |device| {
        let link = space.ip(&format!("link show {device}"));
        link.contains("state UP")
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !(is_up("v0") && is_up("v1")) {
        assert!(std::time::Instant::now() < until, "both ends are up");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Sleeps and receives until a frame arrives or the port fails.
fn hear(port: &mut AnyPort) -> Result<usize, PortError> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::time::Instant::now() < until {
        wait(&mut [port], &[], false, Some(5_000_000_000)).expect("slept");
        match port.receive()?.len() {
            0 => continue,
            frames => return Ok(frames),
        }
    }
    Ok(0)
}

/// A port whose interface was removed.
fn removed() -> (Namespace, AnyPort) {
    let space = veth();
    let mut port = space.inside(|| opened("packet:v0"));
    // The port has seen the interface down. The kernel reports nothing more when it is removed.
    space.ip("link set v0 down");
    assert_eq!(port.receive().map(|frames| frames.len()), Ok(0));
    space.ip("link del v0");
    (space, port)
}

#[test]
fn packet_interface_removed_is_gone() {
    if !can_run("packet_interface_removed_is_gone") {
        return;
    }
    let (_space, mut port) = removed();
    assert_eq!(hear(&mut port), Err(PortError::Gone));
    assert_eq!(hear(&mut port), Err(PortError::Gone));
}

/// The kernel reports the end before it delivers queued frames.
#[test]
fn packet_interface_removed_with_frames_queued_is_gone() {
    if !can_run("packet_interface_removed_with_frames_queued_is_gone") {
        return;
    }
    let space = veth();
    let (mut a, mut b) = space.inside(|| (opened("packet:v0"), opened("packet:v1")));
    send_one(&mut b);
    wait(&mut [&mut a], &[], false, Some(30_000_000_000)).expect("slept");
    space.ip("link set v0 down");
    assert_eq!(a.receive().map(|frames| frames.len()), Ok(0));
    assert_eq!(a.receive().map(|frames| frames.len()), Ok(1));
    space.ip("link del v0");
    assert_eq!(hear(&mut a), Err(PortError::Gone));
}

#[test]
fn packet_interface_down_for_a_while_serves_again() {
    if !can_run("packet_interface_down_for_a_while_serves_again") {
        return;
    }
    let space = veth();
    let (mut a, mut b) = space.inside(|| (opened("packet:v0"), opened("packet:v1")));
    space.ip("link set v0 down");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert_eq!(a.receive().map(|frames| frames.len()), Ok(0));
    space.ip("link set v0 up");
    await_up(&space);
    send_one(&mut b);
    assert_eq!(hear(&mut a), Ok(1));
}

#[test]
fn packet_interface_removed_what_is_sent_is_counted_and_tells() {
    if !can_run("packet_interface_removed_what_is_sent_is_counted_and_tells") {
        return;
    }
    let (_space, mut port) = removed();
    let slots = port.reserve(2);
    slots.iter().for_each(|slot| slot.set_len(60));
    assert_eq!(port.send(2), Err(PortError::Gone));
    assert_eq!(port.counters().value("packet_tx_dropped_failed"), Some(2));
    assert_eq!(port.receive().err(), Some(PortError::Gone));
}
