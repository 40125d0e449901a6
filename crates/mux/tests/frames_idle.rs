//! The CPU time of idle frames' threads. Alone in its process, since the test measures all such
//! threads.

use std::time::Duration;

use mux::frames::{Flow, FlowBook, Frames};
use packetio::Port;
use packetio::loopback::{Loopback, LoopbackOptions, pair};

#[derive(Debug)]
struct NoBook;

impl FlowBook for NoBook {
    fn half_open(&mut self, _: Flow, _: u16) {}
    fn open(&mut self, _: Flow, _: u16) {}
    fn end(&mut self, _: Flow, _: u16) {}
    fn reset(&mut self, _: Flow, _: u16) {}
}

/// CPU time of the frames' threads of this process so far.
fn cpu_time() -> Duration {
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let ran_ns: u64 = stat.split(' ').next()?.parse().ok()?;
        name.starts_with("mux-frames").then_some(ran_ns)
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let ran_ns: Vec<u64> = tasks.filter_map(of_task).collect();
    assert_eq!(ran_ns.len(), 2, "the threads are not found");
    Duration::from_nanos(ran_ns.iter().sum())
}

#[test]
fn threads_without_frames_take_no_cpu_time() {
    let recorded = (0..2).map(|_| Box::new(NoBook) as Box<dyn FlowBook>);
    let mut frames = Frames::start(recorded.collect()).unwrap();
    let ends = (0..2).map(|_| pair(&LoopbackOptions::default()).unwrap());
    let (nics, mut wires): (Vec<Loopback>, Vec<Loopback>) = ends.unzip();
    frames.set_nic(nics);
    // After a frame the threads look for more for a while.
    for wire in &mut wires {
        let slot = wire.reserve(1).first().expect("room");
        slot.set_len(slot.write(0, &[0; 60]));
        wire.send(1).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu_time();
    std::thread::sleep(Duration::from_millis(400));
    let ran = cpu_time() - before;
    assert!(ran < Duration::from_millis(8), "{ran:?}");
}
