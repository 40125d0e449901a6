//! Raw frames through AF_XDP over a veth pair: both directions, both modes, several queues, and
//! which frames the program takes.

mod xdp_support;

use packetio::xdp::{Take, XdpInterface, XdpMode, XdpOptions};
use packetio::{ChecksumPolicy, Port as _};
use xdp_support::{
    FAR, KERNEL, Lab, NEAR, OURS, PATIENCE, SILENCE, assert_nothing_lost, frame, frames, near,
    packet, receive, send_all,
};

fn frames_pass_both_ways(label: &str, mode: XdpMode) {
    let Some(lab) = Lab::new(label, 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let interface = near(mode);
    assert_eq!(interface.mode(), mode);
    let mut port = interface.port(0).unwrap();
    assert!(!port.is_zerocopy(), "veth has no zero copy");
    let capabilities = port.capabilities();
    assert_eq!(capabilities.mtu, 1500);
    assert_eq!(capabilities.rx_checksum, ChecksumPolicy::AcceptPartial);
    assert_eq!(capabilities.name, format!("xdp:{NEAR}"));

    let sent = frames(OURS, 300);
    for chunk in sent.chunks(64) {
        send_all(&mut far, chunk);
        assert_eq!(receive(&mut port, chunk.len(), PATIENCE), chunk);
    }
    for chunk in sent.chunks(150) {
        send_all(&mut port, chunk);
        assert_eq!(receive(&mut far, chunk.len(), PATIENCE), chunk);
    }
    port.refresh_counters();
    let counters = port.counters();
    let bytes = sent.iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!((counters.rx_frames, counters.rx_bytes), (300, bytes));
    assert_eq!((counters.tx_frames, counters.tx_bytes), (300, bytes));
    assert_nothing_lost(&counters);
}

#[test]
fn native_frames_pass_both_ways() {
    frames_pass_both_ways("native", XdpMode::Native);
}

#[test]
fn generic_frames_pass_both_ways() {
    frames_pass_both_ways("generic", XdpMode::Generic);
}

#[test]
fn rings_go_round_many_times() {
    let Some(lab) = Lab::new("round", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let interface = near(XdpMode::Native);
    let mut port = interface.port(0).unwrap();
    for round in 0..200u32 {
        let sent: Vec<_> = (0..64).map(|i| frame(OURS, round * 64 + i, 60)).collect();
        send_all(&mut far, &sent);
        assert_eq!(receive(&mut port, 64, PATIENCE), sent);
        send_all(&mut port, &sent);
        assert_eq!(receive(&mut far, 64, PATIENCE), sent);
    }
    port.refresh_counters();
    assert_nothing_lost(&port.counters());
}

#[test]
fn frames_for_others_go_to_the_kernel() {
    for (label, mode) in [("otherN", XdpMode::Native), ("otherG", XdpMode::Generic)] {
        let Some(lab) = Lab::new(label, 1) else {
            return;
        };
        let mut far = lab.far_packet();
        let interface = near(mode);
        let mut port = interface.port(0).unwrap();
        // A raw socket receives what the program leaves to the kernel.
        let mut kernel = packet(NEAR);
        let (ours, theirs) = (frames(OURS, 20), frames(KERNEL, 20));
        let mixed = ours.iter().zip(&theirs).flat_map(|(a, b)| [a, b]);
        let mixed: Vec<_> = mixed.cloned().collect();
        send_all(&mut far, &mixed);
        assert_eq!(receive(&mut port, 20, PATIENCE), ours);
        assert_eq!(receive(&mut kernel, 20, PATIENCE), theirs);
        assert!(receive(&mut kernel, 1, SILENCE).is_empty());

        // The owned addresses change while the port is open.
        packetio::xdp::set_owned(NEAR, &[KERNEL.into()]).unwrap();
        assert_eq!(interface.owned(), [std::net::IpAddr::from(KERNEL)]);
        send_all(&mut far, &mixed);
        assert_eq!(receive(&mut port, 20, PATIENCE), theirs);
        assert_eq!(receive(&mut kernel, 20, PATIENCE), ours);
    }
}

#[test]
fn take_all_takes_all() {
    let Some(lab) = Lab::new("all", 1) else {
        return;
    };
    let mut far = lab.far_packet();
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        take: Take::All,
        ..XdpOptions::default()
    };
    let mut port = packetio::xdp::open(&options, 0).unwrap();
    let mut kernel = packet(NEAR);
    let mut sent = frames(KERNEL, 20);
    sent.push([&[0xff; 12], &[0x88, 0xcc][..], &[0; 46]].concat()); // LLDP
    send_all(&mut far, &sent);
    assert_eq!(receive(&mut *port, sent.len(), PATIENCE), sent);
    assert!(receive(&mut kernel, 1, SILENCE).is_empty());
}

#[test]
fn each_queue_has_its_port() {
    const QUEUES: usize = 4;
    let Some(lab) = Lab::new("queues", QUEUES) else {
        return;
    };
    lab.enter_far();
    let options = XdpOptions {
        interface: FAR.to_owned(),
        ..XdpOptions::default()
    };
    let far = XdpInterface::open(&options, &[]).unwrap();
    let mut far_ports: Vec<_> = (0..far.queues()).map(|n| far.port(n).unwrap()).collect();
    lab.enter_near();
    let interface = near(XdpMode::Native);
    assert_eq!(interface.queues(), QUEUES);
    let mut ports: Vec<_> = (0..interface.queues())
        .map(|n| interface.port(n).unwrap())
        .collect();
    assert!(interface.port(QUEUES).is_err());

    // veth delivers frames sent by queue k to the peer's queue k.
    for (k, sender) in far_ports.iter_mut().enumerate() {
        let sent: Vec<_> = (0..50)
            .map(|i| frame(OURS, (k * 50) as u32 + i, 100))
            .collect();
        send_all(sender, &sent);
        assert_eq!(receive(&mut ports[k], 50, PATIENCE), sent);
        for (other, port) in ports.iter_mut().enumerate() {
            assert!(receive(port, 1, SILENCE / 10).is_empty(), "queue {other}");
        }
    }
    assert_eq!(interface.frames_without_port(), 0);

    // Frames of a queue without a port go to the kernel and are counted. The queue can be opened
    // again at once.
    drop(ports.pop());
    let mut kernel = packet(NEAR);
    let sent = frames(OURS, 10);
    send_all(&mut far_ports[QUEUES - 1], &sent);
    assert_eq!(receive(&mut kernel, 10, PATIENCE), sent);
    assert_eq!(interface.frames_without_port(), 10);
    let mut port = interface.port(QUEUES - 1).unwrap();
    send_all(&mut far_ports[QUEUES - 1], &sent);
    assert_eq!(receive(&mut port, 10, PATIENCE), sent);
}

#[test]
fn odd_requests_are_refused_in_one_line() {
    let Some(lab) = Lab::new("odd", 2) else {
        return;
    };
    let named = |interface: &str| XdpOptions {
        interface: interface.to_owned(),
        ..XdpOptions::default()
    };
    let refused = |options: &XdpOptions| {
        let error = XdpInterface::open(options, &[]).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    assert!(refused(&named("nosuch0")).contains("xdp:nosuch0"));
    assert!(refused(&named("")).contains("interface name"));
    assert!(refused(&named("a-name-that-is-much-too-long")).contains("interface name"));
    let mut too_many = named(NEAR);
    too_many.queues = Some(3);
    assert!(refused(&too_many).contains("the interface has 2"));
    too_many.queue = Some(usize::MAX);
    assert!(refused(&too_many).contains("the interface has 2"));

    let interface = near(XdpMode::Generic);
    let mut other = named(NEAR);
    other.mode = XdpMode::Native;
    assert!(refused(&other).contains("another mode"));
    for bad in ["0.0.0.0", "224.0.0.1", "ff02::1", "::"] {
        let error = interface.set_owned(&[bad.parse().unwrap()]).unwrap_err();
        assert!(error.to_string().contains(bad), "{error}");
    }
    assert_eq!(interface.owned(), [std::net::IpAddr::from(OURS)]);
    assert!(packetio::xdp::set_owned("lo", &[]).is_err());
    drop(lab);
}
