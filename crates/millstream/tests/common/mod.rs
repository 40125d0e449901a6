//! Two runtimes on one in-process wire, each on a thread of its own.

#![allow(dead_code)] // each test file uses its part

pub mod bytes;
pub mod cpu;
pub mod lab;
pub mod log;
pub mod meet;
pub mod net;
pub mod scenarios;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use millstream::{Config, Context, Crank, Runtime, TcpStream};

/// The two ends of the wire.
pub const SERVER: &str = "10.9.0.1:7000";
pub const CLIENT: &str = "10.9.0.2/24";

pub fn server_addr() -> SocketAddr {
    SERVER.parse().unwrap()
}

/// A name that no other test of this process or another uses.
pub fn unique(name: &str) -> String {
    static COUNT: Mutex<u32> = Mutex::new(0);
    let mut count = COUNT.lock().unwrap_or_else(|e| e.into_inner());
    *count += 1;
    format!("{name}-{}-{count}", std::process::id())
}

/// The configuration of one end.
pub fn config(wire: &str, address: &str, crank: Crank) -> Config {
    let mut config = Config::new(wire.parse().unwrap());
    config.addresses.push(address.parse().unwrap());
    config.crank = crank;
    config.tcp.time_wait_ns = 50_000_000;
    config
}

/// Runs `server` and `client` on two threads, each with a context at its end of a loopback wire,
/// until both return.
pub fn converse(
    crank: Crank,
    server: impl FnOnce(&Context) + Send,
    client: impl FnOnce(&Context) + Send,
) {
    converse_over(
        &format!("loopback:{}", unique("converse")),
        crank,
        |_| (),
        server,
        client,
    );
}

/// Like [`converse`], over any wire that joins two openers, with changed configurations.
pub fn converse_over(
    wire: &str,
    crank: Crank,
    change: impl Fn(&mut Config),
    server: impl FnOnce(&Context) + Send,
    client: impl FnOnce(&Context) + Send,
) {
    let open = |address: &str| {
        let mut config = config(wire, address, crank);
        change(&mut config);
        Runtime::new(config).unwrap()
    };
    let (here, there) = (open("10.9.0.1/24"), open(CLIENT));
    thread::scope(|scope| {
        scope.spawn(move || server(&here.context(0).unwrap()));
        scope.spawn(move || client(&there.context(0).unwrap()));
    });
}

/// Connects to the server of a `converse`, which may not listen yet.
pub fn connect(context: &Context) -> TcpStream {
    for _ in 0..2_000 {
        match TcpStream::connect(context, server_addr()) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome.unwrap(),
        }
    }
    panic!("nobody listens");
}
