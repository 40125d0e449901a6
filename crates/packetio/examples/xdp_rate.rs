//! Frames per second one way over a veth pair with AF_XDP on both ends, in separate namespaces.
//! Needs root.
//!
//! ```text
//! cargo run --release -p packetio --example xdp_rate -- [native|generic] [frame bytes] [seconds] [received|sent]
//! ```
//!
//! One thread sends as fast as the port takes frames; another receives and looks at the first bytes
//! of each. With `received` (the default) both ends are AF_XDP. With `sent` the far end is the
//! kernel, which drops the frames, so only sending is measured. veth does the receiver's work in
//! the sender's system call, so the figure covers two copies and veth. CPU time per frame is
//! counted by thread and therefore valid on a busy machine too.

#[path = "../tests/xdp_support/mod.rs"]
mod xdp_support;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use packetio::xdp::{Take, XdpInterface, XdpMode, XdpOptions, XdpPort};
use packetio::{Port as _, wait};
use rustix::time::{ClockId, clock_gettime};
use xdp_support::{FAR, Lab, NEAR, OURS, frame};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize| arguments.get(i).map(String::as_str);
    let mode = match argument(0) {
        Some("generic") => XdpMode::Generic,
        _ => XdpMode::Native,
    };
    let bytes: usize = argument(1).map_or(64, |text| text.parse().expect("frame bytes"));
    let seconds: u64 = argument(2).map_or(3, |text| text.parse().expect("seconds"));
    let receives = argument(3) != Some("sent");
    assert!((60..=1514).contains(&bytes), "60 to 1514 frame bytes");

    let Some(lab) = Lab::new("rate", 1) else {
        return;
    };
    let time = Duration::from_secs(seconds);
    let sender = open(NEAR, mode);
    let (start, started) = mpsc::channel();
    lab.enter_far();
    let receiver = receives.then(|| open(FAR, mode));
    lab.enter_near();
    let receiving = thread::spawn(move || {
        start.send(()).expect("the sender waits");
        receiver.map(|port| receive(port, time + Duration::from_millis(200)))
    });
    started.recv().expect("the receiver starts");
    let begin = Instant::now();
    let (sent, send_ns) = send(sender, bytes, time);
    let elapsed = begin.elapsed();
    let received = receiving.join().expect("the receiver ends");
    let rate = |frames: u64| frames as f64 / elapsed.as_secs_f64() / 1e6;
    let each = |ns: u64, frames: u64| ns / frames.max(1);
    println!(
        "{mode:?} {bytes} bytes: {:.3} M frames/s sent, {} ns CPU each",
        rate(sent),
        each(send_ns, sent)
    );
    if let Some((received, receive_ns)) = received {
        println!(
            "  {:.3} M frames/s received, {} ns CPU each, {} lost",
            rate(received),
            each(receive_ns, received),
            sent.saturating_sub(received)
        );
    }
}

fn open(interface: &str, mode: XdpMode) -> XdpPort {
    let options = XdpOptions {
        interface: interface.to_owned(),
        mode,
        take: Take::All,
        ..XdpOptions::default()
    };
    let interface = XdpInterface::open(&options, &[]).expect("open the interface");
    interface.port(0).expect("open the queue")
}

/// The calling thread's CPU time, in ns.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends frames; returns the number that the port took, and the CPU time.
fn send(mut port: XdpPort, bytes: usize, time: Duration) -> (u64, u64) {
    let cpu = cpu_ns();
    let template = frame(OURS, 0, bytes);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let slots = port.reserve(64);
        let n = slots.len();
        for slot in slots {
            slot.write(0, &template);
            slot.set_len(bytes);
        }
        port.send(n).expect("send");
        if n == 0 {
            wait(&mut [&mut port], &[], true, Some(1_000_000)).expect("wait");
        }
    }
    let cpu = cpu_ns() - cpu;
    port.refresh_counters();
    print_counters("sender", &port);
    (port.counters().tx_frames, cpu)
}

/// Receives frames; returns their number, and the CPU time.
fn receive(mut port: XdpPort, time: Duration) -> (u64, u64) {
    let cpu = cpu_ns();
    let begin = Instant::now();
    let mut sum = 0u64;
    while begin.elapsed() < time {
        let batch = port.receive().expect("receive");
        for frame in batch {
            let mut head = [0u8; 42];
            frame.copy_to(0, &mut head);
            sum = sum.wrapping_add(u64::from(head[41]));
        }
        if batch.is_empty() {
            wait(&mut [&mut port], &[], false, Some(1_000_000)).expect("wait");
        }
    }
    std::hint::black_box(sum);
    let cpu = cpu_ns() - cpu;
    port.refresh_counters();
    print_counters("receiver", &port);
    (port.counters().rx_frames, cpu)
}

fn print_counters(end: &str, port: &XdpPort) {
    let counters = port.counters();
    let named = counters.named().iter().filter(|(_, value)| *value > 0);
    println!("{end}: {:?}", named.collect::<Vec<_>>());
}
