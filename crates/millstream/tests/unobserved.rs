//! A program that other processes cannot observe logs its rare events.

mod common;

use std::time::{Duration, Instant};

use common::log;
use millstream::{Config, Observe, Runtime, TcpStream};

/// Longer than requests to a neighbour and the interval between looks for events.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn unobserved_program_logs_a_neighbour_that_does_not_answer() {
    log::keep();
    let wire = format!("loopback:unobserved-{}", std::process::id());
    let mut config = Config::new(wire.parse().unwrap());
    config.addresses.push("10.0.0.1/24".parse().unwrap());
    config.observe = Observe::Off;
    let runtime = Runtime::new(config).unwrap();
    let context = runtime.context(0).unwrap();
    let peer = "10.0.0.9:80".parse().unwrap();
    assert!(
        TcpStream::connect(&context, peer).is_err(),
        "nobody is there"
    );
    let begin = Instant::now();
    loop {
        context.turn().unwrap();
        if let Some(fields) = log::logged("neighbour_unreachable").first() {
            assert_eq!(fields["count"], "1");
            assert!(
                fields["message"].contains("does not answer: look whether"),
                "{fields:?}"
            );
            return;
        }
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}
