//! The data path with `path=memif`: frames from channels are checked as in the kernel, and the
//! NIC's program finds owners.

use std::time::{Duration, Instant};

use packetio::memif::{self, Handover, MemifPort};
use packetio::mux::channel_options;
use packetio::{Capabilities, ChecksumPolicy, Port as _};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::egress::{changed, frames_for_reasons, v4, v6};
use super::*;
use crate::egress::{AddressKind, EgressTable, Owner};

const LONG: Duration = Duration::from_secs(30);

impl Host {
    fn open_memif(&self) -> Dataplane {
        let mut options = self.options();
        options.path = DataPath::Memif;
        let mut plane = Dataplane::open(options).expect("a data path");
        let broadcast = Some(IpAddr::from([10, 0, 0, 255]));
        plane.address_add(OURS.into(), broadcast).unwrap();
        plane.address_add("fd00::1".parse().unwrap(), None).unwrap();
        plane.next_hop_set(GATEWAY, true).unwrap();
        plane
    }
}

/// An application's end of its channel.
fn join(plane: &Dataplane, socket: OwnedFd) -> MemifPort {
    let capabilities = Capabilities {
        mac: plane.nic().mac,
        mtu: 1500,
        rx_checksum: ChecksumPolicy::AcceptPartial,
        tx_checksum_offload: false,
        segment_bytes_max: 0,
        batch_max: 0,
        name: "application".to_owned(),
        queue: 0,
    };
    let handover = Handover::default();
    handover.put(socket);
    let mut port = memif::join(&handover, &channel_options(1500, None, 1), capabilities).unwrap();
    until("the channel is up", || {
        let _ = port.receive().map(|_| ());
        port.is_connected()
    });
    port
}

fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn send(port: &mut MemifPort, frame: &[u8]) {
    until("room in the ring", || match port.reserve(1).first() {
        Some(slot) => {
            slot.set_len(slot.write(0, frame));
            port.send(1).unwrap();
            true
        }
        None => false,
    });
}

/// Number of application 0's frames that were sent or dropped so far.
fn seen(counters: &DeviceCounters) -> u64 {
    counters.tx_frames + counters.drops.iter().sum::<u64>()
}

/// The two applications of the XDP program's tests, with channels: the first one's port, and the
/// twin's table.
fn bench(plane: &mut Dataplane) -> (MemifPort, EgressTable) {
    let port = plane.channel_add(0, 0).unwrap();
    let port = join(plane, port.socket);
    drop(plane.channel_add(1, 0).unwrap());
    let endpoints: [(SocketAddr, u16); 3] = [
        ("0.0.0.0:80".parse().unwrap(), 0),
        ("[fd00::1]:443".parse().unwrap(), 0),
        ("10.0.0.1:81".parse().unwrap(), 1),
    ];
    let mut table = EgressTable::new(plane.nic().mac, 1500);
    for (endpoint, slot) in endpoints {
        plane.claim_set(endpoint, slot, &[0]).unwrap();
        let tracks = false;
        table.claims.insert(endpoint, Owner { slot, tracks });
    }
    for (leased, slot) in [(20_000, 0), (20_001, 1)] {
        plane.lease_add(leased..=leased, slot, 0).unwrap();
        table.leases.insert(leased, slot);
    }
    table.next_hops.insert(GATEWAY);
    table.addresses = [
        (OURS.into(), AddressKind::Local),
        ("10.0.0.255".parse().unwrap(), AddressKind::Broadcast),
        ("fd00::1".parse().unwrap(), AddressKind::Local),
    ]
    .into_iter()
    .collect();
    (port, table)
}

#[test]
fn each_reason_to_drop_has_its_counter_on_a_channel() {
    let Some(host) = Host::enter("mreasons") else {
        return;
    };
    let mut plane = host.open_memif();
    let (mut port, _) = bench(&mut plane);
    let mac = plane.nic().mac;
    let too_long = v4(mac, 80, 1461);
    for (frame, reason) in frames_for_reasons(mac) {
        let before = plane.counters(0, 0);
        send(&mut port, &frame);
        until("it is counted", || {
            seen(&plane.counters(0, 0)) > seen(&before)
        });
        let after = plane.counters(0, 0);
        let mut wanted = before.drops.clone();
        wanted[reason as usize] += 1;
        assert_eq!(after.drops, wanted, "{reason:?} {frame:x?}");
        assert_eq!(after.tx_frames, 0);
    }
    assert!(too_long.len() > 1514);
    for (right, frames) in [v4(mac, 80, 1460), v6(mac, 443, 0), v4(mac, 20_000, 5)]
        .iter()
        .zip(1..)
    {
        send(&mut port, right);
        until("it left", || plane.counters(0, 0).tx_frames == frames);
    }
    plane.close();
}

