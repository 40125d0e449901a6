//! After a crowd of connections has gone, the process holds about as much memory as before, with
//! either crank.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{connect, converse_over, server_addr, unique};
use millstream::{Config, Context, Crank, Limits, TcpListener};

const CROWD: usize = 700;
const CROWDS: usize = 2;
/// Bytes that each client sends before the server reads.
const BYTES_EACH: usize = 16 << 10;
/// Memory that may stay in bytes: chunks in stock, each on a page of its own, on both sides.
const KEPT_BYTES: u64 = 5 << 20;
// A crowd holds more than what may stay, by more than the memory held before it.
const _: () = assert!(CROWD * BYTES_EACH > 2 * KEPT_BYTES as usize);

/// Tests that measure the whole process run one after another.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident bytes of this process's memory files.
fn resident_bytes() -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    let mut kibibytes = 0;
    for line in maps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if is_ours => {
                kibibytes += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
            _ if line.contains('-') => is_ours = line.contains("memfd:millstream"),
            _ => {}
        }
    }
    kibibytes << 10
}

fn returned_bytes(context: &Context) -> u64 {
    let counters = context.counters().unwrap();
    let row = counters
        .iter()
        .find(|(name, _)| *name == "memory_returned_bytes");
    row.unwrap().1
}

fn settings(config: &mut Config) {
    config.return_memory_ns = 100_000_000;
    config.limits = Limits::for_connections(2 * CROWD);
}

/// Reads after all clients have sent, and closes. Stays away while the memory is measured.
fn serve(context: &Context, together: &Barrier) {
    let listener = TcpListener::bind(context, server_addr()).unwrap();
    together.wait();
    for _ in 0..CROWDS {
        let accepted = (0..CROWD).map(|_| listener.accept().unwrap().0);
        let mut streams: Vec<_> = accepted.collect();
        together.wait();
        together.wait();
        let mut bytes = vec![0; BYTES_EACH];
        for stream in &mut streams {
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 7));
        }
        drop(streams);
        together.wait();
        together.wait();
        assert!(returned_bytes(context) > (CROWD * BYTES_EACH / 2) as u64);
    }
}

fn send(context: &Context, together: &Barrier) {
    together.wait();
    for _ in 0..CROWDS {
        let mut streams = Vec::new();
        for _ in 0..CROWD {
            let mut stream = connect(context);
            stream.write_all(&[7; BYTES_EACH]).unwrap();
            streams.push(stream);
        }
        together.wait();
        together.wait();
        for stream in &mut streams {
            // The server has read everything and closed.
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
        drop(streams);
        together.wait();
        together.wait();
    }
}

/// Bytes that the process holds before, during and after each crowd.
fn watch(together: &Barrier) -> (u64, Vec<(u64, u64)>) {
    together.wait();
    let before = resident_bytes();
    let crowds = (0..CROWDS).map(|_| {
        together.wait();
        let full = resident_bytes();
        together.wait();
        together.wait();
        // Only the stacks' threads or the watchdog turn the stacks here.
        let until = Instant::now() + Duration::from_secs(60);
        while resident_bytes() > before + KEPT_BYTES && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        let left = resident_bytes();
        together.wait();
        (full, left)
    });
    let crowds = crowds.collect();
    (before, crowds)
}

fn crowd_that_has_gone_leaves_no_memory_behind(crank: Crank) {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let wire = format!("loopback:{}", unique("returned"));
    let together = Barrier::new(3);
    let (before, crowds) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&together));
        converse_over(
            &wire,
            crank,
            settings,
            |context| serve(context, &together),
            |context| send(context, &together),
        );
        watcher.join().unwrap()
    });
    for (full, left) in crowds {
        println!("before {before}, with the crowd {full}, without it {left}");
        // Part of the memory held before the first crowd may have been returned since.
        assert!(full > (CROWD * BYTES_EACH) as u64);
        assert!(left <= before + KEPT_BYTES);
    }
}

#[test]
fn crowd_that_has_gone_from_an_inline_stack_leaves_no_memory_behind() {
    crowd_that_has_gone_leaves_no_memory_behind(Crank::Inline);
}

#[test]
fn crowd_that_has_gone_from_a_dedicated_stack_leaves_no_memory_behind() {
    crowd_that_has_gone_leaves_no_memory_behind(Crank::Dedicated);
}
