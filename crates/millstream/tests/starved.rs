//! A process without a free descriptor: its open connections continue. The limit belongs to the
//! process, so this file has one test only.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::{CLIENT, config, server_addr, unique};
use millstream::{Crank, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpStream, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Leaves the process without a free descriptor, until the files are dropped and the limit is
/// restored.
fn starve() -> Vec<File> {
    let files: Vec<File> = (0..64)
        .map(|_| File::open("/dev/null").expect("a descriptor"))
        .collect();
    // Every lower number is taken by now.
    let highest = files.iter().map(|file| file.as_raw_fd()).max();
    let starved = Rlimit {
        current: highest.map(|highest| highest as u64 + 1),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, starved).expect("a lower limit");
    assert!(File::open("/dev/null").is_err());
    files
}

#[test]
fn server_that_is_away_and_has_no_descriptor_left_is_stood_in_for() {
    let wire = format!("loopback:{}", unique("starved"));
    let server = Runtime::new(config(&wire, "10.9.0.1/24", Crank::Inline)).unwrap();
    let client = Runtime::new(config(&wire, CLIENT, Crank::Dedicated)).unwrap();
    let (left, has_left) = channel();
    let (done, is_done) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let context = server.context(0).unwrap();
            let listener = TcpListener::bind(&context, server_addr()).unwrap();
            let mut poll = Poll::new(&context);
            poll.register(&listener, Token(0), Interest::READABLE, Mode::Level)
                .unwrap();
            // After the first wait the watchdog is disarmed; during the second it sleeps without
            // descriptors.
            for timeout in [50, 500] {
                poll.wait(
                    &mut Events::with_capacity(4),
                    Some(Duration::from_millis(timeout)),
                )
                .unwrap();
            }
            left.send(()).unwrap();
            is_done.recv().unwrap();
        });
        let context = client.context(0).unwrap();
        thread::sleep(Duration::from_millis(300));
        let before = getrlimit(Resource::Nofile);
        let files = starve();
        has_left.recv().unwrap();
        thread::sleep(Duration::from_millis(100));
        let patience = Duration::from_secs(30);
        let connected = TcpStream::connect_timeout(&context, server_addr(), patience).map(drop);
        drop(files);
        setrlimit(Resource::Nofile, before).unwrap();
        done.send(()).unwrap();
        connected.unwrap();
    });
}
