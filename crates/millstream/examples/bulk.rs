//! One flow in one direction, with both ends in one thread over an in-process link: `bulk
//! MEGABYTES`. For counting instructions per byte and segment: `valgrind --tool=callgrind
//! target/release/examples/bulk 64`.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use millstream::{Config, Crank, Limits, Runtime, TcpListener, TcpStream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let megabytes: u64 = std::env::args().nth(1).unwrap_or_default().parse()?;
    let open = |address: &str| -> Result<Runtime, Box<dyn std::error::Error>> {
        let mut config = Config::new("loopback:bulk".parse()?);
        config.crank = Crank::Inline;
        config.addresses.push(address.parse()?);
        config.limits = Limits::for_connections(64);
        config.seed = Some([1, 2, 3, 4]);
        Ok(Runtime::new(config)?)
    };
    let (here, there) = (open("10.9.0.1/24")?, open("10.9.0.2/24")?);
    let (here, there) = (here.context(0)?, there.context(0)?);
    let address: SocketAddr = "10.9.0.1:80".parse()?;
    let listener = TcpListener::bind(&here, address)?;
    listener.set_nonblocking(true);
    let sender = TcpStream::start_connect(&there, address)?;
    sender.set_nonblocking(true);
    let receiver = loop {
        there.turn()?;
        here.turn()?;
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
    };
    receiver.set_nonblocking(true);
    let (mut sender, mut receiver) = (sender, receiver);
    let total = megabytes << 20;
    let (mut sent, mut received) = (0, 0);
    let (bytes, mut buffer) = (vec![7; 65_536], vec![0; 65_536]);
    let begin = Instant::now();
    while received < total {
        while sent < total {
            match sender.write(&bytes) {
                Ok(n) => sent += n as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        there.turn()?;
        here.turn()?;
        loop {
            match receiver.read(&mut buffer) {
                Ok(n) => received += n as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:.2} Gbit/s", received as f64 * 8e-9 / seconds);
    Ok(())
}
