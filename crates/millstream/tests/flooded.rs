//! A reader that asks without pause makes a process neither log nor answer without end.

mod common;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use common::{log, unique};
use millstream::{Config, Observe, Runtime, TcpListener, TcpStream};
use observe::client::Client;
use observe::place;

/// Longer than two looks for rare events, which are a second apart.
const LENGTH: Duration = Duration::from_millis(2_500);

/// Asks for fresh values until `stop` is dropped; how often it was answered.
fn flood(path: &std::path::Path, stop: &Receiver<()>) -> u32 {
    let mut client = Client::connect(path).unwrap();
    let slot = client.statistics().unwrap().contexts(&[])[0].slot;
    let mut answered = 0;
    while stop.try_recv() != Err(TryRecvError::Disconnected) {
        client.publish(slot).unwrap();
        answered += 1;
    }
    answered
}

#[test]
fn context_that_is_asked_without_pause_logs_an_event_once_a_second() {
    log::keep();
    let directory = std::env::temp_dir().join(unique("flooded"));
    let mut config = Config::new(format!("loopback:{}", unique("flooded")).parse().unwrap());
    config.addresses.push("10.0.0.1/24".parse().unwrap());
    config.observe = Observe::In(directory.clone());
    let context = Runtime::new(config).unwrap().context(0).unwrap();
    let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let listener = TcpListener::builder(&context).backlog(1).bind(address);
    let _listener = listener.unwrap();
    let path = place::socket_path(&directory, std::process::id());
    let (running, stop) = channel();
    let reader = std::thread::spawn(move || flood(&path, &stop));
    let mut clients = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < LENGTH {
        // Nobody accepts: from the second connection on handshakes find the queue full.
        if clients.len() < 200 {
            clients.push(TcpStream::start_connect(&context, address).unwrap());
        }
        context.turn().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(running);
    while !reader.is_finished() {
        context.turn().unwrap();
    }
    let answered = reader.join().unwrap();
    let told = log::logged("syn_dropped").len() + log::logged("listen_overflow").len();
    assert!(answered > 50, "{answered}");
    // Two kinds of events, and three looks.
    assert!((1..=6).contains(&told), "{told} lines, {answered} answers");
    let _ = std::fs::remove_dir_all(&directory);
}