#[test]
fn channel_and_twin_agree_on_generated_frames() {
    let Some(host) = Host::enter("mtwins") else {
        return;
    };
    let mut plane = host.open_memif();
    let (mut port, table) = bench(&mut plane);
    let mac = plane.nic().mac;
    let frames = (
        any::<bool>(),
        prop_oneof![Just(80u16), Just(81), Just(443), Just(20_001), any::<u16>()],
        0usize..1400,
        proptest::collection::vec((0usize..90, any::<u8>()), 0..3),
    );
    let mut runner = TestRunner::deterministic();
    let mut wanted = vec![0; Reason::ALL.len()];
    let mut passes = 0;
    for _ in 0..2000 {
        let tree = frames.new_tree(&mut runner).unwrap();
        let (is_v4, from, payload, changes) = tree.current();
        let mut frame = match is_v4 {
            true => v4(mac, from, payload),
            false => v6(mac, from, payload),
        };
        for (at, byte) in changes {
            if at < frame.len() {
                frame = changed(frame, at, &[byte]);
            }
        }
        match table.check(&frame, 0, 0) {
            Ok(()) => passes += 1,
            Err(reason) => wanted[reason as usize] += 1,
        }
        send(&mut port, &frame);
    }
    until("all are counted", || seen(&plane.counters(0, 0)) == 2000);
    let counters = plane.counters(0, 0);
    assert_eq!((counters.drops, counters.tx_frames), (wanted, passes));
    assert!(passes > 100);
    plane.close();
}

#[test]
fn program_names_the_owner_of_a_frame_for_the_nic() {
    let Some(host) = Host::enter("mowner") else {
        return;
    };
    let mut plane = host.open_memif();
    let (_port, _) = bench(&mut plane);
    let program = |plane: &Dataplane, frame: &[u8]| {
        bpf::dry_run(plane.maps.switch.as_fd(), frame, 0).unwrap()
    };
    let to = |port: u16| {
        let endpoint = SocketAddr::new(OURS.into(), port);
        let mut frame = check::segment(IpAddr::from([10, 0, 0, 2]), endpoint);
        frame[..6].copy_from_slice(&plane.nic().mac.0);
        frame
    };
    let (owned, unowned) = (to(80), to(82));
    assert_eq!(program(&plane, &owned), REDIRECT);
    assert_eq!(program(&plane, &unowned), PASS);
    // A frame for another MAC address is nobody's, but the kernel must not see it: while the
    // interface's address changes, it would reset a connection of the owner.
    for (at, byte) in [(0, 1), (5, 0x55)] {
        let mut other = owned.clone();
        other[at] ^= byte;
        let before = plane.ingress_counters().no_port;
        assert_eq!(program(&plane, &other), DROP);
        assert_eq!(plane.ingress_counters().no_port, before + 1);
        let mut other = unowned.clone();
        other[at] ^= byte;
        assert_eq!(program(&plane, &other), PASS);
    }
    // The second application has hung up, which is the check's only finding.
    until("all else is right", || {
        let hops = plane.check_hops();
        let wrong = hops.iter().filter(|(_, outcome)| outcome.is_err());
        let wrong: Vec<&str> = wrong.map(|(name, _)| name.as_str()).collect();
        wrong == ["application 1 context 0: channel"]
    });
    // Without a service there is no socket, and owned frames must not reach the kernel.
    plane.frames = None;
    assert_eq!(program(&plane, &owned), DROP);
    plane.close();
}

#[test]
fn service_takes_over_a_path_and_refuses_another() {
    let Some(host) = Host::enter("mpath") else {
        return;
    };
    let mut plane = host.open_memif();
    let made = plane.channel_add(3, 1).unwrap();
    assert_eq!(
        plane
            .port_add(0, 0, &memory().0, memory().1.as_fd())
            .unwrap_err()
            .errno(),
        Errno::OPNOTSUPP
    );
    drop(plane);
    let refused = |path| {
        let mut options = host.options();
        options.path = path;
        Dataplane::open(options).unwrap_err().to_string()
    };
    assert!(refused(DataPath::Veth).contains("path=memif"));
    let mut options = host.options();
    options.path = DataPath::Auto;
    let mut plane = Dataplane::open(options).unwrap();
    let recovered = RecoveredPort {
        slot: 3,
        context: 1,
        cookie: made.cookie,
    };
    assert_eq!(plane.recovered(), [recovered]);
    // The context gets a new channel, which identifies it from now on.
    let again = plane.channel_add(3, 1).unwrap();
    assert_ne!(again.cookie, made.cookie);
    join(&plane, again.socket);
    plane.close();
    // A veth copies frames, so `auto` does not choose memif.
    let mut options = host.options();
    options.path = DataPath::Auto;
    let mut plane = Dataplane::open(options).unwrap();
    assert!(plane.channel_add(0, 0).is_err());
    drop(add_port(&mut plane, 0, 0));
    drop(plane);
    assert!(refused(DataPath::Memif).contains("path=veth"));
    host.open().close();
}
