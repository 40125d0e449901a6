//! Two kernels in separate namespaces, joined by a bridge with TAPs or veths and a faulty wire
//! between them. Needs root.

mod netns;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netns::{Namespace, can_run};
use packetio::bridge::{Bridge, BridgeStats, StopFlag};
use packetio::fault::{FaultOptions, LineOptions, Ratio};
use packetio::{Port, PortCounters, WireSpec, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

type AnyPort = Box<dyn Port + Send>;

const NEAR: [&str; 2] = ["10.77.0.1", "fd77::1"];
const FAR: [&str; 2] = ["10.77.0.2", "fd77::2"];
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of a bridge that has ended.
struct Ended {
    stats: BridgeStats,
    counters: (PortCounters, PortCounters),
    cpu_ns: i64,
}

/// A bridge on its own thread, which ends when the value is dropped.
struct Running {
    stop: StopFlag,
    thread: Option<JoinHandle<Ended>>,
}

impl Running {
    fn start(a: AnyPort, b: AnyPort, faults: &FaultOptions) -> Self {
        let stop = StopFlag::new().expect("eventfd");
        let mut bridge = Bridge::new(a, b, faults);
        let flag = stop.clone();
        let thread = thread::spawn(move || {
            bridge.run(flag.as_fd()).expect("bridge");
            let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Ended {
                stats: bridge.stats(),
                counters: bridge.port_counters(),
                cpu_ns: cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec,
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> Ended {
        self.stop.raise();
        let ended = self.thread.take().expect("once").join().expect("bridge");
        println!("a to b: {}", ended.stats.a_to_b);
        println!("b to a: {}", ended.stats.b_to_a);
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn opened(spec: &str) -> AnyPort {
    let spec: WireSpec = spec.parse().unwrap_or_else(|e| panic!("{e}"));
    open(&spec, 0).unwrap_or_else(|e| panic!("{e}"))
}

fn configure(space: &Namespace, device: &str, addresses: &[&str; 2]) {
    let [v4, v6] = addresses;
    space.ip(&format!("addr add {v4}/24 dev {device}"));
    space.ip(&format!("addr add {v6}/64 dev {device} nodad"));
    space.ip(&format!("link set {device} up"));
}

/// A kernel with a TAP, and the port at the TAP's other end.
fn tap_host(what: &str, addresses: &[&str; 2]) -> (Namespace, AnyPort) {
    let space = Namespace::new(what);
    let port = space.inside(|| opened("tap:t0,up=yes"));
    configure(&space, "t0", addresses);
    (space, port)
}

/// A kernel with a veth, and a packet port on its other end in `middle`.
fn veth_host(middle: &Namespace, what: &str, addresses: &[&str; 2]) -> (Namespace, AnyPort) {
    let space = Namespace::new(what);
    let (name, middle_name) = (&space.name, &middle.name);
    middle.ip(&format!(
        "link add {what} type veth peer name v0 netns {name}"
    ));
    netns::run(&format!(
        "ip netns exec {middle_name} sysctl -qw net.ipv6.conf.{what}.disable_ipv6=1"
    ));
    middle.ip(&format!("link set {what} up"));
    configure(&space, "v0", addresses);
    let port = middle.inside(|| opened(&format!("packet:{what}")));
    (space, port)
}

/// Sends one ICMP echo; returns the round-trip time, or `None` after `patience`.
fn ping(from: &Namespace, to: &str, patience: Duration) -> Option<Duration> {
    let to = SocketAddrV4::new(to.parse().expect("address"), 0);
    from.inside(|| {
        let fd =
            socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).expect("raw socket");
        let mut echo = [8, 0, 0, 0, 0x12, 0x34, 0, 1, b'm', b'i', b'l', b'l'];
        let checksum = wire::checksum::of(&echo).finish();
        echo[2..4].copy_from_slice(&checksum.to_be_bytes());
        let started = Instant::now();
        sendto(&fd, &echo, SendFlags::empty(), &to).expect("sent");
        while let Some(left) = patience.checked_sub(started.elapsed()) {
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).expect("polled");
            let mut reply = [0; 128];
            let (_, n) = recv(&fd, &mut reply, RecvFlags::DONTWAIT).unwrap_or((0, 0));
            if n >= 32 && reply[20] == 0 && reply[24..32] == echo[4..12] {
                return Some(started.elapsed());
            }
        }
        None
    })
}

/// Fills in the stream that `bulk` sends. It depends on the position, so that misplaced bytes show.
fn pattern(at: usize, out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        let at = at + i;
        *byte = (at ^ (at >> 8) ^ (at >> 16)) as u8;
    }
}

/// Sends `bytes` bytes over TCP from one kernel to the other and checks each; returns the time.
fn bulk(from: &Namespace, to: &Namespace, address: &str, bytes: usize) -> Duration {
    let address: IpAddr = address.parse().expect("address");
    let bind = SocketAddr::new(address, 0);
    let listener = to.inside(|| TcpListener::bind(bind)).expect("bound");
    let target = listener.local_addr().expect("address");
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let (mut buffer, mut expected) = (vec![0; 65536], vec![0; 65536]);
        let mut at = 0;
        loop {
            let n = stream.read(&mut buffer).expect("read");
            if n == 0 {
                return at;
            }
            pattern(at, &mut expected[..n]);
            assert!(buffer[..n] == expected[..n], "wrong bytes at {at}");
            at += n;
        }
    });
    let started = Instant::now();
    let mut stream = from
        .inside(|| TcpStream::connect_timeout(&target, PATIENCE))
        .expect("connected");
    stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
    let mut chunk = vec![0; 65536];
    for at in (0..bytes).step_by(chunk.len()) {
        let n = chunk.len().min(bytes - at);
        pattern(at, &mut chunk[..n]);
        stream.write_all(&chunk[..n]).expect("written");
    }
    drop(stream);
    assert_eq!(receiver.join().expect("received"), bytes);
    let took = started.elapsed();
    let rate = bytes as f64 * 8e-6 / took.as_secs_f64();
    println!("{bytes} bytes in {took:?}: {rate:.0} Mbit/s");
    took
}

fn both_ways(line: LineOptions, seed: u64) -> FaultOptions {
    FaultOptions {
        seed,
        rx: line,
        tx: line,
        slots: None,
    }
}

#[test]
fn taps_bridged_with_delay_ping() {
    if !can_run("taps_bridged_with_delay_ping") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (_far, b) = tap_host("far", &FAR);
    let delay = LineOptions {
        delay_ns: 10_000_000,
        ..LineOptions::default()
    };
    let bridge = Running::start(a, b, &both_ways(delay, 1));
    ping(&near, FAR[0], PATIENCE).expect("first, with ARP");
    let rtt = ping(&near, FAR[0], PATIENCE).expect("second");
    assert!(rtt >= Duration::from_millis(20), "{rtt:?}");
    bridge.end();
}

#[test]
fn taps_bridged_with_total_loss_stay_silent() {
    if !can_run("taps_bridged_with_total_loss_stay_silent") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (_far, b) = tap_host("far", &FAR);
    let loss = LineOptions {
        loss: Ratio::ONE,
        ..LineOptions::default()
    };
    let bridge = Running::start(a, b, &both_ways(loss, 1));
    assert_eq!(ping(&near, FAR[0], Duration::from_secs(1)), None);
    let ended = bridge.end();
    assert!(ended.stats.a_to_b.line.lost > 0);
    assert_eq!(ended.stats.b_to_a.tx_frames, 0);
}

#[test]
fn taps_bridged_with_loss_carry_tcp() {
    if !can_run("taps_bridged_with_loss_carry_tcp") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (far, b) = tap_host("far", &FAR);
    let lossy = LineOptions {
        loss: Ratio::from_ppm(10_000),
        delay_ns: 1_000_000,
        ..LineOptions::default()
    };
    let bridge = Running::start(a, b, &both_ways(lossy, 42));
    bulk(&near, &far, FAR[0], 4 << 20);
    bulk(&far, &near, NEAR[1], 4 << 20);
    let ended = bridge.end();
    assert!(ended.stats.a_to_b.line.lost > 10 && ended.stats.b_to_a.line.lost > 10);
}

#[test]
fn taps_bridged_through_a_storm_carry_tcp() {
    if !can_run("taps_bridged_through_a_storm_carry_tcp") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (far, b) = tap_host("far", &FAR);
    let storm = LineOptions {
        loss: Ratio::from_ppm(5_000),
        duplicate: Ratio::from_ppm(20_000),
        reorder: Ratio::from_ppm(20_000),
        corrupt: Ratio::from_ppm(5_000),
        delay_ns: 500_000,
        jitter_ns: 500_000,
        rate_bits: 200_000_000,
        limit_bytes: 0,
    };
    let bridge = Running::start(a, b, &both_ways(storm, 7));
    bulk(&near, &far, FAR[0], 1 << 20);
    let ended = bridge.end();
    let line = ended.stats.a_to_b.line;
    assert!(line.duplicated > 0 && line.reordered > 0 && line.corrupted > 0);
}

#[test]
fn taps_bridged_at_a_rate_do_not_exceed_it() {
    if !can_run("taps_bridged_at_a_rate_do_not_exceed_it") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (far, b) = tap_host("far", &FAR);
    let rate = LineOptions {
        rate_bits: 50_000_000,
        ..LineOptions::default()
    };
    let bridge = Running::start(a, b, &both_ways(rate, 1));
    let took = bulk(&near, &far, FAR[0], 2 << 20);
    // At 50 Mbit/s, 2 MiB take 0.335 s.
    assert!(took >= Duration::from_millis(330), "{took:?}");
    assert!(took < PATIENCE, "{took:?}");
    bridge.end();
}

#[test]
fn veths_bridged_hand_over_whole_frames() {
    if !can_run("veths_bridged_hand_over_whole_frames") {
        return;
    }
    let middle = Namespace::new("middle");
    let (near, a) = veth_host(&middle, "near", &NEAR);
    let (far, b) = veth_host(&middle, "far", &FAR);
    let bridge = Running::start(a, b, &FaultOptions::default());
    ping(&near, FAR[0], PATIENCE).expect("ping");
    bulk(&near, &far, FAR[0], 8 << 20);
    bulk(&far, &near, NEAR[1], 8 << 20);
    let ended = bridge.end();
    for counters in [ended.counters.0, ended.counters.1] {
        println!("{:?}", counters.named());
        assert!(counters.value("packet_rx_segmented") > Some(0));
        assert!(counters.value("packet_rx_checksum_completed") > Some(0));
        assert_eq!(counters.value("packet_rx_dropped_too_long"), Some(0));
        assert_eq!(counters.value("packet_rx_dropped_bad_offload"), Some(0));
    }
}

#[test]
fn veth_bridged_to_a_tap_with_loss_carries_tcp() {
    if !can_run("veth_bridged_to_a_tap_with_loss_carries_tcp") {
        return;
    }
    let middle = Namespace::new("middle");
    let (near, a) = veth_host(&middle, "near", &NEAR);
    let (far, b) = tap_host("far", &FAR);
    let lossy = LineOptions {
        loss: Ratio::from_ppm(5_000),
        ..LineOptions::default()
    };
    let bridge = Running::start(a, b, &both_ways(lossy, 3));
    bulk(&near, &far, FAR[0], 4 << 20);
    bulk(&far, &near, NEAR[0], 4 << 20);
    bridge.end();
}

#[test]
fn taps_bridged_and_idle_use_no_cpu() {
    if !can_run("taps_bridged_and_idle_use_no_cpu") {
        return;
    }
    let (near, a) = tap_host("near", &NEAR);
    let (_far, b) = tap_host("far", &FAR);
    let bridge = Running::start(a, b, &FaultOptions::default());
    ping(&near, FAR[0], PATIENCE).expect("ping");
    thread::sleep(Duration::from_secs(1));
    let ended = bridge.end();
    assert!(ended.cpu_ns < 50_000_000, "{} ns of CPU", ended.cpu_ns);
}
